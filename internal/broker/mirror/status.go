package mirror

import (
	"tidemark/internal/core/types"
	"tidemark/internal/log"
)

// The types of this file are what operators and their tools see, as JSON, of
// a mirror: through the HTTP API and `tidemark mirror … -o json`. The names
// are relied on and only ever added to.

// Spec is what `mirror create` asks for.
type Spec struct {
	Name string `json:"name"`
	// Bootstrap are the source's addresses, HOST:PORT.
	Bootstrap []string `json:"bootstrap"`
	// ClientConfig are the source client's properties by Kafka's names.
	ClientConfig map[string]string `json:"clientConfig,omitempty"`
	// Topics, Exclude and Groups are RE2 expressions for whole names. Empty: all, none, all.
	Topics  string `json:"topics,omitempty"`
	Exclude string `json:"exclude,omitempty"`
	Groups  string `json:"groups,omitempty"`
	// Settings are mirror settings, such as gap.policy.
	Settings map[string]string `json:"settings,omitempty"`
}

// Status is one mirror as `mirror status` prints it.
type Status struct {
	Mirror          string `json:"mirror"`
	SourceClusterID string `json:"sourceClusterId"`
	// State is the mirror's as a whole: CREATED, CONNECTING (the source hasn't
	// been reached since the start), RUNNING, PAUSED, STOPPING, STOPPED or FAILED.
	State string `json:"state"`
	// Reason is the sentence that an operator needs where State asks for one.
	Reason string `json:"reason,omitempty"`
	// FailingMs is for how long the source could not be looked at, of the node that is
	// asked; 0: it can, or isn't tried.
	FailingMs int64 `json:"failingMs,omitempty"`
	// WayOut says what can be done about a source that can't be looked at.
	WayOut string `json:"wayOut,omitempty"`
	// StartID names the mirror's present start, empty before the first one. An order to
	// change sides quotes it, so that sent twice it is one order.
	StartID    string            `json:"startId,omitempty"`
	Partitions []PartitionStatus `json:"partitions"`
	// Message says in words what a failover may have left behind, line by line; empty otherwise.
	Message []string `json:"message,omitempty"`
	// Loss is what a failover now would lack, or lacked; nil for a mirror without partitions.
	Loss *LossSum `json:"loss,omitempty"`
	// Verified is the last comparison with the source that this node made; nil for none.
	Verified *VerifySummary `json:"verified,omitempty"`
	// Switchover is the newest one of the present start; nil for none.
	Switchover *SwitchoverStatus `json:"switchover,omitempty"`
}

// PartitionStatus is one mirrored partition. Offsets are -1 where unknown.
type PartitionStatus struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// StartID is the start that the partition follows or has ended last: what an order
	// for its topic alone quotes.
	StartID string `json:"startId,omitempty"`
	// State is one of DESIGN §6.2's.
	State string `json:"state"`
	// SrcEpoch and Epoch are the leader epochs at the source and here.
	SrcEpoch types.LeaderEpoch `json:"srcEpoch"`
	Epoch    types.LeaderEpoch `json:"epoch"`
	SrcStart types.Offset      `json:"srcStart"`
	SrcEnd   types.Offset      `json:"srcEnd"`
	Start    types.Offset      `json:"start"`
	End      types.Offset      `json:"end"`
	// Bytes is the size of the log here, -1 where it isn't held or open.
	Bytes int64 `json:"bytes"`
	// LagRecords, LagBytes (an estimate) and LagMs: what we lack, and for how long the oldest of it has been missing (DESIGN §6.5).
	LagRecords int64 `json:"lagRecords"`
	LagBytes   int64 `json:"lagBytes"`
	LagMs      int64 `json:"lagMs"`
	// VerifiedTo is the offset below which both sides were proved equal; -1 before any verify.
	VerifiedTo types.Offset `json:"verifiedTo"`
	Reason     string       `json:"reason"`
	// Promotion is set once the partition has been failed over.
	Promotion *Promotion `json:"promotion,omitempty"`
	// Loss is what a failover now would lack, or lacked when it was made.
	Loss *Loss `json:"loss,omitempty"`
	// SplitBrain is set if the old source moved after the failover.
	SplitBrain *SplitBrainAlarm `json:"splitBrain,omitempty"`
}

// Promotion is what a failover took, and what the source was last seen to have.
type Promotion struct {
	LastMirroredEpoch types.LeaderEpoch `json:"lastMirroredEpoch"`
	// LastMirroredOffset is where the mirrored records end, exclusive: the log
	// end that was taken. It compares with SrcEndLastSeen.
	LastMirroredOffset types.Offset      `json:"lastMirroredOffset"`
	SrcEndLastSeen     types.Offset      `json:"srcEndLastSeen"`
	SrcEndSeenAt       types.Millis      `json:"srcEndSeenAt"`
	PromotedEpoch      types.LeaderEpoch `json:"promotedEpoch"`
}

// Description is `mirror describe`: the status, the spec without secrets, and the health of each sync.
type Description struct {
	Status
	Spec    Spec         `json:"spec"`
	Syncs   []SyncHealth `json:"syncs"`
	Groups  []GroupSync  `json:"groups"`
	StartID string       `json:"startId"`
	// Replication is of the mirror's topics.
	Replication Replication `json:"replication"`
}

// SyncHealth is the health of one kind of sync: metadata, configs, groups, acls, scram, or the fetcher of one source broker.
type SyncHealth struct {
	Name        string       `json:"name"`
	LastSuccess types.Millis `json:"lastSuccess"` // 0: never
	AgeMs       int64        `json:"ageMs"`       // since the last success; -1: never
	Error       string       `json:"error,omitempty"`
	// Detail says what the last round found, where there is something to say.
	Detail string `json:"detail,omitempty"`
}

// GroupSync is one group's mirrored offset of one partition.
type GroupSync struct {
	Group string `json:"group"`
	// Type is the group's at the source: classic or consumer (KIP-848); empty where it doesn't say.
	Type      string       `json:"type,omitempty"`
	Topic     string       `json:"topic"`
	Partition int32        `json:"partition"`
	Source    types.Offset `json:"source"`  // committed at the source; -1: not seen since the start
	Standby   types.Offset `json:"standby"` // committed here; -1: not yet
	// Clamped is what the offset was before a cut, or a failover, took it back last, at ClampedAt; -1: never.
	Clamped   types.Offset `json:"clamped"`
	ClampedAt types.Millis `json:"clampedAt,omitempty"`
	// AgeMs is since the source's offset was last read and written here; -1: not since the start.
	AgeMs int64 `json:"ageMs"`
	// Reason says why the two differ: PENDING (our log hasn't got there),
	// LOCAL_MEMBERS, GROUP_CUT, CLAMPED, DIFFERS (written here by somebody else), or an error.
	Reason string `json:"reason,omitempty"`
}

// Verify is the progress and, at the end, the result of comparing both sides.
type Verify struct {
	Mirror     string            `json:"mirror"`
	Done       bool              `json:"done"`
	Equal      bool              `json:"equal"`
	Bytes      int64             `json:"bytes"`
	TotalBytes int64             `json:"totalBytes"` // estimate; 0: unknown
	Partitions []VerifyPartition `json:"partitions"`
	// NotHere are the mirror's partitions of which this node has no replica: ask another node for them.
	NotHere int    `json:"notHere"`
	Error   string `json:"error,omitempty"`
}

// VerifyPartition is how far one partition is proved equal.
type VerifyPartition struct {
	Topic      string       `json:"topic"`
	Partition  int32        `json:"partition"`
	From       types.Offset `json:"from"`
	VerifiedTo types.Offset `json:"verifiedTo"`
	Batches    int64        `json:"batches"`
	Bytes      int64        `json:"bytes"`
	// SHA256 is the digest of the bytes that were compared, in hex: of the batches from From to
	// VerifiedTo as they lie in the log. Empty where records were compared one by one (compacted topics).
	SHA256 string `json:"sha256,omitempty"`
	// Difference is empty if none was found; else the first one in words.
	Difference string `json:"difference,omitempty"`
	// Error says why the comparison went no further than VerifiedTo; empty if it did.
	Error string `json:"error,omitempty"`
}

// Event is one thing that happened to a mirrored partition and that an operator may need later, such as a cut.
type Event struct {
	// Seq rises with each event of a node, over restarts too.
	Seq int64 `json:"seq"`
	// Node is the broker that tells it.
	Node      types.BrokerID `json:"node"`
	At        types.Millis   `json:"at"`
	Mirror    string         `json:"mirror"`          // the partition's; empty where it is no mirror's
	Kind      string         `json:"kind"`            // CUT, LOG_RESET, LOG_START, REALIGNED, PROMOTED, FAILED, RECOVERED, GROUP_CUT, ...
	Group     string         `json:"group,omitempty"` // of consumers, where the event is about one
	Topic     string         `json:"topic"`
	Partition int32          `json:"partition"`
	From      types.Offset   `json:"from"` // first offset concerned, -1 if none
	To        types.Offset   `json:"to"`   // exclusive
	Records   int64          `json:"records"`
	VaultID   string         `json:"vaultId,omitempty"`
	// OrderedBy says of a cut whether the source, the leader in this cluster or the
	// metadata ordered it; empty: not a cut, or one from before this was noted.
	OrderedBy log.Order `json:"orderedBy,omitempty"`
	Message   string    `json:"message"`
}
