package log

import (
	"log/slog"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// Options say which log to open and what its log directory knew about it.
type Options struct {
	FS             vfs.FS
	Dir            string // folder of this partition; created if absent
	TopicPartition types.TopicPartition
	TopicID        types.TopicID // zero: don't check or write partition.metadata
	Config         Config
	Now            func() types.Millis // wall clock, for LogAppendTime, retention and expiry
	Logger         *slog.Logger        // nil: silent

	// CleanShutdown says that the log directory carried the clean-shutdown mark.
	CleanShutdown bool
	// RecoveryPoint is the offset below which everything was synced. Above it,
	// without CleanShutdown, each batch is checked (R2).
	RecoveryPoint types.Offset
	// ForeignFolder says that another broker than this product wrote the folder
	// last: then a gap of offsets between two unsynced segments of a compacted
	// log is taken for compaction's, not for lost data.
	ForeignFolder bool
	// LogStart and HighWatermark are the directory's checkpointed values; they
	// are clamped into the log found.
	LogStart, HighWatermark types.Offset
	// Cleaned is where the last compaction stopped (cleaner-offset-checkpoint), Evidence
	// how far up lay what it went by (cleaner-evidence-checkpoint).
	Cleaned, Evidence types.Offset

	// Keeper takes what a cut removes (R1 step 1). nil: removed records are gone.
	Keeper Keeper
	// Checkpoints is the log directory's set of checkpoint files. A cut lowers
	// and syncs this log's lines in it (R1 step 4). nil: that step is skipped.
	Checkpoints *DirCheckpoints
	// OnOffline is called once, with the cause, when the log goes offline
	// (DESIGN §3: the whole log directory goes with it). May be nil.
	OnOffline func(error)
	// Rules switches rules off; only the simulator sets it.
	Rules Rules
	// Random fills b for names that are not to repeat; nil: crypto/rand.
	Random func(b []byte)
}

// Rules names rules that the simulator switches off to see that its checks find
// it. The zero value has every rule on.
type Rules struct {
	EpochAtBatch      bool // R4: a copied epoch's entry starts at its batch and not at the old log end
	KeepTrailingEntry bool // R3: a follower keeps the entry of its own election without records
	CutKeepsHistory   bool // R1 step 5: the history is not cut with the log
	// EpochAtFirstRecord (R3): an election leaves no entry; the epoch begins with the first record that it writes.
	EpochAtFirstRecord bool
	// EpochUnsynced (R3): the history is written beside the log and not synced.
	EpochUnsynced bool
	// RetainAboveMark: retention doesn't stop at the high watermark.
	RetainAboveMark bool
	// CompactNewest: compaction drops the newest record of a key with the others.
	CompactNewest bool
	// CompactAborted (KIP-98): a record of an aborted transaction counts as the newest of its key.
	CompactAborted bool
	// DropMarkers (KIP-98): compaction drops markers while records of their transactions are left.
	DropMarkers bool
	// AnyCoordinatorEpoch (KIP-98): a marker is taken of a coordinator that a later one has followed.
	AnyCoordinatorEpoch bool
	// CutSharedInPlace (I-310): a file that a fork holds too is cut like any other.
	CutSharedInPlace bool
}

// Config is the part of a topic's configuration that its log obeys. Names and
// meanings are Kafka's topic configs; see DefaultConfig for the defaults.
type Config struct {
	SegmentBytes       int          // segment.bytes: a segment never grows past it (one batch may)
	SegmentMs          types.Millis // segment.ms: roll when the first record is older
	SegmentIndexBytes  int          // segment.index.bytes: size limit of .index and .timeindex
	IndexIntervalBytes int          // index.interval.bytes: bytes of data between two index entries
	RetentionBytes     int64        // retention.bytes; -1: no limit
	RetentionMs        types.Millis // retention.ms; -1: no limit
	Compact, Delete    bool         // cleanup.policy
	MaxMessageBytes    int          // max.message.bytes: largest batch

	MinCompactionLagMs      types.Millis // min.compaction.lag.ms
	MaxCompactionLagMs      types.Millis // max.compaction.lag.ms
	DeleteRetentionMs       types.Millis // delete.retention.ms: how long tombstones and markers stay
	MinCleanableDirtyRatio  float64      // min.cleanable.dirty.ratio, 0 to 1
	FlushMessages           int64        // flush.messages; 0: never by count
	FlushMs                 types.Millis // flush.ms; 0: never by time
	LogAppendTime           bool         // message.timestamp.type = LogAppendTime
	TimestampBeforeMaxMs    types.Millis // message.timestamp.before.max.ms; 0: no limit
	TimestampAfterMaxMs     types.Millis // message.timestamp.after.max.ms; 0: no limit (KAFKA-20609)
	Compression             string       // compression.type: "producer" or "" keeps what came
	FileDeleteDelayMs       types.Millis // file.delete.delay.ms: how long renamed files of a deleted log stay
	Preallocate             bool         // preallocate: reserve disk blocks of a new segment
	ProducerIDExpirationMs  types.Millis // producer.id.expiration.ms; 0: never
	MaxDecompressedBatchLen int          // bound for decompressing one batch; 0: 64 MiB
}

// DefaultConfig gives Kafka's defaults.
func DefaultConfig() Config {
	return Config{
		SegmentBytes: 1 << 30, SegmentMs: 7 * 24 * 3600 * 1000, SegmentIndexBytes: 10 << 20, IndexIntervalBytes: 4096,
		RetentionBytes: -1, RetentionMs: 7 * 24 * 3600 * 1000, Delete: true, MaxMessageBytes: 1048588,
		MaxCompactionLagMs: 1<<63 - 1, DeleteRetentionMs: 24 * 3600 * 1000, MinCleanableDirtyRatio: 0.5,
		TimestampAfterMaxMs: 3600 * 1000, Compression: "producer", FileDeleteDelayMs: 60 * 1000,
		ProducerIDExpirationMs: 24 * 3600 * 1000, MaxDecompressedBatchLen: 64 << 20,
	}
}

// Cause says why records leave the log (DESIGN §7).
type Cause string

// Causes of a removal. Retention and DeleteRecords are not among them: what
// the topic's owner asked to drop goes nowhere.
const (
	CauseDivergence Cause = "DIVERGENCE" // the leader's history names another end (R13)
	CauseTimeline   Cause = "TIMELINE"   // first cut of an adoption (R19)
	CauseRestart    Cause = "RESTART"    // the whole log restarts elsewhere (R13, R28)
	CauseLogStart   Cause = "LOG_START"  // an unvouched log start passes records (R28)
	CauseConsistent Cause = "CONSISTENT" // half mirrored transactions at a failover (docs/adr/0011)
)

// Order says whose history a cut follows. One within the cluster and one against a
// mirror's source have the same causes, but only the first may take what comes again.
type Order string

// Who orders a cut. Empty: not said, as in what was written before there was Order.
const (
	OrderedBySource   Order = "SOURCE"   // a mirror's leader follows its source (R13, R18, R28)
	OrderedByLeader   Order = "LEADER"   // a follower follows its leader in this cluster (KIP-101)
	OrderedByMetadata Order = "METADATA" // a replica follows the timelines in the partition's record (R19)
)

// CutReason goes with every cut: into the vault's manifest and the product's log.
type CutReason struct {
	Cause Cause
	Order Order
	Note  string // free words for the operator
	// Timelines is the timeline-checkpoint that this cut makes true, written as
	// R1 step 6. nil: the cut changes no timeline checkpoint.
	Timelines []byte
	// LeaderHighWatermark is the leader's mark where known: a full vault may
	// let only a divergence above it drop (R29). -1 if unknown.
	LeaderHighWatermark types.Offset
}

// RemovedRange is a run of whole batches within one segment file.
type RemovedRange struct {
	Path       string       // segment file, still in place while Keep runs
	File       vfs.File     // open for reading while Keep runs
	BaseOffset types.Offset // base offset of the segment
	From, To   types.Offset // offsets in the range, end-exclusive
	Pos, Len   int64        // bytes in the file
	Whole      bool         // this removal unlinks the file and nothing writes to it again: a hard link will do
}

// Removal describes what a cut is about to take out of the log.
type Removal struct {
	TopicPartition types.TopicPartition
	TopicID        types.TopicID
	Cause          Cause
	Order          Order
	Note           string
	From, To       types.Offset // offsets that go, end-exclusive
	HighWatermark  types.Offset // own high watermark before the cut
	// LeaderHighWatermark as in CutReason.
	LeaderHighWatermark types.Offset
	Ranges              []RemovedRange // in offset order
	EpochsBefore        []epoch.Entry
	TimelinesBefore     []byte // timeline-checkpoint before, nil if none
	TimelinesAfter      []byte // CutReason.Timelines
	At                  types.Millis
}

// Keeper takes the records of a cut before they go (R1 step 1). Keep returns
// after the copy is synced, with the id under which it can be found. An error
// stops the cut before anything was touched. It is ErrOffline where the log's own
// bytes could not be synced, which takes the log offline.
type Keeper interface {
	Keep(r Removal) (id string, err error)
}
