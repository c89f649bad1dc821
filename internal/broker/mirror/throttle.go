package mirror

import (
	"context"
	"sync"
	"time"

	"tidemark/internal/clock"
)

// throttle bounds the bytes per second that a mirror takes from its source, over
// all its fetchers: a token bucket that holds one second. Answers are counted
// when they are there, so that a large one is paid for afterwards.
type throttle struct {
	mu sync.Mutex
	// guards the following
	perSecond int64 // below 0: no bound
	tokens    float64
	filledAt  time.Time
}

func newThrottle(ctx context.Context, perSecond int64) *throttle {
	return &throttle{perSecond: perSecond, tokens: float64(perSecond), filledAt: clock.Now(ctx)}
}

// set changes the bound.
func (t *throttle) set(perSecond int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.perSecond = perSecond
	t.tokens = min(t.tokens, float64(perSecond))
}

// rate gives the bound in bytes per second, below 0 for none.
func (t *throttle) rate() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.perSecond
}

// take pays for n bytes.
func (t *throttle) take(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens -= float64(n)
}

// due fills the bucket and gives how long it takes until something may be fetched.
func (t *throttle) due(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.perSecond <= 0 {
		return 0
	}
	t.tokens = min(t.tokens+now.Sub(t.filledAt).Seconds()*float64(t.perSecond), float64(t.perSecond))
	t.filledAt = now
	if t.tokens > 0 {
		return 0
	}
	return time.Duration((1 - t.tokens) / float64(t.perSecond) * float64(time.Second))
}

// wait waits until something may be fetched; false if ctx ended first.
func (t *throttle) wait(ctx context.Context) bool {
	for {
		d := t.due(clock.Now(ctx))
		if d <= 0 {
			return ctx.Err() == nil
		}
		if !pause(ctx, min(d, time.Second)) {
			return false
		}
	}
}
