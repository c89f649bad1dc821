package mirror

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// mirrored is a partition in MIRRORING at leader epoch 7 whose log ends at 5 in epoch 3.
func mirrored(t testing.TB) (meta.PartitionRecord, *Own) {
	t.Helper()
	rec := meta.PartitionRecord{
		Replicas: []types.BrokerID{1}, ISR: []meta.ISRMember{{ID: 1, BrokerEpoch: 11}}, Leader: 1, LeaderBrokerEpoch: 11,
		LeaderEpoch: 7, MinISR: 1, Timelines: timeline.List{{ID: "r"}}, Mirror: NewMirrored("m", "s1"),
	}
	rec.Mirror.State, rec.Mirror.SourceClusterID = meta.MirrorMirroring, "A"
	rec.Mirror.SourceEpochMax, rec.Mirror.SourceStart, rec.Mirror.SourceEnd, rec.Mirror.SourceSeenAt, rec.Mirror.Copied = 4, 0, 9, 1000, true
	own := &Own{HasCheckpoint: true, Checkpoint: timeline.Checkpoint{List: rec.Timelines, LeaderEpoch: 7}}
	own.LogEnd, own.HighWatermark = 5, 4
	for _, e := range []types.LeaderEpoch{1, 3} {
		if _, err := own.History.AppendedBatch(e, types.Offset(e-1)); err != nil {
			t.Fatal(err)
		}
	}
	return rec, own
}

func TestPromoteWritesOneRecord(t *testing.T) {
	rec, own := mirrored(t)
	before := rec.Clone()
	p, err := Promote(&rec, PromoteRequest{StartID: "s1", TimelineID: "P", Now: 2000, Own: own})
	if err != nil {
		t.Fatal(err)
	}
	made := meta.PromotionRecord{SourceClusterID: "A", StartID: "s1", Mirror: "m", LastMirroredEpoch: 3, LogEnd: 5, HighWatermark: 4,
		SourceStart: 0, SourceEnd: 9, SourceEpoch: 4, SourceSeenAt: 1000, At: 2000, PromotedEpoch: 65_543}
	want := before.Clone()
	want.LeaderEpoch, want.Writable = 65_543, true
	want.Timelines = timeline.List{{ID: "r"}, {ID: "P", FirstEpoch: 65_543, FirstOffset: 5}}
	want.Mirror.State, want.Promotions = meta.MirrorStopped, []meta.PromotionRecord{made}
	if diff := cmp.Diff(want, p.Record); diff != "" {
		t.Errorf("record: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(before, rec); diff != "" {
		t.Errorf("the record given was changed: %s", diff)
	}
	if p.OnLeaderOnlyFrom != 4 || p.OnLeaderOnlyTo != 5 {
		t.Errorf("on the leader only: %d-%d, want 4-5", p.OnLeaderOnlyFrom, p.OnLeaderOnlyTo)
	}
	if from, to, known := Missing(p.Made); from != 5 || to != 9 || !known {
		t.Errorf("may be missing: %d-%d, %v, want 5-9", from, to, known)
	}
	if _, err := meta.DecodePartition("k", p.Record.Encode()); err != nil {
		t.Errorf("the record can't be read back: %v", err)
	}
}

func TestPromoteEpochRisesAboveEverything(t *testing.T) {
	f := func(change func(*meta.PartitionRecord, *Own, *Facts), want types.LeaderEpoch) {
		t.Helper()
		rec, own := mirrored(t)
		facts := *recordFacts(rec.Mirror)
		change(&rec, own, &facts)
		p, err := Promote(&rec, PromoteRequest{TimelineID: "P", Step: 10, Own: own, Facts: &facts})
		if err != nil || p.Made.PromotedEpoch != want {
			t.Errorf("got %d, %v, want %d", p.Made.PromotedEpoch, err, want)
		}
	}
	f(func(*meta.PartitionRecord, *Own, *Facts) {}, 17)
	f(func(r *meta.PartitionRecord, _ *Own, _ *Facts) { r.Mirror.SourceEpochMax = 50 }, 60)
	f(func(_ *meta.PartitionRecord, _ *Own, s *Facts) { s.LeaderEpoch = 40 }, 50)
	f(func(r *meta.PartitionRecord, o *Own, _ *Facts) {
		r.LeaderEpoch, r.Timelines = 30, append(r.Timelines, timeline.Entry{ID: "q", FirstEpoch: 30})
		o.Checkpoint.List = r.Timelines
	}, 40)
}

func TestPromoteRefusals(t *testing.T) {
	f := func(change func(*meta.PartitionRecord, *PromoteRequest), want Reason) {
		t.Helper()
		rec, own := mirrored(t)
		r := PromoteRequest{StartID: "s1", TimelineID: "P", Own: own}
		change(&rec, &r)
		_, err := Promote(&rec, r)
		var refused *Refusal
		if !errors.As(err, &refused) || refused.Reason != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	f(func(_ *meta.PartitionRecord, r *PromoteRequest) { r.StartID = "s0" }, StaleRequest)
	f(func(p *meta.PartitionRecord, _ *PromoteRequest) { p.Mirror = nil }, NotPromoted)
	f(func(p *meta.PartitionRecord, _ *PromoteRequest) {
		p.LeaderEpoch, p.Timelines = 2000, timeline.List{{ID: "r"}, {ID: "q", FirstEpoch: 2000, FirstOffset: 2}}
	}, FirstCutOwed)
	f(func(p *meta.PartitionRecord, r *PromoteRequest) { r.Own.Checkpoint.LeaderEpoch = 8 }, FirstCutOwed)
	f(func(p *meta.PartitionRecord, r *PromoteRequest) { r.Own.HasCheckpoint = false }, FirstCutOwed)
	at := types.Offset(3)
	f(func(_ *meta.PartitionRecord, r *PromoteRequest) { r.At, r.Own.Cleaned = &at, 4 }, CutBelowCompaction)

	rec, own := mirrored(t)
	own.Cleaned = 4
	for _, r := range []PromoteRequest{{At: &at, Compacted: true}, {At: &own.LogEnd}, {}} {
		if r.TimelineID, r.Own = "P", own; r.At == &own.LogEnd {
			r.Own.HighWatermark = own.LogEnd
		}
		if _, err := Promote(&rec, r); err != nil {
			t.Errorf("nothing is lost that nobody was told of: %v", err)
		}
	}
	own.Checkpoint.LeaderEpoch = 8
	if err := Promotable(&rec, "s1", own); err == nil {
		t.Error("what owes its first cut is taken for what a promotion will find")
	}

	rec, own = mirrored(t)
	rec.LeaderEpoch = math.MaxInt32
	if _, err := Promote(&rec, PromoteRequest{TimelineID: "P", Own: own}); !errors.Is(err, timeline.ErrNoEpochLeft) {
		t.Errorf("no epoch left: %v", err)
	}
}

// TestPromoteAgain: the same request is found done, also after the partition has
// become a mirror again, and a request of another start is refused (R23).
func TestPromoteAgain(t *testing.T) {
	rec, own := mirrored(t)
	first, err := Promote(&rec, PromoteRequest{StartID: "s1", TimelineID: "P", Own: own})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Promote(&first.Record, PromoteRequest{StartID: "s1", TimelineID: "Q", Own: own})
	if err != nil || again.Outcome != AlreadyPromoted || again.Made != first.Made || again.MirrorAgain != "" {
		t.Errorf("retried: %+v, %v", again, err)
	}
	back := first.Record.Clone()
	back.Writable, back.Mirror = false, NewMirrored("m", "s2")
	again, err = Promote(&back, PromoteRequest{StartID: "s1", TimelineID: "Q", Own: own})
	if err != nil || again.Outcome != AlreadyPromoted || again.MirrorAgain != "s2" {
		t.Errorf("late retry: %+v, %v", again, err)
	}
	if _, err := Promote(&first.Record, PromoteRequest{StartID: "s0", TimelineID: "Q", Own: own}); err == nil {
		t.Error("a start that never was is taken for done")
	}
}

func TestVerbs(t *testing.T) {
	rec, own := mirrored(t)
	paused, err := Pause(&rec)
	if err != nil || paused.Mirror.State != meta.MirrorPaused || paused.LeaderEpoch != rec.LeaderEpoch {
		t.Errorf("pause: %v, %v", describe(&paused), err)
	}
	resumed, err := Resume(&paused)
	if err != nil || resumed.Mirror.State != meta.MirrorMirroring {
		t.Errorf("resume: %v, %v", describe(&resumed), err)
	}
	unadopted := rec.Clone()
	unadopted.Timelines, unadopted.Mirror = nil, NewMirrored("m", "s1")
	unadopted.Mirror.State = meta.MirrorPaused
	if resumed, err = Resume(&unadopted); err != nil || resumed.Mirror.State != meta.MirrorLogAlignment {
		t.Errorf("resume before the adoption: %v, %v", describe(&resumed), err)
	}
	moved, err := Start(&rec, StartRequest{Mirror: "m2", StartID: "s2", Own: own})
	if err != nil || moved.LeaderEpoch != rec.LeaderEpoch+1 || moved.Mirror.StartID != "s2" || isAdopted(&moved) {
		t.Errorf("start of a mirror elsewhere: %v, %v", describe(&moved), err)
	}
	if same, err := Start(&moved, StartRequest{Mirror: "m2", StartID: "s2", Own: own}); err != nil || same.LeaderEpoch != moved.LeaderEpoch {
		t.Errorf("start retried: %v, %v", describe(&same), err)
	}
	rec.Writable, rec.Mirror = true, nil
	if _, err := Pause(&rec); err == nil {
		t.Error("a partition that isn't a mirror is paused")
	}
	var refused *Refusal
	if _, err := Start(&rec, StartRequest{Mirror: "m", StartID: "s1", Own: own}); !errors.As(err, &refused) || refused.Reason != PlanRequired {
		t.Errorf("start over own records: %v", err)
	}
	if _, err := Start(&rec, StartRequest{Mirror: "m", StartID: "s1", Own: &Own{}}); err != nil {
		t.Errorf("start of an empty partition: %v", err)
	}
}

func TestBackoffMax(t *testing.T) {
	f := func(attempt int, want types.Millis) {
		t.Helper()
		if got := BackoffMax(attempt); got != want {
			t.Errorf("attempt %d: %d ms, want %d", attempt, got, want)
		}
	}
	f(0, 100)
	f(1, 100)
	f(2, 200)
	f(9, 25_600)
	f(10, 30_000)
	f(math.MaxInt, 30_000)
}

func TestRaisedEpoch(t *testing.T) {
	f := func(local, batch types.LeaderEpoch, headroom int32, want types.LeaderEpoch) {
		t.Helper()
		if got := RaisedEpoch(local, batch, headroom); got != want {
			t.Errorf("%d, %d, %d: got %d, want %d", local, batch, headroom, got, want)
		}
	}
	f(5, 5, 8, 5)
	f(5, 6, 8, 14)
	f(5, 6, 0, 6)
	f(5, math.MaxInt32-3, 8, math.MaxInt32-3)
}

// BenchmarkPromote promotes 1,000 partitions, without the commits.
func BenchmarkPromote(b *testing.B) {
	rec, own := mirrored(b)
	for b.Loop() {
		for i := range 1000 {
			if _, err := Promote(&rec, PromoteRequest{StartID: "s1", TimelineID: fmt.Sprint("P", i), Own: own}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkFetchedAndAppended is the steady state: an answer with one batch, its
// append, and the next fetch.
func BenchmarkFetchedAndAppended(b *testing.B) {
	w := newWorld(testPolicy())
	w.source.Write(1, "a")
	w.show()
	w.settle(100, true)
	fetch := w.pending[0].(Fetch)
	own, out := w.view(), &Effects{}
	batches := make([]replica.Batch, 1)
	for b.Loop() {
		end := own.LogEnd
		batches[0] = replica.Batch{Base: end, Next: end + 1, Epoch: 1}
		out.Reset()
		w.machine.Step(1, own, Fetched{Ticket: fetch.Ticket, Reply: replica.Reply{To: fetch.Request, Batches: batches}, Bytes: 100, SourceEnd: end + 1}, out)
		own.LogEnd, own.HighWatermark = end+1, end+1
		done := LogDone{Ticket: out.List[0].(Append).Ticket}
		out.Reset()
		w.machine.Step(1, own, done, out)
		fetch = out.List[0].(Fetch)
	}
}
