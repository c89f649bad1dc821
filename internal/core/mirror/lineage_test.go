package mirror

import (
	"slices"
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// lookedAt shows a machine its record and then a source, and gives what it wants next.
func lookedAt(t *testing.T, rec *meta.PartitionRecord, own *Own, s Source) (*Partition, []Effect) {
	t.Helper()
	p := New(Policy{ClusterID: "here", Me: 1, BrokerEpoch: 11, EpochHeadroom: 8})
	var out Effects
	p.Step(2000, own, RecordShown{Record: rec, Leading: true, AllFetched: true}, &out)
	ask, ok := out.List[len(out.List)-1].(LookUp)
	if !ok {
		t.Fatalf("the machine wants %+v, not a look", out.List)
	}
	out.Reset()
	p.Step(2000, own, SourceShown{Ticket: ask.Ticket, Source: s}, &out)
	return p, out.List
}

func lookOfA(list timeline.List, path ...string) Source {
	return Source{ClusterID: "A", LeaderEpoch: 4, LogStart: 0, LogEnd: 9, Timelines: list, LastEpoch: types.NoLeaderEpoch, Path: path}
}

func proposed(t *testing.T, list []Effect, purpose Purpose) Propose {
	t.Helper()
	for _, e := range list {
		if p, ok := e.(Propose); ok && p.Purpose == purpose {
			return p
		}
	}
	t.Fatalf("no proposal for %s in %+v", purpose, list)
	return Propose{}
}

// A source that copies from elsewhere than before, its list unchanged: the path is
// written, in the same leader epoch, and the session goes on.
func TestPathIsKept(t *testing.T) {
	rec, own := mirrored(t)
	p, out := lookedAt(t, &rec, own, lookOfA(rec.Timelines, "X", "Y"))
	ask := proposed(t, out, ForPath)
	if !slices.Equal(ask.Record.Mirror.SourcePath, []string{"X", "Y"}) || ask.Record.LeaderEpoch != rec.LeaderEpoch || ask.Record.Mirror.State != rec.Mirror.State {
		t.Errorf("proposed %+v", ask.Record)
	}
	if err := meta.ValidateRecord(&rec, &ask.Record); err != nil {
		t.Error(err)
	}
	var next Effects
	p.Step(2001, own, RecordShown{Record: &ask.Record, Leading: true, AllFetched: true}, &next)
	p.Step(2001, own, Proposed{Ticket: ask.Ticket, Applied: true}, &next)
	if !slices.ContainsFunc(next.List, func(e Effect) bool { f, ok := e.(Fetch); return ok && f.Peek }) {
		t.Errorf("no session follows: %+v", next.List)
	}
	if _, out := lookedAt(t, &ask.Record, own, lookOfA(rec.Timelines, "X", "Y")); slices.ContainsFunc(out, func(e Effect) bool { _, ok := e.(Propose); return ok }) {
		t.Errorf("an unchanged path is written again: %+v", out)
	}
}

// A mirror whose own adoption is to come is no source yet: nothing is derived, nothing written.
func TestSourceWithoutAListIsWaitedFor(t *testing.T) {
	for _, adopted := range []bool{false, true} {
		rec, own := mirrored(t)
		if !adopted {
			rec.Timelines, rec.Mirror = nil, NewMirrored("m", "s1")
			own = &Own{}
		}
		p, out := lookedAt(t, &rec, own, lookOfA(timeline.List{}, "X"))
		if _, ok := out[len(out)-1].(Backoff); !ok || slices.ContainsFunc(out, func(e Effect) bool { _, ok := e.(Propose); return ok }) {
			t.Errorf("adopted %v: %+v", adopted, out)
		}
		if p.trouble.reason != SourceNotReady {
			t.Errorf("adopted %v: %+v", adopted, p.trouble)
		}
	}
}

// A loop found at the second look gives a partition that was writable back, uncut (R25).
func TestLoopAtTheSecondLook(t *testing.T) {
	rec, own := mirrored(t)
	rec.Mirror, rec.Writable = nil, true
	fenced, err := Start(&rec, StartRequest{Mirror: "m", StartID: "s2", Own: own, Consented: true})
	if err != nil {
		t.Fatal(err)
	}
	_, out := lookedAt(t, &fenced, own, lookOfA(rec.Timelines, "X", "here"))
	back := proposed(t, out, ForFailure).Record
	if !back.Writable || back.LeaderEpoch != fenced.LeaderEpoch+1 || !back.Timelines.Equal(rec.Timelines) {
		t.Errorf("proposed %+v", back)
	}
	if !strings.HasPrefix(back.Mirror.Reason, "MIRROR_LOOP: the source copies from this cluster (it mirrors X, which mirrors here)") {
		t.Errorf("reason %q", back.Mirror.Reason)
	}
	for _, e := range out {
		switch e.(type) {
		case Cut, Restart, RaiseLogStart, SetCheckpoint:
			t.Errorf("the log is touched: %+v", e)
		}
	}
}
