package transaction

import (
	"slices"
	"testing"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// within asks the table to end what touches partitions, and gives the ids that it says are aborted and left.
func (b *bench) within(tps ...string) (aborted, left []string) {
	b.t.Helper()
	r := b.request()
	b.step(EndWithin{Request: r, Partitions: SortedPartitions(parts(tps...))})
	a, ok := b.answers[r].(WithinResponse)
	if !ok {
		b.t.Fatalf("no answer to EndWithin: %+v", b.answers[r])
	}
	names := func(list []Listing) (ids []string) {
		for _, l := range list {
			ids = append(ids, l.ID)
		}
		return ids
	}
	return names(a.Aborted), names(a.Left)
}

// EndWithin aborts what is open and touches the partitions, above its producer's epoch,
// leaves decisions as they are, and names what isn't complete yet; nothing else changes.
func TestEndWithin(t *testing.T) {
	b := newBench(t)
	open, decided, elsewhere, done := b.fresh("open"), b.fresh("decided"), b.fresh("elsewhere"), b.fresh("done")
	b.add("open", open, "m-0", "other-0")
	b.add("decided", decided, "m-1", "m-0")
	b.add("elsewhere", elsewhere, "other-0")
	b.add("done", done, "m-0")
	b.end("done", done, true, false)
	b.writeMarkers()
	b.end("decided", decided, true, false)
	f := func(wantAborted, wantLeft []string) {
		t.Helper()
		if aborted, left := b.within("m-1", "m-0", "m-1"); !slices.Equal(aborted, wantAborted) || !slices.Equal(left, wantLeft) {
			t.Errorf("aborted %v, left %v; want %v, %v", aborted, left, wantAborted, wantLeft)
		}
	}
	b.hold = true
	f([]string{"open"}, []string{"decided", "open"})
	f(nil, []string{"decided", "open"}) // the abort is on its way to the log: not a second one
	b.hold = false
	b.release()
	if b.state("open") != PrepareAbort || b.state("decided") != PrepareCommit || b.state("elsewhere") != Ongoing {
		t.Errorf("states %s, %s, %s", b.state("open"), b.state("decided"), b.state("elsewhere"))
	}
	f(nil, []string{"decided", "open"})
	commits := map[types.ProducerID]bool{}
	for _, m := range b.markers {
		commits[m.ProducerID] = m.Commit
		if m.ProducerID == open.ProducerID && m.Epoch != open.Epoch+1 {
			t.Errorf("the abort's markers have epoch %d", m.Epoch)
		}
	}
	if len(commits) != 2 || !commits[decided.ProducerID] || commits[open.ProducerID] {
		t.Errorf("markers %+v", b.markers)
	}
	b.writeMarkers()
	f(nil, nil)
	if code := b.end("open", open, true, false).Code; code != errcode.ProducerFenced {
		t.Errorf("the aborted producer's commit: %v", code)
	}
}
