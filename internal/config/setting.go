package config

import "fmt"

// Source says where a setting came from, in rising order of precedence.
type Source int8

// The sources of settings.
const (
	SourceDefault Source = iota
	SourceFile
	SourceFlag // --set key=value, or a flag of its own
)

// String names the source for messages and `DescribeConfigs`-like listings.
func (s Source) String() string {
	switch s {
	case SourceFile:
		return "file"
	case SourceFlag:
		return "flag"
	default:
		return "default"
	}
}

// Setting is one key with its text and its origin.
type Setting struct {
	Key    string
	Value  string
	Source Source
	File   string // name of the file, or the flag as typed
	Line   int    // line in File, from 1; 0 when File has no lines
}

// Where says the origin in words: file:line, the flag, or "default".
func (s Setting) Where() string {
	switch {
	case s.Line > 0:
		return fmt.Sprintf("%s:%d", s.File, s.Line)
	case s.File != "":
		return s.File
	default:
		return s.Source.String()
	}
}

// Flag makes a setting that a flag on the command line gave, e.g. Flag("--listen", "listeners", v).
func Flag(flag, key, value string) Setting {
	return Setting{Key: key, Value: value, Source: SourceFlag, File: flag}
}

// A Warning tells of a setting that was read and has no effect.
type Warning struct {
	Setting Setting
	Message string
}

// String gives the warning as one line with its place in front.
func (w Warning) String() string {
	return fmt.Sprintf("%s: %s: %s", w.Setting.Where(), w.Setting.Key, w.Message)
}

// A ValueError is a value outside what its key allows.
type ValueError struct {
	Setting Setting
	Allowed string // e.g. "an integer from 0 to 65535"
}

// Error names the place, the key, the value and what is allowed.
func (e *ValueError) Error() string {
	return fmt.Sprintf("%s: %s=%q: must be %s", e.Setting.Where(), e.Setting.Key, e.Setting.Value, e.Allowed)
}

// An UnknownKeyError is a key that neither this program nor Kafka has.
type UnknownKeyError struct {
	Setting Setting
	Nearest string // the nearest known key; empty when none is near
}

// Error names the key, the nearest known one, and where all are listed.
func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("%s: unknown key %q", e.Setting.Where(), e.Setting.Key) + notThere(e.Nearest)
}

// A RefusedKeyError is a key of Kafka's whose meaning can't be kept here, so
// that ignoring it would give the operator something else than what was asked.
type RefusedKeyError struct {
	Setting Setting
	Reason  string
}

// Error names the key, its value and why it is refused.
func (e *RefusedKeyError) Error() string {
	return fmt.Sprintf("%s: %s=%q: %s", e.Setting.Where(), e.Setting.Key, e.Setting.Value, e.Reason)
}
