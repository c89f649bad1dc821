package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"tidemark/internal/assert"
	"tidemark/internal/clock"
)

// errStopped is what events get that come after their shard was stopped.
var errStopped = errors.New("the broker is shutting down")

// shardQueueEvents bounds the events waiting for a shard. A full queue makes the sender wait:
// appends are the bulk of them, and a client that waits is the right answer to a slow disk.
const shardQueueEvents = 1024

// shardRoundEvents bounds how many events one round takes before its group commit.
const shardRoundEvents = 256

// event is work for the owner of one partition: an append, or a function.
type event struct {
	p  *Partition
	op *appendOp
	f  func()
}

// shard is one goroutine that owns many partitions. Its events run one at a
// time in the order of arrival; events of one partition therefore never run at once.
// Who sends by sendOrRun runs the event itself when nothing is before it: at a low
// rate that spares two changes of goroutine, and often the waking of a thread, an event.
//
// A round takes what is waiting, runs it, and then syncs each partition whose
// acks=all answers wait for the disk (log.flush.acks): one sync pays for all
// appends of the round.
type shard struct {
	queue chan event
	stop  chan struct{} // closed: take no new events
	done  chan struct{} // closed: the goroutine has ended
	once  sync.Once
	log   *slog.Logger

	// ahead counts the events that are queued, running or about to be queued.
	ahead atomic.Int32
	// owner is held by whoever runs events, however long they take: the shard's goroutine,
	// which alone ever waits for it for long, or a sender that found nothing ahead.
	owner sync.Mutex
	ended bool // no event runs any more; guarded by owner

	inline bool // no goroutine: what is sent runs at once (Inline), or when it is its turn:
	// turns, if not nil, has f run soon (Options.Turns); queued waits for it.
	turns  func(f func())
	queued []event
	dirty  []*Partition // partitions to sync at the end of this round
}

func newShard(l *slog.Logger) *shard {
	return newShardSized(l, shardQueueEvents)
}

func newShardSized(l *slog.Logger, events int) *shard {
	s := &shard{queue: make(chan event, events), stop: make(chan struct{}), done: make(chan struct{}), log: l}
	go s.run()
	return s
}

// newInlineShard makes a shard that runs what is sent to it on the sender's goroutine.
func newInlineShard(l *slog.Logger) *shard {
	return &shard{inline: true, stop: make(chan struct{}), done: make(chan struct{}), log: l}
}

// send queues an event, waiting for room. After an error the event will never run.
func (s *shard) send(ctx context.Context, e event) error {
	select {
	case <-s.stop:
		return errStopped
	default:
	}
	switch {
	case s.turns != nil:
		s.queued = append(s.queued, e)
		if len(s.queued) == 1 {
			s.turns(s.turn)
		}
		return nil
	case s.inline:
		s.round(e)
		return nil
	}
	s.ahead.Add(1)
	select {
	case s.queue <- e:
		return nil
	case <-s.stop:
		s.ahead.Add(-1)
		return errStopped
	case <-ctx.Done():
		s.ahead.Add(-1)
		return ctx.Err()
	}
}

// sendOrRun is send for those who may run the event, and its group commit, on their own
// goroutine: they hold no lock that an event takes, and have nothing to do that must
// not wait for a disk. After nil the event has run, or will.
func (s *shard) sendOrRun(ctx context.Context, e event) error {
	if s.inline || !s.ahead.CompareAndSwap(0, 1) {
		return s.send(ctx, e)
	}
	defer s.ahead.Add(-1)
	s.owner.Lock()
	defer s.owner.Unlock()
	if s.ended {
		return errStopped
	}
	s.handle(e)
	s.commit()
	return nil
}

// turn runs the first of what was queued, as a round of its own.
func (s *shard) turn() {
	if len(s.queued) == 0 {
		return
	}
	e := s.queued[0]
	s.queued = s.queued[1:]
	if len(s.queued) > 0 {
		s.turns(s.turn)
	}
	s.round(e)
}

// close stops the shard once what is queued has run, and waits for it.
func (s *shard) close() {
	s.once.Do(func() {
		close(s.stop)
		if s.inline {
			for len(s.queued) > 0 {
				s.turn()
			}
			close(s.done)
		}
	})
	<-s.done
}

func (s *shard) run() {
	defer close(s.done)
	for {
		select {
		case e := <-s.queue:
			s.ownRound(e)
		case <-s.stop:
			s.drain()
			s.owner.Lock()
			s.ended = true
			s.owner.Unlock()
			return
		}
	}
}

// ownRound is a round of the shard's goroutine.
func (s *shard) ownRound(e event) {
	s.owner.Lock()
	defer s.owner.Unlock()
	s.ahead.Add(-s.round(e))
}

// wait waits until ch can be received from (true), d has passed (false), ctx has
// ended (its error), or the shard has stopped without making ch ready (errStopped).
func (s *shard) wait(ctx context.Context, d time.Duration, ch <-chan struct{}) (bool, error) {
	if clock.Of(ctx) != nil {
		return clock.Wait(ctx, d, ch)
	}
	select {
	case <-ch: // it has run on this goroutine, mostly
		return true, nil
	default:
	}
	if n, err := clock.WaitAny(ctx, d, ch, s.done); err != nil || n <= 0 {
		return n == 0, err
	}
	select {
	case <-ch:
		return true, nil
	default:
		return false, errStopped
	}
}

// drain runs what is still queued. A sender that raced with stop may add one
// more event right after; send's waiters look at done as well (see Partition.Do).
func (s *shard) drain() {
	for {
		select {
		case e := <-s.queue:
			s.ownRound(e)
		default:
			return
		}
	}
}

// round runs a first event and what waits behind it, then the group commit. It gives
// the number of events.
func (s *shard) round(e event) int32 {
	n := int32(1)
	for ; ; n++ {
		s.handle(e)
		if n == shardRoundEvents {
			break
		}
		select {
		case e = <-s.queue:
			continue
		default:
		}
		break
	}
	s.commit()
	return n
}

// commit is the group commit of what has run.
func (s *shard) commit() {
	for _, p := range s.dirty {
		s.guard(p, p.groupCommit)
	}
	clear(s.dirty)
	s.dirty = s.dirty[:0]
}

func (s *shard) handle(e event) {
	s.guard(e.p, func() {
		if e.op != nil {
			e.p.runAppend(e.op)
			return
		}
		e.f()
	})
}

// guard runs f and takes the partition offline if it panics.
func (s *shard) guard(p *Partition, f func()) {
	if s.inline {
		f()
		return
	}
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		err, ok := r.(error)
		if !ok {
			err = fmt.Errorf("%v", r)
		}
		var broken *assert.Error
		if !errors.As(err, &broken) {
			err = fmt.Errorf("panic: %w", err)
		}
		s.log.Error("partition goes offline", "partition", p.tp.String(), "err", err, "stack", string(debug.Stack()))
		p.goOffline(err)
	}()
	f()
}
