package log

import (
	"errors"
	"fmt"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

var (
	// ErrOutOfRange says that an offset is below the log start or above the
	// log end (Kafka: OFFSET_OUT_OF_RANGE).
	ErrOutOfRange = errors.New("offset out of range")
	// ErrOffline says that a write, truncation or sync failed before: what the
	// disk holds is no longer known, so the log takes no more writes until it
	// is opened again (DESIGN §3). The first cause is wrapped.
	ErrOffline = errors.New("log is offline after an I/O error")
	// ErrNoSpace says that the disk is full. Nothing of the refused append is
	// left in the log; a later append succeeds when there is room.
	ErrNoSpace = errors.New("no space left for the log")
	// ErrClosed says that the log was closed or deleted.
	ErrClosed = errors.New("log is closed")
	// ErrSegmentRange says that a batch spans more offsets than one segment
	// can address (2^31).
	ErrSegmentRange = errors.New("batch spans more offsets than a segment can hold")
	// ErrTopicID says that the folder belongs to another topic id than the
	// one asked for (KAFKA-12257: leftover folders are never joined to a new topic).
	ErrTopicID = errors.New("folder belongs to another topic id")
)

// Why a follower append or a recovery stopped at a batch; package batch's
// errors, named here because they are part of this package's contract.
var (
	ErrEpochFell  = batch.ErrEpochFalls  // below the epoch of the record before (R2, R13)
	ErrEpochAhead = batch.ErrEpochAhead  // above the fetch's leader epoch (R13, KAFKA-18723)
	ErrOffsetFell = batch.ErrOffsetFalls // below the log end
	ErrPartial    = batch.ErrShort       // cut short, as the end of a Fetch answer may be
)

// CorruptError names a damaged file and the place in it.
type CorruptError struct {
	File   string         // path as opened
	Pos    types.Position // byte of the file where the damage begins; -1 if it's the file as a whole
	Reason string         // what is wrong, in words
	Err    error          // cause, may be nil
}

// Error names file, place and reason.
func (e *CorruptError) Error() string {
	s := fmt.Sprintf("%s: corrupt", e.File)
	if e.Pos >= 0 {
		s = fmt.Sprintf("%s at byte %d", s, e.Pos)
	}
	s += ": " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *CorruptError) Unwrap() error { return e.Err }
