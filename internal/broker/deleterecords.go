package broker

import (
	"context"
	"errors"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/broker/api"
	"tidemark/internal/clock"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/wire"
)

// deleteOp waits for the in-sync replicas to raise their log starts.
type deleteOp struct {
	at   types.Offset // reached by the low watermark, it is done
	low  types.Offset
	err  error
	done chan struct{} // closed when low or err is set
}

// DeleteRecords implements api.Partition: it raises the log start, and waits until
// every in-sync replica has (KIP-107). The context's end leaves the records deleted
// here, and on the others as they hear of it.
func (p *Partition) DeleteRecords(ctx context.Context, before types.Offset) (types.Offset, error) {
	op := &deleteOp{done: make(chan struct{})}
	err := p.Do(ctx, func(o *Owned) error { return p.deleteBefore(o, before, op) })
	if err != nil {
		return types.NoOffset, err
	}
	if _, err := p.shard.wait(ctx, clock.Forever, op.done); err != nil {
		if ctx.Err() != nil {
			return types.NoOffset, wire.Errorf(wire.ErrRequestTimedOut, "the in-sync replicas of %s didn't raise their log starts to %d in time; they will", p.tp, op.at)
		}
		return types.NoOffset, outcomeOf(err)
	}
	return op.low, op.err
}

func (p *Partition) deleteBefore(o *Owned, before types.Offset, op *deleteOp) error {
	s := p.serving.Load()
	if err := s.mayAppend(p.tp, api.AppendRequest{Acks: 1, LeaderEpoch: types.NoLeaderEpoch}); err != nil {
		return err
	}
	if !s.deletes {
		return wire.Errorf(wire.ErrPolicyViolation, "Records of %s can't be deleted: cleanup.policy has no delete.", p.tp)
	}
	if before == types.NoOffset {
		before = o.Log().View().HighWatermark
	}
	at, err := o.Log().DeleteRecords(before)
	if errors.Is(err, log.ErrOutOfRange) {
		return wire.ErrOffsetOutOfRange
	}
	if err != nil {
		return p.storageFault(err)
	}
	// Asked for less than what is gone already, it is done at that.
	op.at = min(before, at)
	p.deletes = append(p.deletes, op)
	return nil // Do looks at it now, and after each fetch of a follower
}

// abandonDeletes ends the deletions that wait: the next leader knows nothing of them.
func (p *Partition) abandonDeletes(err error) {
	for _, op := range p.deletes {
		op.err = err
		close(op.done)
	}
	p.deletes = nil
}

// settleDeletes answers the deletions that every in-sync replica has carried out.
func (p *Partition) settleDeletes() {
	if len(p.deletes) == 0 || !p.leads() {
		return
	}
	own := p.log.View().LogStart
	low := p.leader.LowWatermark(own)
	if p.env.rules.DeleteAtOnce {
		low = own
	}
	checkLow(p.tp, low, own)
	p.deletes = slices.DeleteFunc(p.deletes, func(op *deleteOp) bool {
		if low < op.at {
			return false
		}
		op.low = low
		close(op.done)
		return true
	})
	if len(p.deletes) == 0 {
		p.deletes = nil
	}
}

// checkLow states that nobody's deletion is answered by what this leader itself still holds.
func checkLow(tp types.TopicPartition, low, own types.Offset) {
	// Invariant I-233: the low watermark is at most the leader's own log start.
	assert.That(low <= own, "I-233: %s: low watermark %d above the log start %d", tp, low, own)
}
