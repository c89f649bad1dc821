package broker

import (
	"tidemark/internal/assert"
	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// stopsAtFence judges what a coordinator brings to a partition that a switchover has
// closed (docs/adr/0028), and settles what goes no further. Of all appends only
// markers are let in, and only those that end a transaction which is open in the log: so the
// log that has none open has its final end, whoever leads it. It runs on the shard.
//
// A marker that would end nothing is answered as written, once what the log holds is
// committed: its transaction has nothing here, or has ended here before.
func (p *Partition) stopsAtFence(op *appendOp) bool {
	h, err := batch.ParseHeader(op.raw)
	if err != nil || !h.IsControl() {
		op.err = errFenced(p.tp)
		return true
	}
	if p.log.HasOpenTransaction(h.ProducerID) {
		// Invariant I-270: behind a fence a log takes nothing but markers of transactions that are open in it.
		assert.That(h.IsTransactional() && h.IsControl(), "I-270: %s takes a batch of producer %d behind its fence", p.tp, h.ProducerID)
		return false
	}
	v := p.log.View()
	op.res.BaseOffset, op.res.LogStart, op.res.LogAppendTime, op.next = v.LogEnd, v.LogStart, types.NoTimestamp, v.LogEnd
	if v.HighWatermark < v.LogEnd {
		p.appended(op)
	}
	return true
}
