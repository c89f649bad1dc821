package broker

import (
	"testing"

	"tidemark/internal/core/types"
)

// TestCutTrail: what is owed ends with what follows the newest cut, and goes back as far
// as the lowest since.
func TestCutTrail(t *testing.T) {
	var c cutTrail
	f := func(name string, owed bool, at types.Offset) {
		t.Helper()
		if c.owed != owed || owed && c.at != at {
			t.Errorf("%s: %+v", name, c)
		}
	}
	f("at first", false, 0)
	c.cut(7)
	first := c.made
	f("a cut", true, 7)
	c.cut(9) // the log had grown since
	f("a higher one", true, 7)
	c.follow(first)
	f("the first one is followed, not the second", true, 7)
	c.cut(5)
	f("a lower one", true, 5)
	c.follow(c.made)
	f("all are followed", false, 0)
	c.cut(8)
	f("another one", true, 8)
	c.settle()
	f("a leader's answer was accepted", false, 0)
}
