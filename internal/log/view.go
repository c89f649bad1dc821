package log

import (
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// View is one consistent picture of a log (KAFKA-9838: start, end and marks
// come from the same moment).
//
// Invariant I-20: LogStart <= LastStable <= HighWatermark <= LogEnd.
type View struct {
	LogStart      types.Offset
	LogEnd        types.Offset
	HighWatermark types.Offset
	LastStable    types.Offset // first offset a read_committed reader may not see yet
	RecoveryPoint types.Offset // below it everything is synced
	LastEpoch     types.LeaderEpoch
	HasLastEpoch  bool           // false: no record in the log carries an epoch
	History       *epoch.History // immutable; Clone before changing
	Size          int64          // bytes of all segments
	Segments      int
	Offline       error // not nil: the log takes no more writes
}

// ReadLimit bounds a Read.
type ReadLimit struct {
	To       types.Offset // no record at or above it is returned (high watermark, last stable offset or log end)
	MaxBytes int          // bytes to return at most
	MinOne   bool         // return the first batch even if it is larger than MaxBytes (KIP-74)
}

// Slice is a run of whole batches in one file.
type Slice struct {
	File vfs.File
	Pos  int64
	Len  int64
}

// Chunk is the result of a Read: whole batches as file ranges, in order. The
// first batch may begin below the asked offset; readers skip, as in Kafka.
// Release must be called exactly once, also for an empty chunk.
type Chunk struct {
	Slices []Slice
	Bytes  int
	// FirstOffset is the base offset of the first batch; the asked offset if empty.
	FirstOffset types.Offset
	held        *segment
	stop        bool // no later segment can add to it
}

// Appended tells what an append did.
type Appended struct {
	First      types.Offset // base offset of the first batch (of the earlier one for a duplicate)
	Last       types.Offset // last offset; First-1 if nothing was appended
	NextOffset types.Offset // log end afterwards
	Bytes      int
	Batches    int
	Duplicate  bool         // the producer's batch was already there; nothing was written
	LogStart   types.Offset // log start at that moment, for the Produce answer
	// AppendTime is the time stamped into the batch with LogAppendTime, else -1.
	AppendTime types.Millis
	// EpochsChanged says that the history got a new entry (already synced).
	EpochsChanged bool
	// StoppedBy says why a follower append ended before the end of its input:
	// ErrPartial, ErrEpochFell, ErrEpochAhead, ErrOffsetFell, a *CorruptError
	// or an error of package batch. nil: all of it went in.
	StoppedBy error
}

// Origin says who made the bytes of a leader append.
type Origin int8

// Origins of a leader append.
const (
	// OriginClient: a produce request; control batches are refused, sequences checked.
	OriginClient Origin = iota
	// OriginCoordinator: this broker's coordinators (offsets, markers); control batches allowed.
	OriginCoordinator
)

// LeaderAppend are the choices of one leader append.
type LeaderAppend struct {
	Origin Origin
	// MaxBytes, if above 0, takes the place of Config.MaxMessageBytes (internal topics).
	MaxBytes int
	// RefuseZstd: the request's version predates zstd (Produce below v7).
	RefuseZstd bool
	// RefuseGaps: a producer that never wrote to this log begins with sequence 0.
	RefuseGaps bool
	// BumpedMarker: the marker's epoch is above that of the transaction it ends (KIP-890),
	// so that it ends none of its own epoch.
	BumpedMarker bool
}

// CutResult tells what a cut did.
type CutResult struct {
	LogEnd        types.Offset // log end afterwards; below o where o fell inside a batch
	HighWatermark types.Offset
	From, To      types.Offset // offsets removed, end-exclusive; equal if none
	Bytes         int64        // bytes removed
	KeptID        string       // the vault's id of what went; empty if nothing went or there is no keeper
	EpochsRemoved int          // history entries removed
	// LostTransactions are producers whose open transaction begins below the
	// cut although its marker was cut away (DESIGN §8).
	LostTransactions []types.ProducerID
}

// AbortedTxn is one aborted transaction as the Fetch API reports it.
type AbortedTxn struct {
	ProducerID  types.ProducerID
	FirstOffset types.Offset
}

// OffsetRange is the offsets from From on below To.
type OffsetRange struct{ From, To types.Offset }

// Recovery tells what Open found and did.
type Recovery struct {
	Clean             bool // opened without checking batches
	BatchesChecked    int  // batches whose CRC was checked
	BytesChecked      int64
	TruncatedBytes    int64        // bytes cut from the tail
	TruncatedAt       types.Offset // log end after such a cut
	TruncatedBecause  string       // why, in words; empty if nothing was cut
	SegmentsRemoved   int          // whole segments that went with the tail
	IndexesRebuilt    int
	HistoryRebuilt    bool   // epoch history was made anew from the batches
	HistoryRepaired   bool   // stale checkpoint entries were dropped or added
	HistoryBecause    string // why
	SwapsCompleted    int    // interrupted compactions finished
	BelowMark         bool   // the log end is below the checkpointed high watermark
	SnapshotsDropped  int    // unreadable producer snapshots
	ProducersReplayed int    // batches replayed into the producer state
	// Missing are offsets inside the log whose records are gone from its files,
	// as far as opening notices it. A compacted log has gaps by nature.
	Missing []OffsetRange
}
