package follow

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tidemark/internal/assert"
	"tidemark/internal/batch"
	"tidemark/internal/clock"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
	"tidemark/internal/source"
)

var (
	probeNudged     = probe.New("follow: a waiting fetch is ended early")
	probeRefused    = probe.New("follow: the leader refuses a partition")
	probeOutOfRange = probe.New("follow: out of the leader's range")
	probeSlowShard  = probe.New("follow: a shard is slow to take an answer")
	probeNoPeer     = probe.New("follow: the leader isn't registered")
	probeTimesOut   = probe.New("follow: a fetch fails")
)

// fetcher fetches from one leading broker. Its loop is the only one that uses the session.
type fetcher struct {
	f      *Fetchers
	leader types.BrokerID
	wake   chan struct{}

	mu sync.Mutex // guards the following
	// pending are the newest wishes since the last round; nil: none any more.
	pending map[types.TopicPartition]*Want
	// asking: a fetch is on its way without what is pending since; nudged: its leader was asked to hurry.
	asking, nudged bool

	// The rest belongs to the loop.

	session Session
	wanted  map[types.TopicPartition]*wanted
	later   map[types.TopicPartition]*wanted // not in the session until due
	handed  []types.TopicPartition           // answered since the last look at what is wanted
	fails   int                              // rounds in a row that came to nothing
}

// wanted is a wish that the fetcher works on.
type wanted struct {
	Want
	answered bool // handed over; the partition has not said what it wants next
	bytesMax int32
	fails    int // answers in a row with an error
	due      time.Time
}

func newFetcher(f *Fetchers, leader types.BrokerID) *fetcher {
	one := &fetcher{
		f: f, leader: leader, wake: make(chan struct{}, 1), pending: make(map[types.TopicPartition]*Want),
		wanted: make(map[types.TopicPartition]*wanted), later: make(map[types.TopicPartition]*wanted),
	}
	one.session = f.o.Client.NewSession(leader, source.SessionOptions{Replica: &source.Replica{ID: f.o.Node.NodeID(), Epoch: one.brokerEpoch}})
	return one
}

func (f *fetcher) brokerEpoch() types.BrokerEpoch {
	e, ok := f.f.o.Node.BrokerEpoch()
	if !ok {
		return types.NoBrokerEpoch
	}
	return e
}

// put queues a wish, or with nil the end of one.
func (f *fetcher) put(tp types.TopicPartition, w *Want) {
	f.mu.Lock()
	f.pending[tp] = w
	hurry := w != nil && !w.Later && f.asking && !f.nudged
	f.nudged = f.nudged || hurry
	f.mu.Unlock()
	if hurry {
		f.f.nudge(f.nudge)
	}
	f.wakeUp()
}

// nudge ends the wait of the fetch under way, so that the next one holds what is
// wanted since. A leader that can't be asked answers after its longest wait.
func (f *fetcher) nudge() {
	s, ok := f.session.(Waker)
	if !ok {
		return
	}
	probeNudged.Reached()
	if err := s.Wake(f.f.ctx); err != nil && f.f.ctx.Err() == nil {
		f.f.o.Logger.Debug("a waiting fetch could not be ended", "leader", f.leader, "err", err)
	}
}

// begin marks that a fetch is on its way; false if something is wanted that it doesn't hold.
func (f *fetcher) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking, f.nudged = len(f.pending) == 0, false
	return f.asking
}

func (f *fetcher) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking = false
}

func (f *fetcher) wakeUp() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *fetcher) loop() {
	for f.f.ctx.Err() == nil {
		due := f.apply()
		if len(f.wanted) == 0 {
			f.pause(due)
			continue
		}
		f.round(due)
	}
}

// pause waits until something is wanted, or the given time, if there is one.
func (f *fetcher) pause(until time.Time) {
	wait := clock.Forever
	if !until.IsZero() {
		wait = max(until.Sub(clock.Now(f.f.ctx)), 0)
	}
	_, _ = clock.Wait(f.f.ctx, wait, f.wake) // the loop looks at the context
}

// apply takes the wishes into the session. What was answered and not asked for
// again leaves it. It gives the time when the next of those that wait is due.
func (f *fetcher) apply() time.Time {
	f.mu.Lock()
	pending := f.pending
	f.pending = make(map[types.TopicPartition]*Want)
	f.mu.Unlock()
	for _, tp := range inOrder(maps.Keys(pending)) {
		f.wish(tp, pending[tp])
	}
	// Only those that were answered: a round of one partition doesn't look at thousands.
	for _, tp := range f.handed {
		if w := f.wanted[tp]; w != nil && w.answered {
			f.leave(tp)
		}
	}
	f.handed = f.handed[:0]
	var next time.Time
	var due []types.TopicPartition
	for tp, w := range f.later {
		if w.due.After(clock.Now(f.f.ctx)) {
			if next.IsZero() || w.due.Before(next) {
				next = w.due
			}
			continue
		}
		if f.heldBack(w) {
			w.due = clock.Now(f.f.ctx).Add(throttlePause)
			if next.IsZero() || w.due.Before(next) {
				next = w.due
			}
			continue
		}
		due = append(due, tp)
	}
	for _, tp := range inOrder(slices.Values(due)) {
		f.join(tp, f.later[tp])
		delete(f.later, tp)
	}
	return next
}

// inOrder sorts partitions: a simulated run has one order.
func inOrder(tps iter.Seq[types.TopicPartition]) []types.TopicPartition {
	return slices.SortedFunc(tps, func(a, b types.TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

func (f *fetcher) leave(tp types.TopicPartition) {
	delete(f.wanted, tp)
	f.session.Remove(tp)
}

// wish takes one wish in the place of the last one of that partition.
func (f *fetcher) wish(tp types.TopicPartition, w *Want) {
	old, waiting := f.wanted[tp], f.later[tp]
	delete(f.later, tp)
	if w == nil {
		if old != nil {
			f.leave(tp)
		}
		return
	}
	next := &wanted{Want: *w}
	for _, before := range []*wanted{old, waiting} {
		if before != nil && before.Request.Generation == w.Request.Generation {
			next.bytesMax, next.fails = before.bytesMax, before.fails
		}
	}
	if !w.Later {
		next.fails = 0 // the last answer was of use
	}
	switch {
	case w.Later:
		if old != nil {
			f.leave(tp)
		}
		f.delay(tp, next)
	case f.heldBack(next):
		if old != nil {
			f.leave(tp)
		}
		next.due = clock.Now(f.f.ctx).Add(throttlePause)
		f.later[tp] = next
	case old != nil && old.TopicID == w.TopicID && old.ask() == next.ask():
		// The leader's session knows: it answers when it has something to say.
		f.wanted[tp] = next
	default:
		f.join(tp, next)
	}
}

// throttlePause is how long a partition that is held back waits before the throttle is asked again.
const throttlePause = 100 * time.Millisecond

// heldBack reports whether a partition must not be fetched for now (KIP-73).
func (f *fetcher) heldBack(w *wanted) bool {
	return w.Throttle == HeldBack && f.f.o.Throttle != nil && f.f.o.Throttle.IsSpent()
}

// delay puts a wish off, for longer each time.
func (f *fetcher) delay(tp types.TopicPartition, w *wanted) {
	w.fails++
	w.due = clock.Now(f.f.ctx).Add(f.backoff(w.fails))
	f.later[tp] = w
}

func (f *fetcher) backoff(fails int) time.Duration {
	return min(backoffMin<<min(fails-1, 10), f.f.o.BackoffMax)
}

func (f *fetcher) join(tp types.TopicPartition, w *wanted) {
	w.answered = false
	if w.bytesMax == 0 {
		w.bytesMax = f.f.o.PartitionBytes
	}
	f.wanted[tp] = w
	f.session.Set(w.ask())
}

// ask is what the session is told.
func (w *wanted) ask() source.FetchPartition {
	return source.FetchPartition{
		TopicPartition: w.TopicPartition, TopicID: w.TopicID, Offset: w.Request.Offset,
		CurrentEpoch: w.Request.LeaderEpoch, LastEpoch: w.Request.LastEpoch, LogStart: w.LogStart, Tail: w.Tail, MaxBytes: w.bytesMax,
	}
}

// round is one fetch and the work on its answer. What was put off until due ends its wait.
func (f *fetcher) round(due time.Time) {
	peer, ok := f.f.o.Node.Peer(f.leader)
	if !ok {
		probeNoPeer.Reached()
		f.fails++
		f.pause(clock.Now(f.f.ctx).Add(f.backoff(f.fails)))
		return
	}
	f.f.o.Client.SetBroker(peer)
	if !f.begin() {
		return
	}
	ended := make(chan struct{})
	if !due.IsZero() {
		f.f.nudge(func() {
			if over, err := clock.Wait(f.f.ctx, max(due.Sub(clock.Now(f.f.ctx)), 0), ended); !over && err == nil {
				f.nudge()
			}
		})
	}
	a, err := f.session.Fetch(f.f.ctx, f.f.o.Limits)
	close(ended)
	f.end()
	if err != nil {
		if f.f.ctx.Err() != nil {
			return
		}
		probeTimesOut.Reached()
		if f.fails++; f.fails == 1 {
			f.f.o.Logger.Warn("fetch from a leader failed", "leader", f.leader, "partitions", len(f.wanted), "err", err)
		}
		f.pause(clock.Now(f.f.ctx).Add(f.backoff(f.fails)))
		return
	}
	if f.fails > 1 {
		f.f.o.Logger.Info("fetching from a leader again", "leader", f.leader, "failures", f.fails)
	}
	f.fails = 0
	f.deliver(a)
}

// slowShard is how long a fetcher waits for shards before it fetches without the slow ones.
const slowShard = 100 * time.Millisecond

// deliver hands an answer's partitions to their shards, and waits for them, but not for long.
func (f *fetcher) deliver(a *source.FetchAnswer) {
	var left atomic.Int32 // answers that partitions still use, and this function
	left.Store(1)
	done := make(chan struct{})
	over := func() {
		if left.Add(-1) == 0 {
			close(done)
		}
	}
	hand := func(w *wanted, answer Answer) {
		// Invariant I-210: a wish is answered once; the partition says what it wants next.
		assert.That(!w.answered, "I-210: a second answer for %s at %d", w.TopicPartition, w.Request.Offset)
		w.answered = true
		f.handed = append(f.handed, w.TopicPartition)
		if w.Throttle != Unthrottled && f.f.o.Throttle != nil {
			f.f.o.Throttle.Take(len(answer.Records))
		}
		answer.Alone = len(a.Partitions) == 1
		a.Retain()
		left.Add(1)
		w.Taker.Take(answer, sync.OnceFunc(func() { a.Release(); over() }))
	}
	var outOfRange []*wanted
	for i := range a.Partitions {
		p := &a.Partitions[i]
		w := f.wanted[p.TopicPartition]
		switch {
		case w == nil || w.answered:
		case p.Err != nil || isFailure(p.Code):
			f.refused(w, p)
		case p.Code == source.CodeOffsetOutOfRange:
			outOfRange = append(outOfRange, w)
		case f.tooLarge(w, p):
		default:
			hand(w, answerOf(w, p))
		}
	}
	f.askStarts(outOfRange, hand)
	a.Release()
	over()
	if done, err := clock.Wait(context.WithoutCancel(f.f.ctx), slowShard, done); !done && err == nil {
		probeSlowShard.Reached() // it says what it wants later
	}
}

// isFailure reports an error that says nothing about the logs.
func isFailure(c source.Code) bool {
	switch c {
	case source.CodeNone, source.CodeOffsetOutOfRange, source.CodeFencedLeaderEpoch, source.CodeUnknownLeaderEpoch:
		return false
	}
	return true
}

// refused puts a partition off that the leader had nothing but an error for.
func (f *fetcher) refused(w *wanted, p *source.FetchedPartition) {
	probeRefused.Reached()
	f.f.o.Logger.Debug("the leader refused a fetch", "partition", w.TopicPartition.String(), "leader", f.leader, "code", p.Code.String(), "err", p.Err)
	f.leave(w.TopicPartition)
	f.delay(w.TopicPartition, w)
}

// tooLarge raises the limit of a partition whose next batch doesn't fit into it,
// and reports whether it did.
func (f *fetcher) tooLarge(w *wanted, p *source.FetchedPartition) bool {
	size := p.Outgrows(w.bytesMax)
	if size == 0 {
		return false
	}
	w.bytesMax = size
	f.join(p.TopicPartition, w)
	return true
}

// answerOf turns one partition of an answer into a reply.
func answerOf(w *wanted, p *source.FetchedPartition) Answer {
	a := Answer{Reply: replica.Reply{To: w.Request, LogStart: p.LogStart, HighWatermark: p.HighWatermark, Vouch: replica.VouchNo}}
	switch {
	case p.Code == source.CodeFencedLeaderEpoch:
		a.Reply.Kind = replica.AnswerFenced
	case p.Code == source.CodeUnknownLeaderEpoch:
		a.Reply.Kind = replica.AnswerUnknownEpoch
	case p.Diverging != nil:
		a.Reply.Kind = replica.AnswerDiverging
		a.Reply.Diverging = replica.EpochEnd{Epoch: p.Diverging.Epoch, End: p.Diverging.End}
	default:
		a.Records, a.Fault = batch.Whole(p.Records, func(h batch.Header) {
			a.Reply.Batches = append(a.Reply.Batches, replica.Batch{Base: h.BaseOffset, Next: h.NextOffset(), Epoch: h.PartitionLeaderEpoch})
		})
	}
	return a
}

// askStarts completes the answers of those beyond the leader's range with its log start.
func (f *fetcher) askStarts(list []*wanted, hand func(*wanted, Answer)) {
	if len(list) == 0 {
		return
	}
	probeOutOfRange.Reached()
	queries := make([]source.OffsetQuery, len(list))
	for i, w := range list {
		queries[i] = source.OffsetQuery{TopicPartition: w.TopicPartition, CurrentEpoch: w.Request.LeaderEpoch, Timestamp: source.Earliest}
	}
	starts, err := f.f.o.Client.ListOffsets(f.f.ctx, f.leader, queries)
	for _, w := range list {
		start := starts[w.TopicPartition]
		if err != nil || start.Code != source.CodeNone {
			f.refused(w, &source.FetchedPartition{Code: start.Code, Err: err})
			continue
		}
		hand(w, Answer{Reply: replica.Reply{To: w.Request, Kind: replica.AnswerOutOfRange, LogStart: start.Offset, HighWatermark: types.NoOffset}})
	}
}
