// Package history judges what clients of a cluster saw.
//
// Clients write down each send, poll and commit of a run in which brokers were
// killed and frozen; Check, a pure function over that record, finds what a
// correct cluster never shows: an offset with two values, a value twice, an
// acknowledged write that is gone, a read of a write that failed, a consumer
// that jumps or goes back, a committed offset that falls. CompareReplicas reads
// the replicas' folders and demands that they hold the same bytes. The rules
// are those of the log workloads of Jepsen and Maelstrom, restated.
//
// Values are unique for a whole run. The package knows no client library and
// no clock, and holds no lock: who records from several goroutines orders the
// entries and numbers them by one counter. Of transactions it judges what became
// visible; it looks for no cycles between them.
//
// What a cluster promises depends on what was done to it. Records acknowledged
// by the leader alone (Send.Weak) bind it to nothing but what readers saw. Where
// all replicas lost what they had not synced and an operator let the best of them
// lead (Loss), the end of a log may be gone, but only its end.
//
// Tests: one history for each rule that breaks it alone, and clean ones
// (history_test.go, loss_test.go, mirrored*_test.go); folders with one planted difference of each
// kind (replicas_test.go).
package history

import (
	"fmt"
	"slices"

	"tidemark/internal/core/types"
)

// Outcome is what the sender of a record knows in the end.
type Outcome string

// The outcomes of a send.
const (
	// Acked: the cluster acknowledged the record, and Send.Offset says where it is.
	Acked Outcome = "acked"
	// Unknown: the record may or may not have been written; time-outs and ends of the client are this.
	Unknown Outcome = "unknown"
	// Failed: the record was certainly refused, or its transaction aborted; nobody may see it.
	Failed Outcome = "failed"
)

// Send is one record of a producer, in the producer's own order.
type Send struct {
	Producer  string
	Partition types.TopicPartition
	Value     string
	Outcome   Outcome
	Offset    types.Offset // with Acked
	// Weak says that the leader alone acknowledged (acks=1), and that a retry may
	// have written the record twice: it may be lost, doubled or out of order.
	Weak bool
	// Txn names the transaction that the record belongs to, if it does.
	Txn string
	// Began and At are when the record was handed to the client and when the
	// outcome was known, by the recorder's counter.
	Began, At int64

	straddles bool // a loss: a retry knew nothing of what the log had lost of its producer
}

// Txn is what a producer knows of one of its transactions. The outcome of its
// sends is that of the transaction.
type Txn struct {
	Name string
	// EndBegan is when the producer asked for the end, by the recorder's counter:
	// before that no reader of committed records may see any of it.
	EndBegan int64
}

// Loss is a moment at which every replica may have lost what it had not synced.
// Nothing was served at that moment: what is recorded up to it was done before.
type Loss struct{ At int64 }

// Start is where a log begins in the end: what lies below was deleted by retention.
type Start struct {
	Partition types.TopicPartition
	Offset    types.Offset
}

// isDeleted reports whether retention has deleted an offset.
func (h *History) isDeleted(tp types.TopicPartition, at types.Offset) bool {
	return slices.ContainsFunc(h.Starts, func(s Start) bool { return s.Partition == tp && at < s.Offset })
}

// Poll is one record that a consumer was given, in the consumer's own order.
type Poll struct {
	Consumer string
	// Assignment counts how often this consumer was given the partition: across
	// assignments it may go back or ahead, within one it may not.
	Assignment int
	Partition  types.TopicPartition
	Offset     types.Offset
	Value      string
	Group      string // of the consumer, if it is in one
	At         int64  // when, by the recorder's counter
}

// Commit is a group's offset that was committed and acknowledged, or, with
// Listed, that the cluster showed to somebody who asked.
type Commit struct {
	Group     string
	Partition types.TopicPartition
	Offset    types.Offset
	Listed    bool
	// Began and Ended order the calls by one counter of the recorder; an answer
	// is bound by what had ended before its call began.
	Began, Ended int64
}

// History is the record of one run.
type History struct {
	Sends   []Send
	Polls   []Poll
	Commits []Commit
	Txns    []Txn
	Losses  []Loss // in order
	// Starts are where logs begin in the end, of those that don't begin at 0.
	Starts []Start
	// Final says that, after all faults, every partition was read from its start
	// to its end; what is missing then is an Unseen finding.
	Final bool
}

// Rule names what a finding breaks.
type Rule string

// The rules.
const (
	InconsistentOffset Rule = "inconsistent offset"        // one offset, two values
	Duplicate          Rule = "duplicate"                  // one value, two offsets
	LostWrite          Rule = "lost write"                 // acknowledged at or below the highest offset polled, and never polled
	Unseen             Rule = "unseen"                     // acknowledged above it, and not polled in the final phase either
	AbortedRead        Rule = "aborted read"               // a poll saw a write that failed
	PhantomRead        Rule = "phantom read"               // a poll saw a value that nobody sent there
	NonMonotonicPoll   Rule = "non-monotonic poll"         // within one assignment a consumer went back or saw an offset again
	PollSkip           Rule = "poll skip"                  // within one assignment a consumer left out an offset that is known to hold a record
	GroupSkip          Rule = "group skip"                 // a group committed past a record that none of its members was given
	PrecommittedRead   Rule = "precommitted read"          // a poll saw a record of a transaction before its producer asked to commit it
	TornTransaction    Rule = "torn transaction"           // in the end a part of a transaction is visible and a part is not
	HoleAfterLoss      Rule = "hole after a loss"          // a record is gone, and one that lay above it before the loss is not
	SendOrder          Rule = "sends out of order"         // one producer's acknowledged offsets fall
	CommitFalls        Rule = "committed offset goes back" // a group's offset is below one that was acknowledged or listed before
	ReplicaDiffers     Rule = "replicas differ"            // the same offsets, other bytes
	ReplicaShort       Rule = "replica ends early"         // a replica lacks what is below the high watermark
	ReplicaDamaged     Rule = "replica is damaged"         // bytes that are no batch, a bad checksum, files that contradict each other
)

// Finding is one breach.
type Finding struct {
	Rule      Rule
	Partition types.TopicPartition
	Offset    types.Offset // where; types.NoOffset if nowhere in particular
	Text      string
}

// brief is a value's beginning, by which it can be found in the record.
func brief(value string) string {
	const most = 24
	if len(value) > most {
		return value[:most] + "…"
	}
	return value
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: %s at %d: %s", f.Rule, f.Partition, f.Offset, f.Text)
}

// Check gives every breach in a history, rule by rule, in a stable order.
func (h *History) Check() []Finding {
	if len(h.Losses) > 0 {
		return h.checkWindows()
	}
	c := newChecker(h)
	c.offsets()
	c.duplicates()
	c.reads()
	c.lost()
	c.polls()
	c.sendOrder()
	c.commits()
	c.groups()
	c.transactions()
	return c.found
}
