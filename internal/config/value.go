package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"tidemark/internal/core/types"
)

// Kind is a config's type as DescribeConfigs names it (ConfigEntry.ConfigType of Kafka's admin client).
type Kind int8

// Kafka's config types, with their numbers on the wire.
const (
	KindUnknown  Kind = 0
	KindBoolean  Kind = 1
	KindString   Kind = 2
	KindInt      Kind = 3
	KindShort    Kind = 4
	KindLong     Kind = 5
	KindDouble   Kind = 6
	KindList     Kind = 7
	KindClass    Kind = 8
	KindPassword Kind = 9
)

// rule is what a key's text may be.
type rule struct {
	kind     Kind
	min, max float64  // inclusive; for numbers. Bounds of int64 are exact enough as float64
	oneOf    []string // for strings and lists; nil: anything
	nonEmpty bool     // for lists
}

func ints(lo, hi int64) rule {
	k := KindLong
	if hi <= math.MaxInt32 {
		k = KindInt
	}
	return rule{kind: k, min: float64(lo), max: float64(hi)}
}

func longs(lo int64) rule  { return rule{kind: KindLong, min: float64(lo), max: math.MaxInt64} }
func int32s(lo int64) rule { return rule{kind: KindInt, min: float64(lo), max: math.MaxInt32} }
func int16s(lo int64) rule { return rule{kind: KindShort, min: float64(lo), max: math.MaxInt16} }

func ratio() rule                 { return rule{kind: KindDouble, min: 0, max: 1} }
func boolean() rule               { return rule{kind: KindBoolean} }
func text() rule                  { return rule{kind: KindString} }
func words(oneOf ...string) rule  { return rule{kind: KindString, oneOf: oneOf} }
func listOf(oneOf ...string) rule { return rule{kind: KindList, oneOf: oneOf} }
func someOf(oneOf ...string) rule { return rule{kind: KindList, oneOf: oneOf, nonEmpty: true} }

// allowed says in words what the rule allows.
func (r rule) allowed() string {
	switch r.kind {
	case KindBoolean:
		return "true or false"
	case KindDouble:
		return fmt.Sprintf("a number from %g to %g", r.min, r.max)
	case KindInt, KindShort, KindLong:
		if r.max == math.MaxInt64 {
			return fmt.Sprintf("an integer of at least %.0f", r.min)
		}
		return fmt.Sprintf("an integer from %.0f to %.0f", r.min, r.max)
	case KindList:
		switch {
		case r.oneOf == nil && r.nonEmpty:
			return "a list separated by commas with at least one member"
		case r.oneOf == nil:
			return "a list separated by commas"
		}
		return "a list of " + strings.Join(r.oneOf, ", ")
	default:
		if r.oneOf == nil {
			return "any text"
		}
		return "one of " + strings.Join(r.oneOf, ", ")
	}
}

// check reports whether the text obeys the rule.
func (r rule) check(s string) bool {
	switch r.kind {
	case KindBoolean:
		_, ok := parseBool(s)
		return ok
	case KindDouble:
		f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		return err == nil && !math.IsNaN(f) && f >= r.min && f <= r.max
	case KindInt, KindShort, KindLong:
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		return err == nil && float64(n) >= r.min && float64(n) <= r.max
	case KindList:
		l := splitList(s)
		if r.nonEmpty && len(l) == 0 {
			return false
		}
		return r.oneOf == nil || !slices.ContainsFunc(l, func(v string) bool { return !slices.Contains(r.oneOf, v) })
	default:
		return r.oneOf == nil || slices.Contains(r.oneOf, strings.TrimSpace(s))
	}
}

// store parses the text into the pointer; the text must have passed check.
func store(dst any, s string) {
	t := strings.TrimSpace(s)
	switch p := dst.(type) {
	case *bool:
		*p, _ = parseBool(s)
	case *string:
		*p = t
	case *[]string:
		*p = splitList(s)
	case *float64:
		*p, _ = strconv.ParseFloat(t, 64)
	case *int16:
		*p = int16(parseInt(t))
	case *int32:
		*p = int32(parseInt(t))
	case *int64:
		*p = parseInt(t)
	case *types.Millis:
		*p = types.Millis(parseInt(t))
	case *types.BrokerID:
		*p = types.BrokerID(parseInt(t))
	default:
		panic(fmt.Sprintf("config: a key is bound to %T", dst))
	}
}

func parseInt(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func parseBool(s string) (value, ok bool) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true":
		return true, true
	case "false":
		return false, true
	default:
		return false, false
	}
}

// splitList splits at commas, trims, and drops empty members, as Kafka's list type does.
func splitList(s string) []string {
	var out []string
	for _, v := range strings.Split(s, ",") {
		if v = strings.TrimSpace(v); v != "" {
			out = append(out, v)
		}
	}
	return out
}
