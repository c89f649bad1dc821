package log

import (
	"errors"
	"time"

	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

var errUnfinished = errors.New("not there yet")

type segment struct{}

// Log is one partition's log. See the package comment for who may call what.
type Log struct{ o Options }

// Checkpoints are the checkpoint files of one log directory.
type Checkpoints struct{}

// Open opens or creates the log in Options.Dir and recovers it (R2).
func Open(o Options) (*Log, Recovery, error) { return &Log{o: o}, Recovery{}, errUnfinished }

// AppendAsLeader (W) appends one client's batch: validate, check the producer's
// sequence, stamp base offset and epoch in place, write. raw is changed and must
// not be used by the caller during the call. epoch must be the latest one
// assigned by AssignEpoch (assertion I-22).
// Errors: those of package batch and txn, ErrNoSpace, ErrOffline.
func (l *Log) AppendAsLeader(raw []byte, epoch types.LeaderEpoch, a LeaderAppend) (Appended, error) {
	return Appended{}, errUnfinished
}

// AppendAsFollower (W) appends whole valid batches up to the first bad one
// (R13): epochs may not fall nor exceed maxEpoch, offsets may not step back.
// Why it stopped is Appended.StoppedBy; the error is for I/O only. History
// entries by R4 are synced before it returns.
func (l *Log) AppendAsFollower(raw []byte, maxEpoch types.LeaderEpoch) (Appended, error) {
	return Appended{}, errUnfinished
}

// AssignEpoch (W) records that this broker leads from the log end on (R3).
func (l *Log) AssignEpoch(e types.LeaderEpoch) error { return errUnfinished }

// BecomeFollower (W) drops a trailing history entry without records (R3).
func (l *Log) BecomeFollower() error { return errUnfinished }

// Cut (W) is R1: what lies at or above o goes, in the rule's order. Repeatable.
func (l *Log) Cut(o types.Offset, c CutReason) (CutResult, error) { return CutResult{}, errUnfinished }

// Restart (W) removes everything through R1 and begins an empty log at the offset.
func (l *Log) Restart(at types.Offset, c CutReason) (CutResult, error) {
	return CutResult{}, errUnfinished
}

// RaiseLogStart (W) moves the log start up to o (never down), following a
// leader's. An unvouched raise (R28) sends what it passes to the keeper first and
// is synced. o above the log end restarts the log at o.
func (l *Log) RaiseLogStart(o types.Offset, vouched bool, c CutReason) (CutResult, error) {
	return CutResult{}, errUnfinished
}

// DeleteRecords (W) moves the log start up to before, at the most to the high
// watermark, and gives the new log start. ErrOutOfRange above it.
func (l *Log) DeleteRecords(before types.Offset) (types.Offset, error) { return 0, errUnfinished }

// SetHighWatermark (W) moves the mark, clamped into [log start, log end], and
// gives the marks after.
func (l *Log) SetHighWatermark(o types.Offset) View { return View{} }

// SetTimelineCheckpoint (W) writes and syncs the file timeline-checkpoint.
func (l *Log) SetTimelineCheckpoint(data []byte) error { return errUnfinished }

// TimelineCheckpoint (R) gives its content; false if there is none.
func (l *Log) TimelineCheckpoint() ([]byte, bool) { return nil, false }

// RetentionResult tells what retention removed.
type RetentionResult struct {
	Segments  int
	Bytes     int64
	LogStart  types.Offset
	Producers int // producers expired
}

// EnforceRetention (W) removes whole segments by log start, time and size, up
// to the high watermark, and forgets expired producers.
func (l *Log) EnforceRetention(now types.Millis) (RetentionResult, error) {
	return RetentionResult{}, errUnfinished
}

// Roll (W) closes the active segment and begins a new one at the log end.
func (l *Log) Roll() error { return errUnfinished }

// UpdateConfig (W) takes a changed topic config.
func (l *Log) UpdateConfig(c Config) {}

// Flush (W) syncs everything up to the log end; the recovery point follows.
func (l *Log) Flush() error { return errUnfinished }

// RecoveryPoint (R) is the offset below which everything is synced.
func (l *Log) RecoveryPoint() types.Offset { return 0 }

// Close (W) flushes, writes a producer snapshot, trims and closes.
func (l *Log) Close() error { return errUnfinished }

// CloseUnclean (W) closes files without flushing, as a crash would; for tests and offline logs.
func (l *Log) CloseUnclean() {}

// Delete (W) closes the log and renames its folder to <name>.<uuid>-delete;
// the folder goes when RemoveDeleted is called after file.delete.delay.ms.
func (l *Log) Delete() (renamed string, err error) { return "", errUnfinished }

// View (R) is one consistent picture of the log.
func (l *Log) View() View { return View{} }

// Read (R) gives the whole batches from the one that holds offset from on.
// ErrOutOfRange below the log start or above the log end.
func (l *Log) Read(from types.Offset, lim ReadLimit) (Chunk, error) { return Chunk{}, errUnfinished }

// Release gives the chunk's files back.
func (c *Chunk) Release() {}

// TimestampOffset is the answer of a time look-up.
type TimestampOffset struct {
	Offset    types.Offset
	Timestamp types.Millis
	Epoch     types.LeaderEpoch // -1 if the batch carries none
}

// OffsetForTimestamp (R) finds the first record at or after ts, exactly, among
// the records below the high watermark limit `to`; false if there is none.
func (l *Log) OffsetForTimestamp(ts types.Millis, to types.Offset) (TimestampOffset, bool, error) {
	return TimestampOffset{}, false, errUnfinished
}

// MaxTimestamp (R) finds the record with the largest timestamp (ListOffsets -3).
func (l *Log) MaxTimestamp() (TimestampOffset, bool, error) {
	return TimestampOffset{}, false, errUnfinished
}

// AbortedTxns (R) lists the aborted transactions a reader of [from, to) needs.
func (l *Log) AbortedTxns(from, to types.Offset) []AbortedTxn { return nil }

// Producers (R) lists the known producers.
func (l *Log) Producers() []txn.Producer { return nil }

// OpenTransactions (R) lists the open transactions by first offset.
func (l *Log) OpenTransactions() []txn.Txn { return nil }

// AbortOpenTransactions (W) writes an ABORT marker for each open transaction
// that began below the log end, at the given leader epoch (R23).
func (l *Log) AbortOpenTransactions(epoch types.LeaderEpoch, now types.Millis) ([]txn.Txn, error) {
	return nil, errUnfinished
}

// LastModified is the newest change of a segment file, a fallback clock for retention.
func (l *Log) LastModified() time.Time { return time.Time{} }

var _ = vfs.IsNoSpace
