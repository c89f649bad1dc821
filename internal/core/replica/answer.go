package replica

import (
	"tidemark/internal/core/types"
)

// Request is the part of a Fetch that replication is about. The follower makes
// it, the leader answers it, and the reply carries it back unchanged.
type Request struct {
	// Generation is the follower's session; it never goes on the wire.
	Generation uint64
	// Offset is the follower's log end.
	Offset types.Offset
	// LastEpoch is the epoch of the follower's last record (LastFetchedEpoch on
	// the wire), -1 if it holds none or the asker doesn't say.
	LastEpoch types.LeaderEpoch
	// LeaderEpoch is the leader epoch that the asker believes in
	// (CurrentLeaderEpoch on the wire), -1 if it doesn't say.
	LeaderEpoch types.LeaderEpoch
}

// AnswerKind says how a leader answers.
type AnswerKind int8

const (
	// AnswerData: the logs agree below the offset; records may follow.
	AnswerData AnswerKind = iota
	// AnswerDiverging: the logs differ; no records, no progress of the follower (R13, KAFKA-13141).
	AnswerDiverging
	// AnswerOutOfRange: OFFSET_OUT_OF_RANGE; the asker restarts at the leader's log start.
	AnswerOutOfRange
	// AnswerFenced: FENCED_LEADER_EPOCH; the asker is behind.
	AnswerFenced
	// AnswerUnknownEpoch: UNKNOWN_LEADER_EPOCH; the leader is behind.
	AnswerUnknownEpoch
)

// String is the kind as scripts and logs print it.
func (k AnswerKind) String() string {
	switch k {
	case AnswerData:
		return "data"
	case AnswerDiverging:
		return "diverging"
	case AnswerOutOfRange:
		return "out of range"
	case AnswerFenced:
		return "fenced"
	case AnswerUnknownEpoch:
		return "unknown epoch"
	}
	return "invalid"
}

// Answer is what a leader says to a Request.
type Answer struct {
	Kind AnswerKind
	// Diverging is set for AnswerDiverging only.
	Diverging EpochEnd
	// Vouched, for AnswerData: the leader's history reaches down to the asker's
	// last epoch. If not, the logs merely don't overlap (R28).
	Vouched bool
}

// AnswerRequest is R5's answer of a leader in the given epoch. The checks run in
// this order: leader epoch, below the log start, divergence, beyond the log end.
func AnswerRequest(leader *Log, epoch types.LeaderEpoch, r Request) Answer {
	if k := checkEpoch(epoch, r.LeaderEpoch); k != AnswerData {
		return Answer{Kind: k}
	}
	if r.Offset < leader.LogStart {
		return Answer{Kind: AnswerOutOfRange}
	}
	if r.LastEpoch >= 0 {
		found, end := leader.History.EndOffsetFor(r.LastEpoch, leader.LogStart, leader.LogEnd)
		if found < r.LastEpoch || end < r.Offset {
			return Answer{Kind: AnswerDiverging, Diverging: EpochEnd{Epoch: found, End: end}}
		}
	}
	if r.Offset > leader.LogEnd {
		return Answer{Kind: AnswerOutOfRange}
	}
	first, ok := leader.History.Earliest()
	return Answer{Kind: AnswerData, Vouched: ok && r.LastEpoch >= first.Epoch}
}

// checkEpoch compares a request's leader epoch with the leader's: AnswerData if
// it holds or wasn't said (KIP-320).
func checkEpoch(have, said types.LeaderEpoch) AnswerKind {
	switch {
	case said < 0 || said == have:
		return AnswerData
	case said < have:
		return AnswerFenced
	}
	return AnswerUnknownEpoch
}
