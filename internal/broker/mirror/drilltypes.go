package mirror

import (
	"context"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Forks is what a node does for drills: folders that hold a mirror's records by hard
// links, and are no partition of anything until their topics are there. They go with their drill.
type Forks interface {
	// Fork makes one. It is refused if this replica was not in sync in the leader
	// epoch in which the request's facts were taken.
	Fork(ctx context.Context, r ForkRequest) (ForkSize, error)
	// ForksMade makes durable that the forks made so far are there.
	ForksMade() error
	// Prove writes one record with acks=all to a partition led here, and reads it back.
	Prove(ctx context.Context, id meta.PartitionID, key, value []byte, patience time.Duration) error
}

// ForkRequest asks a node for a fork of one of its replicas.
type ForkRequest struct {
	Of meta.PartitionID // the mirror's partition
	// As and Name are the fork's: no topic of them exists yet.
	As   meta.PartitionID
	Name types.TopicPartition
	// To is where the fork ends, Start where it begins at the earliest. In the
	// mirror's leader epoch LeaderEpoch the leader had committed all below To, and the
	// record before To is of LastEpoch.
	To, Start              types.Offset
	LeaderEpoch, LastEpoch types.LeaderEpoch
	// Epoch is the leader epoch that the fork begins in, TimelineID names its history.
	Epoch      types.LeaderEpoch
	TimelineID string
	// Run is the drill's, which was begun at the revision Begun.
	Run   meta.DrillMark
	Begun meta.Revision
}

// ForkSize is how many bytes of records a fork shares with its mirror, and how many it copied.
type ForkSize struct{ Linked, Copied int64 }

// DrillRequest asks for a drill: a fork of mirrored topics and groups that clients may
// write to, made without touching the mirror.
type DrillRequest struct {
	// Drill names it. The fork's topics and groups begin with drill.NAME.
	Drill string `json:"drill"`
	// Topics and Groups are RE2 expressions for whole names among the mirror's. Empty: all.
	Topics string `json:"topics,omitempty"`
	Groups string `json:"groups,omitempty"`
	// DryRun: only say what would be forked, and what a failover now would lack.
	DryRun bool `json:"dryRun,omitempty"`
}

// DrillReport says what a drill made, and what it found.
type DrillReport struct {
	Mirror string `json:"mirror"`
	Drill  string `json:"drill"`
	// Prefix begins the names of the fork's topics and groups.
	Prefix string       `json:"prefix"`
	At     types.Millis `json:"at"`
	DryRun bool         `json:"dryRun"`
	// FailoverMs is how long a failover of these partitions would have taken at the
	// most: the sum of the steps that are a failover's, of which one opens the fork's
	// logs, too, and a failover's are open. -1 for a dry run.
	FailoverMs float64     `json:"failoverMs"`
	Steps      []DrillStep `json:"steps"`
	// Loss is what a failover now would have lacked.
	Loss       *LossSum         `json:"loss,omitempty"`
	Partitions []DrillPartition `json:"partitions"`
	Groups     []DrillGroup     `json:"groups"`
	// LinkedBytes are shared with the mirror, CopiedBytes are the fork's own; both of all replicas.
	LinkedBytes int64    `json:"linkedBytes"`
	CopiedBytes int64    `json:"copiedBytes"`
	Message     []string `json:"message"`
}

// DrillStep is one step of a drill and the time that it took.
type DrillStep struct {
	Name string  `json:"name"`
	Ms   float64 `json:"ms"`
	// Failover: a failover has this step, too.
	Failover bool `json:"failover"`
}

// DrillPartition is one partition of the fork.
type DrillPartition struct {
	Topic     string `json:"topic"`
	Of        string `json:"of"` // the mirror's topic
	Partition int32  `json:"partition"`
	// Start and End bound the mirror's records in the fork; -1 for a dry run.
	Start types.Offset `json:"start"`
	End   types.Offset `json:"end"`
	// Epoch is the leader epoch in which the fork began, the one that a failover would have begun.
	Epoch  types.LeaderEpoch `json:"epoch"`
	Leader types.BrokerID    `json:"leader"`
	InSync []types.BrokerID  `json:"inSync"`
	// Proved: a record was written to it with acks=all and read back.
	Proved bool   `json:"proved"`
	Fault  string `json:"fault,omitempty"` // why it isn't
	Loss   *Loss  `json:"loss,omitempty"`
}

// DrillGroup is one group of the fork.
type DrillGroup struct {
	Group string `json:"group"`
	Of    string `json:"of"` // the mirror's group
	// Offsets were copied; Clamped of them were beyond the fork's end.
	Offsets int    `json:"offsets"`
	Clamped int    `json:"clamped"`
	Fault   string `json:"fault,omitempty"`
}

// Drill is a fork that is there.
type Drill struct {
	Drill  string       `json:"drill"`
	Mirror string       `json:"mirror"`
	At     types.Millis `json:"at"`
	// State is making, ready or dropping: clients see the topics of one that is ready alone.
	State      string   `json:"state"`
	Topics     []string `json:"topics"`
	Partitions int      `json:"partitions"`
	// Offline of the partitions of one that is ready can't be used; Faults are the first
	// of them with the reason, and those whose leader doesn't answer.
	Offline int      `json:"offline"`
	Faults  []string `json:"faults,omitempty"`
}
