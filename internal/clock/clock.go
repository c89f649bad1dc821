// Package clock is time, waiting and concurrency for code that the simulator
// runs too. A context that carries a Clock makes such code live in the simulator's virtual
// time and on its one thread; every other context means the real ones, at no cost but a look.
//
// It owns nothing and decides nothing. Code that is run both ways never blocks on
// a channel, a timer or a wait group in any other way than through this package.
package clock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Clock is a world of its own for whoever runs with it.
type Clock interface {
	// Now is the monotonic time there.
	Now() time.Time
	// Wait returns true once something was received from ch (closed counts), false
	// once d has passed, or the context's error. A nil ch is never ready.
	Wait(ctx context.Context, d time.Duration, ch <-chan struct{}) (bool, error)
	// WaitAny is Wait for several channels. It gives the number of the one that was
	// received from, -1 if d has passed.
	WaitAny(ctx context.Context, d time.Duration, chs ...<-chan struct{}) (int, error)
	// Go starts f beside the caller, soon; Join waits until all that was started
	// under the same group has ended.
	Go(work *sync.WaitGroup, f func())
	Join(work *sync.WaitGroup)
	// WithTimeout is context.WithTimeout in that world.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// Ended is what a wait panics with once a Clock's world has ended the process that
// waits. Whoever recovers from panics lets it pass.
type Ended struct{}

// Forever is a duration that never passes.
const Forever = time.Duration(1<<63 - 1)

type key struct{}

// With gives a context that carries a clock.
func With(ctx context.Context, c Clock) context.Context { return context.WithValue(ctx, key{}, c) }

// Of gives the clock that a context carries, nil for real time.
func Of(ctx context.Context) Clock {
	c, _ := ctx.Value(key{}).(Clock)
	return c
}

// Now is the monotonic time.
func Now(ctx context.Context) time.Time {
	if c := Of(ctx); c != nil {
		return c.Now()
	}
	return time.Now()
}

// Since is the time that has passed since then.
func Since(ctx context.Context, then time.Time) time.Duration { return Now(ctx).Sub(then) }

// Sleep waits for d; an error is the context's.
func Sleep(ctx context.Context, d time.Duration) error {
	_, err := Wait(ctx, d, nil)
	return err
}

// Wait waits until something can be received from ch (true), d has passed
// (false), or the context ends (its error).
func Wait(ctx context.Context, d time.Duration, ch <-chan struct{}) (bool, error) {
	if c := Of(ctx); c != nil {
		return c.Wait(ctx, d, ch)
	}
	n, err := waitReally(ctx, d, [anyMost]<-chan struct{}{ch})
	return n == 0, err
}

// anyMost is how many channels WaitAny takes.
const anyMost = 4

// WaitAny waits until something can be received from one of at most four channels
// (its number), d has passed (-1), or the context ends (its error).
func WaitAny(ctx context.Context, d time.Duration, chs ...<-chan struct{}) (int, error) {
	if c := Of(ctx); c != nil {
		return c.WaitAny(ctx, d, slices.Clone(chs)...) // a copy: what is passed on must live on the heap
	}
	var ch [anyMost]<-chan struct{}
	if copy(ch[:], chs) < len(chs) {
		panic("clock: too many channels to wait for")
	}
	return waitReally(ctx, d, ch)
}

// waitReally is WaitAny in real time; a nil channel is never ready.
func waitReally(ctx context.Context, d time.Duration, ch [anyMost]<-chan struct{}) (int, error) {
	select {
	case <-ch[0]: // no timer for what is there already
		return 0, nil
	default:
	}
	var timer <-chan time.Time
	if d != Forever {
		t := time.NewTimer(d)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ch[0]:
		return 0, nil
	case <-ch[1]:
		return 1, nil
	case <-ch[2]:
		return 2, nil
	case <-ch[3]:
		return 3, nil
	case <-timer:
		return -1, nil
	case <-ctx.Done():
		return -1, ctx.Err()
	}
}

// Go starts f on a goroutine that work counts.
func Go(ctx context.Context, work *sync.WaitGroup, f func()) {
	if c := Of(ctx); c != nil {
		c.Go(work, f)
		return
	}
	work.Go(f)
}

// Join waits until everything that Go started under work has ended.
func Join(ctx context.Context, work *sync.WaitGroup) {
	if c := Of(ctx); c != nil {
		c.Join(work)
		return
	}
	work.Wait()
}

// Each runs f for 0 to n-1, at most so many at one time, and waits for all that
// it has begun. It begins no more once ctx has ended, and then gives its error.
func Each(ctx context.Context, n, most int, f func(i int)) error {
	var work sync.WaitGroup
	slots := make(chan struct{}, most)
	for range most {
		slots <- struct{}{}
	}
	var err error
	for i := 0; i < n && err == nil; i++ {
		if _, err = Wait(ctx, Forever, slots); err == nil {
			Go(ctx, &work, func() {
				defer func() { slots <- struct{}{} }()
				f(i)
			})
		}
	}
	Join(ctx, &work)
	return cmp.Or(err, ctx.Err())
}

// WithTimeout is context.WithTimeout.
func WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if c := Of(ctx); c != nil {
		return c.WithTimeout(ctx, d)
	}
	return context.WithTimeout(ctx, d)
}
