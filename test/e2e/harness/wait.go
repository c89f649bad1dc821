package harness

import (
	"bytes"
	"runtime/pprof"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// overdue is when something that should end by itself within Patience is taken to hang.
const overdue = 2 * Patience

// lifetime bounds how long a test may use one context or client. A producer waits for the
// outcome of what it has sent whatever its context says (idempotence demands it), and so for
// ever where it can't reach anybody.
const lifetime = 4 * Patience

// Receive takes one value from a channel; false if it was closed. If none comes in time
// it fails the test and shows where everybody waits. What says what is waited for.
func Receive[T any](t testing.TB, what string, from <-chan T) (v T, open bool) {
	t.Helper()
	return receive(t, overdue, what, from)
}

func receive[T any](t testing.TB, within time.Duration, what string, from <-chan T) (v T, open bool) {
	t.Helper()
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case v, open = <-from:
	case <-limit.C:
		t.Fatalf("not within %v: %s\n%s", within, what, stacks())
	}
	return v, open
}

// Join waits for goroutines that are to end, as Receive does for a value.
func Join(t testing.TB, what string, work *sync.WaitGroup) {
	t.Helper()
	finish(t, what, work.Wait)
}

// finish runs f and fails the test if it doesn't come back.
func finish(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	Receive(t, what, done)
}

// Connect makes a client with these options and nothing else. It is closed with the test,
// or when it has been in use for far too long: its calls fail then, and so does the test.
func Connect(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return connect(t, lifetime, opts...)
}

func connect(t testing.TB, within time.Duration, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatalf("client: %v", err)
	}
	var mu sync.Mutex
	ended := false // guarded by mu: nothing is said of a test that has ended
	limit := time.AfterFunc(within, func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			t.Errorf("a client is still in use after %v\n%s", within, stacks())
			go c.Close()
		}
	})
	t.Cleanup(func() {
		limit.Stop()
		mu.Lock()
		ended = true
		mu.Unlock()
		finish(t, "a client is closed", c.Close)
	})
	return c
}

// stacks shows what all goroutines do, those at the same place together.
func stacks() string {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	return b.String()
}
