package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	stdnet "net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/broker/api"
	"tidemark/internal/broker/controller"
	"tidemark/internal/broker/coordinator"
	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/broker/follow"
	"tidemark/internal/broker/ids"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/clock"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/journal"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/embed"
	"tidemark/internal/net"
	"tidemark/internal/source"
	"tidemark/internal/telemetry"
	"tidemark/internal/vault"
	"tidemark/internal/vfs"
)

// Options are what tests and commands give a broker beside its configuration. The zero value is right for a node.
type Options struct {
	Logger *slog.Logger        // nil: silent
	FS     vfs.FS              // nil: the operating system's
	Now    func() types.Millis // nil: the wall clock
	// Version is the program's, for the registration.
	Version string
	// Features are the levels that the program supports; nil: as it does. Tests
	// play older and newer programs.
	Features meta.Features
	// HTTPAddr is what the registration says of the admin API; empty: the configuration's http.listener.
	HTTPAddr string
	// Store replaces the metadata store that the configuration names; the caller closes it.
	Store metastore.Store
	// DialPeer makes the connections to other brokers; nil: TCP as usual.
	DialPeer func(ctx context.Context, address string) (stdnet.Conn, error)

	virtual *VirtualOptions // the simulator's
}

// Broker is one running node. Open makes it.
type Broker struct {
	cfg     *config.Broker
	opts    Options
	logger  *slog.Logger
	fs      vfs.FS
	env     *environment
	metrics *telemetry.Metrics
	counts  *apiMetrics
	audit   *telemetry.Audit

	clusterID string
	process   string // fresh; the incarnations of this process's registrations begin with it
	dirs      []*logDir
	lost      []*logDir // of the configuration's, those that could not be used at the start
	loading   bool      // the partitions of the first image are being made
	store     metastore.Store
	closeMeta func() error
	quorum    *embed.Server // nil with a store of somebody else's
	view      *viewer
	lease     *registration
	// registered: this process has, so that the image's registration of this node is its own.
	registered atomic.Bool
	// controller is this node's part in the cluster's office.
	controller *controller.Controller

	shards     []*shard
	partitions sync.Map // meta.PartitionID → *Partition
	// fetchers fetch for partitions that follow other brokers, over the listener interBroker.
	fetchers    *follow.Fetchers
	peerClient  *source.Client // of the listener between brokers; nil in the simulator, but for transactions
	interBroker string
	// ownLogIn is this node's at other brokers; nil where the listener between them wants none, or it has none.
	ownLogIn *source.SASLConfig
	isrTicks int // of watchISRs
	// lastConfig is what lastTopic's configs come to: partitions of a topic come one after the other.
	lastTopic  *meta.Topic
	lastConfig config.Topic
	topics     *topics
	ids        *producerIDs
	fresh      ids.Source               // of whatever the node names
	services   atomic.Pointer[services] // nil until they were started
	vault      *vault.Vault
	events     *journal.Journal // nil until the mirrors are started
	chores     *chores

	server *net.Server
	gate   *gate
	addrs  []meta.Endpoint

	ctx    context.Context // ends when the broker closes
	cancel context.CancelFunc
	work   sync.WaitGroup
	failed atomic.Pointer[error]
	done   chan struct{} // closed when failed is set
	ready  atomic.Bool
	closed sync.Once
	// closeErr is what the first Close found.
	closeErr error
	started  time.Time
	startup  time.Duration
}

// Open starts a node and returns once it answers clients. The error names what
// is in the way: a busy port, a folder of another cluster or node, a store that can't be reached.
func Open(ctx context.Context, cfg *config.Broker, opts Options) (*Broker, error) {
	b := newBroker(cfg, opts)
	if err := b.start(ctx); err != nil {
		return nil, errors.Join(err, b.abort())
	}
	b.startup = time.Since(b.started)
	b.logger.Info("node is ready", "node", cfg.NodeID, "cluster", b.clusterID, "listeners", b.describeListeners(),
		"partitions", b.partitionCount(), "took", b.startup.Round(time.Millisecond))
	return b, nil
}

func newBroker(cfg *config.Broker, opts Options) *Broker {
	if opts.Logger == nil {
		opts.Logger = telemetry.Discard()
	}
	if opts.FS == nil {
		opts.FS = vfs.OS()
	}
	if opts.Features == nil {
		opts.Features = meta.SupportedFeatures()
	}
	if opts.Now == nil {
		opts.Now = func() types.Millis { return types.Millis(time.Now().UnixMilli()) }
	}
	ctx, metrics, fresh := context.Background(), telemetry.New, ids.Source(ids.System)
	if opts.virtual != nil {
		ctx, metrics, fresh = opts.virtual.context(ctx), opts.virtual.metrics, opts.virtual.IDs
	}
	ctx, cancel := context.WithCancel(ctx)
	b := &Broker{
		cfg: cfg, opts: opts, logger: opts.Logger, fs: opts.FS, metrics: metrics(),
		ctx: ctx, cancel: cancel, started: clock.Now(ctx), done: make(chan struct{}), fresh: fresh, process: fresh.Fresh(),
	}
	b.gate, b.counts = newGate(b.metrics.Requests), newAPIMetrics(b.metrics)
	b.audit = telemetry.NewAudit(b.metrics, b.logger)
	b.env = &environment{
		nodeID: cfg.NodeID, now: opts.Now, logger: opts.Logger, metrics: b.metrics, flushAcks: cfg.LogFlushAcks, oneDisk: len(cfg.LogDirs) == 1,
		background: &b.work, ctx: ctx, lagMax: cfg.ReplicaLagTimeMaxMs,
		ticks: func() types.Millis { return types.Millis(clock.Since(ctx, b.started).Milliseconds()) },
	}
	b.env.peer = b.peerView
	b.env.leaderThrottle, b.env.followerThrottle = &throttle{ticks: b.env.ticks}, &throttle{ticks: b.env.ticks}
	b.env.lapsed = func() bool { return b.lease != nil && b.lease.over() }
	b.env.ended = func(of types.BrokerEpoch) bool {
		if b.env.rules.KeepsEpoch {
			return b.env.lapsed()
		}
		return b.lease != nil && b.lease.ended(of)
	}
	b.env.readFromRack = cfg.Replica.Selector == config.RackAwareSelector
	return b
}

// start is the whole way up, each step undone by abort or Close.
func (b *Broker) start(ctx context.Context) error {
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"open the log dirs", b.openDirs},
		{"listen", b.listen},
		{"open the metadata store", b.openStore},
		{"find the cluster", b.adoptCluster},
		{"read the metadata", b.readImage},
		{"open the vault", b.openVault},
		{"open the partitions", b.openPartitions},
		{"register", b.register},
		{"settle the log-in between brokers", b.settleOwnLogIn},
		{"start the services", b.startServices},
	}
	for _, s := range steps {
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	b.ready.Store(true)
	return nil
}

// Config is the node's configuration.
func (b *Broker) Config() *config.Broker { return b.cfg }

// ClusterID is the id of the cluster this node belongs to.
func (b *Broker) ClusterID() string { return b.clusterID }

// NodeID is this node's id.
func (b *Broker) NodeID() types.BrokerID { return b.cfg.NodeID }

// KafkaAddr is host:port of the first listener, as advertised.
func (b *Broker) KafkaAddr() string {
	if len(b.addrs) == 0 {
		return ""
	}
	return config.Listener{Host: b.addrs[0].Host, Port: b.addrs[0].Port}.Addr()
}

// Endpoints are the listeners as advertised, in the order of the configuration.
func (b *Broker) Endpoints() []meta.Endpoint { return b.addrs }

// Image is the newest metadata image, never nil on an open broker.
func (b *Broker) Image() *meta.Image { return b.view.current() }

// Store is the metadata store, for read-only views of it.
func (b *Broker) Store() metastore.Store { return b.store }

// Gatherer is what /metrics serves.
func (b *Broker) Gatherer() prometheus.Gatherer { return b.metrics.Gatherer() }

// Metrics are the node's counters.
func (b *Broker) Metrics() *telemetry.Metrics { return b.metrics }

// Audit is told who is refused what.
func (b *Broker) Audit() *telemetry.Audit { return b.audit }

// Now is the broker's wall clock.
func (b *Broker) Now() types.Millis { return b.opts.Now() }

// StartupTime is how long Open took.
func (b *Broker) StartupTime() time.Duration { return b.startup }

// Topics changes and describes topics.
func (b *Broker) Topics() api.Topics { return b.topics }

// services are what works on top of the partitions.
type services struct {
	groups  *coordinator.Coordinator
	txns    *transactions.Coordinator
	mirrors *mirror.Mirrors // nil in a virtual node that has none
}

// Groups is the group coordinator.
func (b *Broker) Groups() *coordinator.Coordinator { return b.services.Load().groups }

// Mirrors are the node's mirrors.
func (b *Broker) Mirrors() *mirror.Mirrors { return b.services.Load().mirrors }

// Vault holds what cuts removed.
func (b *Broker) Vault() *vault.Vault { return b.vault }

// BrokerEpoch is this node's present registration; false while there is none.
//
// A registration of an earlier process, which the image may show until its lease
// ends, is not this one's: what that process knew and held may be gone (R10).
func (b *Broker) BrokerEpoch() (types.BrokerEpoch, bool) { return b.ownEpoch(b.Image()) }

func (b *Broker) ownEpoch(image *meta.Image) (types.BrokerEpoch, bool) {
	e, ok := image.Broker(b.cfg.NodeID)
	if !ok || !strings.HasPrefix(e.Record.Incarnation, b.process) && !b.env.rules.KeepsEpoch {
		return types.NoBrokerEpoch, false
	}
	return types.BrokerEpoch(e.CreateRevision), true
}

// Partition finds a partition that this node holds, served or not.
func (b *Broker) Partition(id types.TopicID, number int32) (*Partition, bool) {
	p, ok := b.partitions.Load(meta.PartitionID{Topic: id, Number: number})
	if !ok {
		return nil, false
	}
	return p.(*Partition), true
}

// PartitionByName finds a partition by its topic's name.
func (b *Broker) PartitionByName(topic string, number int32) (*Partition, bool) {
	t, ok := b.Image().TopicByName(topic)
	if !ok {
		return nil, false
	}
	return b.Partition(t.ID, number)
}

// Partitions walks the partitions that this node holds, in no order.
func (b *Broker) Partitions() iter.Seq[*Partition] {
	if b.opts.virtual != nil {
		return b.partitionsInOrder()
	}
	return func(yield func(*Partition) bool) {
		b.partitions.Range(func(_, v any) bool { return yield(v.(*Partition)) })
	}
}

func (b *Broker) partitionCount() int {
	n := 0
	for range b.Partitions() {
		n++
	}
	return n
}

// Health says whether the process can still do its work: nil, or what ended it.
func (b *Broker) Health() error {
	if err := b.failed.Load(); err != nil {
		return *err
	}
	for _, d := range b.dirs {
		if d.failure() == nil {
			return nil
		}
	}
	return errors.New("every log dir is offline")
}

// Ready says whether clients are answered: nil, or what is still missing.
func (b *Broker) Ready() error {
	if !b.ready.Load() {
		return errors.New("starting, or shutting down")
	}
	if err := b.Health(); err != nil {
		return err
	}
	if b.lease.over() {
		return errors.New("the registration has lapsed: the metadata store can't be reached")
	}
	for _, d := range b.dirs {
		if err := d.lacksRoom(); err != nil {
			return err
		}
	}
	return nil
}

// Done is closed when the node can't do its work any more; Health says why.
func (b *Broker) Done() <-chan struct{} { return b.done }

// fail notes what makes the node useless.
func (b *Broker) fail(err error) {
	if b.failed.CompareAndSwap(nil, &err) {
		b.logger.Error("node can't go on", "err", err)
		close(b.done)
	}
}
