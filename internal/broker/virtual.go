package broker

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"slices"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator"
	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/broker/follow"
	"tidemark/internal/clock"
	"tidemark/internal/config"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/metastore"
	"tidemark/internal/source"
	"tidemark/internal/telemetry"
	"tidemark/internal/vfs"
	"tidemark/internal/wire"
)

// VirtualOptions are what a node of the simulator has in place of a machine.
type VirtualOptions struct {
	Logger *slog.Logger
	FS     vfs.FS
	Store  metastore.Store
	// Clock is the node's time and its tasks; whatever blocks does so through it.
	Clock clock.Clock
	// Wall is the machine's wall clock, which may jump.
	Wall func() types.Millis
	// Turns has f run soon, at a moment of its own: what waits at a shard.
	Turns func(f func())
	// Peers are the connections to other brokers.
	Peers follow.Client
	// Frames has another broker answer a frame of this one: what transactions need of
	// others goes that way. Nil: none does.
	Frames func(broker types.BrokerID) source.Exchange
	// Random is the coordinator's (coordinator.Options), and topics' ids come from it;
	// IDs is whatever else the node names comes from.
	Random, IDs func(b []byte)
	// SessionIdle is how long a fetch session is idle before it may be evicted.
	SessionIdle time.Duration
	Metrics     *telemetry.Metrics
	// Mirrors; nil: the node has none.
	Mirrors *VirtualMirrors
	Rules   VirtualRules
}

// VirtualRules are rules that the simulator switches off, to see that its checks find it.
type VirtualRules struct {
	Log      log.Rules
	Follower replica.Rules
	Leader   replica.LeaderRules
	// NoLeaseFence (R10): a broker serves on although its lease may be over.
	NoLeaseFence bool
	// KeepsEpoch (R10): who led before it was restarted goes on leading in that epoch.
	KeepsEpoch bool
	// UnknownIsRefused (R8): a write of unknown outcome is taken for one that didn't happen.
	UnknownIsRefused bool
	// DeleteAtOnce (KIP-107): a deletion of records is done once the leader has made it.
	DeleteAtOnce bool
	// TrustOldMetadata (R19): a node starts on metadata older than what its folders have followed.
	TrustOldMetadata bool
	// TrustEpochs (R26): a follower's last batch isn't compared with its leader's.
	TrustEpochs bool
	// NoTxnGuards (KIP-890): the first batch of a transaction is taken whatever its coordinator was asked before.
	NoTxnGuards bool
	Groups      coordinator.Rules
	Txns        transactions.Rules
	Sessions    api.SessionRules
	Mirrors     MirrorRules
}

func (o *VirtualOptions) context(ctx context.Context) context.Context {
	return clock.With(ctx, o.Clock)
}

func (o *VirtualOptions) metrics() *telemetry.Metrics { return o.Metrics }

// Virtual is a node without goroutines, sockets and timers of its own: its work
// runs as tasks of the clock that it is given. What decides and what drives is the
// node's own code; only listeners, connections and mirrors are missing. The
// simulator uses it, and nothing else.
type Virtual struct {
	b      *Broker
	server *api.Server // nil until it has started
}

// virtualListener names the one listener of virtual nodes.
const virtualListener = "PLAINTEXT"

// NewVirtual makes a node; Start sets it going.
func NewVirtual(cfg *config.Broker, o VirtualOptions) *Virtual {
	b := newBroker(cfg, Options{Logger: o.Logger, FS: o.FS, Now: o.Wall, Version: "virtual", Store: o.Store, virtual: &o})
	b.addrs = []meta.Endpoint{{Listener: virtualListener, Host: "virtual", Port: 9092, Security: "PLAINTEXT"}}
	b.env.rules = o.Rules
	return &Virtual{b: b}
}

// Start goes the whole way up, as Open does but for listeners and services. It blocks: run it as a task.
func (v *Virtual) Start() error {
	b := v.b
	ctx := b.ctx
	for _, step := range []func(context.Context) error{
		b.openDirs, b.openStore, b.adoptCluster, b.readImage, b.openVault, b.openPartitions, b.register,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	for _, d := range b.dirs {
		d.recovering.Store(false)
	}
	s := &services{groups: b.newGroups(), txns: b.newTransactions()}
	if s.mirrors = b.virtualMirrors(s.groups); s.mirrors != nil {
		defer s.mirrors.LookAgain() // an image may have come before the mirrors were told of images
	}
	b.services.Store(s)
	b.showAllCoordinators(s) // what an image shows again meanwhile is known already
	v.server = api.NewServer(b.apiDeps())
	b.startChores()
	b.ready.Store(true)
	return nil
}

// Close is Broker.Close. It blocks: run it as a task.
func (v *Virtual) Close() error { return v.b.Close(v.Context()) }

// Context carries the node's clock.
func (v *Virtual) Context() context.Context { return context.WithoutCancel(v.b.ctx) }

// HasHungUp reports whether a node that stops has got so far that a real one's
// connections are closed: what it answers from then on reaches nobody.
func (v *Virtual) HasHungUp() bool { return v.b.ctx.Err() != nil }

// Broker is the node, for what doesn't block.
func (v *Virtual) Broker() *Broker { return v.b }

// IsReady reports whether the node has started.
func (v *Virtual) IsReady() bool { return v.b.ready.Load() }

// Image is the newest image, nil before there is one.
func (v *Virtual) Image() *meta.Image {
	if v.b.view == nil {
		return nil
	}
	return v.b.view.current()
}

// Me is the node as the writer of plans.
func (v *Virtual) Me() control.Me { return v.b.me() }

// Lease is its registration's lease, 0 if there is none.
func (v *Virtual) Lease() meta.LeaseID {
	if v.b.lease == nil {
		return 0
	}
	return v.b.lease.id()
}

// LeaseIsOver reports whether the node's own clock says that its lease may have ended.
func (v *Virtual) LeaseIsOver() bool { return v.b.lease == nil || v.b.lease.over() }

// Plan makes plans from the newest image and commits them, anew after a refusal. It blocks.
func (v *Virtual) Plan(make func(*meta.Image) ([]meta.Plan, error)) error {
	return v.b.plan(v.Context(), make)
}

// Limits bound the transactions of the node's store.
func (v *Virtual) Limits() control.Limits { return v.b.limits() }

// Partitions are the partitions as the handlers of requests see them.
func (v *Virtual) Partitions() api.Partitions { return (*served)(v.b) }

// Cluster changes leaders and replicas. Its methods block.
func (v *Virtual) Cluster() api.Cluster { return &elections{v.b} }

// Answer answers the frame of a request, without its size, as a connection would;
// nil for a request that gets no answer. It blocks.
func (v *Virtual) Answer(ctx context.Context, frame []byte) ([]byte, error) {
	if v.server == nil {
		return nil, errNeverReady
	}
	req, err := wire.ParseRequest(frame)
	if err != nil {
		return nil, err
	}
	req.Listener, req.Principal = virtualListener, "User:ANONYMOUS"
	resp, err := v.server.Handle(ctx, req)
	if err != nil || resp == nil {
		return nil, err
	}
	defer resp.Done()
	out := make([]byte, 0, resp.Size())
	for _, p := range resp.Pieces() {
		if p.File == nil {
			out = append(out, p.Mem...)
			continue
		}
		at := len(out)
		out = out[:at+int(p.Len)]
		if _, err := p.File.ReadAt(out[at:], p.Off); err != nil {
			return nil, err
		}
	}
	return out[4:], nil
}

// Groups is the group coordinator; nil until the node has started. Its methods block.
func (v *Virtual) Groups() *coordinator.Coordinator {
	if s := v.b.services.Load(); s != nil {
		return s.groups
	}
	return nil
}

// Topics changes topics. Its methods block.
func (v *Virtual) Topics() api.Topics { return v.b.topics }

// Settings are the effective settings of a topic.
func (v *Virtual) Settings(t *meta.Topic) config.Topic { return v.b.cfg.Topic(t.Record.Configs) }

// Leading gives the partition's count of its followers while this node leads it; it is only read.
func (p *Partition) Leading() (*replica.Leader, bool) {
	if !p.leads() {
		return nil, false
	}
	return &p.leader, true
}

// newShard makes an event loop; a virtual node's has no goroutine.
func (b *Broker) newShard() *shard {
	if b.opts.virtual == nil {
		return newShard(b.logger)
	}
	s := newInlineShard(b.logger)
	s.turns = b.opts.virtual.Turns
	return s
}

// virtualBackoffMax bounds the pause after a failed fetch, as replica.fetch.backoff.ms does.
const virtualBackoffMax = time.Second

// virtualFetchWait is how long a leader holds a fetch that has nothing to answer, as replica.fetch.wait.max.ms.
const virtualFetchWait = 500 * time.Millisecond

// followVirtually is startFollowing with the simulator's connections.
func (b *Broker) followVirtually() error {
	v := b.opts.virtual
	b.interBroker = virtualListener
	b.fetchers = follow.New(follow.Options{
		Node: peers{b}, Client: v.Peers, Logger: b.logger, PartitionBytes: b.cfg.Replica.FetchMaxBytes,
		BackoffMax: virtualBackoffMax, Context: v.context(context.Background()),
		Limits: source.FetchLimits{MaxWait: virtualFetchWait, MinBytes: 1, MaxBytes: b.cfg.Replica.FetchResponseMaxBytes},
	})
	b.env.fetching, b.env.changeISR = b.fetchers, newISRWriter(b).change
	if v.Frames != nil {
		b.peerClient = source.NewClientOver(v.Frames)
	}
	return nil
}

// partitionsInOrder walks the partitions in the order of their names and ids.
func (b *Broker) partitionsInOrder() iter.Seq[*Partition] {
	var list []*Partition
	b.partitions.Range(func(_, v any) bool {
		list = append(list, v.(*Partition))
		return true
	})
	slices.SortFunc(list, func(x, y *Partition) int {
		return cmp.Or(cmp.Compare(x.tp.Topic, y.tp.Topic), cmp.Compare(x.tp.Partition, y.tp.Partition), cmp.Compare(x.id.String(), y.id.String()))
	})
	return slices.Values(list)
}

// IsFollowing reports whether the partition has a session with a leader of this cluster.
func (p *Partition) IsFollowing() bool {
	_, following := p.follower.Session()
	return following
}
