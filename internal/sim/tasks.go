package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"sync"
	"time"

	"tidemark/internal/assert"
	"tidemark/internal/clock"
)

// process is one process of a simulated machine: production code that blocks,
// run as tasks. A task is a coroutine; one runs at a time, from one wait to the
// next, and the kernel decides when it goes on. The end of the process ends its tasks where they wait.
type process struct {
	k    *kernel
	name string
	// rate is how fast the machine's monotonic clock runs; the true one is 1.
	rate    float64
	dead    bool
	parked  []*task // in the order in which they began to wait
	groups  map[*sync.WaitGroup]int
	current *task
	// after runs when the process has done something: a look for the checkers.
	looked func()
	// ended says that the machine has stopped the process in the middle of what it did.
	ended func() bool
	gone  func()
}

var _ clock.Clock = (*process)(nil)

// task is one coroutine.
type task struct {
	resume func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	group  *sync.WaitGroup

	// What it waits for.

	ch    <-chan struct{}
	ready func() bool
	ctx   context.Context
	waits int // counts its waits, so that a timer knows its own

	got bool
	err error
}

func newProcess(k *kernel, name string, rate float64) *process {
	return &process{k: k, name: name, rate: rate, groups: map[*sync.WaitGroup]int{}, looked: func() {}, ended: func() bool { return false }, gone: func() {}}
}

// monotonicBase is where every machine's monotonic clock begins.
var monotonicBase = time.Unix(1_767_225_600, 0)

// Now implements clock.Clock.
func (p *process) Now() time.Time {
	return monotonicBase.Add(time.Duration(float64(p.k.now) * p.rate))
}

// context is one that ends with nothing but the process, for its tasks.
func (p *process) context() context.Context { return clock.With(context.Background(), p) }

// virtual is how long a duration of the machine's clock is.
func (p *process) virtual(d time.Duration) time.Duration {
	// A little more, so that the machine's clock has come that far whatever the rounding.
	return time.Duration(float64(d)/p.rate) + time.Microsecond
}

// do runs something of the process at once: an answer that came, a request.
func (p *process) do(f func()) {
	if p.dead {
		return
	}
	f()
	p.settle()
}

// later runs something of the process after a time.
func (p *process) later(d time.Duration, what string, f func()) {
	p.k.after(d, what, func() { p.do(f) })
}

// settle wakes the tasks that need wait no longer, and notices the process's end.
func (p *process) settle() {
	if p.ended() {
		p.gone()
		return
	}
	kept := p.parked[:0]
	for _, t := range p.parked {
		if p.isReady(t) {
			p.wake(t)
		} else {
			kept = append(kept, t)
		}
	}
	clear(p.parked[len(kept):])
	p.parked = kept
	p.looked()
}

// isReady looks whether the wait is over, and how.
func (p *process) isReady(t *task) bool {
	if t.ready != nil && t.ready() {
		t.got = true
		return true
	}
	select {
	case <-t.ch:
		t.got = true
		return true
	default:
	}
	t.err = p.fault(t.ctx)
	return t.err != nil
}

// fault is why a context has ended, nil if it hasn't.
func (p *process) fault(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if end, ok := ctx.Deadline(); ok && !p.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return nil
}

// wake has a task go on soon.
func (p *process) wake(t *task) {
	t.waits++
	most := 60 * time.Microsecond
	if p.k.buggified("starved task") {
		p.k.probe("broker: starved task")
		most = 200 * time.Millisecond
	}
	p.k.after(p.k.dice("tasks "+p.name).between(0, most), "task", func() { p.step(t) })
}

// step lets a task run to its next wait.
func (p *process) step(t *task) {
	if p.dead {
		t.stop()
		return
	}
	p.current = t
	_, alive := t.resume()
	p.current = nil
	if !alive && t.group != nil {
		p.groups[t.group]--
	}
	p.settle()
}

// Go implements clock.Clock.
func (p *process) Go(work *sync.WaitGroup, f func()) {
	if p.dead {
		return
	}
	t := &task{group: work}
	t.resume, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		defer func() {
			if r := recover(); r != nil {
				if _, ended := r.(clock.Ended); !ended {
					panic(located(r))
				}
			}
		}()
		f()
	})
	p.groups[work]++
	p.wake(t)
}

// located is what a task panicked with, and where: the stack ends with the task's. What
// an assertion says is enough.
func located(r any) error {
	err, ok := r.(error)
	if !ok {
		err = fmt.Errorf("%v", r)
	}
	if broken := (*assert.Error)(nil); errors.As(err, &broken) {
		return err
	}
	return fmt.Errorf("%w\n%s", err, debug.Stack())
}

// Join implements clock.Clock.
func (p *process) Join(work *sync.WaitGroup) {
	_, _ = p.wait(context.Background(), clock.Forever, nil, func() bool { return p.groups[work] == 0 })
}

// Wait implements clock.Clock.
func (p *process) Wait(ctx context.Context, d time.Duration, ch <-chan struct{}) (bool, error) {
	return p.wait(ctx, d, ch, nil)
}

// WaitAny implements clock.Clock.
func (p *process) WaitAny(ctx context.Context, d time.Duration, chs ...<-chan struct{}) (int, error) {
	found := -1
	_, err := p.wait(ctx, d, nil, func() bool {
		for i, ch := range chs {
			select {
			case <-ch:
				found = i
				return true
			default:
			}
		}
		return false
	})
	return found, err
}

// until waits for a condition that something of this process makes true.
func (p *process) until(ctx context.Context, ready func() bool) error {
	_, err := p.wait(ctx, clock.Forever, nil, ready)
	return err
}

func (p *process) wait(ctx context.Context, d time.Duration, ch <-chan struct{}, ready func() bool) (bool, error) {
	t := p.current
	if t == nil {
		panic("sim: something waits that is not a task")
	}
	if p.dead {
		panic(clock.Ended{})
	}
	t.ch, t.ready, t.ctx, t.got, t.err = ch, ready, ctx, false, nil
	if p.isReady(t) {
		return t.got, t.err
	}
	if deadline, ok := ctx.Deadline(); ok {
		d = min(d, max(deadline.Sub(p.Now()), 0)+time.Nanosecond)
	}
	t.waits++
	if d < 1<<60 {
		n := t.waits
		p.k.after(p.virtual(d), "timer", func() { p.timedOut(t, n) })
	}
	p.parked = append(p.parked, t)
	p.current = nil
	if !t.yield(struct{}{}) {
		panic(clock.Ended{})
	}
	return t.got, t.err
}

func (p *process) timedOut(t *task, wait int) {
	if p.dead || t.waits != wait {
		return
	}
	for i, other := range p.parked {
		if other == t {
			p.parked = append(p.parked[:i], p.parked[i+1:]...)
			break
		}
	}
	t.err = p.fault(t.ctx)
	t.waits++
	p.step(t)
}

// WithTimeout implements clock.Clock.
func (p *process) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	end := p.Now().Add(d)
	if before, ok := ctx.Deadline(); ok && before.Before(end) {
		end = before
	}
	return &deadlineContext{Context: ctx, p: p, end: end}, cancel
}

// deadlineContext ends at a moment of the machine's clock.
type deadlineContext struct {
	context.Context
	p   *process
	end time.Time
}

// Deadline implements context.Context.
func (c *deadlineContext) Deadline() (time.Time, bool) { return c.end, true }

// Err implements context.Context.
func (c *deadlineContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if !c.p.Now().Before(c.end) {
		return context.DeadlineExceeded
	}
	return nil
}

// kill ends the process: nothing of it ever runs again. It must not be called by one of its tasks.
func (p *process) kill() {
	if p.current != nil {
		panic(fmt.Sprintf("sim: %s is killed by itself", p.name))
	}
	p.dead = true
	parked := p.parked
	p.parked = nil
	for _, t := range parked {
		t.stop()
	}
}
