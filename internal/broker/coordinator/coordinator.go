package coordinator

import (
	"context"
	"log/slog"
	"sync"

	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/broker/ids"
	"tidemark/internal/clock"
	"tidemark/internal/core/group"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Options are what a coordinator works with. Fields are required unless they say otherwise.
type Options struct {
	Config Config
	NodeID types.BrokerID
	// Image gives the newest metadata image, never nil.
	Image func() *meta.Image
	// Fresh waits until the image knows all that was written before the call, and gives it.
	// It fails with ctx, and while the metadata store can't be reached.
	Fresh      func(ctx context.Context) (*meta.Image, error)
	Partitions api.Partitions
	Topics     api.Topics
	// LogEnd gives the log end of a partition that this node leads, or holds as its
	// leader does; false of any other. Mirrored offsets don't pass it.
	LogEnd func(id types.TopicID, partition int32) (types.Offset, bool)
	Logger *slog.Logger
	// Now gives the wall clock's time, for what is written into records.
	Now func() types.Millis
	// Context may carry a clock; nil: the background's. Close ends the loops, not it.
	Context context.Context
	// Rules switches rules off; only the simulator sets it.
	Rules Rules
	// Random fills b with what nobody can guess; nil: the system's.
	Random func(b []byte)
}

// Rules names rules that the simulator switches off to see that its checks find
// it. The zero value has every rule on.
type Rules struct {
	// AckUnreplicated: a write is done once it is in the leader's log (R14).
	AckUnreplicated bool
	// NoFence: who led a partition goes on coordinating its groups (R10).
	NoFence bool
}

// Coordinator is the group coordinator of one node. Its methods may be called
// from any goroutine.
type Coordinator struct {
	o Options

	mu     sync.RWMutex
	loops  map[int32]*loop
	closed bool
	wg     sync.WaitGroup

	topic *statelog.Topic
}

var _ api.Groups = (*Coordinator)(nil)

// New makes a coordinator that leads nothing yet.
func New(o Options) *Coordinator {
	if o.Config.QueueLength == 0 {
		o.Config.QueueLength = defaultQueueLength
	}
	if o.Config.ReloadAfterFailure == 0 {
		o.Config.ReloadAfterFailure = defaultReloadAfterFailure
	}
	if o.Context == nil {
		o.Context = context.Background()
	}
	if o.Random == nil {
		o.Random = ids.System
	}
	return &Coordinator{o: o, loops: map[int32]*loop{}, topic: offsetsTopic(o)}
}

// Elected tells that this node leads partition of the offsets topic from now
// on, in leader epoch epoch: its groups are loaded and served. It returns at
// once. A repeated call with the same epoch does nothing.
func (c *Coordinator) Elected(partition int32, epoch types.LeaderEpoch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if old := c.loops[partition]; old != nil {
		if old.epoch >= epoch {
			return
		}
		probeSuperseded.Reached()
		old.stop()
	}
	l := newLoop(c, partition, epoch)
	c.loops[partition] = l
	clock.Go(c.o.Context, &c.wg, l.run)
}

// Resigned tells that this node leads partition of the offsets topic no more.
// It returns at once; what waits there is answered with NOT_COORDINATOR.
func (c *Coordinator) Resigned(partition int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.loops[partition]; l != nil && !c.o.Rules.NoFence {
		delete(c.loops, partition)
		l.stop()
	}
}

// DeletedTopic is a topic that was deleted.
type DeletedTopic = group.DeletedTopic

// TopicsDeleted has the committed offsets of deleted topics removed. It waits
// for room in the queues of the loops, not for the removal.
func (c *Coordinator) TopicsDeleted(ctx context.Context, topics []DeletedTopic) {
	for _, l := range c.all() {
		l.post(ctx, group.ForgetTopics{Topics: topics})
	}
}

// Drain implements api.Groups.
func (c *Coordinator) Drain() {
	for _, l := range c.all() {
		l.post(l.ctx, group.Unpark{Code: group.NotCoordinator})
	}
}

// Close stops all loops and waits for them. Waiting requests are answered with
// NOT_COORDINATOR, so that clients look for another coordinator.
func (c *Coordinator) Close() {
	c.mu.Lock()
	c.closed = true
	for _, l := range c.loops {
		l.stop()
	}
	clear(c.loops)
	c.mu.Unlock()
	clock.Join(c.o.Context, &c.wg)
}

func (c *Coordinator) loop(partition int32) *loop {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.loops[partition]
}

// all gives the loops in the order of their partitions.
func (c *Coordinator) all() []*loop {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []*loop
	for _, l := range c.loops {
		all = append(all, l)
	}
	sortLoops(all)
	return all
}
