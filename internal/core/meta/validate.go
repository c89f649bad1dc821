package meta

import (
	"fmt"
	"slices"

	"tidemark/internal/core/types"
)

// ValidateRecord tells whether a partition record may follow another one. The
// error names the invariant that a write of next would break:
//
//   - I-50: the leader epoch never falls.
//   - I-51: a change of the timeline list, of writable, of the source or of the
//     leader raises the leader epoch in the same write (R10, R22).
//   - I-53: a written record holds together: the list rises strictly and ends at or below
//     the leader epoch (R16), leader and in-sync replicas are replicas, a
//     writable partition has a timeline and a read-only one a mirror.
//   - I-54: promotion records are only ever added (R23).
//   - I-55: a change of min ISR clears the ELR (R12).
//   - I-57: the highest source epoch seen never falls within one start of a mirror (R26).
func ValidateRecord(old, next *PartitionRecord) error {
	if err := next.check(); err != nil {
		return fmt.Errorf("I-53: the record doesn't hold together: %w", err)
	}
	if next.LeaderEpoch < old.LeaderEpoch {
		return fmt.Errorf("I-50: leader epoch falls from %d to %d", old.LeaderEpoch, next.LeaderEpoch)
	}
	if what := needsNewEpoch(old, next); what != "" && next.LeaderEpoch == old.LeaderEpoch {
		return fmt.Errorf("I-51: %s changes within leader epoch %d", what, old.LeaderEpoch)
	}
	if len(next.Promotions) < len(old.Promotions) || !slices.Equal(old.Promotions, next.Promotions[:len(old.Promotions)]) {
		return fmt.Errorf("I-54: promotion records change from %v to %v", old.Promotions, next.Promotions)
	}
	if next.MinISR != old.MinISR && len(next.ELR) > 0 {
		return fmt.Errorf("I-55: min ISR changes from %d to %d and the ELR stays %v", old.MinISR, next.MinISR, next.ELR)
	}
	if a, b := old.Mirror, next.Mirror; a != nil && b != nil && a.StartID == b.StartID && b.SourceEpochMax < a.SourceEpochMax {
		return fmt.Errorf("I-57: highest source epoch falls from %d to %d", a.SourceEpochMax, b.SourceEpochMax)
	}
	return nil
}

// needsNewEpoch names what changes that only a new leader epoch may change.
func needsNewEpoch(old, next *PartitionRecord) string {
	switch {
	case !old.Timelines.Equal(next.Timelines):
		return "the timeline list"
	case old.Writable != next.Writable:
		return "writable"
	case sourceOf(old) != sourceOf(next):
		return "the source"
	case old.Leader != next.Leader || old.LeaderBrokerEpoch != next.LeaderBrokerEpoch:
		return "the leader"
	}
	return ""
}

// source identifies what a partition follows.
type source struct {
	mirror, startID, clusterID string
	topicID                    types.TopicID
}

// sourceOf gives what a partition follows; a writable one follows nothing.
func sourceOf(r *PartitionRecord) source {
	if !r.IsMirror() {
		return source{}
	}
	m := r.Mirror
	return source{mirror: m.Name, startID: m.StartID, clusterID: m.SourceClusterID, topicID: m.SourceTopicID}
}
