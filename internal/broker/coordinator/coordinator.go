package coordinator

import (
	"context"
	"log/slog"
	"sync/atomic"

	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/broker/ids"
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
	o     Options
	topic *statelog.Topic
	loops *statelog.Loops[*loop]
	// topics is what the newest image that was looked at says of topics.
	topics atomic.Pointer[topicsView]
}

var _ api.Groups = (*Coordinator)(nil)

// New makes a coordinator that leads nothing yet.
func New(o Options) *Coordinator {
	if o.Context == nil {
		o.Context = context.Background()
	}
	if o.Random == nil {
		o.Random = ids.System
	}
	c := &Coordinator{o: o, topic: offsetsTopic(o)}
	c.loops = statelog.NewLoops(o.Context, func(partition int32, epoch types.LeaderEpoch) *loop { return newLoop(c, partition, epoch) })
	return c
}

func (c *Coordinator) logOptions() statelog.LogOptions {
	return statelog.LogOptions{
		Topic: OffsetsTopic, Image: c.o.Image, Partitions: c.o.Partitions, NodeID: c.o.NodeID, BufferBytes: c.o.Config.LoadBufferBytes,
		ReloadAfterFailure: c.o.Config.ReloadAfterFailure, Logger: c.o.Logger, Context: c.o.Context, Unfenced: c.o.Rules.NoFence,
	}
}

// Elected is statelog.Loops' for the offsets topic.
func (c *Coordinator) Elected(partition int32, epoch types.LeaderEpoch) {
	c.loops.Elected(partition, epoch)
}

// Resigned is statelog.Loops' for the offsets topic.
func (c *Coordinator) Resigned(partition int32) { c.loops.Resigned(partition) }

// Close is statelog.Loops'.
func (c *Coordinator) Close() { c.loops.Close() }

// DeletedTopic is a topic that was deleted.
type DeletedTopic = group.DeletedTopic

// TopicsDeleted has the committed offsets of deleted topics removed. It waits
// for room in the queues of the loops, not for the removal.
func (c *Coordinator) TopicsDeleted(ctx context.Context, topics []DeletedTopic) {
	for _, l := range c.loops.All() {
		l.post(ctx, group.ForgetTopics{Topics: topics})
	}
}

// Drain implements api.Groups.
func (c *Coordinator) Drain() {
	for _, l := range c.loops.All() {
		l.post(l.Context, group.Unpark{Code: group.NotCoordinator})
	}
}
