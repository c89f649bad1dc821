package mirror

import (
	"fmt"
	"slices"
	"strings"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// forkMark begins the start id of a fork's promotion record: `drill/NAME/ID`. No
// start of a mirror has such an id, so that nobody takes a fork for its mirror.
const forkMark = "drill/"

// ForkRequest is a drill's fork of one partition.
type ForkRequest struct {
	// Drill is the drill's name, ID is fresh for each drill.
	Drill, ID string
	// TimelineID is fresh and random.
	TimelineID string
	// At is where the fork ends: at or below the mirror's high watermark.
	At types.Offset
	// Made is the promotion that a failover would have written.
	Made meta.PromotionRecord
	// InSync are the replicas that made the fork, the mirror's leader first.
	InSync []meta.ISRMember
	Now    types.Millis
}

// Fork gives the record of a fork of a mirror's partition: writable, in the epoch
// that a failover would have begun, on the same replicas, and a history of its own
// from its first record on. It shares no timeline with the mirror, so that neither a
// failback nor anything else compares them; its topic has another id and name anyway.
// Its promotion record has its leader end what transactions the mirror left open (R23).
func Fork(rec *meta.PartitionRecord, r ForkRequest) meta.PartitionRecord {
	made := r.Made
	made.StartID = forkMark + r.Drill + "/" + r.ID
	made.LogEnd, made.HighWatermark, made.At = r.At, r.At, r.Now
	leader := r.InSync[0]
	return meta.PartitionRecord{
		Replicas: slices.Clone(rec.Target()), ISR: slices.Clone(r.InSync), Leader: leader.ID, LeaderBrokerEpoch: leader.BrokerEpoch,
		LeaderEpoch: made.PromotedEpoch, MinISR: rec.MinISR, Timelines: timeline.FreshRoot(r.TimelineID), Writable: true,
		Promotions: []meta.PromotionRecord{made},
	}
}

// Forked says of which drill a partition is a fork, and of which of its runs.
func Forked(rec *meta.PartitionRecord) (drill, id string, ok bool) {
	if rec == nil || len(rec.Promotions) == 0 {
		return "", "", false
	}
	return ForkedBy(rec.Promotions[0])
}

// ForkedBy is Forked for the promotion record that a fork begins with.
func ForkedBy(made meta.PromotionRecord) (drill, id string, ok bool) {
	rest, ok := strings.CutPrefix(made.StartID, forkMark)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// drillNameBytesMax leaves most of a topic's 249 characters to the topic.
const drillNameBytesMax = 60

// ValidDrillName refuses names that can't be part of a topic's.
func ValidDrillName(name string) error {
	bad := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-')
	}
	if name == "" || len(name) > drillNameBytesMax || strings.IndexFunc(name, bad) >= 0 {
		return fmt.Errorf("drill name %q: want 1 to %d letters, digits and '-'", name, drillNameBytesMax)
	}
	return nil
}

// DrillPrefix begins the names of all drills' topics and groups.
const DrillPrefix = "drill."

// ForkPrefix begins the names of one drill's topics and groups.
func ForkPrefix(drill string) string { return DrillPrefix + drill + "." }

// IsForkName reports whether a topic is named as a drill's are.
func IsForkName(topic string) bool {
	rest, ok := strings.CutPrefix(topic, DrillPrefix)
	drill, of, named := strings.Cut(rest, ".")
	return ok && named && of != "" && ValidDrillName(drill) == nil
}
