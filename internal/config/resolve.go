package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Default gives a node's configuration when nothing is set.
func Default() *Broker {
	b, _, err := Resolve(nil)
	if err != nil {
		panic("config: the defaults don't pass their own checks: " + err.Error())
	}
	return b
}

// FromFile reads the settings of a server.properties file.
func FromFile(file string) ([]Setting, error) {
	props, err := ReadProperties(file)
	if err != nil {
		return nil, err
	}
	out := make([]Setting, 0, len(props))
	for _, p := range props {
		out = append(out, Setting{Key: p.Key, Value: p.Value, Source: SourceFile, File: file, Line: p.Line})
	}
	return out, nil
}

// ParseSet reads the value of a --set flag: key=value.
func ParseSet(arg string) (Setting, error) {
	k, v, ok := strings.Cut(arg, "=")
	if k = strings.TrimSpace(k); !ok || k == "" {
		return Setting{}, fmt.Errorf("--set %q: must be key=value", arg)
	}
	return Flag("--set "+k, k, strings.TrimSpace(v)), nil
}

// Resolve lays the settings over the defaults; of two settings of one key the
// one of the higher source counts, then the later one. All faults are reported
// together: the error joins ValueError, UnknownKeyError and RefusedKeyError.
func Resolve(settings []Setting) (*Broker, []Warning, error) {
	index := keyIndex()
	chosen := make(map[string]Setting)
	var warnings []Warning
	var faults []error
	for _, s := range settings {
		w, err := classify(index, s)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if w != nil {
			warnings = append(warnings, *w)
			continue
		}
		if old, ok := chosen[s.Key]; !ok || old.Source <= s.Source {
			chosen[s.Key] = s
		}
	}
	b := &Broker{settings: chosen}
	for _, k := range tables() {
		if err := b.fill(k); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) == 0 {
		faults = append(faults, b.special()...)
	}
	if len(faults) > 0 {
		return nil, warnings, errors.Join(faults...)
	}
	return b, warnings, nil
}

// classify says whether a setting counts (nil, nil), has no effect, or is a fault.
func classify(index map[string]key, s Setting) (*Warning, error) {
	if reason := refusal(s.Key, s.Value); reason != "" {
		return nil, &RefusedKeyError{Setting: s, Reason: reason}
	}
	if k, ok := index[s.Key]; ok {
		if !k.rule.check(s.Value) {
			return nil, &ValueError{Setting: s, Allowed: k.rule.allowed()}
		}
		return nil, nil
	}
	if reason, ok := ignoredReason(s.Key); ok {
		return &Warning{Setting: s, Message: "has no effect: " + reason}, nil
	}
	return nil, &UnknownKeyError{Setting: s, Nearest: Nearest(s.Key, slices.Collect(maps.Keys(index)))}
}

// fill stores a key's value in its field: the setting, else an alias that is set, else the default.
func (b *Broker) fill(k key) error {
	if k.bind == nil {
		return nil
	}
	text := k.def
	if s, ok := b.settings[k.name]; ok {
		text = s.Value
	} else if a, s, ok := b.aliasOf(k.name); ok {
		text = s.Value
		if n := parseInt(strings.TrimSpace(s.Value)); a.unit > 1 && n >= 0 {
			text = fmt.Sprint(n * a.unit)
		}
	}
	if !k.rule.check(text) {
		return &ValueError{Setting: Setting{Key: k.name, Value: text}, Allowed: k.rule.allowed()}
	}
	store(k.bind(b), text)
	return nil
}

// aliasOf finds the first alias of a key that was set, in the order of the tables (ms before minutes before hours).
func (b *Broker) aliasOf(name string) (key, Setting, bool) {
	for _, a := range tables() {
		if a.alias != name {
			continue
		}
		if s, ok := b.settings[a.name]; ok {
			return a, s, true
		}
	}
	return key{}, Setting{}, false
}

// Setting gives the explicit setting of a key, if there is one.
func (b *Broker) Setting(name string) (Setting, bool) {
	s, ok := b.settings[name]
	return s, ok
}

// text gives a key's effective text and where it comes from.
func (b *Broker) text(k key) Setting {
	if s, ok := b.settings[k.name]; ok {
		return s
	}
	if k.alias == "" {
		if a, s, ok := b.aliasOf(k.name); ok {
			if n := parseInt(strings.TrimSpace(s.Value)); a.unit > 1 && n >= 0 {
				s.Value = fmt.Sprint(n * a.unit)
			}
			return s
		}
	}
	return Setting{Key: k.name, Value: k.def}
}
