package broker

import (
	"context"
	"log/slog"
	"sync"

	"tidemark/internal/broker/ids"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/telemetry"
	"tidemark/internal/vfs"
)

// Inline is one partition whose shard has no goroutine: what is sent to it runs
// at once, where it is sent. The simulator drives a node's partitions this way,
// with every event at a moment of its own choosing; nothing else uses it.
//
// A broken invariant panics through to the caller in place of taking the
// partition offline. log.flush.acks and flush.messages are not for it: they
// sync on goroutines.
type Inline struct{ p *Partition }

// InlineOptions are what a partition has of its node and its log dir.
type InlineOptions struct {
	Node        types.BrokerID
	FS          vfs.FS
	LogDir      string
	ID          types.TopicID
	Name        types.TopicPartition
	Clean       bool // the log dir carried the clean-shutdown mark
	Checkpoints *log.DirCheckpoints
	Keeper      log.Keeper
	Now         func() types.Millis
	Logger      *slog.Logger
	Metrics     *telemetry.Metrics
	Rules       VirtualRules    // switched off by tests
	FirstCut    *timeline.Rules // R19, switched off by tests; nil: all on
	// Fetching fetches where the partition follows; nil: it follows nobody.
	Fetching Fetching
	// DirFailed is told when the log dir goes offline.
	DirFailed func(error)
	// Context carries the clock that the partition's background work runs by
	// (clock.With); nil: it must start none.
	Context context.Context
	// IDs names what is set aside; nil: the system's randomness.
	IDs ids.Source
	// Peer is what the metadata says of another broker; nil: nothing.
	Peer func(types.BrokerID) replica.BrokerView
	// ChangeISR commits a leader's proposal made from a record's revision; nil
	// proposes nothing.
	ChangeISR func(from meta.Revision, isr []meta.ISRMember) error
}

// NewInline makes the partition; Show opens it.
func NewInline(o InlineOptions) *Inline {
	env := &environment{
		nodeID: o.Node, now: o.Now, logger: o.Logger, metrics: o.Metrics, keeper: o.Keeper, rules: o.Rules, firstCut: o.FirstCut,
		leaderThrottle: &throttle{ticks: o.Now}, followerThrottle: &throttle{ticks: o.Now},
		background: &sync.WaitGroup{}, ctx: context.Background(), ticks: o.Now, fetching: o.Fetching,
		peer: func(types.BrokerID) replica.BrokerView { return replica.BrokerView{Epoch: types.NoBrokerEpoch} },
	}
	if o.Context != nil {
		env.ctx = o.Context
	}
	if o.Peer != nil {
		env.peer = o.Peer
	}
	if o.ChangeISR != nil {
		env.changeISR = func(_ context.Context, _ types.TopicID, _ int32, from meta.Revision, isr []meta.ISRMember) error {
			return o.ChangeISR(from, isr)
		}
	}
	dir := &logDir{fs: o.FS, path: o.LogDir, clean: o.Clean, checkpoints: o.Checkpoints, opening: make(chan struct{}, 1), fresh: o.IDs}
	if dir.fresh == nil {
		dir.fresh = ids.System
	}
	dir.failed = func(_ *logDir, cause error) { o.DirFailed(cause) }
	return &Inline{p: newPartition(env, newInlineShard(o.Logger), o.ID, o.Name, dir)}
}

// Show tells the partition what the image says of it, as showPartition does, and
// opens its log first if need be.
func (i *Inline) Show(rec *meta.PartitionRecord, rev meta.Revision, topic config.Topic, leading bool) {
	_ = i.p.shard.send(context.Background(), event{p: i.p, f: func() { i.p.show(rec, rev, topic, leading) }}) // an inline shard takes everything
}

// PrepareAgain is what the node's chore of that name does for the partition.
func (i *Inline) PrepareAgain() error {
	if !i.p.isUnprepared() {
		return nil
	}
	return i.p.Do(context.Background(), func(*Owned) error { return i.p.prepareAgain() })
}

// Partition is the partition as handlers see it.
func (i *Inline) Partition() *Partition { return i.p }

// Mirrored is the partition as its mirror sees it.
func (i *Inline) Mirrored() mirror.Partition { return mirrorPartition{i.p} }

// Report is what the replica says of its log before an unclean election (R11).
func (i *Inline) Report() meta.LogReport { return i.p.report() }

// Tick is what the clock has a leader do about its ISR (R15), and a follower that
// could not begin to follow.
func (i *Inline) Tick() {
	_ = i.p.shard.send(context.Background(), event{p: i.p, f: i.p.tickISR}) // an inline shard takes everything
}

// Close ends the partition as a clean shutdown does.
func (i *Inline) Close() error { return i.p.close() }
