package transactions

import (
	"errors"
	"slices"
	"sync/atomic"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/clock"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
)

// loop owns the transactional ids of one partition of the state topic, for one
// leader epoch. Everything below "run's own" is touched by its goroutine only.
//
// It writes and waits in turn: what comes meanwhile is taken together, and goes
// into one write.
type loop struct {
	*statelog.Term
	c     *Coordinator
	inbox *statelog.Inbox[transaction.RequestID, transaction.Response]
	// life counts how often the table was thrown away. The loop sets it, couriers read it.
	life atomic.Int64

	// run's own.
	log     api.Partition
	table   *transaction.Table
	effects transaction.Effects
	clock   statelog.Steady
}

func newLoop(c *Coordinator, partition int32, epoch types.LeaderEpoch) *loop {
	t := statelog.NewTerm(c.logOptions(), partition, epoch)
	return &loop{Term: t, c: c, inbox: statelog.NewInbox[transaction.RequestID, transaction.Response](t, c.o.Config.QueueLength)}
}

// Run implements statelog.Loop. A write of unknown outcome ends a life, too: the log
// says what was decided.
func (l *loop) Run() {
	defer l.inbox.Shut(transaction.CodeResponse{Code: errcode.NotCoordinator})
	l.Serve(l.live, func(err error) { l.Logger.Warn("transaction coordinator loads its ids anew", "err", err) })
}

// live is one life of the table: from the load to the end of the loop or a failure.
func (l *loop) live() error {
	l.effects.Reset()
	l.table = transaction.NewTable(l.c.o.Config.Table)
	l.table.Lost, l.table.Rules = l.c.lost, l.c.o.Rules.Table
	l.clock = statelog.NewSteady(l.Context, l.c.o.Now)
	err := statelog.Guarded(l.loadAndServe)
	l.end(err)
	return err
}

func (l *loop) loadAndServe() error {
	if err := l.load(); err != nil {
		return err
	}
	now := l.now()
	l.table.Loaded(now, &l.effects)
	if err := l.carryOut(); err != nil {
		return err
	}
	l.BecomeReady()
	return l.serve()
}

// now is the steps' time; the table is told how far the wall clock is from it.
func (l *loop) now() types.Millis {
	now := l.clock.Now()
	l.table.SetWall(l.clock.Wall() - now)
	return now
}

// end answers everything that still waits.
func (l *loop) end(err error) {
	l.life.Add(1)
	code := l.EndCode(err)
	_ = statelog.Guarded(func() error { // a table that broke an invariant may not be able to
		l.effects.Reset()
		l.table.Step(l.clock.Now(), transaction.Resign{Code: code}, &l.effects)
		l.reply()
		return nil
	})
	l.inbox.AnswerAll(transaction.CodeResponse{Code: code})
	l.table = nil
}

func (l *loop) load() error {
	var scratch batch.Scratch
	records := 0
	done, err := l.Load(func(h *batch.Header, raw []byte) error {
		if h.IsControl() {
			return nil
		}
		it := batch.Records(raw, &scratch)
		for it.Next() {
			records++
			r, err := decodeRecord(it.Record.Key, it.Record.Value)
			switch {
			case err == nil:
				l.table.Replay(r)
			case !errors.Is(err, errOtherRecord):
				l.Logger.Warn("unreadable record in the transaction state is passed over", "offset", it.Record.Offset, "err", err)
			}
		}
		return it.Err()
	})
	if err != nil {
		return err
	}
	l.log = done.Log
	if records > 0 {
		l.Logger.Info("transaction coordinator loaded its ids", "ids", l.table.IDs(), "records", records, "from", done.Start, "to", done.End)
	}
	return nil
}

func (l *loop) serve() error {
	sweep := clock.Now(l.Context).Add(l.c.o.Config.SweepInterval)
	for {
		if _, err := clock.Wait(l.Context, max(sweep.Sub(clock.Now(l.Context)), 0), l.inbox.News()); err != nil {
			return nil
		}
		l.inbox.Work()
		if !clock.Now(l.Context).Before(sweep) {
			sweep = clock.Now(l.Context).Add(l.c.o.Config.SweepInterval)
			l.step(transaction.Sweep{})
		}
		if err := l.carryOut(); err != nil {
			return err
		}
	}
}

func (l *loop) step(ev transaction.Event) { l.table.Step(l.now(), ev, &l.effects) }

// carryOut answers, sends markers off and writes, until the table asks for nothing more.
func (l *loop) carryOut() error {
	for {
		l.reply()
		for _, n := range l.effects.Notes {
			l.Logger.Info(n.What, "transactionalId", n.ID, "producerId", n.ProducerID, "producerEpoch", n.Epoch, "partitions", len(n.Partitions))
		}
		for _, m := range l.effects.Markers {
			l.c.send(l, m)
		}
		if len(l.effects.Appends) == 0 {
			l.effects.Reset()
			return nil
		}
		appends := slices.Clone(l.effects.Appends)
		l.effects.Reset()
		if err := l.write(appends); err != nil {
			return err
		}
	}
}

func (l *loop) reply() {
	for _, r := range l.effects.Replies {
		l.inbox.Answer(r.Request, r.Response)
	}
	l.effects.Replies = l.effects.Replies[:0]
}

// write appends the records and tells the table. An error says that nobody knows
// whether they are in the log.
func (l *loop) write(appends []transaction.Append) error {
	for len(appends) > 0 {
		var records []statelog.Record
		now, size, n := l.clock.Wall(), 0, 0
		for n < len(appends) {
			key, value := encodeRecord(appends[n].Record)
			if n > 0 && size+len(key)+len(value) > statelog.MergedBytes {
				break
			}
			records = append(records, statelog.Record{Time: now, Key: key, Value: value})
			size += len(key) + len(value)
			n++
		}
		code, err := outcome(statelog.Write(l.Context, l.log, records, statelog.WriteOptions{Epoch: l.Epoch, Acks: l.acks(), Timeout: l.c.o.Config.WriteTimeout}))
		if err != nil {
			return err
		}
		for _, a := range appends[:n] {
			l.step(transaction.Appended{Token: a.Token, Code: code})
		}
		appends = appends[n:]
	}
	return nil
}

// acks has a record be durable before anything follows from it (R14).
func (l *loop) acks() int16 {
	if l.c.o.Rules.AckUnreplicated {
		return 1
	}
	return -1
}
