package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/clock"
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

	inbox  *mailbox
	ctx    context.Context // ends when the loop must
	cancel context.CancelFunc
	ready  chan struct{} // closed once the groups are loaded for the first time, or the loop has ended

	// run's own.
	log     api.Partition
	table   *group.Table
	effects group.Effects
	clock   statelog.Steady
	waiting map[group.RequestID]*answer
	lastID  group.RequestID
	queue   []encoded // batches for the next write, oldest first
	writing bool
	writes  sync.WaitGroup // the write under way
	looking bool           // a look for deleted topics is under way
	looks   sync.WaitGroup
}

func newLoop(c *Coordinator, partition int32, epoch types.LeaderEpoch) *loop {
	ctx, cancel := context.WithCancel(c.o.Context)
	return &loop{
		c: c, partition: partition, epoch: epoch,
		logger: c.o.Logger.With("topic", OffsetsTopic, "partition", partition, "leaderEpoch", epoch),
		inbox:  newMailbox(c.o.Config.QueueLength),
		ctx:    ctx, cancel: cancel, ready: make(chan struct{}),
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
	defer l.inbox.close()
	defer l.becomeReady()
	defer l.cancel()
	backoff := firstReloadBackoff
	for {
		err := l.live()
		if l.ctx.Err() != nil {
			return
		}
		if errors.Is(err, statelog.ErrNotYet) {
			probeLoadNotYet.Reached()
			l.logger.Debug("offsets partition isn't served here yet", "err", err)
		} else {
			l.logger.Error("group coordinator loads its groups anew", "err", err)
			backoff = l.c.o.Config.ReloadAfterFailure
		}
		if clock.Sleep(l.ctx, backoff) != nil {
			return
		}
		backoff = min(2*backoff, l.c.o.Config.ReloadAfterFailure)
	}
}

// becomeReady lets patient requests go on.
func (l *loop) becomeReady() {
	if !l.isReady() {
		close(l.ready)
	}
}

// live is one life of the table: from the load to the end of the loop or a failure.
func (l *loop) live() (err error) {
	l.waiting = map[group.RequestID]*answer{}
	l.queue, l.writing, l.looking = nil, false, false
	l.effects.Reset()
	l.table = group.NewTable(l.c.o.Config.Group)
	l.clock = statelog.NewSteady(l.ctx, l.c.o.Now)
	ctx, cancel := context.WithCancel(l.ctx)
	defer func() {
		if p := recover(); p != nil {
			if _, ended := p.(clock.Ended); ended {
				panic(p) // nothing of this process answers any more
			}
			err = fmt.Errorf("%v\n%s", p, debug.Stack())
		}
		cancel()
		clock.Join(ctx, &l.writes)
		clock.Join(ctx, &l.looks)
		_, _ = l.inbox.outcome() // nobody waits for it any more
		l.end(err)
	}()
	if err := l.load(); err != nil {
		return err
	}
	now := l.clock.Now()
	l.table.SetWall(l.clock.Wall() - now)
	l.table.Loaded(now, &l.effects)
	l.carryOut(ctx)
	l.becomeReady()
	l.lookForDeleted(ctx)
	return l.serve(ctx)
}

// end answers everything that still waits.
func (l *loop) end(err error) {
	if len(l.waiting) > 0 {
		probeResigned.Reached()
	}
	code := group.NotCoordinator
	if err != nil && l.ctx.Err() == nil {
		code = group.CoordinatorNotAvailable
	}
	func() {
		defer func() { _ = recover() }() // a table that broke an invariant may not be able to
		l.effects.Reset()
		l.table.Step(l.clock.Now(), group.Resign{Code: code}, &l.effects)
		l.reply()
	}()
	for _, id := range slices.Sorted(maps.Keys(l.waiting)) { // a simulated run has one order
		l.waiting[id].give(group.CodeResponse{Code: code})
	}
	clear(l.waiting)
	l.table = nil
}

func (l *loop) serve(ctx context.Context) error {
	sweep := l.clock.Now() + l.sweepInterval()
	for {
		if _, err := clock.Wait(ctx, l.idle(sweep), l.inbox.News); err != nil {
			return nil
		}
		for _, t := range l.inbox.Take(stepsPerRound) {
			l.take(t)
		}
		if done, wrote := l.inbox.outcome(); wrote {
			l.writing = false
			for _, d := range done {
				l.step(group.Appended{Token: d.token, Code: d.code})
			}
		}
		now := l.clock.Now()
		if at, due := l.table.Deadline(); due && at <= now {
			l.step(group.Tick{})
		}
		if sweep <= now {
			sweep = now + l.sweepInterval()
			l.step(group.SweepOffsets{})
			l.lookForDeleted(ctx)
		}
		l.carryOut(ctx)
	}
}

func (l *loop) sweepInterval() types.Millis {
	return max(types.Millis(l.c.o.Config.RetentionCheck/time.Millisecond), 1)
}

// idle is how long nothing is due: neither the table's next deadline nor the sweep.
func (l *loop) idle(sweep types.Millis) time.Duration {
	if at, ok := l.table.Deadline(); ok {
		sweep = min(sweep, at)
	}
	return max(time.Duration(sweep-l.clock.Now()), 1) * time.Millisecond
}

func (l *loop) step(ev group.Event) {
	now := l.clock.Now()
	l.table.SetWall(l.clock.Wall() - now)
	l.table.Step(now, ev, &l.effects)
}

func (l *loop) take(t task) {
	id := group.NoRequest
	if t.answer != nil {
		l.lastID++
		id = l.lastID
		l.waiting[id] = t.answer
	}
	if t.look == nil {
		l.step(t.event(id, l))
		return
	}
	t.look(l.table)
	delete(l.waiting, id)
	t.answer.give(group.CodeResponse{Code: group.None})
}

// carryOut sends the replies and begins to write the appends: one write at a
// time, beside the loop, so that a slow acknowledgement holds up no heartbeat.
func (l *loop) carryOut(ctx context.Context) {
	l.reply()
	for _, n := range l.effects.Notes {
		l.logger.Info(n.What, "group", n.Group, "member", n.MemberID, "state", n.State, "generation", n.Generation, "members", n.Members)
	}
	for _, a := range l.effects.Appends {
		l.queue = append(l.queue, encode(a, l.clock.Wall()))
	}
	l.effects.Reset()
	if l.writing || len(l.queue) == 0 {
		return
	}
	l.writing = true
	log, batches := l.log, l.queue
	l.queue = nil
	clock.Go(ctx, &l.writes, func() { l.inbox.written(writeAll(ctx, log, l.epoch, l.c.o, batches)) })
}

func (l *loop) reply() {
	for _, r := range l.effects.Replies {
		a := l.waiting[r.Request]
		if a == nil {
			continue
		}
		delete(l.waiting, r.Request)
		a.give(r.Response)
	}
	l.effects.Replies = l.effects.Replies[:0]
}
