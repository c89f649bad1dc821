package sim

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// aJudgeOfOffsets gives the judge of a run that has not begun, and two commits of an offset, of
// two transactions of one id, one after the other. Both were taken in epoch 3, at one second.
func aJudgeOfOffsets(t *testing.T) (j *txnJudge, first, second *txnCommit) {
	t.Helper()
	o, err := SwarmCluster(1, "cluster-txn-offsets")
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(1, &o, &Mutation{}, nil)
	j = c.txns.judge
	take := func() *txnCommit {
		run := j.begins(&txnClient{w: c.txns, id: c.txns.ids[0]})
		run.asked = true
		x := j.commits(run, 0)
		x.in, x.at = 3, time.Second
		return x
	}
	first, second = take(), take()
	return j, first, second
}

// readableOffset has the partition of the offsets show a commit, as a record's metadata, and then an end.
func readableOffset(t *testing.T, j *txnJudge, c *txnCommit, end []byte) {
	t.Helper()
	b := batch.NewBuilder(batch.BuilderOptions{Transactional: true, Producer: &batch.Producer{ID: 5, Epoch: 1, BaseSequence: -1}})
	b.Append(1, []byte("key"), []byte("\x00\x04"+c.text+"\x00"))
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	l := j.w.c.check.ledger(j.w.offsetsPartition(c.t.id))
	for _, raw := range [][]byte{raw, end} {
		if raw == nil {
			continue
		}
		base := types.Offset(len(l.committed))
		w := &writtenBatch{shadowBatch: shadowBatch{base: base, next: base + 1, raw: raw}}
		j.wrote(w)
		l.committed[base] = w
		j.readable(l)
	}
}

// An offset that is told is one whose transaction is committed, in the log of the offsets
// too (NoAbortedRead, CommitKept), and its end is the whole transaction's (TxnWhole).
func TestToldOffsetsAreJudged(t *testing.T) {
	f := func(end []byte, toldAs fate, text func(c *txnCommit) string, breaks string) {
		t.Helper()
		j, c, _ := aJudgeOfOffsets(t)
		c.t.told = toldAs
		readableOffset(t, j, c, end)
		metadata := c.text
		if text != nil {
			metadata = text(c)
		}
		if j.w.k.failure == nil {
			j.toldCommit(j.w.c.machine(1), c.t.id, &kmsg.OffsetFetchResponseTopicPartition{Partition: 0, Offset: int64(c.number), Metadata: &metadata})
		}
		found := j.w.k.failure
		if breaks == "" && found != nil || breaks != "" && (found == nil || found.Invariant != breaks) {
			t.Errorf("found %v, want %q", found, breaks)
		}
	}
	f(markerOf(batch.Commit), committed, nil, "")
	f(markerOf(batch.Commit), open, nil, "") // its producer hasn't heard yet
	f(nil, committed, nil, "NoAbortedRead")
	f(markerOf(batch.Abort), aborted, nil, "NoAbortedRead")
	f(markerOf(batch.Abort), committed, nil, "TxnWhole")
	f(markerOf(batch.Commit), committed, func(*txnCommit) string { return "" }, "CommitKept")
}

// A committed offset must be told, unless its coordinator can't know, or a newer one is.
func TestOverlookedOffsets(t *testing.T) {
	j, first, second := aJudgeOfOffsets(t)
	first.t.told, first.t.toldAt = committed, 2*time.Second
	second.t.told, second.t.toldAt = committed, 5*time.Second
	f := func(told *txnCommit, epoch types.LeaderEpoch, sent time.Duration, want *txnCommit) {
		t.Helper()
		if got := j.overlooked(first.t.id, 0, told, epoch, sent); got != want {
			t.Errorf("overlooked %v, want %v", got, want)
		}
	}
	f(nil, 3, 3*time.Second, first)
	f(nil, 4, 6*time.Second, second)
	f(first, 3, 3*time.Second, nil)
	f(first, 3, 6*time.Second, second)
	f(second, 3, 6*time.Second, nil)
	f(nil, 2, 6*time.Second, nil)         // who coordinated before
	f(nil, 3, time.Second/2, nil)         // asked before it was taken
	f(nil, 3, 1500*time.Millisecond, nil) // asked before the end
	if got := j.overlooked(first.t.id, 1, nil, 3, 6*time.Second); got != nil {
		t.Errorf("of another partition %v", got)
	}
}

// A hanging transaction of offsets is found where they are, like one of records.
func TestALateOffsetIsJudged(t *testing.T) {
	j, c, _ := aJudgeOfOffsets(t)
	readableOffset(t, j, c, markerOf(batch.Abort))
	readableOffset(t, j, c, nil)
	if found := j.w.k.failure; found == nil || found.Invariant != "OpenEnds" {
		t.Errorf("found %v", found)
	}
}
