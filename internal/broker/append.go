package broker

import (
	"context"
	"errors"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/clock"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/wire"
)

// appendOp is one append on its way through the shard. The caller waits at
// reply: once for the append itself, and once more if pending was set then.
type appendOp struct {
	raw []byte
	req api.AppendRequest

	res     api.AppendResult
	err     error
	pending bool         // acks=all: the append is done, the high watermark isn't there yet
	next    types.Offset // acks=all is met when the high watermark reaches it
	reply   chan struct{}
}

// Append implements api.Partition.
func (p *Partition) Append(ctx context.Context, raw []byte, req api.AppendRequest) (api.AppendResult, error) {
	if err := p.serving.Load().mayAppend(p.tp, req); err != nil {
		return api.AppendResult{}, err
	}
	op := &appendOp{raw: raw, req: req, reply: make(chan struct{}, 2)}
	if err := p.shard.sendOrRun(ctx, event{p: p, op: op}); err != nil {
		return api.AppendResult{}, outcomeOf(err)
	}
	// raw belongs to the shard until it replies, whatever becomes of ctx.
	if _, err := p.shard.wait(context.WithoutCancel(ctx), clock.Forever, op.reply); err != nil {
		return api.AppendResult{}, outcomeOf(err)
	}
	if !op.pending {
		return op.res, op.err
	}
	settled, err := p.shard.wait(ctx, req.Timeout, op.reply)
	switch {
	case err != nil:
		return api.AppendResult{}, outcomeOf(err)
	case !settled:
		return api.AppendResult{}, wire.Errorf(wire.ErrRequestTimedOut, "the in-sync replicas of %s didn't answer in time; the batch stays in the log", p.tp)
	}
	return op.res, op.err
}

func outcomeOf(err error) error {
	if errors.Is(err, errStopped) {
		return errNotLeader("the broker is shutting down")
	}
	return err
}

// mayAppend judges a write before it is queued, and again when it runs.
func (s *serving) mayAppend(tp types.TopicPartition, req api.AppendRequest) error {
	switch {
	case s.err != nil:
		return s.err
	case s.mirror != "":
		return api.ErrReadOnly(tp.Topic, s.mirror)
	case s.fenced && req.Origin == api.OriginCoordinator:
		// A marker, which stopsAtFence judges in the log's own turn.
	case s.fenced:
		return errFenced(tp)
	case s.readOnly:
		return wire.Errorf(wire.ErrPolicyViolation, "Partition %s is read-only.", tp)
	}
	switch {
	case req.Acks < -1 || req.Acks > 1:
		return wire.Errorf(wire.ErrInvalidRequiredAcks, "acks must be -1, 0 or 1, not %d", req.Acks)
	case req.Acks == -1 && !s.minISR:
		return wire.Errorf(wire.ErrNotEnoughReplicas, "Partition %s has fewer in-sync replicas than min.insync.replicas.", tp)
	}
	return s.fence(req.LeaderEpoch)
}

// errFenced refuses what a switchover's fence keeps out.
func errFenced(tp types.TopicPartition) error {
	return wire.Errorf(wire.ErrPolicyViolation, "Partition %s is closed to writes: a switchover to another cluster is under way.", tp)
}

// fence checks the leader epoch that a request believes in (KIP-320).
func (s *serving) fence(said types.LeaderEpoch) error {
	switch {
	case said < 0 || said == s.epoch:
		return nil
	case said < s.epoch:
		return wire.ErrFencedLeaderEpoch
	default:
		return wire.ErrUnknownLeaderEpoch
	}
}

// runAppend carries an append out; it runs on the shard.
func (p *Partition) runAppend(op *appendOp) {
	defer func() {
		if r := recover(); r != nil {
			op.err = wire.Errorf(wire.ErrKafkaStorageError, "%s has failed", p.tp)
			op.reply <- struct{}{}
			panic(r)
		}
		op.raw = nil
		op.reply <- struct{}{}
	}()
	s := p.serving.Load()
	if op.err = s.mayAppend(p.tp, op.req); op.err != nil {
		return
	}
	if p.env.ended != nil && p.env.ended(s.registration) {
		// It was queued before, and what ended the leadership is queued behind it (R10).
		op.err = errLapsed
		return
	}
	if op.req.RequestVersion > 0 && op.req.RequestVersion < 7 {
		if h, err := batch.ParseHeader(op.raw); err == nil && h.Compression() == batch.Zstd {
			op.err = wire.ErrUnsupportedCompressionType // KIP-110
			return
		}
	}
	if op.err = p.mayJoin(op); op.err != nil {
		return
	}
	if s.fenced && p.stopsAtFence(op) {
		return
	}
	a := log.LeaderAppend{RefuseGaps: true}
	if op.req.Origin == api.OriginCoordinator {
		a.Origin, a.BumpedMarker = log.OriginCoordinator, op.req.BumpedMarker
	}
	done, err := p.log.AppendAsLeader(op.raw, s.epoch, a)
	p.tellRoom(err)
	if err != nil {
		op.err = p.storageFault(err)
		return
	}
	p.joined(op)
	op.res = api.AppendResult{BaseOffset: done.First, LogStart: done.LogStart, LogAppendTime: done.AppendTime}
	op.next = done.Last + 1
	p.appended(op)
}

// appended moves the marks after an append, or leaves that to the group commit.
func (p *Partition) appended(op *appendOp) {
	if op.req.Acks == -1 {
		op.pending = true
		// Invariant I-122: appends that wait for the high watermark stand in the order of
		// their offsets. A duplicate's is an older one.
		i := len(p.waiting)
		for i > 0 && p.waiting[i-1].next > op.next {
			i--
		}
		p.waiting = slices.Insert(p.waiting, i, op)
		assert.That(i == len(p.waiting)-1 || p.waiting[i+1].next >= op.next, "I-122: %s waits for %d before %d", p.tp, op.next, p.waiting[min(i+1, len(p.waiting)-1)].next)
	}
	if p.env.flushAcks {
		if !p.commitDue {
			p.commitDue = true
			p.shard.dirty = append(p.shard.dirty, p)
		}
		return
	}
	p.refresh()
	p.flushByCount(p.view)
}

// tellRoom logs once when the disk begins to refuse appends, and once when it takes them again.
func (p *Partition) tellRoom(err error) {
	if err == nil {
		p.dir.room.taken()
	}
	switch isFull := errors.Is(err, log.ErrNoSpace); {
	case isFull && !p.full:
		p.full = true
		p.env.logger.Warn("the disk is full: appends are refused until there is room", "partition", p.tp.String(), "err", err)
	case err == nil && p.full:
		p.full = false
		p.env.logger.Info("the disk has room again: appends are taken", "partition", p.tp.String())
	}
}

// groupCommit begins to sync what the round has appended; the marks move when that has ended.
func (p *Partition) groupCommit() {
	p.commitDue = false
	p.startFlush()
}

// storageFault turns an error of the log into what a client gets; an I/O error
// takes the partition, and with it the log dir, offline.
func (p *Partition) storageFault(err error) error {
	switch {
	case errors.Is(err, log.ErrNoSpace):
		p.env.metrics.Log.NoSpace.Inc()
		p.dir.room.refused()
		return wire.Errorf(wire.ErrKafkaStorageError, "the disk of %s is full: nothing was written, writing goes on when there is room", p.tp)
	case errors.Is(err, log.ErrOffline), errors.Is(err, log.ErrClosed):
		p.goOffline(err)
		return p.offline
	default:
		return err
	}
}

// settle answers the waiting appends that the high watermark has reached. With too
// few in-sync replicas they are in the log, and not acknowledged all the same.
func (p *Partition) settle(hw types.Offset) {
	n := 0
	for n < len(p.waiting) && p.waiting[n].next <= hw {
		n++
	}
	if n == 0 {
		return
	}
	var err error
	if _, denied := p.leader.ProduceStatus(p.waiting[n-1].next); denied == replica.NotEnoughAfterwards {
		err = wire.Errorf(wire.ErrNotEnoughReplicasAfterAppend, "Partition %s has fewer in-sync replicas than min.insync.replicas; the batch stays in the log.", p.tp)
	}
	p.release(n, err)
}

// abandon answers all waiting appends and deletions with an error.
func (p *Partition) abandon(err error) {
	p.release(len(p.waiting), err)
	p.abandonDeletes(err)
}

func (p *Partition) release(n int, err error) {
	for _, op := range p.waiting[:n] {
		op.err = err
		if err != nil {
			op.res = api.AppendResult{}
		}
		// An op that is settled by its own append has not replied yet: one reply is enough then.
		if op.raw != nil {
			op.pending = false
			continue
		}
		op.reply <- struct{}{}
	}
	rest := copy(p.waiting, p.waiting[n:])
	clear(p.waiting[rest:])
	p.waiting = p.waiting[:rest]
	if rest == 0 {
		p.waiting = nil
	}
}
