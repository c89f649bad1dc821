package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tidemark/internal/core/meta"
)

// Alteration says what of a mirror is to be different; nil and empty fields stay as they are.
type Alteration struct {
	Bootstrap []string `json:"bootstrap,omitempty"`
	// ClientConfig replaces all properties of the source's client; nil keeps them.
	ClientConfig map[string]string `json:"clientConfig,omitempty"`
	Topics       *string           `json:"topics,omitempty"`
	Exclude      *string           `json:"exclude,omitempty"`
	Groups       *string           `json:"groups,omitempty"`
	// Settings are set, Unset are settings that go back to the node's.
	Settings map[string]string `json:"settings,omitempty"`
	Unset    []string          `json:"unset,omitempty"`
	// DryRun: only say what would change.
	DryRun bool `json:"dryRun,omitempty"`
}

// Altered says what an alteration changed, or would change. No secret is in it.
type Altered struct {
	DryRun   bool     `json:"dryRun"`
	Changes  []string `json:"changes"`
	Warnings []string `json:"warnings"`
}

// Alter changes what a mirror copies, where from, and how. What it has copied
// already stays: a topic that is left out from now on goes on until it is failed over or deleted.
func (m *Mirrors) Alter(ctx context.Context, name string, a Alteration) (Altered, error) {
	out := Altered{DryRun: a.DryRun}
	change := func(rec *meta.MirrorRecord) error {
		next, err := a.apply(m, rec)
		if err != nil {
			return err
		}
		out.Changes, out.Warnings = differences(rec, &next), m.leftOut(&next)
		*rec = next
		return nil
	}
	if a.DryRun {
		e, ok := m.o.Node.Image().Mirror(name)
		if !ok {
			return out, fmt.Errorf("%w: %s", ErrUnknownMirror, name)
		}
		rec := *e.Record
		err := change(&rec)
		return out.orEmpty(), err
	}
	err := m.update(ctx, name, change)
	if err == nil && len(out.Changes) > 0 {
		m.log.Info("mirror altered", "mirror", name, "changes", strings.Join(out.Changes, "; "))
	}
	return out.orEmpty(), err
}

func (a Altered) orEmpty() Altered {
	if a.Changes == nil {
		a.Changes = []string{}
	}
	if a.Warnings == nil {
		a.Warnings = []string{}
	}
	return a
}

// apply gives the altered record, checked.
func (a *Alteration) apply(m *Mirrors, rec *meta.MirrorRecord) (meta.MirrorRecord, error) {
	s := Spec{
		Name: rec.Name, Bootstrap: rec.Bootstrap, ClientConfig: rec.ClientConfig, Topics: rec.Topics, Exclude: rec.Exclude, Groups: rec.Groups,
		Settings: maps.Clone(rec.Settings),
	}
	if len(a.Bootstrap) > 0 {
		s.Bootstrap = a.Bootstrap
	}
	if a.ClientConfig != nil {
		s.ClientConfig = a.ClientConfig
	}
	for _, f := range []struct{ to, from *string }{{&s.Topics, a.Topics}, {&s.Exclude, a.Exclude}, {&s.Groups, a.Groups}} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if s.Settings == nil {
		s.Settings = map[string]string{}
	}
	maps.Copy(s.Settings, a.Settings)
	for _, key := range a.Unset {
		if _, ok := s.Settings[key]; !ok {
			return *rec, fmt.Errorf("mirror %s: %w: it has no setting %s of its own", rec.Name, ErrSpec, key)
		}
		delete(s.Settings, key)
	}
	want, err := s.record(m.o.Config.Mirror)
	if err != nil {
		return *rec, err
	}
	next := *rec
	next.Bootstrap, next.ClientConfig, next.Settings = want.Bootstrap, want.ClientConfig, want.Settings
	next.Topics, next.Exclude, next.Groups = want.Topics, want.Exclude, want.Groups
	if len(next.Settings) == 0 {
		next.Settings = nil
	}
	return next, nil
}

// differences says in words how two records of a mirror differ; of client properties only the names.
func differences(old, now *meta.MirrorRecord) []string {
	var out []string
	say := func(what, a, b string) {
		if a != b {
			out = append(out, fmt.Sprintf("%s: %q becomes %q", what, a, b))
		}
	}
	say("source", strings.Join(old.Bootstrap, ","), strings.Join(now.Bootstrap, ","))
	say("topics", old.Topics, now.Topics)
	say("exclude", old.Exclude, now.Exclude)
	say("groups", old.Groups, now.Groups)
	for _, key := range bothKeys(old.ClientConfig, now.ClientConfig) {
		if old.ClientConfig[key] != now.ClientConfig[key] {
			out = append(out, "client property "+key+" changes")
		}
	}
	for _, key := range bothKeys(old.Settings, now.Settings) {
		a, had := old.Settings[key]
		b, has := now.Settings[key]
		switch {
		case had && !has:
			out = append(out, fmt.Sprintf("setting %s: %q goes back to the node's", key, a))
		default:
			say("setting "+key, a, b)
		}
	}
	return out
}

func bothKeys(a, b map[string]string) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// leftOut warns of topics that are mirrored and that the filters don't want any more.
func (m *Mirrors) leftOut(rec *meta.MirrorRecord) []string {
	f, err := newFilter(rec)
	if err != nil {
		return nil
	}
	var out []string
	image := m.o.Node.Image()
	for t := range image.TopicsByName() {
		if f.topic(t.Record.Name) {
			continue
		}
		for p := range image.PartitionsOf(t.ID) {
			if p.Record != nil && p.Record.IsMirror() && p.Record.Mirror.Name == rec.Name {
				out = append(out, fmt.Sprintf("topic %s is mirrored already and goes on: fail it over (mirror failover %s --topic %s) or delete it", t.Record.Name, rec.Name, t.Record.Name))
				break
			}
		}
	}
	return out
}
