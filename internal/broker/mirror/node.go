package mirror

import (
	"context"
	"log/slog"
	"time"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/broker/ids"
	"tidemark/internal/config"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/source"
	"tidemark/internal/telemetry"
	"tidemark/internal/vfs"
)

// Node is the broker that mirrors run on.
type Node interface {
	ClusterID() string
	NodeID() types.BrokerID
	// Image is the newest metadata image (R9).
	Image() *meta.Image
	// Me is this node as the writer of plans (R7).
	Me() control.Me
	// Limits bound one metadata transaction.
	Limits() control.Limits
	// Commit carries out a plan and waits until the image shows the outcome (R8).
	// A refusal is metastore.ErrRefused.
	Commit(ctx context.Context, plan meta.Plan) (meta.Revision, error)
	// Partition finds a partition that this node holds.
	Partition(id types.TopicID, number int32) (Partition, bool)
	// Now is the wall clock.
	Now() types.Millis
	// AskPeer has another broker of this cluster do its part of a verb.
	AskPeer(ctx context.Context, id types.BrokerID, verb string, body []byte, patience time.Duration) ([]byte, error)
	// EndWithin has the transactions that are coordinated here and touch any of the
	// partitions end (transactions.Coordinator).
	EndWithin(ctx context.Context, tps []types.TopicPartition) []transactions.Within
	// Addresses are this cluster's, HOST:PORT, for a mirror elsewhere.
	Addresses() []string
	Forks
}

// Partition is one partition of the node.
type Partition interface {
	Name() types.TopicPartition
	// Do runs f on the partition's shard and waits for it. f must not block on
	// anything but the partition's own disk.
	Do(ctx context.Context, f func(o Owned) error) error
	// View gives the log as it is now; false if it isn't open.
	View() (log.View, bool)
	// Log gives the open log for reading; nil if it isn't open.
	Log() *log.Log
	// LeaderEpoch gives the epoch in which clients are served, or why they aren't.
	LeaderEpoch() (types.LeaderEpoch, error)
}

// Owned is a partition in the hands of its shard, valid only inside Do.
type Owned interface {
	Log() *log.Log
	Record() (*meta.PartitionRecord, meta.Revision)
	// Leading reports R10 without R19.
	Leading() bool
	Topic() config.Topic
	// Hold stops or allows answering clients, beside R10 and R19.
	Hold(held bool)
	// AllFetched reports whether every in-sync replica has fetched in the record's leader epoch.
	AllFetched() bool
	// CutMade says that the log was cut.
	CutMade()
	// CutOwed reports that committed offsets may lie beyond end, and that clients of a
	// mirror's leader wait until CutFollowed has quoted made.
	CutOwed() (end types.Offset, made uint64, owed bool)
	CutFollowed(made uint64)
	// Refresh tells whoever counts on the log that it was cut (R1); Do does the same at its end.
	Refresh()
}

// Groups is the group coordinator, as far as mirrors need it.
type Groups interface {
	SyncOffsets(ctx context.Context, group string, offsets []coordinator.OffsetAndMeta) (coordinator.SyncResult, error)
	SyncOffsetsWithin(ctx context.Context, group string, offsets []coordinator.OffsetAndMeta, ends map[types.TopicPartition]types.Offset) (coordinator.SyncResult, error)
	ClampAll(ctx context.Context, cuts []coordinator.Cut) ([]coordinator.Lowered, error)
	ClampAt(ctx context.Context, cuts []coordinator.Cut, offices []coordinator.Office) ([]coordinator.Lowered, error)
	ListCommitted(ctx context.Context, group string) ([]coordinator.OffsetAndMeta, error)
	Past(ctx context.Context, cuts []coordinator.Cut) ([]coordinator.Lowered, error)
}

// Options are what New needs.
type Options struct {
	Node   Node
	Groups Groups
	// Config is the node's configuration; its Mirror part holds the defaults of mirrors.
	Config  *config.Broker
	Logger  *slog.Logger
	Metrics *telemetry.Metrics
	// FS and ReportDir are where reports of verifications go; an empty folder: nowhere.
	FS        vfs.FS
	ReportDir string
	// Events keeps the event log over restarts, nil for none; EventHistory are the
	// lines that it has from earlier. Vault is read for the cuts that it knows of; nil for none.
	Events       EventSink
	EventHistory [][]byte
	Vault        VaultLister
	// Version is told to sources as the client's software version.
	Version string
	// Context carries the clock that everything runs by (clock.With); nil: the real one.
	Context context.Context
	// Connect makes the client of a source, pinned to a cluster's id unless that is
	// empty; nil: a Kafka client. Jitter draws from [0, n); nil: at random. Both are the simulator's.
	Connect func(cfg *source.Config, clusterID string) Source
	Jitter  func(n int64) int64
	// Secured: the listener that other clusters' mirrors are told of wants TLS or a log-in.
	Secured bool
	// IDs names starts, timelines, drills, and topics of sources that don't name them.
	IDs ids.Source
	// Rules are switched off by the simulator alone.
	Rules Rules
}
