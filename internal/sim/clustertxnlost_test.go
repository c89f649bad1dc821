package sim

import (
	"testing"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// later begins a transaction of a judge's first id a second from now, in an epoch of its producer 5.
func later(j *txnJudge, epoch int16) *transactionRun {
	j.w.k.now += time.Second
	t := j.begins(&txnClient{w: j.w, id: j.w.ids[0], started: j.w.k.now, pid: 5, epoch: epoch})
	t.asked = true
	return t
}

// loses has an unclean election take all of a partition.
func loses(j *txnJudge, id meta.PartitionID) {
	j.w.k.now += time.Second
	j.w.c.check.promiseEnds(j.w.c.check.ledger(id), &meta.PartitionRecord{})
}

// What an unclean election has taken of a partition excuses the transactions that had begun
// before it, there, and no other.
func TestTransactionsAfterAnUncleanElection(t *testing.T) {
	commit, abort := markerOf(batch.Commit), markerOf(batch.Abort)
	f := func(name, breaks string, story func(j *txnJudge, old *transactionRun)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			j, _ := aTxnJudge(t)
			old := later(j, 1)
			readableBatch(j, 0, dataOf(t, old, 1))
			old.acked[0], old.told = 0, aborted
			loses(j, meta.PartitionID{Topic: j.w.c.topic})
			readableBatch(j, 0, dataOf(t, old, 1)) // still there; its marker isn't
			story(j, old)
			j.wantFound(t, breaks)
		})
	}
	f("the next one's marker is taken for the old one's", "", func(j *txnJudge, _ *transactionRun) {
		now := later(j, 1)
		readableBatch(j, 0, dataOf(t, now, 1))
		readableBatch(j, 0, commit)
		now.acked[0], now.told = 1, committed
		j.agrees(now)
		j.final()
	})
	f("a new one is half", "TxnWhole", func(j *txnJudge, _ *transactionRun) {
		now := later(j, 1)
		for p := range int32(2) {
			readableBatch(j, p, dataOf(t, now, 1))
			readableBatch(j, p, [][]byte{commit, abort}[p])
		}
	})
	f("a new one's late batch", "OpenEnds", func(j *txnJudge, _ *transactionRun) {
		now := later(j, 1)
		readableBatch(j, 0, dataOf(t, now, 1))
		readableBatch(j, 0, abort)
		readableBatch(j, 0, dataOf(t, now, 1))
	})
	f("a new one is committed and not there", "TxnWhole", func(j *txnJudge, _ *transactionRun) {
		now := later(j, 1)
		now.acked[0], now.told = 1, committed
		j.final()
	})
	f("in another partition the old one is judged as ever", "TxnWhole", func(j *txnJudge, old *transactionRun) {
		readableBatch(j, 1, dataOf(t, old, 1))
		readableBatch(j, 1, commit)
	})
}

// A coordinator that has lost what it knew gives epochs again: what begins in a higher one
// than anybody has heard of is judged as ever.
func TestTransactionsOfACoordinatorThatForgot(t *testing.T) {
	f := func(epoch int16, forgets, isOld, breaks bool) {
		t.Helper()
		j, _ := aTxnJudge(t)
		x := &txnClient{w: j.w, id: j.w.ids[0]}
		j.hears(5, 3)
		j.given[producerEpoch{5, 3}] = x
		if forgets {
			loses(j, j.w.c.txnPartition(x.id.name))
		}
		run := later(j, epoch)
		if isOld {
			run.by.started = 0
		}
		run.told = committed
		readableBatch(j, 0, dataOf(t, run, epoch))
		readableBatch(j, 0, markerOf(batch.Abort))
		if found := j.w.k.failure; (found != nil) != breaks || breaks && found.Invariant != "TxnWhole" {
			t.Errorf("epoch %d: found %v", epoch, found)
		}
	}
	f(3, true, false, false)
	f(4, true, false, true)
	f(4, true, true, false) // two old instances may have come to it
	f(3, false, false, true)
}

// A log that compaction has left gaps in is looked at anew from end to end.
func TestGapsInWhatIsLookedAtAnew(t *testing.T) {
	l := &ledger{committed: map[types.Offset]*writtenBatch{}}
	for _, base := range []types.Offset{4, 9, 2} {
		l.committed[base] = &writtenBatch{shadowBatch: shadowBatch{base: base}}
	}
	l.top = l.committed[9]
	for from, want := range map[types.Offset]types.Offset{0: 2, 2: 2, 3: 4, 5: 9} {
		if w := l.committedFrom(from); w == nil || w.base != want {
			t.Errorf("from %d: %v", from, w)
		}
	}
	if w := l.committedFrom(10); w != nil {
		t.Errorf("behind the end: %v", w)
	}
}
