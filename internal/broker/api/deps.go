package api

import (
	"context"
	"log/slog"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/telemetry"
	"tidemark/internal/wire"
)

// Errors of all interfaces here: a wire.ErrCode or *wire.Error is what the
// client gets. Errors of internal/log, internal/batch and internal/core/txn may
// be passed on as they are: CodeOf (errors.go) maps them. A context's error
// becomes REQUEST_TIMED_OUT. Everything else is UNKNOWN_SERVER_ERROR, and
// logged. Use ErrReadOnly for writes to a mirrored partition.

// Deps is what the handlers work on. All fields but Metrics are required.
type Deps struct {
	// Image gives the newest metadata image, never nil. A handler takes it once (R9).
	Image func() *meta.Image
	// Settings gives the broker's present settings; cheap, called per request.
	Settings func() Settings

	ClusterID string
	NodeID    types.BrokerID
	Logger    *slog.Logger
	Now       func() types.Millis

	Partitions  Partitions
	Topics      Topics
	Groups      Groups
	ProducerIDs ProducerIDs
	// Transactions coordinates transactions; Markers writes their ends.
	Transactions Transactions
	Markers      MarkerWriter
	Cluster      Cluster
	// Verbs are this broker's parts of mirrors' verbs; nil: it takes none.
	Verbs    Verbs
	Operator Operator
	// Access decides who may do what; nil: everything is open.
	Access   *Access
	Security Security
	// ClusterMirrors serves KIP-1279's lists of mirrors (mirror.kip1279.enable).
	ClusterMirrors bool
	// HasVault reports whether the vault here keeps records of a topic, which then is
	// listed as __vault.<topic> too; nil for no vault.
	HasVault func(topic string) bool
	// Audit is told who is refused what, and of log-ins; nil for none.
	Audit *telemetry.Audit
	// Metrics is told what was produced and fetched; nil for none.
	Metrics Metrics
	// SessionRules switches rules of fetch sessions off; only the simulator sets it.
	SessionRules SessionRules
}

// SessionRules names rules that the simulator switches off to see that its checks
// find it. The zero value has every rule on.
type SessionRules struct {
	// NoNews (KIP-227): a mark that has moved isn't told by itself, only with records.
	NoNews bool
}

// Settings are the broker settings that handlers look at. The names in the
// comments are those of server.properties; zero values are not defaults.
type Settings struct {
	AutoCreateTopics bool // auto.create.topics.enable
	// DeleteTopics is delete.topic.enable.
	DeleteTopics bool
	// DefaultPartitions is num.partitions, for automatic creation.
	DefaultPartitions int32
	// DefaultReplicationFactor is default.replication.factor.
	DefaultReplicationFactor int16
	// FetchMaxBytes is fetch.max.bytes: the most that one Fetch answer holds.
	FetchMaxBytes int
	// FetchSessionSlots is max.incremental.fetch.session.cache.slots.
	FetchSessionSlots int
	// FetchSessionIdle is min.incremental.fetch.session.eviction.ms: a session
	// idle for longer gives its slot to a new one.
	FetchSessionIdle time.Duration
	// ReadFromRack is set by replica.selector.class: consumers that name their rack
	// are sent to an in-sync follower there (KIP-392).
	ReadFromRack bool
	// MaxPartitionsPerDescribe is max.request.partition.size.limit (DescribeTopicPartitions).
	MaxPartitionsPerDescribe int
}

// Metrics counts what goes through the handlers.
type Metrics interface {
	// Produced is called for each partition's batch that was appended.
	Produced(topic string, bytes, records int)
	// Fetched is called for each partition's part of a Fetch answer that has records.
	Fetched(topic string, bytes int)
	// Replicated is Fetched for an answer to a follower.
	Replicated(bytes int)
	// Failed is called for each partition that a Produce or Fetch failed for.
	Failed(key wire.Key, code wire.ErrCode)
}

// Partitions are the partitions that this broker holds.
type Partitions interface {
	// Get gives the partition if this broker serves it as leader now (R10, R19).
	// Else: NOT_LEADER_OR_FOLLOWER if another leads, or nobody, or this broker
	// not yet; UNKNOWN_TOPIC_OR_PARTITION if it has never heard of it;
	// KAFKA_STORAGE_ERROR if its log directory is offline. It must be cheap and
	// take no lock that is held across I/O.
	Get(id types.TopicID, partition int32) (Partition, error)
	// GetReplica gives the partition to a consumer that may read from any replica
	// (KIP-392): as Get, but also if this broker follows and its log is known to
	// agree with the leader's.
	GetReplica(id types.TopicID, partition int32) (Partition, error)
	// LogDirs describes the log directories and the partitions in them.
	LogDirs() []LogDir
}

// LogDir is one log directory.
type LogDir struct {
	Path string
	// Err is set, KAFKA_STORAGE_ERROR, if the directory is offline.
	Err error
	// TotalBytes and UsableBytes are those of the file system; -1 if unknown.
	TotalBytes, UsableBytes int64
	Partitions              []LogDirPartition
}

// LogDirPartition is one partition's log in a log directory.
type LogDirPartition struct {
	types.TopicPartition
	// SizeBytes is the sum of the segments' sizes.
	SizeBytes int64
	// OffsetLag is how far the log end is behind the high watermark, 0 or more.
	OffsetLag int64
}

// Partition is one partition that this broker leads. All methods may be called
// from any goroutine at once. A partition that this broker leads no more
// answers NOT_LEADER_OR_FOLLOWER (after deletion UNKNOWN_TOPIC_OR_PARTITION):
// a handler may hold it longer than the leadership lasts.
type Partition interface {
	// TopicID and Name are fixed for the object's life; a topic made anew gives
	// new Partitions.
	TopicID() types.TopicID
	Name() types.TopicPartition

	// Guard begins a look into a producer's transaction (KIP-890): its first batch in
	// this log is appended with the guard, unless a marker of the producer has come in
	// between. open reports that its batches are in the log already, and nobody needs
	// to be asked.
	Guard(ctx context.Context, id types.ProducerID, epoch int16) (guard TxnGuard, open bool, err error)
	// Producers lists the producers that the log knows, by id.
	Producers(ctx context.Context) ([]txn.Producer, error)

	// Append appends raw, the records field of one partition of a Produce
	// request (the handler has checked that it is one whole v2 batch; CRC,
	// counts, producer state, times and size are the log's to check), and blocks
	// until req.Acks is met, ctx ends or req.Timeout has passed since the
	// append (REQUEST_TIMED_OUT; the batch stays in the log).
	//
	// raw is stamped in place, and is not touched any more once Append has
	// returned, whatever the outcome: the caller uses its memory again.
	//
	// A duplicate of a remembered batch succeeds with the first append's
	// offset. Errors: ErrReadOnly on a mirror, NOT_ENOUGH_REPLICAS before and
	// NOT_ENOUGH_REPLICAS_AFTER_APPEND after the append, FENCED_LEADER_EPOCH
	// and NOT_LEADER_OR_FOLLOWER when leadership is lost while waiting.
	Append(ctx context.Context, raw []byte, req AppendRequest) (AppendResult, error)

	// Read fills out for a fetch at from. Slices that out already has are used
	// again (append to out.Records[:0]).
	//
	// In order: the leader epoch's fence (FENCED_LEADER_EPOCH,
	// UNKNOWN_LEADER_EPOCH; NoLeaderEpoch is unchecked), then divergence (R5; then
	// out.Diverging is set, Records stays empty, the error is nil), then the
	// range (OFFSET_OUT_OF_RANGE below the log start or above the bound). Bound:
	// the high watermark for consumers, the last stable offset if
	// req.Committed, the log end for replicas. from equal to the bound, or
	// between a lower bound and the high watermark, gives no records and no error.
	//
	// HighWatermark, LastStable, LogStart are set whenever the error is nil.
	// After an error nothing in out may hold a resource.
	Read(from types.Offset, req ReadRequest, out *ReadResult) error

	// OnProgress has f called after every move of the high watermark, the last
	// stable offset or the log start, and once the partition isn't led here
	// any more (or its leader epoch changes). f is called from the mover's
	// goroutine, must not block or call back into the partition, and may come
	// too often. cancel ends it; f may still run once while cancel returns.
	OnProgress(f func()) (cancel func())

	// Leader is who leads as this partition knows it, and the leader epoch; NoBroker
	// if it doesn't know. It may be ahead of Deps.Image (KIP-951).
	Leader() (types.BrokerID, types.LeaderEpoch)

	// Readers are the in-sync followers that consumers may be sent to, none unless
	// this broker leads and Settings.ReadFromRack is set. They must not be changed.
	Readers() []replica.Reader

	// ListOffset answers one ListOffsets question.
	ListOffset(q OffsetQuery) (OffsetAnswer, error)

	// EpochEnd answers OffsetForLeaderEpoch (R5): the largest epoch ≤ asked and
	// where it ends; (-1, -1) if there is none, or asked is above the leader
	// epoch. current is the asker's leader epoch, fenced as in Read.
	EpochEnd(current, asked types.LeaderEpoch) (types.LeaderEpoch, types.Offset, error)

	// LastEpoch gives the epoch of the log's last record, NoLeaderEpoch if it
	// holds none. current is fenced as in Read.
	LastEpoch(current types.LeaderEpoch) (types.LeaderEpoch, error)

	// DeleteRecords raises the log start to before (-1: the high watermark)
	// and gives the new log start once all in-sync replicas have it.
	// OFFSET_OUT_OF_RANGE above the high watermark; ErrReadOnly on a mirror;
	// POLICY_VIOLATION where cleanup.policy has no delete.
	DeleteRecords(ctx context.Context, before types.Offset) (types.Offset, error)
}

// AppendOrigin says on whose behalf a batch is appended.
type AppendOrigin int8

const (
	// OriginClient is a Produce request: all of Kafka's checks apply, control
	// batches are refused.
	OriginClient AppendOrigin = iota
	// OriginCoordinator is this broker's own coordinator writing to its
	// internal topic; sizes and timestamps are trusted.
	OriginCoordinator
)

// AppendRequest says how to append.
type AppendRequest struct {
	// Acks is 0, 1 or -1 (all in-sync replicas). With 0 Append returns as with
	// 1: the request just gets no answer.
	Acks int16
	// Timeout bounds the wait for acks; from the request.
	Timeout time.Duration
	// LeaderEpoch, if not NoLeaderEpoch, is the epoch the caller believes in,
	// fenced as in Read (coordinators; Produce has none).
	LeaderEpoch types.LeaderEpoch
	Origin      AppendOrigin
	// Guard is what a partition's leader has learned of the batch's transaction; none
	// where the batch is no client's, or its transaction is open in the log.
	Guard TxnGuard
	// BumpedMarker is the log's LeaderAppend.BumpedMarker.
	BumpedMarker bool
	// RequestVersion is the Produce version: zstd needs 7 (KIP-110). 0 for coordinators.
	RequestVersion int16
}

// AppendResult is what a Produce answer says about a partition.
type AppendResult struct {
	// BaseOffset is the first record's offset.
	BaseOffset types.Offset
	// LogStart is the log start offset.
	LogStart types.Offset
	// LogAppendTime is NoTimestamp unless message.timestamp.type=LogAppendTime.
	LogAppendTime types.Millis
	// RecordErrors name bad records when Append fails with INVALID_RECORD or
	// INVALID_TIMESTAMP; may be empty.
	RecordErrors []RecordError
}

// RecordError is one bad record of a refused batch.
type RecordError struct {
	// Index is the record's place in the batch, from 0.
	Index   int32
	Message string
}

// ReadRequest says how to read.
type ReadRequest struct {
	// CurrentLeaderEpoch is what the client believes; NoLeaderEpoch if unsaid.
	CurrentLeaderEpoch types.LeaderEpoch
	// LastFetchedEpoch is the epoch of the asker's last record; NoLeaderEpoch if unsaid.
	LastFetchedEpoch types.LeaderEpoch
	// MaxBytes bounds the records; 0 or less reads none but still checks.
	MaxBytes int
	// MinOne gives the first batch whole even if it is larger than MaxBytes.
	MinOne bool
	// Committed asks for isolation level read_committed.
	Committed bool
	// Replica is the follower that asks; NoBroker for a consumer.
	Replica types.BrokerID
	// ReplicaEpoch is the follower's broker epoch; NoBrokerEpoch if unsaid.
	ReplicaEpoch types.BrokerEpoch
	// ReplicaStart is the follower's log start; NoOffset if unsaid.
	ReplicaStart types.Offset
	// ReplicaTail is the end of the follower's log, where it asks to have it compared.
	ReplicaTail types.Tail
	// AnyReplica lets a consumer read here although another broker leads (KIP-392).
	// A follower never tells of a divergence: what it doesn't know to agree is out
	// of its range, and the consumer asks the leader.
	AnyReplica bool
}

// ReadResult is what a Fetch answer says about a partition.
type ReadResult struct {
	HighWatermark types.Offset
	LastStable    types.Offset
	LogStart      types.Offset
	// Diverging is set if the asker's log isn't a prefix of ours (KIP-595, R5).
	Diverging    EpochEnd
	HasDiverging bool
	// Aborted lists aborted transactions that overlap Records; only for
	// Committed, in the order of first offsets.
	Aborted []AbortedTxn
	// Records are whole batches in order, as pieces of segment files.
	Records []wire.Piece
	// Bytes is the size of Records.
	Bytes int
	// ReplicaEnd is the log end for a replica, which may read up to it; 0 for consumers.
	ReplicaEnd types.Offset
	// Release, if not nil, gives back what Records hold. Called once.
	Release func()
}

// EpochEnd is a leader epoch and the offset where it ends, exclusive.
type EpochEnd struct {
	Epoch types.LeaderEpoch
	End   types.Offset
}

// AbortedTxn is an aborted transaction that a read_committed consumer skips.
type AbortedTxn = wire.AbortedTxn

// The special timestamps of ListOffsets.
const (
	TimestampLatest          types.Millis = -1
	TimestampEarliest        types.Millis = -2
	TimestampMax             types.Millis = -3 // KIP-734, v7
	TimestampEarliestLocal   types.Millis = -4 // KIP-405, v8
	TimestampLatestTiered    types.Millis = -5 // KIP-1005, v9
	TimestampEarliestPending types.Millis = -6 // KIP-1023, v11
)

// OffsetQuery is one partition's question in ListOffsets.
type OffsetQuery struct {
	// Timestamp is a time, or one of the specials above.
	Timestamp types.Millis
	// Committed asks for isolation level read_committed: latest is then the
	// last stable offset.
	Committed bool
	// CurrentLeaderEpoch is fenced as in Read.
	CurrentLeaderEpoch types.LeaderEpoch
	// Replica is the follower that asks (latest is then the log end); NoBroker
	// for a consumer.
	Replica types.BrokerID
}

// OffsetAnswer is the answer to an OffsetQuery. "Nothing found" is NoOffset,
// NoTimestamp, NoLeaderEpoch, without an error. The epoch comes from the
// history, never from the leader epoch (R6).
type OffsetAnswer struct {
	Offset      types.Offset
	Timestamp   types.Millis
	LeaderEpoch types.LeaderEpoch
}

// ProducerIDs hands out producer ids of this cluster's range (R30).
type ProducerIDs interface {
	Next(ctx context.Context) (types.ProducerID, error)
}

// Topics changes and describes topics and configs. Each call is one metadata
// transaction, and returns once this broker's own image shows it.
type Topics interface {
	// Create makes a topic. Errors: TOPIC_ALREADY_EXISTS,
	// INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
	// INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION.
	Create(ctx context.Context, t CreateTopic) (CreatedTopic, error)
	// Delete deletes the topic. UNKNOWN_TOPIC_ID if it isn't there;
	// POLICY_VIOLATION for a topic that is being mirrored.
	Delete(ctx context.Context, id types.TopicID) error
	// AddPartitions raises the partition count. INVALID_PARTITIONS if it isn't
	// a raise, INVALID_REPLICA_ASSIGNMENT, UNKNOWN_TOPIC_OR_PARTITION; ErrReadOnly
	// for a mirrored topic.
	AddPartitions(ctx context.Context, t AddPartitions) error
	// AlterConfigs applies changes to one resource, all or none. With replace
	// set, configs that changes don't name go back to their defaults (AlterConfigs,
	// key 33). INVALID_CONFIG names the config; ErrReadOnly for the configs of a
	// mirrored topic that come from the source.
	AlterConfigs(ctx context.Context, r ConfigResource, changes []ConfigChange, replace, validateOnly bool) error
	// DescribeConfigs gives the effective configs of a resource, sorted by
	// name; names limits them (nil: all). UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST.
	DescribeConfigs(ctx context.Context, r ConfigResource, names []string) ([]ConfigEntry, error)
}

// CreateTopic is one topic to make.
type CreateTopic struct {
	Name string
	// Partitions is -1 for the default, and when Assignments are given. A coordinator's
	// own topic has its coordinator's defaults, of the configs too.
	Partitions int32
	// ReplicationFactor is -1 for the default, and when Assignments are given.
	ReplicationFactor int16
	// Assignments, if not empty, names the replicas of each partition.
	Assignments map[int32][]types.BrokerID
	// Configs are the topic's configs; nil values are the default.
	Configs map[string]*string
	// ValidateOnly changes nothing.
	ValidateOnly bool
}

// CreatedTopic is a topic as it was made, or would be.
type CreatedTopic struct {
	ID                types.TopicID // zero with ValidateOnly
	Partitions        int32
	ReplicationFactor int16
	// Configs are the effective configs (CreateTopics v5, KIP-525).
	Configs []ConfigEntry
}

// AddPartitions is a raise of one topic's partition count.
type AddPartitions struct {
	Topic string
	// Count is the new total.
	Count int32
	// Assignments, if not nil, gives the replicas of each new partition in order.
	Assignments  [][]types.BrokerID
	ValidateOnly bool
}

// ConfigResource names what a config belongs to.
type ConfigResource struct {
	Kind ConfigResourceKind
	// Name is the topic's name, or the broker's id ("" for the default of all brokers).
	Name string
}

// ConfigResourceKind is Kafka's ConfigResource.Type.
type ConfigResourceKind int8

// The kinds of resource with configs that are served.
const (
	ConfigTopic  ConfigResourceKind = 2
	ConfigBroker ConfigResourceKind = 4
)

// ConfigOp is Kafka's AlterConfigOp.OpType.
type ConfigOp int8

// The operations of IncrementalAlterConfigs.
const (
	ConfigSet      ConfigOp = 0
	ConfigDelete   ConfigOp = 1
	ConfigAppend   ConfigOp = 2 // list configs only
	ConfigSubtract ConfigOp = 3 // list configs only
)

// ConfigChange changes one config of a resource.
type ConfigChange struct {
	Name string
	Op   ConfigOp
	// Value is nil for ConfigDelete.
	Value *string
}

// ConfigSource is Kafka's DescribeConfigs ConfigSource: where a value comes from.
type ConfigSource int8

// The sources of config values, as numbered on the wire.
const (
	SourceTopic                ConfigSource = 1
	SourceDynamicBroker        ConfigSource = 2
	SourceDynamicDefaultBroker ConfigSource = 3
	SourceStaticBroker         ConfigSource = 4
	SourceDefault              ConfigSource = 5
)

// ConfigType is Kafka's type of a config's value, as numbered on the wire (KIP-569).
type ConfigType int8

// The types of config values, as numbered on the wire.
const (
	TypeBoolean  ConfigType = 1
	TypeString   ConfigType = 2
	TypeInt      ConfigType = 3
	TypeShort    ConfigType = 4
	TypeLong     ConfigType = 5
	TypeDouble   ConfigType = 6
	TypeList     ConfigType = 7
	TypeClass    ConfigType = 8
	TypePassword ConfigType = 9
)

// ConfigEntry is one config with its effective value.
type ConfigEntry struct {
	Name string
	// Value is nil if there is none, or it is Sensitive.
	Value     *string
	Source    ConfigSource
	Type      ConfigType
	ReadOnly  bool
	Sensitive bool
	// Documentation is one sentence or more; may be empty.
	Documentation string
	// Synonyms are the places where the value is looked for, the effective one first.
	Synonyms []ConfigSynonym
}

// ConfigSynonym is one place where a config's value can stand.
type ConfigSynonym struct {
	Name   string
	Value  *string
	Source ConfigSource
}
