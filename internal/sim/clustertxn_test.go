package sim

import (
	"testing"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// aTxnJudge gives the judge of a run that has not begun, and one transaction of it that
// was asked to be committed.
func aTxnJudge(t *testing.T) (*txnJudge, *transactionRun) {
	t.Helper()
	o, err := SwarmCluster(1, "cluster-txn")
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(1, &o, &Mutation{}, nil)
	c.topic, c.wantTopic = types.TopicID{7}, types.TopicID{7}
	j := c.txns.judge
	run := j.begins(&txnClient{w: c.txns, id: c.txns.ids[0]})
	run.asked = true
	return j, run
}

// readableBatch has a partition of the judge's topic show one more batch.
func readableBatch(j *txnJudge, p int32, raw []byte) {
	l := j.w.c.check.ledger(meta.PartitionID{Topic: j.w.c.topic, Number: p})
	base := types.Offset(len(l.committed))
	w := &writtenBatch{shadowBatch: shadowBatch{base: base, next: base + 1, raw: raw}}
	j.wrote(w)
	l.committed[base] = w
	j.readable(l)
}

func dataOf(t *testing.T, run *transactionRun, epoch int16) []byte {
	t.Helper()
	b := batch.NewBuilder(batch.BuilderOptions{Transactional: true, Producer: &batch.Producer{ID: 5, Epoch: epoch}})
	b.Append(1, nil, []byte(txnMark+string(rune('0'+run.number))+" of a test"))
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func markerOf(kind batch.MarkerKind) []byte { return batch.NewMarker(kind, 5, 1, 1, 1) }

// wantFound compares what a judge has found with the invariant that a story breaks, "" for none.
func (j *txnJudge) wantFound(t *testing.T, breaks string) {
	t.Helper()
	found := j.w.k.failure
	if breaks == "" && found != nil || breaks != "" && (found == nil || found.Invariant != breaks) {
		t.Errorf("found %v, want %q", found, breaks)
	}
}

// Each check of transactions fails on a history that breaks it, and on no other.
func TestTransactionsAreJudged(t *testing.T) {
	commit, abort := markerOf(batch.Commit), markerOf(batch.Abort)
	f := func(name, breaks string, story func(j *txnJudge, run *transactionRun)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			j, run := aTxnJudge(t)
			story(j, run)
			j.wantFound(t, breaks)
		})
	}
	f("whole", "", func(j *txnJudge, run *transactionRun) {
		for p := range int32(2) {
			readableBatch(j, p, dataOf(t, run, 1))
			readableBatch(j, p, commit)
			run.acked[p] = 0
		}
		run.told = committed
		j.agrees(run)
		j.final()
	})
	f("half", "TxnWhole", func(j *txnJudge, run *transactionRun) {
		for p := range int32(2) {
			readableBatch(j, p, dataOf(t, run, 1))
			readableBatch(j, p, [][]byte{commit, abort}[p])
		}
	})
	f("told otherwise", "TxnWhole", func(j *txnJudge, run *transactionRun) {
		run.told = committed
		readableBatch(j, 0, dataOf(t, run, 1))
		readableBatch(j, 0, abort)
	})
	f("nobody asked", "TxnWhole", func(j *txnJudge, run *transactionRun) {
		run.asked = false
		readableBatch(j, 0, dataOf(t, run, 1))
		readableBatch(j, 0, commit)
	})
	f("committed and not there", "TxnWhole", func(j *txnJudge, run *transactionRun) {
		run.told, run.acked[0] = committed, 0
		j.final()
	})
	f("two in one", "TxnWhole", func(j *txnJudge, run *transactionRun) {
		other := j.begins(&txnClient{w: j.w, id: j.w.ids[0]})
		readableBatch(j, 0, dataOf(t, run, 1))
		readableBatch(j, 0, dataOf(t, other, 1))
	})
	f("late batch", "OpenEnds", func(j *txnJudge, run *transactionRun) {
		readableBatch(j, 0, dataOf(t, run, 1))
		readableBatch(j, 0, abort)
		readableBatch(j, 0, dataOf(t, run, 1))
	})
	f("fenced", "ProducerFenced", func(j *txnJudge, run *transactionRun) {
		j.epochs[5] = &toldEpoch{epoch: 2, to: &txnClient{w: j.w, id: j.w.ids[0]}}
		readableBatch(j, 0, dataOf(t, run, 1))
	})
	f("written before it was fenced", "", func(j *txnJudge, run *transactionRun) {
		readableBatch(j, 0, dataOf(t, run, 1))
		j.epochs[5] = &toldEpoch{epoch: 2, to: &txnClient{w: j.w, id: j.w.ids[0]}}
		readableBatch(j, 0, abort)
	})
}

// NoAbortedRead: a reader of committed records is given nothing that is open or aborted,
// and everything else.
func TestReadersOfCommittedRecordsAreJudged(t *testing.T) {
	f := func(end []byte, saysAborted, breaks bool) {
		t.Helper()
		j, run := aTxnJudge(t)
		raw := dataOf(t, run, 1)
		readableBatch(j, 0, raw)
		if end != nil {
			readableBatch(j, 0, end)
		}
		h, err := batch.ParseHeader(raw)
		if err != nil {
			t.Fatal(err)
		}
		j.delivered(&stableReader{w: j.w, topic: j.w.c.topic}, &h, raw, saysAborted)
		if found := j.w.k.failure; (found != nil) != breaks || breaks && found.Invariant != "NoAbortedRead" {
			t.Errorf("found %v", found)
		}
	}
	f(markerOf(batch.Commit), false, false)
	f(markerOf(batch.Commit), true, true)
	f(markerOf(batch.Abort), true, false)
	f(markerOf(batch.Abort), false, true)
	f(nil, false, true)
}

// An acknowledgement is one of another batch by right only where a producer's epoch was
// given again: the log holds another transaction's batch of that epoch and sequence there.
func TestAnEpochThatWasGivenAgain(t *testing.T) {
	j, run := aTxnJudge(t)
	other := j.begins(&txnClient{w: j.w, id: j.w.ids[0]})
	f := func(holds []byte, want bool) {
		t.Helper()
		h := &held{shadowLog: &shadowLog{shadow: shadow{batches: []shadowBatch{{base: 7, next: 8, raw: holds}}}}}
		if got := isRepeated(h, 7, dataOf(t, run, 1), func(raw []byte) bool { return j.runOf(raw) != run }); got != want {
			t.Errorf("repeated: %v", got)
		}
	}
	f(dataOf(t, other, 1), true)
	f(dataOf(t, other, 2), false)
	f(dataOf(t, run, 1), false)
	if isRepeated(nil, 7, dataOf(t, run, 1), nil) {
		t.Error("a log that isn't there holds it")
	}
}

// CoordinatorFence can fail: a broker answers for an id whose partition it doesn't hold, or
// follows; and it doesn't where the partition's leader answers, or one that isn't asked as a coordinator.
func TestCoordinatorsAreJudged(t *testing.T) {
	f := func(breaks bool, story func(j *txnJudge, leader, follower *machine, id *txnID)) {
		t.Helper()
		o, err := SwarmCluster(1, "cluster-txn")
		if err != nil {
			t.Fatal(err)
		}
		o.Rates = map[string]float64{}
		c := newCluster(1, &o, &Mutation{}, nil)
		defer c.end()
		var leader *machine
		var id *txnID
		for at := time.Second; leader == nil && at < time.Minute; at += time.Second {
			c.k.runUntil(at, 0)
			if c.txns == nil || !c.txns.begun {
				continue
			}
			id = c.txns.ids[0]
			if r := c.check.ledger(c.txnPartition(id.name)).record; r != nil && r.Leader != types.NoBroker && len(r.ISR) > 1 {
				leader = c.machine(r.Leader)
			}
		}
		if leader == nil || c.k.failure != nil {
			t.Fatalf("nobody coordinates: %v", c.k.failure)
		}
		var follower *machine
		for _, m := range c.machines {
			if m != leader && m.held(c.txnPartition(id.name)) != nil {
				follower = m
			}
		}
		story(c.txns.judge, leader, follower, id)
		if found := c.k.failure; (found != nil) != breaks || breaks && found.Invariant != "CoordinatorFence" {
			t.Errorf("found %v", found)
		}
	}
	f(false, func(j *txnJudge, leader, _ *machine, id *txnID) { j.answers(leader, id, wire.None) })
	f(true, func(j *txnJudge, _, follower *machine, id *txnID) { j.answers(follower, id, wire.None) })
	f(true, func(j *txnJudge, _, follower *machine, id *txnID) { j.answers(follower, id, wire.ErrProducerFenced) })
	f(false, func(j *txnJudge, _, follower *machine, id *txnID) { j.answers(follower, id, wire.ErrNotCoordinator) })
	f(true, func(j *txnJudge, leader, _ *machine, id *txnID) {
		leader.parts = nil
		j.answers(leader, id, wire.None)
	})
}
