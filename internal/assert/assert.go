// Package assert states invariants where the state changes.
//
// A failed assertion is a bug in this program, never bad input: it panics with
// an *Error, which the shard that owns the partition recovers; the partition
// goes offline and the broker keeps the others. docs/INVARIANTS.md lists the
// invariants by number.
package assert

import "fmt"

// Error is the panic value of a failed assertion.
type Error struct{ Message string }

// Error gives the message with the invariant's number in front.
func (e *Error) Error() string { return "invariant broken: " + e.Message }

// That panics with an *Error if cond is false. The message begins with the
// invariant's number: assert.That(hw <= leo, "I-07: hw %d > leo %d", hw, leo).
func That(cond bool, format string, args ...any) {
	if !cond {
		panic(&Error{Message: fmt.Sprintf(format, args...)})
	}
}
