package sim

import (
	"maps"
	"slices"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// Transactions beside what takes records away or back: retention and DeleteRecords,
// compaction, and metadata from a backup.

// besideDeletes has retention and operators delete the oldest records of transactions, also
// those of open ones.
func besideDeletes(o *ClusterOptions) {
	transactionsAtWork(o)
	o.SegmentBytes, o.RetentionBytes, o.FlushEvery = min(o.SegmentBytes, 4000), 3000, 100*time.Millisecond
	o.Rates["delete-records"], o.Rates["txn-pause"] = 15, 8
	o.TxnLateAtOnce = true
}

// besideCompaction has them on a compacted topic whose markers may go soon.
func besideCompaction(o *ClusterOptions) {
	transactionsAtWork(o)
	o.Compacted, o.SegmentBytes, o.DeleteRetention = true, 900, 3*time.Second
	o.Rates["txn-pause"] = 8
}

// besideRestores has the metadata go back while they are at work.
func besideRestores(o *ClusterOptions) {
	transactionsAtWork(o)
	o.Length = max(o.Length, 90*time.Second)
	o.Rates = map[string]float64{"write": 30, "backup": 3, "restore": 1.5, "txn-die": 4, "txn-second": 3, "txn-pause": 2, "txn-late": 10, "crash": 1, "elect-preferred": 4, "restart-cleanly": 1}
}

// keptWhole judges what compaction has left of transactions, in the end (TxnWhole): of
// each key the newest record that is committed is there, also where a newer one was
// aborted; and behind what is left of a transaction that has ended there is its marker.
func (j *txnJudge) keptWhole() {
	if !j.w.c.o.Compacted {
		return
	}
	for _, m := range j.w.c.machines {
		for _, h := range m.parts {
			l := j.w.c.check.ledger(h.id)
			if h.id.Topic != j.w.c.topic || l.unclean >= 0 {
				continue
			}
			j.keysKept(m, h, j.newestOf(l))
			j.markersKept(m, h, l)
		}
	}
}

// newestOf gives each key's newest record that is committed, by its offset, as the markers
// that were promised say.
func (j *txnJudge) newestOf(l *ledger) map[string]types.Offset {
	newest := map[string]types.Offset{}
	running := map[types.ProducerID][]*writtenBatch{}
	ends := func(w *writtenBatch) {
		for it := batch.Records(w.raw, nil); it.Next(); {
			newest[string(it.Record.Key)] = max(newest[string(it.Record.Key)], it.Record.Offset)
		}
	}
	for _, base := range slices.Sorted(maps.Keys(l.committed)) {
		w := l.committed[base]
		h, err := batch.ParseHeader(w.raw)
		switch {
		case err != nil:
		case !h.IsTransactional():
			ends(w)
		case !h.IsControl():
			running[h.ProducerID] = append(running[h.ProducerID], w)
		default:
			if m, err := batch.ParseMarker(w.raw); err == nil && m.Kind == batch.Commit {
				for _, w := range running[h.ProducerID] {
					ends(w)
				}
			}
			delete(running, h.ProducerID)
		}
	}
	return newest
}

func (j *txnJudge) keysKept(m *machine, h *held, newest map[string]types.Offset) {
	there := map[types.Offset]bool{}
	for i := range h.batches {
		if hd, err := batch.ParseHeader(h.batches[i].raw); err != nil || hd.IsControl() {
			continue
		}
		for it := batch.Records(h.batches[i].raw, nil); it.Next(); {
			there[it.Record.Offset] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(newest)) {
		if at := newest[key]; at >= h.start && !there[at] {
			j.fail("TxnWhole", "%s partition %d: of key %s the newest committed record, at %d, is gone", m.name, h.id.Number, key, at)
			return
		}
	}
	j.w.k.probe("compaction: transactions are judged for their keys")
}

func (j *txnJudge) markersKept(m *machine, h *held, l *ledger) {
	running := map[types.ProducerID]*transactionRun{}
	for i := range h.batches {
		hd, err := batch.ParseHeader(h.batches[i].raw)
		if err != nil || !hd.IsTransactional() {
			continue
		}
		if hd.IsControl() {
			delete(running, hd.ProducerID)
			continue
		}
		t := j.runOf(h.batches[i].raw)
		if t == nil || !j.isWhole(l, t) {
			continue // nothing is left of the batch
		}
		if other := running[hd.ProducerID]; other != nil && other != t {
			j.fail("TxnWhole", "%s partition %d: records of %v are left, and their marker isn't: %s of %v comes next", m.name, h.id.Number, other, h.batches[i], t)
			return
		}
		running[hd.ProducerID] = t
	}
	for _, pid := range slices.Sorted(maps.Keys(running)) {
		if t := running[pid]; t.ends[j.spot(l.id)] != open {
			j.fail("TxnWhole", "%s partition %d: records of %v are left, and their marker isn't", m.name, h.id.Number, t)
			return
		}
	}
}
