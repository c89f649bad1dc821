package mirror

import (
	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// Ticket pairs an asking effect with its answer. Tickets rise within a Partition's life.
type Ticket uint64

// Own is the partition's log here at the time of an event, one snapshot.
type Own struct {
	replica.Log
	// Checkpoint is the replica's timeline-checkpoint; HasCheckpoint is false if
	// there is none or it can't be read.
	Checkpoint    timeline.Checkpoint
	HasCheckpoint bool
	// Cleaned is how far this replica's own compaction has reached: below it records may
	// be gone in favour of newer ones of their keys. It lies above the log end where a
	// crash interrupted a cut below it. 0: none.
	Cleaned types.Offset
}

// lacks reports whether a log cut at an offset may lack older records of the keys
// whose newer ones go (docs/adr/0027).
func (o *Own) lacks(at types.Offset) bool { return o.Cleaned > at && at > o.LogStart }

// Event is something that happened. Exactly the types of this file implement it.
type Event interface{ isEvent() }

// RecordShown: the image shows this partition record, at first and after every
// change. Leading is false if this broker doesn't lead the partition in its
// present registration (R10): then nothing runs. The record is not changed or kept by either side afterwards.
type RecordShown struct {
	Record  *meta.PartitionRecord
	Leading bool
	// AllFetched: every ISR member has fetched in the record's leader epoch; true
	// if the ISR is this broker alone. A change of it is shown again.
	AllFetched bool
}

// SourceShown answers LookUp: what the source says of itself and the partition,
// read together (R18): the leader epoch and the list belong to one answer.
type SourceShown struct {
	Ticket Ticket
	Source Source
}

// Source is one look at the source partition.
type Source struct {
	ClusterID string
	// TopicID is zero for a source that knows none (Apache Kafka before 2.8).
	TopicID types.TopicID
	// LeaderEpoch of the source partition; NoLeaderEpoch if the source doesn't say (before 2.1's Metadata v7).
	LeaderEpoch types.LeaderEpoch
	// LogStart and LogEnd are what a consumer sees: ListOffsets earliest and latest
	// (the high watermark, READ_UNCOMMITTED).
	LogStart, LogEnd types.Offset
	// Timelines is what a Tidemark source says, nil for any other: then the root
	// is derived (R16). Empty but not nil: the source is a mirror that has not
	// adopted its own source's list yet, and has to be waited for.
	Timelines timeline.List
	// IsMirror: the source itself is a mirror, not merely fenced (R27); LastEpoch
	// is then the epoch of its last record. Path are the cluster ids it copies from, directly or
	// not, the nearest first (R25).
	IsMirror  bool
	LastEpoch types.LeaderEpoch
	Path      []string
	// Mirrored is what a source that speaks KIP-1279 and tells no timelines says that it
	// copied from this cluster; nil if it wasn't asked.
	Mirrored *Mirrored
}

// SourceFailed answers LookUp, Fetch, AskVouch or Probe that came to nothing:
// unreachable, refused, no leader. The session is over; backoff follows.
type SourceFailed struct {
	Ticket Ticket
	// Reason is one of the Reason constants, SourceUnreachable as a rule.
	Reason Reason
	// Detail is the sentence for the operator.
	Detail string
}

// Fetched answers Fetch. Batches whose CRC or header is bad are not in the reply:
// the driver reports SourceFailed with CorruptSource.
type Fetched struct {
	Ticket Ticket
	Reply  replica.Reply
	// Bytes is the size of Reply.Batches together.
	Bytes int
	// SourceEnd is the source's end for us (its high watermark), -1 if not said.
	SourceEnd types.Offset
}

// Vouched answers AskVouch: the source's history reaches down to the epoch asked for.
type Vouched struct {
	Ticket Ticket
	Yes    bool
}

// ProbeResult is what the comparison of one batch showed.
type ProbeResult int8

const (
	// ProbeSame: equal in offsets, length, CRC and epoch.
	ProbeSame ProbeResult = iota
	// ProbeDifferent: both hold the offsets, the bytes differ.
	ProbeDifferent
	// ProbeMissing: one side holds nothing there (compacted away): says nothing.
	// With Base set, a batch below it is asked for next.
	ProbeMissing
)

// Probed answers Probe.
type Probed struct {
	Ticket Ticket
	Result ProbeResult
	// Base and Last are the offsets of the own batch that was looked at; 0 if there was none.
	Base, Last types.Offset
}

// Proposed answers Propose, once the outcome is certain and the image shows a
// later revision of the record (R8). The driver gives RecordShown with that
// record first. Applied is false if another write came first or the transaction
// was refused: what depended on it is dropped.
type Proposed struct {
	Ticket  Ticket
	Applied bool
}

// LogDone answers a group of log effects (same ticket): all are done and synced
// as R1 asks.
type LogDone struct{ Ticket Ticket }

// LogFailed answers a group of log effects of which one failed; the later ones
// were not tried.
type LogFailed struct {
	Ticket Ticket
	// Reason is VaultFull, DiskFull or LogOffline; CorruptSource if a batch was refused by the log.
	Reason Reason
	Detail string
}

// BackoffOver answers Backoff, when the time has passed.
type BackoffOver struct{ Ticket Ticket }

// Tick passes time for what has a cadence (the source facts kept in the record,
// lag). The driver sends it every few seconds, and to as many partitions as it likes at once.
type Tick struct{}

// Refreshed is a look at the source that the driver made for many partitions at
// once (metadata refresh, every few seconds): it never answers a LookUp.
type Refreshed struct{ Source Source }

// RetryNow ends a backoff early: the operator said resume, or the source came back.
type RetryNow struct{}

// PolicyChanged: the settings of the mirror changed.
type PolicyChanged struct{ Policy Policy }

func (RecordShown) isEvent()   {}
func (SourceShown) isEvent()   {}
func (SourceFailed) isEvent()  {}
func (Fetched) isEvent()       {}
func (Vouched) isEvent()       {}
func (Probed) isEvent()        {}
func (Proposed) isEvent()      {}
func (LogDone) isEvent()       {}
func (LogFailed) isEvent()     {}
func (BackoffOver) isEvent()   {}
func (Tick) isEvent()          {}
func (Refreshed) isEvent()     {}
func (RetryNow) isEvent()      {}
func (PolicyChanged) isEvent() {}
