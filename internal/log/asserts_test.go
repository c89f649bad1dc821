package log

import (
	"testing"

	"tidemark/internal/assert/asserttest"
)

func TestALogOwesOneChange(t *testing.T) {
	full := func() error { return noSpace("test", nil) }
	l := &Log{dir: "topic-0"}
	if err := l.owe(full); err == nil || l.owed == nil {
		t.Fatalf("%v, and nothing is owed", err)
	}
	asserttest.Breaks(t, "I-234", func() { _ = l.owe(full) })
}
