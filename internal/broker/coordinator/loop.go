package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
)

const (
	defaultQueueLength        = 1024
	defaultReloadAfterFailure = time.Second
	// firstReloadBackoff is short: an election is often told a moment before
	// the partition has taken up its role.
	firstReloadBackoff = 5 * time.Millisecond
	// stepsPerRound bounds how many requests are taken before their writes are
	// handed on: larger batches under load, no delay without.
	stepsPerRound = 256
)

// loop owns the groups of one partition of the offsets topic, for one leader
// epoch. Everything below "run's own" is touched by its goroutine only.
type loop struct {
	c         *Coordinator
	partition int32
	epoch     types.LeaderEpoch
	logger    *slog.Logger

	inbox  chan task
	ctx    context.Context // ends when the loop must
	cancel context.CancelFunc
	ready  chan struct{} // closed once the groups are loaded for the first time
	ended  chan struct{} // closed when run is over

	// run's own.
	log     api.Partition
	table   *group.Table
	effects group.Effects
	clock   clock
	waiting map[group.RequestID]chan<- group.Response
	lastID  group.RequestID
	writer  *writer
	queue   []encoded // batches for the writer, oldest first
	writing bool
}

// task is what a loop is asked to do: an event that answer may wait for, or a
// look at the table.
type task struct {
	event  func(id group.RequestID, l *loop) group.Event
	answer chan<- group.Response
	look   func(t *group.Table)
	looked chan<- struct{}
}

func newLoop(c *Coordinator, partition int32, epoch types.LeaderEpoch) *loop {
	ctx, cancel := context.WithCancel(context.Background())
	return &loop{
		c: c, partition: partition, epoch: epoch,
		logger: c.o.Logger.With("topic", OffsetsTopic, "partition", partition, "leaderEpoch", epoch),
		inbox:  make(chan task, c.o.Config.QueueLength),
		ctx:    ctx, cancel: cancel,
		ready: make(chan struct{}), ended: make(chan struct{}),
	}
}

func sortLoops(all []*loop) {
	slices.SortFunc(all, func(a, b *loop) int { return cmp.Compare(a.partition, b.partition) })
}

// stop tells the loop to end; it doesn't wait.
func (l *loop) stop() { l.cancel() }

func (l *loop) isReady() bool {
	select {
	case <-l.ready:
		return true
	default:
		return false
	}
}

// run loads and serves until the loop is stopped. A broken invariant, or a
// partition that can't be read, costs this loop a fresh start, not the broker.
func (l *loop) run() {
	defer close(l.ended)
	defer l.cancel()
	backoff := firstReloadBackoff
	for {
		err := l.live()
		if l.ctx.Err() != nil {
			return
		}
		if errors.Is(err, errNotYet) {
			l.logger.Debug("offsets partition isn't served here yet", "err", err)
		} else {
			l.logger.Error("group coordinator loads its groups anew", "err", err)
			backoff = l.c.o.Config.ReloadAfterFailure
		}
		select {
		case <-l.ctx.Done():
			return
		case <-time.After(backoff):
			backoff = min(2*backoff, l.c.o.Config.ReloadAfterFailure)
		}
	}
}

// live is one life of the table: from the load to the end of the loop or a failure.
func (l *loop) live() (err error) {
	l.waiting = map[group.RequestID]chan<- group.Response{}
	l.queue, l.writing = nil, false
	l.effects.Reset()
	l.table = group.NewTable(l.c.o.Config.Group)
	l.clock = newClock(l.c.o.Now)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v\n%s", p, debug.Stack())
		}
		l.end(err)
	}()
	if err := l.load(); err != nil {
		return err
	}
	l.writer = startWriter(l.ctx, l.log, l.epoch, l.c.o.Config)
	now := l.clock.now()
	l.table.SetWall(l.clock.wall() - now)
	l.table.Loaded(now, &l.effects)
	l.carryOut()
	if !l.isReady() {
		close(l.ready)
	}
	return l.serve()
}

// end answers everything that still waits.
func (l *loop) end(err error) {
	if l.writer != nil {
		l.writer.stop()
		l.writer = nil
	}
	code := group.NotCoordinator
	if err != nil && l.ctx.Err() == nil {
		code = group.CoordinatorNotAvailable
	}
	func() {
		defer func() { _ = recover() }() // a table that broke an invariant may not be able to
		l.effects.Reset()
		l.table.Step(l.clock.now(), group.Resign{Code: code}, &l.effects)
		l.reply()
	}()
	for id, answer := range l.waiting {
		answer <- group.CodeResponse{Code: code}
		delete(l.waiting, id)
	}
	l.table = nil
}

func (l *loop) serve() error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	sweep := time.NewTicker(l.c.o.Config.RetentionCheck)
	defer sweep.Stop()
	for {
		l.arm(timer)
		select {
		case <-l.ctx.Done():
			return nil
		case t := <-l.inbox:
			l.take(t)
			for range stepsPerRound {
				select {
				case t := <-l.inbox:
					l.take(t)
					continue
				default:
				}
				break
			}
		case done := <-l.writer.done:
			l.writing = false
			for _, d := range done {
				l.step(group.Appended{Token: d.token, Code: d.code})
			}
		case <-timer.C:
			l.step(group.Tick{})
		case <-sweep.C:
			l.step(group.SweepOffsets{})
		}
		l.carryOut()
	}
}

// arm sets the timer to the table's next deadline.
func (l *loop) arm(timer *time.Timer) {
	at, ok := l.table.Deadline()
	if !ok {
		timer.Reset(time.Hour)
		return
	}
	wait := time.Duration(at-l.clock.now()) * time.Millisecond
	timer.Reset(max(wait, time.Millisecond))
}

func (l *loop) step(ev group.Event) {
	now := l.clock.now()
	l.table.SetWall(l.clock.wall() - now)
	l.table.Step(now, ev, &l.effects)
}

func (l *loop) take(t task) {
	if t.look != nil {
		t.look(l.table)
		close(t.looked)
		return
	}
	id := group.NoRequest
	if t.answer != nil {
		l.lastID++
		id = l.lastID
		l.waiting[id] = t.answer
	}
	l.step(t.event(id, l))
}

// carryOut sends the replies and hands the appends to the writer.
func (l *loop) carryOut() {
	l.reply()
	for _, n := range l.effects.Notes {
		l.logger.Info(n.What, "group", n.Group, "member", n.MemberID, "state", n.State, "generation", n.Generation, "members", n.Members)
	}
	for _, a := range l.effects.Appends {
		l.queue = append(l.queue, encode(a, l.clock.wall()))
	}
	l.effects.Reset()
	if !l.writing && len(l.queue) > 0 {
		l.writing = true
		l.writer.work <- l.queue
		l.queue = nil
	}
}

func (l *loop) reply() {
	for _, r := range l.effects.Replies {
		answer := l.waiting[r.Request]
		if answer == nil {
			continue
		}
		delete(l.waiting, r.Request)
		answer <- r.Response // room for one: never blocks
	}
	l.effects.Replies = l.effects.Replies[:0]
}

// clock gives time that doesn't jump, for timers, beside the wall clock's, for
// records: a wall clock that is set must not end sessions.
type clock struct {
	start  time.Time
	base   types.Millis
	wallMs func() types.Millis
}

func newClock(wall func() types.Millis) clock {
	return clock{start: time.Now(), base: max(wall(), 1), wallMs: wall}
}

func (c *clock) now() types.Millis {
	return c.base + types.Millis(time.Since(c.start)/time.Millisecond)
}

func (c *clock) wall() types.Millis { return c.wallMs() }
