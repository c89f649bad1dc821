// Package follow fetches from the brokers of this cluster what the partitions
// that follow them want: one connection and one fetch session (KIP-227) with
// each leading broker, whatever the number of partitions.
//
// It owns connections, sessions, waiting and trying again. It never decides what
// an answer means: every answer goes to its partition, which judges it with
// core/replica on its shard, changes the log, and says what it wants next. So a
// late answer does no harm here: the partition knows (R13).
//
// A partition that has nothing new stays in the session without being asked
// for again, on either side: idle partitions cost nothing.
//
// Tests: three brokers in one process in test/e2e.
package follow

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// Want is what a partition wants of its leader next. A newer one replaces it.
type Want struct {
	types.TopicPartition
	TopicID types.TopicID
	Leader  types.BrokerID
	// Request is core/replica's.
	Request replica.Request
	// LogStart is the follower's own, for the leader to know.
	LogStart types.Offset
	// Tail is the end of the follower's log, for the leader to compare; not known where it needn't.
	Tail types.Tail
	// Later: not at once, something failed.
	Later bool
	// Throttle says whether the node's throttle is about the partition.
	Throttle ThrottleKind
	// Taker gets the answer.
	Taker Taker
}

// ThrottleKind says what a throttle does to a partition's fetches (KIP-73).
type ThrottleKind int8

// The ways of a throttle: nothing; to count what was fetched; also to hold it back when too much was.
const (
	Unthrottled ThrottleKind = iota
	Counted
	HeldBack
)

// Throttle is a rate that the throttled partitions of a node share.
type Throttle interface {
	IsSpent() bool
	Take(bytes int)
}

// Taker is the partition that wants something.
type Taker interface {
	// Take is given one answer, on the fetcher's goroutine, which waits for
	// done for a while. It must not block for long, and must call done once it
	// uses the answer's records no more. It answers with another Want.
	Take(a Answer, done func())
}

// Answer is what came back for a Want.
type Answer struct {
	Reply replica.Reply
	// Records are whole batches, perhaps followed by the beginning of one more;
	// Reply.Batches describes them.
	Records []byte
	// Fault, if not nil, says that the records can't be read beyond Reply.Batches.
	Fault error
	// Alone: no other partition was answered with it.
	Alone bool
}

// Node is the broker that follows.
type Node interface {
	NodeID() types.BrokerID
	// BrokerEpoch is the present registration, which every fetch carries (KIP-903).
	BrokerEpoch() (types.BrokerEpoch, bool)
	// Peer gives a live broker's address on the listener between brokers.
	Peer(id types.BrokerID) (source.Broker, bool)
}

// Options are what New needs.
type Options struct {
	Node   Node
	Client Client
	Logger *slog.Logger
	// Limits bound one fetch; PartitionBytes one partition's part of it.
	Limits         source.FetchLimits
	PartitionBytes int32
	// Throttle is the node's for replicas that are being moved; nil: there is none.
	Throttle Throttle
	// BackoffMax bounds the pause after a failure.
	BackoffMax time.Duration
	// Context may carry a clock; nil: the background's. Close ends the fetchers, not it.
	Context context.Context
}

// Client are the connections to other brokers. The one of package source is used through Connect.
type Client interface {
	SetBroker(source.Broker)
	NewSession(leader types.BrokerID, o source.SessionOptions) Session
	ListOffsets(ctx context.Context, leader types.BrokerID, queries []source.OffsetQuery) (map[types.TopicPartition]source.OffsetAnswer, error)
	Close()
}

// Session is a fetch session with one broker.
type Session interface {
	Set(source.FetchPartition)
	Remove(types.TopicPartition)
	Fetch(ctx context.Context, lim source.FetchLimits) (*source.FetchAnswer, error)
}

// Waker is a Session whose fetch can be made to end early, from any goroutine.
type Waker interface {
	Wake(ctx context.Context) error
}

// Connect gives the connections of a client.
func Connect(c *source.Client) Client { return connected{c} }

type connected struct{ *source.Client }

// NewSession implements Client.
func (c connected) NewSession(leader types.BrokerID, o source.SessionOptions) Session {
	return c.Client.NewSession(leader, o)
}

// backoffMin is the pause after a first failure: most are a leader whose image
// lags behind by moments.
const backoffMin = 20 * time.Millisecond

// Fetchers are the fetchers of one node, one for each broker followed.
type Fetchers struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu sync.Mutex // guards the following
	// byLeader is nil once they are closed.
	byLeader map[types.BrokerID]*fetcher
}

// New makes the fetchers of a node; each starts when it is first needed.
func New(o Options) *Fetchers {
	parent := o.Context
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithCancel(parent)
	return &Fetchers{o: o, ctx: ctx, cancel: cancel, byLeader: make(map[types.BrokerID]*fetcher)}
}

// Want asks for a fetch. It never blocks.
func (f *Fetchers) Want(w Want) {
	if one := f.of(w.Leader); one != nil {
		one.put(w.TopicPartition, &w)
	}
}

// Stop takes back what was wanted of a leader. An answer may still be on its way.
func (f *Fetchers) Stop(leader types.BrokerID, tp types.TopicPartition) {
	f.mu.Lock()
	one := f.byLeader[leader]
	f.mu.Unlock()
	if one != nil {
		one.put(tp, nil)
	}
}

// of gives the fetcher of a leader, starting it if need be; nil after Close.
func (f *Fetchers) of(leader types.BrokerID) *fetcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byLeader == nil {
		return nil
	}
	one := f.byLeader[leader]
	if one == nil {
		one = newFetcher(f, leader)
		f.byLeader[leader] = one
		clock.Go(f.ctx, &f.work, one.loop)
	}
	return one
}

// nudge runs what ends the wait of a fetch at its leader, beside the fetcher's loop.
func (f *Fetchers) nudge(how func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byLeader != nil {
		clock.Go(f.ctx, &f.work, how)
	}
}

// Wake has the fetchers try at once what they wait with: the metadata has news.
func (f *Fetchers) Wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.byLeader {
		one.wakeUp()
	}
}

// Close ends all fetches and waits for their goroutines.
func (f *Fetchers) Close() {
	f.mu.Lock()
	f.byLeader = nil
	f.mu.Unlock()
	f.cancel()
	f.o.Client.Close()
	clock.Join(f.ctx, &f.work)
}
