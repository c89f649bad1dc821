package coordinator

import (
	"context"
	"sync"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/clock"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
)

// loop owns the groups of one partition of the offsets topic, for one leader
// epoch. Everything below "run's own" is touched by its goroutine only.
type loop struct {
	*statelog.Term
	c     *Coordinator
	inbox *mailbox

	// run's own.
	log     api.Partition
	table   *group.Table
	effects group.Effects
	clock   statelog.Steady
	queue   []encoded // batches for the next write, oldest first
	writing bool
	writes  sync.WaitGroup // the write under way
	looking bool           // a look for deleted topics is under way
	looks   sync.WaitGroup
}

func newLoop(c *Coordinator, partition int32, epoch types.LeaderEpoch) *loop {
	t := statelog.NewTerm(c.logOptions(), partition, epoch)
	return &loop{Term: t, c: c, inbox: newMailbox(t, c.o.Config.QueueLength)}
}

// Run implements statelog.Loop.
func (l *loop) Run() {
	defer l.inbox.Shut(group.CodeResponse{Code: errcode.NotCoordinator})
	l.Serve(l.live, func(err error) { l.Logger.Error("group coordinator loads its groups anew", "err", err) })
}

// live is one life of the table: from the load to the end of the loop or a failure.
func (l *loop) live() error {
	l.queue, l.writing, l.looking = nil, false, false
	l.effects.Reset()
	l.table = group.NewTable(l.c.o.Config.Group)
	l.clock = statelog.NewSteady(l.Context, l.c.o.Now)
	ctx, cancel := context.WithCancel(l.Context)
	err := statelog.Guarded(func() error { return l.loadAndServe(ctx) })
	cancel()
	clock.Join(ctx, &l.writes)
	clock.Join(ctx, &l.looks)
	_, _ = l.inbox.outcome() // nobody waits for it any more
	l.end(err)
	return err
}

func (l *loop) loadAndServe(ctx context.Context) error {
	if err := l.load(); err != nil {
		return err
	}
	now := l.clock.Now()
	l.table.SetWall(l.clock.Wall() - now)
	l.table.SetTopics(l.c.topicsView())
	l.table.Loaded(now, &l.effects)
	l.carryOut(ctx)
	l.BecomeReady()
	l.lookForDeleted(ctx)
	return l.serve(ctx)
}

// end answers everything that still waits.
func (l *loop) end(err error) {
	if l.inbox.Waiting() > 0 {
		probeResigned.Reached()
	}
	code := l.EndCode(err)
	_ = statelog.Guarded(func() error { // a table that broke an invariant may not be able to
		l.effects.Reset()
		l.table.Step(l.clock.Now(), group.Resign{Code: code}, &l.effects)
		l.reply()
		return nil
	})
	l.inbox.AnswerAll(group.CodeResponse{Code: code})
	l.table = nil
}

func (l *loop) serve(ctx context.Context) error {
	sweep := l.clock.Now() + l.sweepInterval()
	for {
		if _, err := clock.Wait(ctx, l.idle(sweep), l.inbox.News()); err != nil {
			return nil
		}
		l.inbox.Work()
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
	l.table.SetTopics(l.c.topicsView())
	l.table.Step(now, ev, &l.effects)
}

// carryOut sends the replies and begins to write the appends: one write at a
// time, beside the loop, so that a slow acknowledgement holds up no heartbeat.
func (l *loop) carryOut(ctx context.Context) {
	l.reply()
	for _, n := range l.effects.Notes {
		l.Logger.Info(n.What, "group", n.Group, "member", n.MemberID, "state", n.State, "generation", n.Generation, "members", n.Members)
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
	clock.Go(ctx, &l.writes, func() { l.inbox.written(writeAll(ctx, log, l.Epoch, l.c.o, batches)) })
}

func (l *loop) reply() {
	for _, r := range l.effects.Replies {
		l.inbox.Answer(r.Request, r.Response)
	}
	l.effects.Replies = l.effects.Replies[:0]
}
