package meta

import (
	"encoding/json"
	"fmt"
	"slices"

	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// PartitionRecord is all truth about one partition (R7): whatever changes it
// is one transaction on this one key.
type PartitionRecord struct {
	// V is the version of the record's form, PartitionVersion. Encode sets it.
	V int `json:"v"`
	// Replicas are the brokers that hold a copy, in order of preference. While
	// a reassignment is under way they are the new ones followed by Removing.
	Replicas []types.BrokerID `json:"replicas"`
	// Adding and Removing are those of the replicas that a reassignment under
	// way brings and takes (KIP-455); both are empty if none is.
	Adding   []types.BrokerID `json:"adding,omitempty"`
	Removing []types.BrokerID `json:"removing,omitempty"`
	// ISR are the replicas in sync (R14, R15), each with the broker epoch in
	// which it proved it.
	ISR []ISRMember `json:"isr"`
	// ELR are the eligible leader replicas (KIP-966): taken out of the ISR
	// while it was below MinISR, they still hold everything committed.
	ELR []ISRMember `json:"elr,omitempty"`
	// Leader is the broker that leads, NoBroker if none can. It leads only in
	// its registration LeaderBrokerEpoch (R10).
	Leader            types.BrokerID    `json:"leader"`
	LeaderBrokerEpoch types.BrokerEpoch `json:"leaderBrokerEpoch"`
	// LeaderEpoch rises with every election and with every change of the list,
	// of writable or of the source (R22). It never falls.
	LeaderEpoch types.LeaderEpoch `json:"epoch"`
	// UncleanOnce: an operator allowed one unclean election (ElectLeaders); the
	// next election of any kind takes it back (R11).
	UncleanOnce bool `json:"uncleanOnce,omitempty"`
	// Restored: the record came from a backup, and nobody has led since. What was in
	// sync then says nothing now; the next election compares the replicas' logs (R19).
	Restored bool `json:"restored,omitempty"`
	// MinISR is the effective min.insync.replicas, the only one that leaders use (R12).
	MinISR int `json:"minIsr"`
	// Timelines names the histories of the partition's records (R16). It is
	// empty only on a mirror that has not adopted its source's list yet.
	Timelines timeline.List `json:"timelines,omitempty"`
	// Writable: clients may write. A partition that is not is a mirror's.
	Writable bool `json:"writable"`
	// Mirror is the state of mirroring; nil where the partition mirrors nothing.
	Mirror *MirrorState `json:"mirror,omitempty"`
	// Fence, if not nil: a switchover has closed a partition of this cluster's own
	// to clients' writes. It is read-only then, and no mirror (IsMirror).
	Fence *Fence `json:"fence,omitempty"`
	// Returned is the fence that a mirror's side took back last: one of that attempt, or of
	// an earlier one, that comes afterwards closes nothing (docs/adr/0032).
	Returned *Fence `json:"returned,omitempty" level:"4"`
	// OwnTimelines are ids of entries that this cluster made without a promotion: by an abandoned start (R24).
	OwnTimelines []string `json:"ownTimelines,omitempty"`
	// Promotions are kept, oldest first, until the topic is deleted (R23).
	Promotions []PromotionRecord `json:"promotions,omitempty"`
}

// Fence says who closed a partition for a switchover (DESIGN §6.4).
type Fence struct {
	// ClusterID and StartID are the mirror's that drains the partition: it alone
	// may take the fence back, beside an operator here.
	ClusterID string       `json:"clusterId"`
	StartID   string       `json:"startId"`
	At        types.Millis `json:"at"`
	// Attempt is the switchover of that start; zero if its program or this cluster knew none.
	Attempt Attempt `json:"attempt,omitzero" level:"4"`
}

// IsOfStart reports whether both are of one start of one mirror.
func (f *Fence) IsOfStart(o Fence) bool { return f.ClusterID == o.ClusterID && f.StartID == o.StartID }

// IsMirror reports whether only a mirror may write the partition.
func (r *PartitionRecord) IsMirror() bool { return !r.Writable && r.Mirror != nil && r.Fence == nil }

// IsOwn reports whether the partition's history is this cluster's: clients write it,
// or a switchover has closed it to them, and transactions that were decided end in it (docs/adr/0028).
func (r *PartitionRecord) IsOwn() bool { return r.Writable || r.Fence != nil }

// PartitionVersion is the version of PartitionRecord that this program writes and reads.
const PartitionVersion = 1

// ISRMember is a replica with the broker epoch in which it was found in sync.
// In JSON it is [id, broker epoch].
type ISRMember struct {
	ID          types.BrokerID
	BrokerEpoch types.BrokerEpoch
}

// MarshalJSON writes [id, broker epoch].
func (m ISRMember) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "[%d,%d]", m.ID, m.BrokerEpoch), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (m *ISRMember) UnmarshalJSON(b []byte) error {
	var pair []int64
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	if len(pair) != 2 || int64(types.BrokerID(pair[0])) != pair[0] {
		return fmt.Errorf("replica %s: want [broker id, broker epoch]", b)
	}
	*m = ISRMember{ID: types.BrokerID(pair[0]), BrokerEpoch: types.BrokerEpoch(pair[1])}
	return nil
}

// States of a mirrored partition (DESIGN §6.2).
const (
	// MirrorStarting: closed for a start whose second look at the source is still to come (R25).
	MirrorStarting     = "STARTING"
	MirrorLogAlignment = "LOG_ALIGNMENT"
	MirrorEpochFencing = "EPOCH_FENCING"
	MirrorMirroring    = "MIRRORING"
	MirrorPaused       = "PAUSED"
	MirrorStopping     = "STOPPING"
	MirrorStopped      = "STOPPED"
	MirrorFailed       = "FAILED"
)

var mirrorStates = []string{
	MirrorStarting, MirrorLogAlignment, MirrorEpochFencing, MirrorMirroring, MirrorPaused, MirrorStopping, MirrorStopped, MirrorFailed,
}

// MirrorState is what a mirror partition knows of its source. There is no
// second store that could disagree with it (DESIGN §6.2).
type MirrorState struct {
	// Name is the mirror's, the key of a MirrorRecord.
	Name string `json:"name"`
	// State is one of the Mirror… constants; Reason says why, where the state asks for one (FAILED).
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// StartID names the start of the mirror that this partition follows: a
	// promotion quotes it, so that a late one is recognised (R23).
	StartID string `json:"startId"`
	// Begun is how often the partition was begun anew in this start, after a failover or an
	// abandon of its topic alone had ended that: an order names it with the start (TopicStart).
	Begun int `json:"begun,omitempty" level:"3"`
	// SourceClusterID and SourceTopicID are checked on every connect (R26).
	SourceClusterID string        `json:"sourceClusterId,omitempty"`
	SourceTopicID   types.TopicID `json:"sourceTopicId,omitzero"`
	// SourcePath are the clusters that the source itself copies from, directly or
	// not, the nearest first; empty if it says none (R25).
	SourcePath []string `json:"sourcePath,omitempty"`
	// SourceEpochMax is the highest leader epoch seen at the source.
	SourceEpochMax types.LeaderEpoch `json:"sourceEpochMax"`
	// SourceStart and SourceEnd are the source's log start and end as last
	// seen, at SourceSeenAt; NoOffset and NoTimestamp before the first look.
	SourceStart  types.Offset `json:"sourceStart"`
	SourceEnd    types.Offset `json:"sourceEnd"`
	SourceSeenAt types.Millis `json:"sourceSeenAt"`
	// Copied: a fetch has been accepted since the list was adopted.
	Copied bool `json:"copied,omitempty"`
	// GivenUpFrom is the first offset that the adoption gave up, until the first
	// accepted fetch after it (R28); nil if it gave up nothing.
	GivenUpFrom *types.Offset `json:"givenUpFrom,omitempty"`
	// PlanID is the preview's that the start quoted; Rollback, that it gives up
	// what this cluster was promoted to (R24).
	PlanID   string `json:"planId,omitempty"`
	Rollback bool   `json:"rollback,omitempty"`
	// WasWritable: clients wrote to the partition, and no fetch has been accepted
	// since: what a start takes needs a plan (R24).
	WasWritable bool `json:"wasWritable,omitempty"`
	// Before is the list before the adoption, until the first accepted fetch after
	// it: what abandon goes back to. EndBefore was the leader's log end then.
	Before    timeline.List `json:"before,omitempty"`
	EndBefore types.Offset  `json:"endBefore,omitempty"`
	// GapAccepted: the operator lets the log go on behind a gap, once (R28).
	GapAccepted bool `json:"gapAccepted,omitempty"`
}

// PromotionRecord is what a promotion leaves behind (R23).
type PromotionRecord struct {
	SourceClusterID string `json:"sourceClusterId"`
	StartID         string `json:"startId"`
	Mirror          string `json:"mirror"`
	// LastMirroredEpoch is the epoch of the last mirrored record, NoLeaderEpoch if there was none.
	LastMirroredEpoch types.LeaderEpoch `json:"lastMirroredEpoch"`
	// LogEnd and HighWatermark are the promoted leader's at the promotion.
	LogEnd        types.Offset `json:"logEnd"`
	HighWatermark types.Offset `json:"highWatermark"`
	// SourceStart, SourceEnd and SourceEpoch are the source's as last seen, at SourceSeenAt.
	SourceStart  types.Offset      `json:"sourceStart"`
	SourceEnd    types.Offset      `json:"sourceEnd"`
	SourceEpoch  types.LeaderEpoch `json:"sourceEpoch"`
	SourceSeenAt types.Millis      `json:"sourceSeenAt"`
	// NeverFetched: no fetch was accepted since the mirror started, so that what
	// may be missing is not known.
	NeverFetched bool `json:"neverFetched,omitempty"`
	// MissingMs is how long before At the oldest source record was first seen that
	// the promoted log lacks; 0 if it lacked none, or that is not known.
	MissingMs types.Millis `json:"missingMs,omitempty"`
	At        types.Millis `json:"at"`
	// PromotedEpoch is the leader epoch that the promotion began.
	PromotedEpoch types.LeaderEpoch `json:"promotedEpoch"`
	// EndBefore is the log end before a consistent cut took records above LogEnd; 0 if none was cut.
	EndBefore types.Offset `json:"endBefore,omitempty" level:"2"`
	// SourceMadeAgain: the source's topic had been deleted and made again, so that what the
	// new one held is not here, and not counted.
	SourceMadeAgain bool `json:"sourceMadeAgain,omitempty" level:"4"`
}

// Clone copies the record so that no slice or pointer is shared. Whoever wants
// to change a record of an image clones it first.
func (r PartitionRecord) Clone() PartitionRecord {
	r.Replicas = slices.Clone(r.Replicas)
	r.Adding, r.Removing = slices.Clone(r.Adding), slices.Clone(r.Removing)
	r.ISR = slices.Clone(r.ISR)
	r.ELR = slices.Clone(r.ELR)
	r.Timelines = r.Timelines.Clone()
	r.Promotions = slices.Clone(r.Promotions)
	r.OwnTimelines = slices.Clone(r.OwnTimelines)
	if r.Mirror != nil {
		m := *r.Mirror
		m.SourcePath = slices.Clone(m.SourcePath)
		m.Before = m.Before.Clone()
		if m.GivenUpFrom != nil {
			from := *m.GivenUpFrom
			m.GivenUpFrom = &from
		}
		r.Mirror = &m
	}
	if r.Fence != nil {
		f := *r.Fence
		r.Fence = &f
	}
	if r.Returned != nil {
		f := *r.Returned
		r.Returned = &f
	}
	return r
}

// InISR reports whether broker id is in the ISR, in any of its registrations.
func (r *PartitionRecord) InISR(id types.BrokerID) bool {
	return slices.ContainsFunc(r.ISR, func(m ISRMember) bool { return m.ID == id })
}

// MinISRNow is how many in-sync replicas are enough: MinISR, capped to the
// number of replicas (a larger one could never be met).
func (r *PartitionRecord) MinISRNow() int { return max(1, min(r.MinISR, len(r.Replicas))) }

// Target lists the replicas as they are without the ones that a reassignment takes away.
func (r *PartitionRecord) Target() []types.BrokerID {
	return slices.DeleteFunc(slices.Clone(r.Replicas), func(id types.BrokerID) bool { return slices.Contains(r.Removing, id) })
}

// ISRIDs lists the brokers in the ISR.
func (r *PartitionRecord) ISRIDs() []types.BrokerID { return memberIDs(r.ISR) }

// ELRIDs lists the eligible leader replicas.
func (r *PartitionRecord) ELRIDs() []types.BrokerID { return memberIDs(r.ELR) }

func memberIDs(members []ISRMember) []types.BrokerID {
	ids := make([]types.BrokerID, len(members))
	for i, m := range members {
		ids[i] = m.ID
	}
	return ids
}
