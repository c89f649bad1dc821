package log

import (
	"errors"
	"fmt"

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
	// ErrEpochFell says that a batch carries a lower leader epoch than the
	// last record of the log (R2, R13).
	ErrEpochFell = errors.New("leader epoch of a batch is below the log's")
	// ErrEpochAhead says that a batch carries an epoch above the one the fetch
	// was sent with (R13, KAFKA-18723).
	ErrEpochAhead = errors.New("leader epoch of a batch is above the fetch's")
	// ErrOffsetFell says that a batch starts below the log end.
	ErrOffsetFell = errors.New("offset of a batch is below the log end")
	// ErrPartial says that the last batch of an answer was cut short, as the
	// Fetch API allows; what came before it was appended.
	ErrPartial = errors.New("last batch is cut short")
	// ErrSegmentRange says that a batch spans more offsets than one segment
	// can address (2^31).
	ErrSegmentRange = errors.New("batch spans more offsets than a segment can hold")
	// ErrTopicID says that the folder belongs to another topic id than the
	// one asked for (KAFKA-12257: leftover folders are never joined to a new topic).
	ErrTopicID = errors.New("folder belongs to another topic id")
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
