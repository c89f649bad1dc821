// Package replica holds the replication rules of one partition: what a leader
// answers a fetch (R5), what a follower does with an answer (R13), and how a
// leader counts its followers (R14, R15).
//
// The follower is the same for a replica of this cluster and for a mirror, whose
// leader lives in another cluster. Only the Session differs: where the
// epoch comes from, how high a batch's epoch may be, and whether a cut needs a
// metadata transaction first. Nobody cuts to a high watermark.
//
// The package is pure. It takes what the log and the peer say and returns what
// to do; it never appends, cuts, sends, sleeps or keeps a reference to what it
// was given. Record bytes never enter it, only their headers' numbers. The
// caller owns the partition, carries a verdict out in the order that the
// verdict's fields document, and asks again with the log as it then is.
//
// Tests: the vectors truncation_on_fetch and isr_hw, scripts in testdata that
// replay the source documents (KAFKA-7415, KAFKA-6361, the two cuts of
// KIP-1279), and a random model of several replicas with unclean elections that
// compares contents after every accepted fetch.
package replica

import (
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
)

// Log is what a decision needs of a partition's log: one consistent snapshot.
// The history shares memory with the log's and is only read.
//
// Invariant I-84: LogStart <= HighWatermark is not required (a restored
// checkpoint may lag), but LogStart <= LogEnd and HighWatermark <= LogEnd are.
type Log struct {
	LogStart, LogEnd, HighWatermark types.Offset
	History                         epoch.History
}

// LastEpoch is the epoch of the last record, false for a log without records. An
// election's entry without records doesn't count (R13).
func (l *Log) LastEpoch() (types.LeaderEpoch, bool) {
	if l.LogEnd <= l.LogStart {
		return types.NoLeaderEpoch, false
	}
	return l.History.EpochForOffset(l.LogEnd - 1)
}

// IsEmpty reports whether the log holds no records.
func (l *Log) IsEmpty() bool { return l.LogEnd <= l.LogStart }

// CutTo gives the log as Cut(o) will leave it (R1), for looking ahead. The
// original is unchanged. An o at or above the log end still removes history
// entries that start there.
func (l *Log) CutTo(o types.Offset) Log {
	out := Log{LogStart: l.LogStart, LogEnd: min(l.LogEnd, o), HighWatermark: min(l.HighWatermark, o), History: l.History.Clone()}
	out.LogStart = min(out.LogStart, out.LogEnd)
	out.History.TruncateFromEnd(o)
	return out
}

// EpochEnd names an epoch and where it ends (exclusive).
type EpochEnd struct {
	Epoch types.LeaderEpoch
	End   types.Offset
}
