package transaction

import (
	"testing"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// A transaction of which a partition belongs to another cluster's history by now is aborted, above its
// producer's epoch, by whatever comes first; nobody is told that it was committed. What was decided
// before stays so.
func TestTransactionsOfLostPartitions(t *testing.T) {
	lost := map[string]bool{}
	begin := func() (*bench, InitResponse) {
		b := newBench(t)
		clear(lost)
		b.table.Lost = func(tp types.TopicPartition) bool { return lost[tp.String()] }
		p := b.fresh("id")
		b.add("id", p, "m-0", "other-0")
		return b, p
	}
	aborted := func(name string, b *bench) {
		t.Helper()
		if b.state("id") != PrepareAbort || len(b.markers) != 1 || b.markers[0].Commit || b.markers[0].Epoch != 1 {
			t.Errorf("%s: state %s, markers %+v", name, b.state("id"), b.markers)
		}
	}
	for _, bumps := range []bool{false, true} {
		b, p := begin()
		lost["m-0"] = true
		if code := b.end("id", p, true, bumps).Code; code != errcode.ProducerFenced {
			t.Errorf("a commit (bumps %v): %v", bumps, code)
		}
		aborted("a commit", b)
		b.writeMarkers()
		if next := b.fresh("id"); next.Epoch != p.Epoch+2 {
			t.Errorf("its producer begins anew with epoch %d, it had %d", next.Epoch, p.Epoch)
		}
	}
	b, _ := begin()
	b.step(Sweep{})
	if b.state("id") != Ongoing {
		t.Errorf("a sweep while it is whole: %s", b.state("id"))
	}
	lost["other-0"] = true
	b.step(Sweep{})
	aborted("a sweep", b)

	b, p := begin()
	lost["m-0"] = true
	if code := b.end("id", p, false, false).Code; code != errcode.None {
		t.Errorf("an abort: %v", code)
	}

	b, p = begin()
	b.end("id", p, true, true)
	lost["m-0"] = true
	if again := b.end("id", p, true, true).Code; again != errcode.ConcurrentTransactions || !b.markers[0].Commit {
		t.Errorf("a commit that was decided before: %v, markers %+v", again, b.markers)
	}
}
