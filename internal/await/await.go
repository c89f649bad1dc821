// Package await has tests wait for a condition.
//
// It is the one place where tests poll, so that none of them sleeps and hopes:
// a condition that comes true ends the wait at once, and one that never does
// fails the test with a sentence. It owns no state and is imported by tests
// alone. An event (a channel, a closed connection) is better where there is one.
//
// Tests: await_test.go.
package await

import (
	"testing"
	"time"
)

// patience is how long True waits: far longer than anything takes on a loaded machine.
const patience = 60 * time.Second

// tick is the time between two looks.
const tick = time.Millisecond

// True waits until ok, which is called again and again by this goroutine, and
// fails the test if that takes too long. What says what is waited for.
func True(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Within(t, patience, what, ok)
}

// Within is True with a limit of the caller's.
func Within(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	end := time.NewTimer(limit)
	defer end.Stop()
	next := time.NewTicker(tick)
	defer next.Stop()
	for !ok() {
		select {
		case <-next.C:
		case <-end.C:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// NoError waits until f gives nil, and fails the test with its last error when
// the limit has passed.
func NoError(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	end := time.NewTimer(limit)
	defer end.Stop()
	next := time.NewTicker(20 * tick)
	defer next.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-next.C:
		case <-end.C:
			t.Fatalf("not within %v: %s: %v", limit, what, err)
		}
	}
}
