package sim

import (
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// What still holds of transactions where an unclean election has taken records.
//
// Of a partition with records of transactions: whatever has begun since is judged as ever.
// What had begun before may lack records and markers, and a marker that is gone leaves its
// records to the producer's next one. Of a partition of __transaction_state: its
// coordinator may give the epochs again that it gave before, and knows nothing of what
// they did; and two instances that hold one are given the next one both, each as if it
// asked again (KIP-360). What an instance does that was started since, in a higher epoch
// than anybody had heard of, is judged as ever.

// forgotten takes note of an unclean election: what it took back was promised to nobody any more.
func (j *txnJudge) forgotten(id meta.PartitionID) {
	switch {
	case id.Topic == j.w.topic:
		j.lost[id.Number] = j.w.k.now
		for _, x := range j.w.ids {
			if j.w.c.txnPartition(x.name) == id {
				j.forgetEpochs(x)
			}
		}
	case j.isOfTxns(id.Topic):
		delete(j.parts, j.spot(id)) // what is left of it is looked at anew
	}
}

// forgetEpochs forgets which epochs the instances of an id were given.
func (j *txnJudge) forgetEpochs(id *txnID) {
	for key, x := range j.given {
		if x.id == id {
			j.floor[key.id] = j.highest[key.id]
			delete(j.given, key)
		}
	}
	for pid, e := range j.epochs {
		if e.to.id == id {
			delete(j.epochs, pid)
		}
	}
	for _, t := range j.runs {
		if t.id == id {
			j.floor[t.in.id] = j.highest[t.in.id]
		}
	}
}

// hears takes note of an epoch that somebody has heard of.
func (j *txnJudge) hears(id types.ProducerID, epoch int16) {
	if now, known := j.highest[id]; !known || now < epoch {
		j.highest[id] = epoch
	}
}

// isLost reports whether a coordinator of the id has lost some of what it knew.
func (j *txnJudge) isLost(id *txnID) bool {
	_, lost := j.lost[j.w.c.txnPartition(id.name).Number]
	return lost
}

// isOwn reports whether an epoch can be nobody's but an instance's.
func (j *txnJudge) isOwn(x *txnClient, e producerEpoch) bool {
	lost, ok := j.lost[j.w.c.txnPartition(x.id.name).Number]
	if !ok {
		return true
	}
	floor, known := j.floor[e.id]
	return x.started > lost && (!known || e.epoch > floor)
}

// isSound reports whether the coordinator knows all of a transaction.
func (j *txnJudge) isSound(t *transactionRun) bool { return j.isOwn(t.by, t.in) }

// isWhole reports whether nothing of a transaction was lost, in a partition or by its coordinator.
func (j *txnJudge) isWhole(l *ledger, t *transactionRun) bool {
	return j.isSound(t) && t.began > l.unclean
}

// committedFrom is the first promised batch from an offset on, nil if there is none.
func (l *ledger) committedFrom(from types.Offset) *writtenBatch {
	if w := l.committed[from]; w != nil || l.top == nil || l.top.base < from {
		return w
	}
	first := l.top // compaction had taken some before they were promised anew
	for base, w := range l.committed {
		if base >= from && base < first.base {
			first = w
		}
	}
	return first
}
