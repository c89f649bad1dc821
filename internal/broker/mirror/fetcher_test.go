package mirror

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAwaitShards: a fetcher waits for shards that get on, not for one that
// stands still, and not without end.
func TestAwaitShards(t *testing.T) {
	for _, c := range []struct {
		name     string
		answers  int64
		each     time.Duration // one answer's work; the shards do one after the other
		stuck    int64         // answers that never end
		from, to time.Duration // how long the wait may last
	}{
		{"fast", 100, 10 * time.Microsecond, 0, time.Millisecond, time.Millisecond},
		{"thousands that get on", 10_000, 100 * time.Microsecond, 0, time.Second, time.Second},
		{"one stands still", 100, 10 * time.Microsecond, 1, slowShard, 2 * slowShard},
		{"all stand still", 100, time.Hour, 100, slowShard, slowShard},
		{"few and slow", 100, 50 * time.Millisecond, 0, slowShard, slowShard},
		{"thousands and slow", 10_000, time.Millisecond, 0, 4 * time.Second, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				left := func() int64 {
					return c.answers - min(c.answers-c.stuck, int64(time.Since(begin)/c.each))
				}
				done := make(chan struct{})
				if c.stuck == 0 {
					time.AfterFunc(time.Duration(c.answers)*c.each, func() { close(done) })
				}
				awaitShards(t.Context(), done, left)
				if took := time.Since(begin); took < c.from || took > c.to {
					t.Errorf("waited %v, want between %v and %v", took, c.from, c.to)
				}
			})
		})
	}
}
