package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// What transactions commit of groups' offsets: an offset is committed if and only if its
// transaction is. The log of __consumer_offsets is judged like the topic's (TxnWhole,
// OpenEnds, ProducerFenced); here is what coordinators tell of it (NoAbortedRead, CommitKept).

// spot is a partition's key in what is noted of transactions: its number, or, of
// __consumer_offsets, below zero.
func (j *txnJudge) spot(id meta.PartitionID) int32 {
	if id.Topic == j.w.c.offsetsTopic {
		return -1 - id.Number
	}
	return id.Number
}

// ledgerAt is the ledger of a spot.
func (j *txnJudge) ledgerAt(spot int32) *ledger {
	if spot < 0 {
		return j.w.c.check.ledger(meta.PartitionID{Topic: j.w.c.offsetsTopic, Number: -1 - spot})
	}
	return j.w.c.check.ledger(meta.PartitionID{Topic: j.w.c.topic, Number: spot})
}

// nameOf is a spot as findings tell of it.
func (j *txnJudge) nameOf(spot int32) string { return j.w.c.check.nameOf(j.ledgerAt(spot).id) }

// commits takes note of an offset that a transaction is about to commit.
func (j *txnJudge) commits(t *transactionRun, partition int32) *txnCommit {
	c := &txnCommit{t: t, number: len(j.offsets), partition: partition, in: -1}
	c.text = fmt.Sprintf("%s%d of %s, commit %d", txnMark, t.number, t.id.name, c.number)
	j.offsets = append(j.offsets, c)
	j.byText[c.text] = c
	return c
}

// pending takes note that a coordinator has taken an offset into its transaction.
func (j *txnJudge) pending(m *machine, c *txnCommit) {
	id := j.w.offsetsPartition(c.t.id)
	epoch, ok := j.w.c.check.coordinatesIn(m, id, c.t.id.group(), "takes an offset into a transaction")
	if !ok || c.in >= 0 {
		return
	}
	c.in, c.at = epoch, j.w.k.now
	if _, known := c.t.acked[j.spot(id)]; !known {
		c.t.acked[j.spot(id)] = types.NoOffset
	}
}

// offsetsTold judges what a coordinator tells of a group's offsets, to who asked at the moment sent.
func (j *txnJudge) offsetsTold(m *machine, id *txnID, parts []kmsg.OffsetFetchResponseTopicPartition, sent time.Duration) {
	at := j.w.offsetsPartition(id)
	epoch, ok := j.w.c.check.coordinatesIn(m, at, id.group(), "tells a committed offset")
	if !ok {
		return
	}
	for i := range parts {
		p := &parts[i]
		if wire.ErrCode(p.ErrorCode) != wire.None {
			continue // an open transaction may change it
		}
		told, ok := j.toldCommit(m, id, p)
		if !ok {
			return
		}
		if a := j.overlooked(id, p.Partition, told, epoch, sent); a != nil {
			j.fail("CommitKept", "%s (epoch %d) tells %v of partition %d for %s, to who asked at %v; %v was taken in epoch %d, and its transaction committed at %v",
				m.name, epoch, told, p.Partition, id.group(), sent.Round(time.Millisecond), a, a.in, a.t.toldAt.Round(time.Millisecond))
			return
		}
	}
}

// toldCommit finds the commit that is told, nil if none is, and demands that its transaction
// is committed, in the log too (NoAbortedRead).
func (j *txnJudge) toldCommit(m *machine, id *txnID, p *kmsg.OffsetFetchResponseTopicPartition) (*txnCommit, bool) {
	if p.Offset < 0 {
		return nil, true
	}
	text := ""
	if p.Metadata != nil {
		text = *p.Metadata
	}
	c := j.byText[text]
	if c == nil || c.t.id != id || c.partition != p.Partition || int64(c.number) != p.Offset {
		j.fail("CommitKept", "%s tells offset %d of partition %d for %s, which nobody committed (%q)", m.name, p.Offset, p.Partition, id.group(), text)
		return nil, false
	}
	at := j.w.offsetsPartition(id)
	if !j.isWhole(j.w.c.check.ledger(at), c.t) {
		return c, true
	}
	if end := c.t.ends[j.spot(at)]; end != committed {
		j.fail("NoAbortedRead", "%s tells %v for %s, and the log of the offsets says that it is %v", m.name, c, id.group(), end)
		return nil, false
	}
	c.t.read = true
	j.agrees(c.t)
	return c, true
}

// overlooked gives an offset that must have been told in the place of told: its coordinator
// knows it, and its transaction was committed before anybody asked. Nil if there is none.
func (j *txnJudge) overlooked(id *txnID, p int32, told *txnCommit, epoch types.LeaderEpoch, sent time.Duration) *txnCommit {
	l := j.w.c.check.ledger(j.w.offsetsPartition(id))
	for _, a := range slices.Backward(j.offsets) {
		if a.t.id != id || a.partition != p {
			continue
		}
		if told != nil && a.t.number <= told.t.number {
			return nil
		}
		known := j.isWhole(l, a.t) && a.in >= 0 && (a.in < epoch || a.in == epoch && a.at <= sent)
		if known && a.t.told == committed && a.t.toldAt <= sent {
			return a
		}
	}
	return nil
}

// isAborted reports whether a promised batch is of a transaction that was aborted: the next
// marker of its producer says so.
func (l *ledger) isAborted(w *writtenBatch) bool {
	h, err := batch.ParseHeader(w.raw)
	if err != nil || !h.IsTransactional() {
		return false
	}
	for _, base := range slices.Sorted(maps.Keys(l.committed)) {
		if base <= w.base {
			continue
		}
		if m, err := batch.ParseMarker(l.committed[base].raw); err == nil && m.ProducerID == h.ProducerID {
			return m.Kind == batch.Abort
		}
	}
	return false
}
