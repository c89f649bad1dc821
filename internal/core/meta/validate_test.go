package meta

import (
	"strings"
	"testing"

	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// TestValidateRecord switches each rule on and off: what may follow a record, and what may not.
func TestValidateRecord(t *testing.T) {
	f := func(name, invariant string, old PartitionRecord, change func(r *PartitionRecord)) {
		t.Helper()
		next := old.Clone()
		change(&next)
		err := ValidateRecord(&old, &next)
		if invariant == "" && err != nil || invariant != "" && (err == nil || !strings.HasPrefix(err.Error(), invariant)) {
			t.Errorf("%s: %v, want %q", name, err, invariant)
		}
	}
	promoted, mirror := examplePartition(), exampleMirrorPartition()

	f("nothing", "", promoted, func(r *PartitionRecord) {})
	f("epoch rises", "", promoted, func(r *PartitionRecord) { r.LeaderEpoch++ })
	f("epoch falls", "I-50", mirror, func(r *PartitionRecord) { r.LeaderEpoch-- })
	f("ISR grows", "", promoted, func(r *PartitionRecord) { r.ISR, r.ELR = append(r.ISR, r.ELR...), nil })
	f("list without epoch", "I-51", mirror, func(r *PartitionRecord) { r.Timelines = timeline.List{{ID: "root"}, {ID: "x", FirstEpoch: 2}} })
	f("list with epoch", "", mirror, func(r *PartitionRecord) {
		r.Timelines = timeline.List{{ID: "root"}, {ID: "x", FirstEpoch: 2}}
		r.LeaderEpoch++
	})
	f("list beyond the epoch", "I-53", mirror, func(r *PartitionRecord) {
		r.Timelines = timeline.List{{ID: "root"}, {ID: "x", FirstEpoch: 6}}
		r.LeaderEpoch++
	})
	f("list doesn't rise", "I-53", mirror, func(r *PartitionRecord) {
		r.Timelines = timeline.List{{ID: "root"}, {ID: "x", FirstEpoch: 2, FirstOffset: 5}, {ID: "y", FirstEpoch: 2, FirstOffset: 5}}
		r.LeaderEpoch++
	})
	f("promotion", "", mirror, func(r *PartitionRecord) {
		r.LeaderEpoch += 65536
		r.Timelines = append(r.Timelines, timeline.Entry{ID: "mine", FirstEpoch: r.LeaderEpoch, FirstOffset: 10})
		r.Writable, r.Mirror = true, nil
		r.Promotions = append(r.Promotions, PromotionRecord{PromotedEpoch: r.LeaderEpoch})
	})
	f("promotion that keeps what it was", "", mirror, func(r *PartitionRecord) {
		r.LeaderEpoch++
		r.Writable, r.Mirror.State = true, MirrorStopped
	})
	f("writable without epoch", "I-51", mirror, func(r *PartitionRecord) { r.Writable, r.Mirror = true, nil })
	f("writable and mirroring", "I-53", mirror, func(r *PartitionRecord) { r.Writable = true; r.LeaderEpoch++ })
	f("read-only without mirror", "I-53", promoted, func(r *PartitionRecord) { r.Writable = false; r.LeaderEpoch++ })
	f("other start without epoch", "I-51", mirror, func(r *PartitionRecord) { r.Mirror.StartID = "s2" })
	f("other source without epoch", "I-51", mirror, func(r *PartitionRecord) { r.Mirror.SourceClusterID = "other" })
	f("other source topic without epoch", "I-51", mirror, func(r *PartitionRecord) { r.Mirror.SourceTopicID = types.TopicID{1} })
	f("other start with epoch", "", mirror, func(r *PartitionRecord) { r.Mirror.StartID = "s2"; r.LeaderEpoch++ })
	f("state and figures", "", mirror, func(r *PartitionRecord) {
		r.Mirror.State, r.Mirror.Reason = MirrorFailed, "SOURCE_GAP 1-2"
		r.Mirror.SourceEnd++
		r.Mirror.SourceEpochMax++
	})
	f("source epoch falls", "I-57", mirror, func(r *PartitionRecord) { r.Mirror.SourceEpochMax-- })
	f("source epoch of a new start", "", mirror, func(r *PartitionRecord) {
		r.Mirror.StartID, r.Mirror.SourceEpochMax = "s2", 0
		r.LeaderEpoch++
	})
	f("leader without epoch", "I-51", promoted, func(r *PartitionRecord) { r.Leader, r.LeaderBrokerEpoch = 2, 102 })
	f("registration without epoch", "I-51", promoted, func(r *PartitionRecord) { r.LeaderBrokerEpoch = 999 })
	f("leader with epoch", "", promoted, func(r *PartitionRecord) { r.Leader, r.LeaderBrokerEpoch = 2, 102; r.LeaderEpoch++ })
	f("leader is no replica", "I-53", promoted, func(r *PartitionRecord) { r.Leader = 9; r.LeaderEpoch++ })
	f("promotion record lost", "I-54", promoted, func(r *PartitionRecord) { r.Promotions = nil })
	f("promotion record changed", "I-54", promoted, func(r *PartitionRecord) { r.Promotions[0].LogEnd++ })
	f("promotion record added", "", promoted, func(r *PartitionRecord) { r.Promotions = append(r.Promotions, PromotionRecord{}) })
	f("min ISR keeps the ELR", "I-55", promoted, func(r *PartitionRecord) { r.MinISR = 1 })
	f("min ISR clears the ELR", "", promoted, func(r *PartitionRecord) { r.MinISR, r.ELR = 1, nil })
}
