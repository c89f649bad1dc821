package mirror

import (
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// ofKIP is a look at cluster B, promoted at epoch 70, that says m.
func ofKIP(m *Mirrored) Source {
	return Source{ClusterID: "B", TopicID: testTopic, LeaderEpoch: 70, LogEnd: 30, LastEpoch: types.NoLeaderEpoch, Mirrored: m}
}

// onA is a partition of cluster A that clients wrote: epochs 2, 5 and 8 from 0, 10 and 20 on, up to 25.
func onA(list timeline.List) (meta.PartitionRecord, *Own, Policy) {
	own := &Own{HasCheckpoint: true, Checkpoint: timeline.Checkpoint{List: list, LeaderEpoch: 8}}
	for _, e := range [][2]int64{{2, 0}, {5, 10}, {8, 20}} {
		_, _ = own.History.Assign(types.LeaderEpoch(e[0]), types.Offset(e[1]))
	}
	own.LogEnd = 25
	return meta.PartitionRecord{Timelines: list, LeaderEpoch: 9, Writable: true}, own, Policy{ClusterID: "A", TopicID: testTopic, Me: 1}
}

// TestListAtStart: what a KIP-1279 source says becomes a list, and the list's
// first cut is the smaller of what its last mirrored epoch and offset give up.
func TestListAtStart(t *testing.T) {
	root := timeline.Entry{ID: "root"}
	own8 := timeline.Entry{ID: "own", FirstEpoch: 8, FirstOffset: 20}
	f := func(name string, ours timeline.List, m Mirrored, shared int, kind timeline.CutKind, at types.Offset) {
		t.Helper()
		rec, own, pol := onA(ours)
		list := listAtStart(&rec, pol, ofKIP(&m), own)
		if err := list.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c := timeline.Compare(ours, list); c.Shared != shared {
			t.Errorf("%s: %d entries of %v and %v are shared, want %d", name, c.Shared, ours, list, shared)
		}
		owed := timeline.FirstCut(own.replica(), list, 71)
		if owed.Kind != kind || owed.At != at {
			t.Errorf("%s: %v at %d, want %v at %d", name, owed.Kind, owed.At, kind, at)
		}
	}
	alone, promoted := timeline.List{root}, timeline.List{root, own8}
	f("the epoch bounds", alone, Mirrored{State: "STOPPED", LastEpoch: 5, LastOffset: 22}, 1, timeline.CutAt, 20)
	f("the offset bounds", alone, Mirrored{State: "STOPPED", LastEpoch: 5, LastOffset: 14}, 1, timeline.CutAt, 14)
	f("no offset is said", alone, Mirrored{State: "STOPPED", LastEpoch: 5, LastOffset: -1}, 1, timeline.CutAt, 20)
	f("an epoch between two", alone, Mirrored{State: "STOPPED", LastEpoch: 3, LastOffset: 10}, 1, timeline.CutAt, 10)
	f("all was mirrored", alone, Mirrored{State: "STOPPED", LastEpoch: 8, LastOffset: 25}, 1, timeline.CutNothing, 0)
	f("more than we have left", alone, Mirrored{State: "STOPPED", LastEpoch: 8, LastOffset: 90}, 1, timeline.CutNothing, 0)
	f("below our own promotion", promoted, Mirrored{State: "STOPPED", LastEpoch: 7, LastOffset: 20}, 1, timeline.CutAt, 20)
	f("past our own promotion", promoted, Mirrored{State: "STOPPED", LastEpoch: 8, LastOffset: 24}, 2, timeline.CutAt, 24)
	f("none is known", alone, Mirrored{LastEpoch: -1, LastOffset: -1}, 0, timeline.CutEverything, 0)

	rec, own, pol := onA(alone)
	if list := listAtStart(&rec, pol, ofKIP(&Mirrored{LastEpoch: -1, LastOffset: -1}), own); !list.Equal(timeline.List{timeline.Root("B", testTopic)}) {
		t.Errorf("without a last mirrored epoch the list is %v", list)
	}
	for at, m := range map[types.Offset]Mirrored{20: {LastEpoch: 5, LastOffset: -1}, 25: {LastEpoch: 9, LastOffset: -1}, 3: {LastEpoch: 9, LastOffset: 3}} {
		last, _ := listAtStart(&rec, pol, ofKIP(&m), own).Last()
		if last.FirstOffset != at || last.FirstEpoch != m.LastEpoch+1 || !last.IsTakenOver("B", testTopic) || last.IsTakenOver("C", testTopic) {
			t.Errorf("%+v: entry %+v, want offset %d", m, last, at)
		}
	}
}

// TestNoLastMirroredEpochIsNoWipe: without one a written partition goes on only with a plan (R24).
func TestNoLastMirroredEpochIsNoWipe(t *testing.T) {
	rec, own, pol := onA(timeline.List{{ID: "root"}})
	for _, m := range []*Mirrored{nil, {LastEpoch: -1, LastOffset: -1}, {Mirror: "m", State: "STOPPED", LastEpoch: -1, LastOffset: 0}} {
		s := ofKIP(m)
		plan, err := DryRun(&rec, pol, s, own, func(o types.Offset) types.Offset { return o }, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := StartRequest{Mirror: "m", StartID: "s1"}
		if refusal := Judge(&rec, r, pol, s, &plan); refusal.Reason != UnrelatedLogs {
			t.Errorf("%+v: %+v", m, refusal)
		}
		if _, a := Adopt(withMirror(&rec), pol, s, own, 1); a.Refused.Reason != UnrelatedLogs {
			t.Errorf("%+v: adopted %+v", m, a)
		}
	}
}

func withMirror(rec *meta.PartitionRecord) *meta.PartitionRecord {
	out := startingFrom(rec, StartRequest{Mirror: "m", StartID: "s1"})
	return &out
}

// TestMirroredIsJudged: what can't be is refused by name, and a source that copies from us is a loop.
func TestMirroredIsJudged(t *testing.T) {
	rec, own, pol := onA(timeline.List{{ID: "root"}})
	at := withMirror(&rec)
	f := func(name string, m Mirrored, want Reason, words string) {
		t.Helper()
		m.Mirror = "back"
		got := Identify(at, pol, ofKIP(&m))
		if got.Reason != want || !strings.Contains(got.Detail, words) {
			t.Errorf("%s: %+v, want %s: %s", name, got, want, words)
		}
	}
	for _, state := range []string{"LOG_ALIGNMENT", "EPOCH_FENCING", "ULE_RECOVERY", "MIRRORING", "PAUSING", "PAUSED", "FAILED", "UNKNOWN", "SOMETHING_NEW"} {
		f("a loop", Mirrored{State: state, LastEpoch: 5, LastOffset: 20}, MirrorLoop, "state "+state+"; stop the topic there")
	}
	f("on its way", Mirrored{State: "STOPPING", LastEpoch: -1, LastOffset: -1}, SourceNotReady, "has to be STOPPED")
	f("fine", Mirrored{State: "STOPPED", LastEpoch: 9, LastOffset: 20}, "", "")
	f("its own epoch", Mirrored{State: "STOPPED", LastEpoch: 70, LastOffset: 20}, SourceInconsistent, "its leader epoch is 70")
	f("the highest there is", Mirrored{State: "STOPPED", LastEpoch: 1<<31 - 1, LastOffset: 1 << 62}, SourceInconsistent, "its leader epoch is 70")
	f("an epoch that we never gave", Mirrored{State: "STOPPED", LastEpoch: 10, LastOffset: 20}, SourceInconsistent, "leader epoch is only 9")
	// The log ends at 25 here and at 30 there: an offset above both can't be, at any door of a start.
	for end, want := range map[types.Offset]Reason{26: "", 30: "", 31: SourceInconsistent, 1 << 62: SourceInconsistent} {
		s := ofKIP(&Mirrored{Mirror: "back", State: "STOPPED", LastEpoch: 8, LastOffset: end})
		pol := pol
		pol.Consented = "s1"
		plan, err := DryRun(&rec, pol, s, own, func(o types.Offset) types.Offset { return o }, func(replica.Request) (replica.Reply, error) { return replica.Reply{Kind: replica.AnswerData}, nil })
		if err != nil {
			t.Fatal(err)
		}
		judged := Judge(&rec, StartRequest{Mirror: "m", StartID: "s1"}, pol, s, &plan)
		if _, a := Adopt(at, pol, s, own, 1); judged.Reason != want || a.Refused.Reason != want || want != "" && !strings.Contains(judged.Detail, "ends at 30 there and at 25 here") {
			t.Errorf("a last mirrored offset of %d: judged %+v, adopted %+v", end, judged, a)
		}
	}
	mute := ofKIP(&Mirrored{State: "STOPPED", LastEpoch: 5, LastOffset: 20})
	mute.LeaderEpoch = types.NoLeaderEpoch
	if got := Identify(at, pol, mute); got.Reason != SourceNotReady {
		t.Errorf("no leader epoch: %+v", got)
	}
	mute.Mirrored = &Mirrored{LastEpoch: -1, LastOffset: -1} // a topic that isn't here is looked at without one
	if got := Identify(at, pol, mute); got.Reason != "" {
		t.Errorf("no leader epoch and nothing mirrored: %+v", got)
	}

	// A start has adopted (5, 20): that stands whatever is forgotten, and nothing else is believed.
	pol.Consented = "s1"
	adopted, a := Adopt(at, pol, ofKIP(&Mirrored{Mirror: "back", State: "STOPPED", LastEpoch: 5, LastOffset: 20}), own, 1)
	if a.Refused.Reason != "" {
		t.Fatal(a.Refused)
	}
	at = &adopted
	for _, m := range []*Mirrored{nil, {LastEpoch: -1, LastOffset: -1}, {State: "STOPPED", LastEpoch: 2, LastOffset: 5}, {State: "STOPPED", LastEpoch: 5, LastOffset: 20}} {
		s := ofKIP(m)
		if got := Identify(at, pol, s); got.Reason != "" || !listFor(at, pol, s, own).Equal(adopted.Timelines) {
			t.Errorf("after the adoption %+v: %+v, list %v", m, got, listFor(at, pol, s, own))
		}
	}
	f("a higher epoch later", Mirrored{State: "STOPPED", LastEpoch: 6, LastOffset: 20}, SourceInconsistent, "epoch 5, offset 20 was what this mirror started from")
	f("another offset later", Mirrored{State: "STOPPED", LastEpoch: 5, LastOffset: 12}, SourceInconsistent, "epoch 5, offset 20")
	// Another start, after a promotion here, asks afresh: ours is then ahead.
	promoted := adopted.Clone()
	promoted.Timelines, _ = promoted.Timelines.Extend(timeline.Entry{ID: "own", FirstEpoch: 99, FirstOffset: 40})
	if got := listAtStart(&promoted, pol, ofKIP(&Mirrored{State: "STOPPED", LastEpoch: 5, LastOffset: 20}), own); !got.Equal(adopted.Timelines) {
		t.Errorf("list %v at the next start, want %v", got, adopted.Timelines)
	}
}
