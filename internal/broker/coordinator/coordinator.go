package coordinator

import (
	"context"
	"sync/atomic"

	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/broker/ids"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Options are what a coordinator works with. Fields are required unless they say otherwise.
type Options struct {
	statelog.Node
	Config Config
	// Fresh waits until the image knows all that was written before the call, and gives it.
	// It fails with ctx, and while the metadata store can't be reached.
	Fresh func(ctx context.Context) (*meta.Image, error)
	// LogEnd gives the log end of a partition that this node leads, or holds as its
	// leader does; false of any other. Mirrored offsets don't pass it.
	LogEnd func(id types.TopicID, partition int32) (types.Offset, bool)
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
	// OffsetsAtOnce: a transaction's offsets are the group's before it has ended (KIP-98).
	OffsetsAtOnce bool
	// ForgetPending: a load leaves out offsets whose transactions are open (KIP-98).
	ForgetPending bool
	// Members are those of groups of the new protocol.
	Members consumer.Rules
}

// Coordinator is the group coordinator of one node. Its methods may be called
// from any goroutine.
type Coordinator struct {
	o     Options
	topic *statelog.Topic
	// Loops are those of the offsets topic.
	*statelog.Loops[*loop]
	// topics is what the newest image that was looked at says of topics.
	topics atomic.Pointer[topicsView]
}

var _ api.Groups = (*Coordinator)(nil)

// New makes a coordinator that leads nothing yet.
func New(o Options) *Coordinator {
	o.Node = o.WithContext()
	if o.Random == nil {
		o.Random = ids.System
	}
	o.Config.Group.Consumer.Rules = o.Rules.Members
	c := &Coordinator{o: o, topic: offsetsTopic(o)}
	c.Loops = statelog.NewLoops(o.Context, func(partition int32, epoch types.LeaderEpoch) *loop { return newLoop(c, partition, epoch) })
	return c
}

func (c *Coordinator) logOptions() statelog.LogOptions {
	return statelog.LogOptions{
		Node: c.o.Node, Topic: OffsetsTopic, BufferBytes: c.o.Config.LoadBufferBytes, ReloadAfterFailure: c.o.Config.ReloadAfterFailure, Unfenced: c.o.Rules.NoFence,
	}
}

// DeletedTopic is a topic that was deleted.
type DeletedTopic = group.DeletedTopic

// TopicsDeleted has the committed offsets of deleted topics removed. It waits
// for room in the queues of the loops, not for the removal.
func (c *Coordinator) TopicsDeleted(ctx context.Context, topics []DeletedTopic) {
	for _, l := range c.All() {
		l.post(ctx, group.ForgetTopics{Topics: topics})
	}
}

// Drain implements api.Groups.
func (c *Coordinator) Drain() {
	for _, l := range c.All() {
		l.post(l.Context, group.Unpark{Code: errcode.NotCoordinator})
	}
}
