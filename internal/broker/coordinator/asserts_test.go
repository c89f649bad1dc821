package coordinator

import (
	"testing"

	"tidemark/internal/assert/asserttest"
)

func TestALoopWritesOnceAtATime(t *testing.T) {
	m := newMailbox(nil, 1)
	m.written(nil)
	if _, ok := m.outcome(); !ok {
		t.Fatal("the outcome isn't there")
	}
	m.written(nil)
	asserttest.Breaks(t, "I-280", func() { m.written(nil) })
}
