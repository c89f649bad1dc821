package transactions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/clock"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
)

// firstReloadBackoff is short: an election is often told a moment before the
// partition has taken up its role.
const firstReloadBackoff = 5 * time.Millisecond

// stepsPerRound bounds how many requests are taken before their records are
// written: under load one write serves many.
const stepsPerRound = 256

// task is what a loop is asked to do: an event that answer may wait for, or a look at the table.
type task struct {
	event  func(id transaction.RequestID) transaction.Event
	look   func(now types.Millis, t *transaction.Table)
	answer *answer // nil: nobody waits
}

// answer is what one request waits for.
type answer struct {
	done chan struct{} // closed once response is there
	// response is transaction.CodeResponse for a look, and for a request that no table has seen.
	response transaction.Response
}

func (a *answer) give(r transaction.Response) {
	a.response = r
	close(a.done)
}

// loop owns the transactional ids of one partition of the state topic, for one
// leader epoch. Everything below "run's own" is touched by its goroutine only.
//
// It writes and waits in turn: what comes meanwhile is taken together, and goes
// into one write.
type loop struct {
	c         *Coordinator
	partition int32
	epoch     types.LeaderEpoch
	logger    *slog.Logger

	inbox  *statelog.Queue[task]
	ctx    context.Context // ends when the loop must
	cancel context.CancelFunc
	ready  chan struct{} // closed once the ids are loaded for the first time, or the loop has ended

	// run's own.
	log     api.Partition
	table   *transaction.Table
	effects transaction.Effects
	clock   statelog.Steady
	waiting map[transaction.RequestID]*answer
	lastID  transaction.RequestID
}

func newLoop(c *Coordinator, partition int32, epoch types.LeaderEpoch) *loop {
	ctx, cancel := context.WithCancel(c.o.Context)
	return &loop{
		c: c, partition: partition, epoch: epoch,
		logger: c.o.Logger.With("topic", StateTopic, "partition", partition, "leaderEpoch", epoch),
		inbox:  statelog.NewQueue[task](c.o.Config.QueueLength),
		ctx:    ctx, cancel: cancel, ready: make(chan struct{}),
	}
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

func (l *loop) becomeReady() {
	if !l.isReady() {
		close(l.ready)
	}
}

// run loads and serves until the loop is stopped. A broken invariant, a partition
// that can't be read, or a write of unknown outcome costs this loop a fresh start,
// not the broker.
func (l *loop) run() {
	defer l.shut()
	defer l.becomeReady()
	defer l.cancel()
	backoff := firstReloadBackoff
	for {
		err := l.live()
		if l.ctx.Err() != nil {
			return
		}
		switch {
		case errors.Is(err, statelog.ErrNotYet):
			l.logger.Debug("transaction state isn't served here yet", "err", err)
		default:
			l.logger.Warn("transaction coordinator loads its ids anew", "err", err)
			backoff = l.c.o.Config.ReloadAfterFailure
		}
		if clock.Sleep(l.ctx, backoff) != nil {
			return
		}
		backoff = min(2*backoff, l.c.o.Config.ReloadAfterFailure)
	}
}

// shut answers what is queued, and whatever would come.
func (l *loop) shut() {
	for _, t := range l.inbox.Shut() {
		if t.answer != nil {
			t.answer.give(transaction.CodeResponse{Code: transaction.NotCoordinator})
		}
	}
}

// live is one life of the table: from the load to the end of the loop or a failure.
func (l *loop) live() (err error) {
	l.waiting = map[transaction.RequestID]*answer{}
	l.effects.Reset()
	l.table = transaction.NewTable(l.c.o.Config.Table)
	l.clock = statelog.NewSteady(l.ctx, l.c.o.Now)
	defer func() {
		if p := recover(); p != nil {
			if _, ended := p.(clock.Ended); ended {
				panic(p) // nothing of this process answers any more
			}
			err = fmt.Errorf("%v\n%s", p, debug.Stack())
		}
		l.end(err)
	}()
	if err := l.load(); err != nil {
		return err
	}
	now := l.now()
	l.table.Loaded(now, &l.effects)
	if err := l.carryOut(); err != nil {
		return err
	}
	l.becomeReady()
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
	code := transaction.NotCoordinator
	if err != nil && l.ctx.Err() == nil {
		code = transaction.CoordinatorNotAvailable
	}
	func() {
		defer func() { _ = recover() }() // a table that broke an invariant may not be able to
		l.effects.Reset()
		l.table.Step(l.clock.Now(), transaction.Resign{Code: code}, &l.effects)
		l.reply()
	}()
	for _, id := range slices.Sorted(maps.Keys(l.waiting)) { // a simulated run has one order
		l.waiting[id].give(transaction.CodeResponse{Code: code})
	}
	clear(l.waiting)
	l.table = nil
}

func (l *loop) load() error {
	var scratch batch.Scratch
	records := 0
	done, err := statelog.Load{
		Image: l.c.o.Image, Partitions: l.c.o.Partitions, Topic: StateTopic, Partition: l.partition, Epoch: l.epoch,
		NodeID: l.c.o.NodeID, BufferBytes: l.c.o.Config.LoadBufferBytes,
	}.Read(l.ctx, func(h *batch.Header, raw []byte) error {
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
				l.logger.Warn("unreadable record in the transaction state is passed over", "offset", it.Record.Offset, "err", err)
			}
		}
		return it.Err()
	})
	if err != nil {
		return err
	}
	l.log = done.Log
	if records > 0 {
		l.logger.Info("transaction coordinator loaded its ids", "ids", l.table.IDs(), "records", records, "from", done.Start, "to", done.End)
	}
	return nil
}

func (l *loop) serve() error {
	sweep := clock.Now(l.ctx).Add(l.c.o.Config.SweepInterval)
	for {
		if _, err := clock.Wait(l.ctx, max(sweep.Sub(clock.Now(l.ctx)), 0), l.inbox.News); err != nil {
			return nil
		}
		for _, t := range l.inbox.Take(stepsPerRound) {
			l.take(t)
		}
		if !clock.Now(l.ctx).Before(sweep) {
			sweep = clock.Now(l.ctx).Add(l.c.o.Config.SweepInterval)
			l.table.Step(l.now(), transaction.Sweep{}, &l.effects)
		}
		if err := l.carryOut(); err != nil {
			return err
		}
	}
}

func (l *loop) take(t task) {
	id := transaction.NoRequest
	if t.answer != nil {
		l.lastID++
		id = l.lastID
		l.waiting[id] = t.answer
	}
	if t.look == nil {
		l.table.Step(l.now(), t.event(id), &l.effects)
		return
	}
	t.look(l.now(), l.table)
	delete(l.waiting, id)
	t.answer.give(transaction.CodeResponse{Code: transaction.None})
}

// carryOut answers, sends markers off and writes, until the table asks for nothing more.
func (l *loop) carryOut() error {
	for {
		l.reply()
		for _, n := range l.effects.Notes {
			l.logger.Info(n.What, "transactionalId", n.ID, "producerId", n.ProducerID, "producerEpoch", n.Epoch, "partitions", len(n.Partitions))
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
		a := l.waiting[r.Request]
		if a == nil {
			continue
		}
		delete(l.waiting, r.Request)
		a.give(r.Response)
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
		code, err := outcome(statelog.Write(l.ctx, l.log, records, statelog.WriteOptions{Epoch: l.epoch, Acks: -1, Timeout: l.c.o.Config.WriteTimeout}))
		if err != nil {
			return err
		}
		for _, a := range appends[:n] {
			l.table.Step(l.now(), transaction.Appended{Token: a.Token, Code: code}, &l.effects)
		}
		appends = appends[n:]
	}
	return nil
}
