package api

import (
	"slices"
	"sync"

	"tidemark/internal/assert"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// fetchPart is one partition of a Fetch request or of a fetch session.
type fetchPart struct {
	ref   topicRef
	index int32
	// topic numbers the topics of the request or session, so that they can be
	// told apart and put together cheaply.
	topic int

	// What the client asks for.
	offset       types.Offset
	currentEpoch types.LeaderEpoch
	lastEpoch    types.LeaderEpoch
	logStart     types.Offset // a replica's own
	tail         types.Tail   // a replica's own
	maxBytes     int32
	asked        bool // in a request that has not looked at the partition yet

	// What there is of it: set by fetchCall.look.
	part   Partition // nil while unknown, or not led here
	cancel func()    // ends the subscription
	res    ReadResult
	code   wire.ErrCode
	err    error
	hint   leaderHint // of the partition that refused
	// preferred is the replica that the consumer is to read from, NoBroker for this one.
	preferred types.BrokerID
	touched   bool // looked at in the present request
	// forgotten: taken out of the session, so a late wake-up finds it gone.
	forgotten bool

	// queued is true while the partition waits in its queue; guarded by the queue's lock.
	queued bool

	// sent is what the session's client knows.
	sent sentState
}

// sentState is what an answer said about a partition; a change of it is
// answered even if there are no records (KIP-227).
type sentState struct {
	valid                           bool
	highWatermark, stable, logStart types.Offset
}

// changed reports whether an incremental answer must hold the partition.
func (p *fetchPart) changed() bool {
	return !p.isNews() || p.sent != p.state()
}

// isNews reports whether there is nothing to say but where the marks are.
func (p *fetchPart) isNews() bool {
	return p.code == wire.None && p.res.Bytes == 0 && !p.res.HasDiverging && p.preferred == types.NoBroker
}

func (p *fetchPart) state() sentState {
	return sentState{valid: true, highWatermark: p.res.HighWatermark, stable: p.res.LastStable, logStart: p.res.LogStart}
}

// again reports whether a session's next request must look at the partition
// whatever happens until then: an error and a preferred replica are said every
// time, and records are sent until the client asks for a later offset or forgets
// the partition.
func (p *fetchPart) again(committed bool) bool {
	return p.code != wire.None || p.res.HasDiverging || p.preferred != types.NoBroker || p.hasMore(committed)
}

// hasMore reports whether records that the client may see lie at or after its offset.
func (p *fetchPart) hasMore(committed bool) bool {
	end := max(p.res.HighWatermark, p.res.ReplicaEnd)
	if committed {
		end = p.res.LastStable
	}
	return p.code == wire.None && p.offset < end
}

// drop gives back the records read, if the answer hasn't taken them.
func (p *fetchPart) drop() {
	if p.res.Release != nil {
		p.res.Release()
	}
	p.res = ReadResult{Records: p.res.Records[:0], Aborted: p.res.Aborted[:0]}
}

func (p *fetchPart) subscribe(q *fetchQueue) {
	if p.cancel == nil {
		p.cancel = p.part.OnProgress(func() { q.wakeWith(p) })
	}
}

func (p *fetchPart) unsubscribe() {
	if p.cancel != nil {
		p.cancel()
		p.cancel = nil
	}
}

// fetchQueue holds the partitions that have something new to say, oldest
// first: so partitions take turns when an answer can't hold all of them.
type fetchQueue struct {
	// wake has a token when a partition was added from outside.
	wake chan struct{}

	mu   sync.Mutex // guards the following, and the parts' queued fields
	list []*fetchPart
}

func newFetchQueue() *fetchQueue { return &fetchQueue{wake: make(chan struct{}, 1)} }

func (q *fetchQueue) add(p *fetchPart) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// Invariant I-62: a partition is in its queue at most once.
	if !p.queued {
		p.queued = true
		q.list = append(q.list, p)
	}
}

// wakeWith is called by the partition (Partition.OnProgress): it never blocks.
func (q *fetchQueue) wakeWith(p *fetchPart) {
	q.add(p)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// next takes the oldest partition out of the queue; nil if it is empty.
func (q *fetchQueue) next() *fetchPart {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) == 0 {
		return nil
	}
	p := q.list[0]
	q.list[0] = nil
	q.list = q.list[1:]
	assert.That(p.queued, "I-62: %d of topic %d stood in its fetch queue twice", p.index, p.topic)
	p.queued = false
	return p
}

// takeAsked takes those out that the present request asks for and has not looked at.
func (q *fetchQueue) takeAsked() (asked []*fetchPart) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = slices.DeleteFunc(q.list, func(p *fetchPart) bool {
		if !p.asked || p.forgotten {
			return false
		}
		p.queued = false
		asked = append(asked, p)
		return true
	})
	return asked
}

// size is how many partitions wait.
func (q *fetchQueue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list)
}
