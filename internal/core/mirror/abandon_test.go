package mirror

import (
	"bytes"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/modellog"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// TestAReadBackIsNotCutAgain: a cluster that had been promoted gives its promotion up,
// its leader makes the first cut, and the start is abandoned. What is read back
// belongs to the promoted timeline: under the checkpoint of the adopted list the first cut
// of the abandoned record would take it once more.
func TestAReadBackIsNotCutAgain(t *testing.T) {
	root, promoted := timeline.Entry{ID: "A"}, timeline.Entry{ID: "B2", FirstEpoch: 3, FirstOffset: 1}
	var log modellog.Log
	log.Append(modellog.Record{Offset: 0, Epoch: 1, Tag: "A"})
	rec := &meta.PartitionRecord{
		Replicas: []types.BrokerID{1}, ISR: []meta.ISRMember{{ID: 1}}, Leader: 1, LeaderEpoch: 5, MinISR: 1, Timelines: timeline.List{root},
		Mirror: NewMirrored("m", "s"),
	}
	rec.Mirror.Before, rec.Mirror.EndBefore, rec.Mirror.SourceSeenAt = timeline.List{root, promoted}, 2, 1
	f := func(point timeline.Checkpoint, want timeline.CutKind) {
		t.Helper()
		log := log.Clone()
		if owed := timeline.FirstCut(timeline.Replica{Applied: point, HasApplied: true, History: &log.History, LogEnd: log.End}, rec.Timelines, rec.LeaderEpoch); owed.Kind != timeline.CutNothing {
			t.Errorf("what the first cut has left is cut at %d before anything is read back", owed.At)
		}
		log.Append(modellog.Record{Offset: 1, Epoch: 3, Tag: "B2"})
		own := &Own{Log: view(&log), Checkpoint: point, HasCheckpoint: true}
		next, err := Abandon(rec, AbandonRequest{TimelineID: "B5", Step: 1, Own: own})
		if err != nil {
			t.Fatal(err)
		}
		if owed := timeline.FirstCut(own.replica(), next.Timelines, next.LeaderEpoch); owed.Kind != want {
			t.Errorf("under %v the first cut is %v at %d, want %v", point.List, owed.Kind, owed.At, want)
		}
		// If the abandon isn't written after all, what was read back goes again.
		if owed := timeline.FirstCut(own.replica(), rec.Timelines, rec.LeaderEpoch); want == timeline.CutNothing && (owed.Kind != timeline.CutAt || owed.At != 1) {
			t.Errorf("under the adopted list the first cut is %v at %d, want a cut at 1", owed.Kind, owed.At)
		}
	}
	f(BackTo(rec), timeline.CutNothing)
	f(timeline.Checkpoint{List: rec.Timelines, LeaderEpoch: rec.LeaderEpoch}, timeline.CutAt) // the fault
}

// TestAnotherTryOfAStart: a partition whose start was abandoned while others of its
// mirror run on is started by the same start again. What was seen of the source is not
// forgotten within it (I-57, R26); another start begins anew.
func TestAnotherTryOfAStart(t *testing.T) {
	abandoned := &meta.PartitionRecord{
		Replicas: []types.BrokerID{1}, ISR: []meta.ISRMember{{ID: 1}}, Leader: 1, LeaderEpoch: 70_000, MinISR: 1, Writable: true,
		Timelines: timeline.List{{ID: "A"}, {ID: "A2", FirstEpoch: 70_000, FirstOffset: 9}}, OwnTimelines: []string{"A2"}, Mirror: NewMirrored("m", "s"),
	}
	abandoned.Mirror.State, abandoned.Mirror.Reason, abandoned.Mirror.SourceEpochMax = meta.MirrorStopped, "abandoned", 65_537
	f := func(start string, want types.LeaderEpoch) {
		t.Helper()
		next := FenceForStart(abandoned, StartRequest{Mirror: "m", StartID: start, PlanID: "p"})
		if next.Mirror.SourceEpochMax != want || next.Mirror.SourceEnd != types.NoOffset || !next.Mirror.WasWritable {
			t.Errorf("start %s: %+v, want the highest source epoch %d", start, next.Mirror, want)
		}
		if err := meta.ValidateRecord(abandoned, &next); err != nil {
			t.Errorf("start %s: %v", start, err)
		}
	}
	f("s", 65_537)
	f("s2", types.NoLeaderEpoch)
}

// TestTwoRunsOfAStart: two brokers carry out one start, and the slower looks when the
// faster has adopted. It changes nothing: adopted once more, the partition would wait for
// its alignment in the middle of a session, and Abandon would know the source's list alone.
func TestTwoRunsOfAStart(t *testing.T) {
	rec := &meta.PartitionRecord{
		Replicas: []types.BrokerID{1}, ISR: []meta.ISRMember{{ID: 1}}, Leader: 1, LeaderEpoch: 3, MinISR: 1, Writable: true,
		Timelines: timeline.List{{ID: "A"}, {ID: "B2", FirstEpoch: 3, FirstOffset: 1}}, OwnTimelines: []string{"B2"},
	}
	r := StartRequest{Mirror: "m", StartID: "s", PlanID: "p"}
	src := Source{ClusterID: "a", LeaderEpoch: 4, Timelines: timeline.List{{ID: "A"}}, LogEnd: 7}
	fenced := FenceForStart(rec, r)
	if HasStarted(rec, "s") || HasStarted(&fenced, "s") {
		t.Error("it has started before the adoption")
	}
	first, a := AdoptStart(&fenced, r, Policy{}, src, &Own{}, 9)
	if a.Refused.Reason != "" || len(first.Mirror.Before) != 2 || !HasStarted(&first, "s") || HasStarted(&first, "s2") {
		t.Fatalf("%v, %+v", a.Refused, first)
	}
	first.Mirror.State, first.Mirror.Copied = meta.MirrorMirroring, true
	second, a := AdoptStart(&first, r, Policy{}, src, &Own{}, 10)
	if a.Refused.Reason != "" || !bytes.Equal(second.Encode(), first.Encode()) {
		t.Errorf("%v, %s; expected %s", a.Refused, second.Encode(), first.Encode())
	}
}

// TestAStartLeavesAFenceAlone: the old primary of a switchover stays closed whatever becomes
// of its failback, and is adopted only with its final end.
func TestAStartLeavesAFenceAlone(t *testing.T) {
	rec := &meta.PartitionRecord{
		Replicas: []types.BrokerID{1}, ISR: []meta.ISRMember{{ID: 1}}, Leader: 1, LeaderEpoch: 3, MinISR: 1, Timelines: timeline.List{{ID: "A"}},
		Fence: &meta.Fence{ClusterID: "b", StartID: "s1", Attempt: meta.Attempt{Number: 1}},
	}
	if NeedsFence(rec) {
		t.Error("what is closed is closed once more")
	}
	if _, err := GoBack(rec, Refusal{Reason: SourceUnreachable}); err == nil {
		t.Error("a start that was refused opens it")
	}
	if r := MayAdopt(rec, 1); r.Reason != AlreadyFenced {
		t.Errorf("with an open transaction: %v", r)
	}
	if r := MayAdopt(rec, 0); r.Reason != "" {
		t.Error(r)
	}
	next, a := AdoptStart(rec, StartRequest{Mirror: "m", StartID: "s"}, Policy{}, Source{ClusterID: "b", LeaderEpoch: 4, Timelines: timeline.List{{ID: "A"}, {ID: "B4", FirstEpoch: 4, FirstOffset: 7}}, LogEnd: 7}, &Own{}, 9)
	if a.Refused.Reason != "" || next.Fence != nil || next.Writable || !next.Mirror.WasWritable || !HasStarted(&next, "s") {
		t.Errorf("%v, %+v", a.Refused, next)
	}
	opened := rec.Clone()
	opened.Writable, opened.Fence = true, nil
	if r := MayAdopt(&opened, 0); r.Reason != StaleRequest {
		t.Errorf("opened between the looks: %v", r)
	}
}

// TestAnAdoptionQuotesThePlanThatWasJudged: a start is fenced with one plan, its log end
// moves until the fence, and the operator orders it again with the plan of now.
func TestAnAdoptionQuotesThePlanThatWasJudged(t *testing.T) {
	rec := &meta.PartitionRecord{
		Replicas: []types.BrokerID{1}, ISR: []meta.ISRMember{{ID: 1}}, Leader: 1, LeaderEpoch: 3, MinISR: 1, Writable: true,
		Timelines: timeline.List{{ID: "A"}, {ID: "B2", FirstEpoch: 3, FirstOffset: 1}}, OwnTimelines: []string{"B2"},
	}
	src := Source{ClusterID: "a", LeaderEpoch: 4, Timelines: timeline.List{{ID: "A"}}, LogEnd: 7}
	fenced := FenceForStart(rec, StartRequest{Mirror: "m", StartID: "s", PlanID: "then"})
	next, a := AdoptStart(&fenced, StartRequest{Mirror: "m", StartID: "s", PlanID: "now", Rollback: true}, Policy{}, src, &Own{}, 9)
	if a.Refused.Reason != "" || next.Mirror.PlanID != "now" || !next.Mirror.Rollback || !next.Mirror.WasWritable {
		t.Errorf("%v, %+v", a.Refused, next.Mirror)
	}
	if fenced.Mirror.PlanID != "then" {
		t.Errorf("the record that was given is changed: %+v", fenced.Mirror)
	}
}
