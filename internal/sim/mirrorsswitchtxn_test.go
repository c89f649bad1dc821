package sim

import (
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// aCrossing gives the judge of a run that has not begun, and one transaction of it that was
// asked to be committed, with records acknowledged in two partitions.
func aCrossing(t *testing.T) (*crossings, *transactionRun) {
	t.Helper()
	o, err := SwarmMirrors(1, "mirrors-switch-txn")
	if err != nil {
		t.Fatal(err)
	}
	w := newMirrors(1, &o, &Mutation{}, nil)
	run := w.crossings.begins(&txnClient{w: w.crossings.worlds[0], id: w.crossings.ids[0]})
	run.asked, run.acked = true, map[int32]types.Offset{0: 0, 1: 0}
	return w.crossings, run
}

// Each check of transactions that go through a switchover fails on what breaks it, and on nothing else.
func TestCrossingsAreJudged(t *testing.T) {
	f := func(breaks string, of map[int32]fate, story func(run *transactionRun)) {
		t.Helper()
		x, run := aCrossing(t)
		if story != nil {
			story(run)
		}
		x.agree("here", run, of)
		found := x.w.k.failure
		if breaks == "" && found != nil || breaks != "" && (found == nil || found.Invariant != breaks) {
			t.Errorf("found %v, want %q", found, breaks)
		}
	}
	whole, gone := map[int32]fate{0: committed, 1: committed}, map[int32]fate{0: aborted, 1: aborted}
	wasTold := func(f fate) func(*transactionRun) { return func(run *transactionRun) { run.told = f } }
	f("", whole, wasTold(committed))
	f("", gone, wasTold(aborted))
	f("", gone, nil)
	f("", nil, nil)
	f("TxnWhole", map[int32]fate{0: committed, 1: aborted}, nil)
	f("TxnWhole", map[int32]fate{0: committed, 1: open}, nil)
	f("TxnWhole", map[int32]fate{0: committed}, nil)
	f("TxnWhole", nil, wasTold(committed))
	f("TxnWhole", gone, wasTold(committed))
	f("TxnWhole", whole, wasTold(aborted))
	f("TxnWhole", whole, func(run *transactionRun) { run.asked = false })
	f("NoAbortedRead", gone, func(run *transactionRun) { run.read = true })
	f("NoAbortedRead", whole, func(run *transactionRun) { run.hidden = true })
}

// Behind a fence a log takes the end of a transaction that is open in it, and nothing else.
func TestWhatPassesAFence(t *testing.T) {
	x, run := aCrossing(t)
	closed := &meta.PartitionRecord{Fence: &meta.Fence{}}
	data, end := &grain{raw: dataOf(t, run, 1)}, markerOf(batch.Commit)
	f := func(rec *meta.PartitionRecord, raw []byte, behind *grain, want bool) {
		t.Helper()
		h, err := batch.ParseHeader(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := x.w.endsBehindFence(rec, &h, behind); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	f(closed, end, data, true)
	f(closed, end, &grain{raw: end, parent: data}, false)
	f(closed, end, nil, false)
	f(closed, data.raw, data, false)
	f(&meta.PartitionRecord{}, end, data, false)
}

// A log that has a producer's batch twice is found, two logs that have it once are not.
func TestAProducersBatchIsThereOnce(t *testing.T) {
	x, run := aCrossing(t)
	c := x.w.sites[0]
	s := c.judged.(*siteJudge)
	m := c.machines[0]
	h := &held{id: meta.PartitionID{Number: 1}}
	raw := dataOf(t, run, 1)
	first, again := &grain{raw: raw}, &grain{raw: raw, base: 1}
	here, there := &siteLog{}, &siteLog{}
	s.once(m, h, here, first)
	here.seq = append(here.seq, first)
	s.once(m, h, here, first)
	s.once(m, h, there, first)
	s.once(m, h, there, again)
	if x.w.k.failure != nil {
		t.Fatal(x.w.k.failure)
	}
	x.sent = map[sentKey][]*grain{}
	s.once(m, h, here, first)
	s.once(m, h, here, again)
	if x.w.k.failure == nil || x.w.k.failure.Invariant != "NoDuplicate" {
		t.Errorf("found %v", x.w.k.failure)
	}
}
