package mirror

import (
	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// Effect is something to do. Exactly the types of this file implement it. They
// are carried out in the order given.
type Effect interface{ isEffect() }

// Effects collects the effects of one Step. The caller may reuse it (Reset).
type Effects struct{ List []Effect }

// Reset empties the list and keeps its memory.
func (e *Effects) Reset() { e.List = e.List[:0] }

func (e *Effects) add(x Effect) { e.List = append(e.List, x) }

// LookUp asks the source for cluster id, topic id, leader, leader epoch, list and
// log range, from its present metadata and not from a cache. Answered by SourceShown or SourceFailed.
type LookUp struct{ Ticket Ticket }

// Fetch sends one fetch to the source's leader, as a consumer, READ_UNCOMMITTED.
// Answered by Fetched or SourceFailed. A long poll is welcome unless Peek.
//
// An answer of the source that its leader moved (NOT_LEADER_OR_FOLLOWER) is
// SourceFailed with SourceLeaderMoved; FENCED_LEADER_EPOCH and
// UNKNOWN_LEADER_EPOCH are replies. OFFSET_OUT_OF_RANGE is a reply; LogStart may be -1 then.
//
// Below Fetch v12 the driver asks OffsetForLeaderEpoch(Request.LastEpoch) first: an
// epoch below the asked one or an end below Request.Offset is a divergence.
//
// A Fetch replaces one of the same partition that is still on its way.
type Fetch struct {
	Ticket  Ticket
	Request replica.Request
	// Peek: only the comparison matters; no long poll, as few bytes as the source gives.
	Peek bool
}

// AskVouch asks whether the source's history reaches down to Epoch (R28).
// Answered by Vouched or SourceFailed. With OffsetForLeaderEpoch: yes if
// (Epoch) is answered with an end above Offset, or if (Epoch+1) is answered
// with epoch Epoch, or if Epoch is the leader epoch of a source that is no mirror
// (its own entry is in its history, R3); no otherwise. A driver that can't ask answers no (then the
// vault keeps a little more).
type AskVouch struct {
	Ticket Ticket
	Epoch  types.LeaderEpoch
	Offset types.Offset
}

// Probe compares the last own batch that lies wholly below Below with the
// source's batch at the same offsets (R26): base and last offset, length, CRC,
// epoch; record by record on a compacted topic. Nothing below the log start is
// compared: then the result is ProbeMissing. Answered by Probed or SourceFailed.
type Probe struct {
	Ticket Ticket
	Below  types.Offset
	// LeaderEpoch is the source's, to be sent with the fetch.
	LeaderEpoch types.LeaderEpoch
}

// Purpose says what a proposed record is for.
type Purpose int8

// The purposes of Propose.
const (
	ForAdoption  Purpose = iota // R18
	ForRealign                  // R20
	ForRaise                    // R21
	ForMirroring                // LOG_ALIGNMENT or FAILED is over
	ForFailure                  // FAILED(reason)
	ForSeen                     // source facts, at leisure: may be batched and delayed
	ForPath                     // the source copies from other clusters than before (R25)
)

// String is the purpose as scripts and logs print it.
func (p Purpose) String() string {
	return [...]string{"adoption", "realign", "raise", "mirroring", "failure", "seen", "path"}[p]
}

// Propose commits Record in place of the record last shown: one transaction that
// compares the record's mod revision, my registration, and leader = me (R7).
// Nothing else may be done for the partition until Proposed (R8), but answers to
// earlier effects may be passed on: they are dropped here.
type Propose struct {
	Ticket  Ticket
	Purpose Purpose
	Record  meta.PartitionRecord
}

// The log effects. A Step appends at most one group of them, all with one ticket.
// Carry them out in order and stop at the first failure; then LogDone or LogFailed.

// Cut cuts the log at At by R1, the vault first. Cause TIMELINE: the checkpoint
// goes to SetCheckpoint's value in R1's step 6, after the truncation is synced.
type Cut struct {
	Ticket Ticket
	At     types.Offset
	Cause  Cause
	// Anew: the cut goes down to the log start, since the own compaction had reached
	// above where it had to be (docs/adr/0027).
	Anew bool
	// MayDrop: with a full vault the records may be dropped unvaulted (R29).
	MayDrop bool
	// SourceEpoch and SourceEnd are the answer that asked for the cut, for the manifest and the event.
	SourceEpoch types.LeaderEpoch
	SourceEnd   types.Offset
}

// Restart sends everything through R1 step 1 and begins an empty log at At.
type Restart struct {
	Ticket Ticket
	At     types.Offset
	Cause  Cause
}

// RaiseLogStart moves the log start up, synced if not Vouched; what it passes
// goes to the vault first if not Vouched (R28).
type RaiseLogStart struct {
	Ticket  Ticket
	At      types.Offset
	Vouched bool
}

// SetCheckpoint writes timeline-checkpoint and syncs it, after the truncation.
type SetCheckpoint struct {
	Ticket     Ticket
	Checkpoint timeline.Checkpoint
}

// Append appends the first Batches batches of the reply being answered, as they
// are; a batch with an epoch above MaxEpoch is refused. The high watermark is
// then the leader's business (R14), not the mirror's.
type Append struct {
	Ticket   Ticket
	Batches  int
	MaxEpoch types.LeaderEpoch
}

// Backoff asks for BackoffOver after a random time: full jitter between 0 and
// BackoffMax(Attempt).
type Backoff struct {
	Ticket  Ticket
	Attempt int
	Reason  Reason
}

// StopFetching ends the session: answers still on their way are stale. The driver takes the
// partition out of the source connection's fetch session.
type StopFetching struct{}

// Tell is an event for the operator: to the log, the event list and the metrics.
type Tell struct {
	Code   Code
	Reason Reason // for FAILED and REFUSED
	Detail string // a sentence with the numbers
	// From and To (exclusive) are offsets, where the code has some.
	From, To types.Offset
	Epoch    types.LeaderEpoch
}

func (LookUp) isEffect()        {}
func (Fetch) isEffect()         {}
func (AskVouch) isEffect()      {}
func (Probe) isEffect()         {}
func (Propose) isEffect()       {}
func (Cut) isEffect()           {}
func (Restart) isEffect()       {}
func (RaiseLogStart) isEffect() {}
func (SetCheckpoint) isEffect() {}
func (Append) isEffect()        {}
func (Backoff) isEffect()       {}
func (StopFetching) isEffect()  {}
func (Tell) isEffect()          {}

// Cause is a cut's cause in the vault's manifest.
type Cause string

// The causes of a cut (DESIGN §7).
const (
	CauseDivergence Cause = "DIVERGENCE"
	CauseTimeline   Cause = "TIMELINE"
	CauseRestart    Cause = "RESTART"
	CauseLogStart   Cause = "LOG_START"
	CauseConsistent Cause = "CONSISTENT" // of a transaction-consistent failover (docs/adr/0011)
)

// Code names what is told to the operator.
type Code string

// The codes told by a mirrored partition.
const (
	Adopted          Code = "ADOPTED"
	Realigned        Code = "REALIGNED"
	LogReset         Code = "LOG_RESET"
	CutDone          Code = "CUT"
	EpochFencing     Code = "EPOCH_FENCING"
	AheadOfMirror    Code = "AHEAD_OF_MIRROR"
	GapAccepted      Code = "GAP_ACCEPTED"
	CompactionGap    Code = "COMPACTION_GAP"
	Failed           Code = "FAILED"
	Recovered        Code = "RECOVERED"
	Waiting          Code = "WAITING"
	SourceGone       Code = "SOURCE_UNREACHABLE"
	DroppedUnvaulted Code = "DROPPED_UNVAULTED"
)

// Reason says why a partition failed or a request was refused.
type Reason string

// Reasons. Those of the first group pass by themselves and are never written to
// the record; the others are, and stay until their cause is gone.
const (
	SourceUnreachable Reason = "SOURCE_UNREACHABLE"
	SourceLeaderMoved Reason = "SOURCE_LEADER_MOVED"
	// SourceNoLeader: nobody leads the source's partition, and no in-sync replica is up to be elected.
	SourceNoLeader Reason = "SOURCE_NO_LEADER"
	SourceNotReady Reason = "SOURCE_NOT_READY"
	SourceAuth     Reason = "SOURCE_AUTHENTICATION"
	SourceTooOld   Reason = "SOURCE_TOO_OLD"
	CorruptSource  Reason = "SOURCE_CORRUPT"
	DiskFull       Reason = "DISK_FULL"
	LogOffline     Reason = "LOG_OFFLINE"

	TopicIDMismatch      Reason = "TOPIC_ID_MISMATCH"
	OtherCluster         Reason = "OTHER_CLUSTER"
	SourceRewritten      Reason = "SOURCE_REWRITTEN"
	SourceEpochRegressed Reason = "SOURCE_EPOCH_REGRESSED"
	// SourceInconsistent: what the source's leader says of its epochs contradicts
	// the batches that it gives, and it insists. Nothing is cut any more until it
	// no longer does, or another leader epoch begins there.
	SourceInconsistent Reason = "SOURCE_INCONSISTENT"
	SourceGap          Reason = "SOURCE_GAP"
	SourceTopicGone    Reason = "SOURCE_TOPIC_GONE"
	UnrelatedLogs      Reason = "UNRELATED_LOGS"
	AheadOfSource      Reason = "AHEAD_OF_SOURCE"
	PlanRequired       Reason = "PLAN_REQUIRED"
	MirrorLoop         Reason = "MIRROR_LOOP"
	VaultFull          Reason = "VAULT_FULL"
	MetadataWentBack   Reason = "METADATA_WENT_BACK"
	TimelineUnknown    Reason = "TIMELINE_UNKNOWN"
	StaleRequest       Reason = "STALE_REQUEST"
	NotPromoted        Reason = "NOT_PROMOTED"
	NotMirror          Reason = "NOT_A_MIRROR"
	FirstCutOwed       Reason = "FIRST_CUT_OWED"
	PlanStale          Reason = "PLAN_STALE"
	TooLate            Reason = "TOO_LATE"
	NothingToAbandon   Reason = "NOTHING_TO_ABANDON"
	AlreadyFenced      Reason = "ALREADY_FENCED"
	// FenceUnnamed: a fence names no attempt, so that a mirror's side can't take it back by itself.
	FenceUnnamed   Reason = "FENCE_UNNAMED"
	SourceIsMirror Reason = "SOURCE_IS_A_MIRROR"
	NoGap          Reason = "NO_GAP"
)

// BackoffMax is the longest wait before the given attempt (1 is the first
// retry): 100 ms, doubled each time, at most 30 s. The driver draws evenly
// between 0 and it (full jitter).
func BackoffMax(attempt int) types.Millis {
	const first, most = 100, 30_000
	d := types.Millis(first)
	for range max(attempt, 1) - 1 {
		if d *= 2; d >= most {
			return most
		}
	}
	return d
}
