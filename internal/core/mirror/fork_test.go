package mirror

import (
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// TestForkIsNobodysMirror: a fork's record shares no history with its mirror's, and
// can't be promoted, abandoned or failed back as if it were the mirror.
func TestForkIsNobodysMirror(t *testing.T) {
	rec := &meta.PartitionRecord{
		Replicas: []types.BrokerID{1, 2, 3, 4}, Removing: []types.BrokerID{4}, MinISR: 2, Leader: 2, LeaderBrokerEpoch: 22, LeaderEpoch: 7,
		ISR:       []meta.ISRMember{{ID: 2, BrokerEpoch: 22}, {ID: 1, BrokerEpoch: 11}},
		Timelines: timeline.List{{ID: "root"}}, Mirror: NewMirrored("m", "start"),
	}
	rec.Mirror.State = meta.MirrorMirroring
	fork := Fork(rec, ForkRequest{
		Drill: "friday", ID: "x", TimelineID: "fresh", At: 90, InSync: rec.ISR, Now: 5,
		Made: meta.PromotionRecord{Mirror: "m", StartID: "start", PromotedEpoch: 65543, LogEnd: 95, HighWatermark: 92, SourceEnd: 100},
	})
	if _, err := meta.DecodePartition("partition", fork.Encode()); err != nil {
		t.Fatal(err)
	}
	if fork.IsMirror() || !fork.Writable || fork.LeaderEpoch != 65543 || len(fork.Replicas) != 3 || fork.Leader != 2 || fork.LeaderBrokerEpoch != 22 {
		t.Errorf("%+v", fork)
	}
	if c := timeline.Compare(rec.Timelines, fork.Timelines); c.Relation != timeline.NoCommon {
		t.Errorf("its list is %v to the mirror's", c.Relation)
	}
	if made := fork.Promotions[0]; made.LogEnd != 90 || made.HighWatermark != 90 || made.SourceEnd != 100 || made.Mirror != "m" || made.At != 5 {
		t.Errorf("%+v", made)
	}
	if drill, id, ok := Forked(&fork); !ok || drill != "friday" || id != "x" {
		t.Errorf("drill %q, run %q, %v", drill, id, ok)
	}
	if _, _, ok := Forked(rec); ok {
		t.Error("a mirror is taken for a fork")
	}
	if _, err := Promote(&fork, PromoteRequest{StartID: "start", Own: &Own{}}); err == nil {
		t.Error("the mirror's promotion is taken for the fork's")
	}
}

func TestDrillNames(t *testing.T) {
	for name, ok := range map[string]bool{"friday": true, "2026-11-30": true, "": false, "a.b": false, "a/b": false, "ä": false} {
		if err := ValidDrillName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
