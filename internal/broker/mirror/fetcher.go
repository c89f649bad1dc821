package mirror

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/clock"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// fetcherKey names a fetcher: one or a few for each source broker
// (mirror.fetchers.per.source.broker), each with a connection and a session of its own.
type fetcherKey struct {
	broker types.BrokerID
	lane   int
}

// fetcher fetches from one source broker what the copiers of many partitions
// ask for, hands the answers to their shards and waits for them, but not long
// for a slow one: that one leaves the session until it asks again.
type fetcher struct {
	run *run
	key fetcherKey

	mu sync.Mutex
	// guards the following
	pending map[*copier]*want
	ended   bool
	wake    chan struct{}

	seenAt atomic.Int64 // wall clock in ms of the last good answer
	// answeredTo is when the request was sent to which that answer came; it is
	// set once the answer's marks are with the copiers.
	answeredTo atomic.Int64

	// The rest belongs to the loop.

	session Session
	wants   map[types.TopicPartition]*want
	fails   int // fetches in a row that came to nothing
	sent    types.Millis
}

// want is what one copier asks for; with remove set it asks for nothing any more.
type want struct {
	c      *copier
	seq    uint64
	fetch  core.Fetch
	remove bool

	answered bool  // handed to the copier, which has not asked again yet
	bytesMax int32 // raised to take a batch that is larger than the usual limit
	agreed   bool  // below Fetch v12: OffsetForLeaderEpoch has been asked for this session of the machine
}

// slowShard is how long a fetcher waits for a shard that gets on with nothing
// before it fetches without it, and answersInSlow the partitions of an answer
// for which it waits as long again while the shards do get on: a partition that
// leaves the session only to come back is sent by the source once more, which an
// answer of thousands must not be told for most of them.
const (
	slowShard     = 100 * time.Millisecond
	answersInSlow = 250
)

// throttledBytesMin is the least that a throttled fetch asks for, in bytes.
const throttledBytesMin = 64 << 10

// peekBytes is what a fetch asks for that only compares epochs.
const peekBytes = 1

// fetch hands a fetch to the fetcher of the copier's source leader.
func (r *run) fetch(c *copier, e core.Fetch, seq uint64) {
	leader := c.leader.Load()
	if leader == nil || r.client == nil {
		c.send(core.SourceFailed{Ticket: e.Ticket, Reason: core.SourceLeaderMoved, Detail: "the source's leader is not known"})
		return
	}
	for key := (fetcherKey{leader.broker, laneOf(c.tp, r.settings.Load().FetchersPerSource)}); ; {
		f := r.fetcher(key)
		if f == nil {
			return // the run is closing
		}
		if old := c.fetcher.Swap(f); old != nil && old != f {
			old.put(&want{c: c, seq: seq, remove: true})
		}
		if f.put(&want{c: c, seq: seq, fetch: e}) {
			return
		}
	}
}

// stopFetching takes the copier out of its fetcher's session.
func (r *run) stopFetching(c *copier, seq uint64) {
	if f := c.fetcher.Load(); f != nil {
		f.put(&want{c: c, seq: seq, remove: true})
	}
}

func laneOf(tp types.TopicPartition, lanes int32) int {
	if lanes <= 1 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(tp.Topic + "-" + strconv.Itoa(int(tp.Partition)))) // never fails
	return int(h.Sum32() % uint32(lanes))
}

// fetcher gives the fetcher of a source broker, starting it if there is none.
func (r *run) fetcher(key fetcherKey) *fetcher {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	f := r.fetchers[key]
	if f == nil {
		f = &fetcher{run: r, key: key, pending: map[*copier]*want{}, wake: make(chan struct{}, 1), wants: map[types.TopicPartition]*want{}}
		f.session = f.newSession()
		r.fetchers[key] = f
		clock.Go(r.ctx, &r.work, f.loop)
	}
	return f
}

func (f *fetcher) newSession() Session {
	budget := source.NewBudget(f.run.settings.Load().MaxInflightBytes)
	return f.run.client.NewSession(f.key.broker, source.SessionOptions{Budget: budget, Lane: f.key.lane})
}

// put queues a wish; of two wishes of a copier the one of the later step counts. False: the
// fetcher has ended, and another takes its place.
func (f *fetcher) put(w *want) bool {
	f.mu.Lock()
	if f.ended {
		f.mu.Unlock()
		return false
	}
	if old := f.pending[w.c]; old == nil || old.seq <= w.seq {
		f.pending[w.c] = w
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
	return true
}

// fetcherIdle is how long a fetcher without partitions waits for one: its broker may have
// left the source for good, and what went wrong with it is nobody's trouble any more.
const fetcherIdle = 5 * time.Minute

func (f *fetcher) loop() {
	for f.run.ctx.Err() == nil {
		f.apply()
		if len(f.wants) > 0 {
			f.round()
			continue
		}
		woken, err := clock.Wait(f.run.ctx, fetcherIdle, f.wake)
		if !woken && err == nil && f.end() {
			return
		}
	}
}

// end ends a fetcher that nobody wants anything of.
func (f *fetcher) end() bool {
	r := f.run
	r.mu.Lock()
	defer r.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pending) > 0 {
		return false
	}
	f.ended = true
	delete(r.fetchers, f.key)
	for key := range r.fetchers {
		if key.broker == f.key.broker {
			return true // another lane of the broker tells its health
		}
	}
	r.health.forget(f.healthName())
	return true
}

// apply takes the wishes into the session. What was answered and not asked for again leaves it.
func (f *fetcher) apply() {
	f.mu.Lock()
	pending := f.pending
	f.pending = map[*copier]*want{}
	f.mu.Unlock()
	for _, c := range inOrder(pending, func(c *copier) types.TopicPartition { return c.tp }) {
		w := pending[c]
		old := f.wants[c.tp]
		if old != nil && old.c == c && old.seq > w.seq {
			continue
		}
		switch gone := w.remove || c.halted.Load(); { // a halted copier's wish would take its successor's place
		case gone && old != nil && old.c == c:
			f.leave(c.tp)
		case gone:
		default:
			if old != nil && old.c == c && old.bytesMax > 0 && w.fetch.Request.Generation == old.fetch.Request.Generation {
				w.bytesMax, w.agreed = old.bytesMax, old.agreed
			}
			f.join(c.tp, w)
		}
	}
	for _, tp := range inOrder(f.wants, itself) {
		if f.wants[tp].answered {
			f.leave(tp)
		}
	}
}

func (f *fetcher) leave(tp types.TopicPartition) {
	f.detach(f.wants[tp])
	delete(f.wants, tp)
	f.session.Remove(tp)
}

// detach notes until when the partition was watched in the session.
func (f *fetcher) detach(w *want) {
	if w != nil && w.c.attached.Load() == f {
		if w.c.seen.Load() != nil {
			w.c.sighted.Store(f.seenAt.Load())
		}
		w.c.attached.Store(nil)
	}
}

func (f *fetcher) join(tp types.TopicPartition, w *want) {
	cfg := f.run.client.Config()
	if w.bytesMax == 0 {
		w.bytesMax = cfg.FetchMaxPartitionBytes
	}
	p := source.FetchPartition{
		TopicPartition: tp, TopicID: w.c.sourceTopicID(), Offset: w.fetch.Request.Offset,
		CurrentEpoch: w.fetch.Request.LeaderEpoch, LastEpoch: w.fetch.Request.LastEpoch, MaxBytes: w.bytesMax,
	}
	if w.fetch.Peek {
		p.MaxBytes = peekBytes
	}
	f.wants[tp] = w
	w.c.joined.Store(int64(f.run.m.o.Node.Now()))
	w.c.attached.Store(f)
	f.session.Set(p)
}

// round is one fetch and the work on its answer.
func (f *fetcher) round() {
	if !f.run.throttle.wait(f.run.ctx) {
		return
	}
	f.sent = f.run.m.o.Node.Now()
	a, err := f.session.Fetch(f.run.ctx, f.limits())
	if err != nil {
		f.failed(err)
		return
	}
	f.fails = 0
	f.seenAt.Store(int64(f.run.m.o.Node.Now()))
	f.run.health.ok(f.healthName())
	f.run.throttle.take(a.RecordBytes)
	f.deliver(a)
	if a.Throttle > 0 {
		pause(f.run.ctx, min(a.Throttle, time.Minute))
	}
}

func (f *fetcher) limits() source.FetchLimits {
	cfg := f.run.client.Config()
	lim := source.FetchLimits{MaxWait: cfg.FetchMaxWait, MinBytes: cfg.FetchMinBytes, MaxBytes: cfg.FetchMaxBytes}
	if rate := f.run.throttle.rate(); rate > 0 {
		lim.MaxBytes = int32(min(int64(lim.MaxBytes), max(rate/4, throttledBytesMin)))
	}
	for _, w := range f.wants {
		if w.fetch.Peek {
			lim.MaxWait, lim.MinBytes = 0, 0
			break
		}
	}
	return lim
}

func (f *fetcher) healthName() string { return "fetch from broker " + strconv.Itoa(int(f.key.broker)) }

// failed tells every partition of the session that its fetch came to nothing.
// Each backs off on its own and asks for the source's leader again.
func (f *fetcher) failed(err error) {
	if f.run.ctx.Err() != nil {
		return
	}
	f.fails++
	f.run.health.failed(f.healthName(), err)
	for _, tp := range inOrder(f.wants, itself) {
		w := f.wants[tp]
		f.detach(w)
		w.c.send(failure(w.fetch.Ticket, err))
		f.session.Remove(tp)
	}
	clear(f.wants)
	if !errors.Is(err, source.ErrUnreachable) {
		pause(f.run.ctx, f.run.backoff(f.fails))
	}
}

// deliver hands an answer's partitions to their shards, all at once.
func (f *fetcher) deliver(a *source.FetchAnswer) {
	var left atomic.Int64 // answers that aren't worked on, and one for this loop
	done := make(chan struct{})
	worked := func() {
		if left.Add(-1) == 0 {
			close(done)
		}
	}
	left.Add(1)
	for i := range a.Partitions {
		p := &a.Partitions[i]
		w := f.wants[p.TopicPartition]
		if w == nil || w.answered {
			continue
		}
		if f.tooLarge(w, p) {
			continue
		}
		w.answered = true
		if p.Code == 0 && p.Err == nil && p.Diverging == nil {
			w.c.sights.saw(f.sent, f.run.m.o.Node.Now(), p.HighWatermark)
		}
		a.Retain()
		left.Add(1)
		clock.Go(f.run.ctx, &f.run.work, func() {
			defer worked()
			defer a.Release()
			f.answer(w, p, a.Version)
		})
	}
	f.answeredTo.Store(int64(f.sent))
	a.Release()
	worked()
	awaitShards(f.run.ctx, done, left.Load)
}

// awaitShards waits until done, or until the shards got on with none of what is
// left for slowShard, or until their time for all of it is over.
func awaitShards(ctx context.Context, done <-chan struct{}, left func() int64) {
	ctx = context.WithoutCancel(ctx)
	before := left()
	for ticks := 1 + before/answersInSlow; ticks > 0; ticks-- {
		if ended, err := clock.Wait(ctx, slowShard, done); ended || err != nil {
			return
		}
		now := left()
		if now >= before {
			return
		}
		before = now
	}
}

// tooLarge raises the limit of a partition whose next batch doesn't fit into it,
// and reports whether it did.
func (f *fetcher) tooLarge(w *want, p *source.FetchedPartition) bool {
	if w.fetch.Peek {
		return false
	}
	size := p.Outgrows(w.bytesMax)
	if size == 0 {
		return false
	}
	w.bytesMax = size
	f.join(p.TopicPartition, w)
	return true
}

// answer turns one partition of an answer into the machine's event.
func (f *fetcher) answer(w *want, p *source.FetchedPartition, version int16) {
	c, t := w.c, w.fetch.Ticket
	reply := replica.Reply{To: w.fetch.Request, LogStart: p.LogStart, HighWatermark: p.HighWatermark}
	switch {
	case p.Err != nil:
		c.step(failure(t, p.Err), nil)
		return
	case p.Code == source.CodeOffsetOutOfRange:
		reply.Kind, reply.LogStart, reply.HighWatermark = replica.AnswerOutOfRange, types.NoOffset, types.NoOffset
	case p.Code == source.CodeFencedLeaderEpoch:
		reply.Kind = replica.AnswerFenced
	case p.Code == source.CodeUnknownLeaderEpoch:
		reply.Kind = replica.AnswerUnknownEpoch
	case p.Code != 0:
		c.step(core.SourceFailed{Ticket: t, Reason: reasonOfCode(p.Code), Detail: "the source answered " + p.Code.String()}, nil)
		return
	case p.Diverging != nil:
		reply.Kind = replica.AnswerDiverging
		reply.Diverging = replica.EpochEnd{Epoch: p.Diverging.Epoch, End: p.Diverging.End}
	case version < 12 && w.fetch.Request.LastEpoch >= 0 && !w.agreed:
		if !f.compareByEpochEnd(w, &reply) {
			return
		}
	}
	ev, data := withRecords(w.fetch, reply, p.Records)
	if _, ok := ev.(core.Fetched); ok {
		c.saw(reply.LogStart, reply.HighWatermark)
	}
	c.step(ev, data)
}

// withRecords completes the event of a reply with the records that came along.
func withRecords(f core.Fetch, reply replica.Reply, records []byte) (core.Event, []byte) {
	ev := core.Fetched{Ticket: f.Ticket, SourceEnd: reply.HighWatermark}
	var data []byte
	if reply.Kind == replica.AnswerData && !f.Peek {
		var err error
		data, err = batch.Whole(records, func(h batch.Header) {
			reply.Batches = append(reply.Batches, replica.Batch{Base: h.BaseOffset, Next: h.NextOffset(), Epoch: h.PartitionLeaderEpoch})
		})
		if err != nil && len(reply.Batches) == 0 {
			return core.SourceFailed{Ticket: f.Ticket, Reason: core.CorruptSource, Detail: fmt.Sprintf("the batch at offset %d: %v", f.Request.Offset, err)}, nil
		}
		ev.Bytes = len(data)
	}
	ev.Reply = reply
	return ev, data
}

// compareByEpochEnd asks OffsetForLeaderEpoch what a Fetch below v12 doesn't say:
// whether the logs agree (KIP-279). False: the question came to nothing, and the machine was told.
func (f *fetcher) compareByEpochEnd(w *want, reply *replica.Reply) bool {
	q := w.fetch.Request
	answers, err := f.run.client.EpochEnds(f.run.ctx, f.key.broker, []source.EpochQuery{{TopicPartition: w.c.tp, CurrentEpoch: q.LeaderEpoch, Epoch: q.LastEpoch}})
	if err != nil {
		w.c.step(failure(w.fetch.Ticket, err), nil)
		return false
	}
	switch a := answers[w.c.tp]; {
	case a.Code == source.CodeFencedLeaderEpoch:
		reply.Kind = replica.AnswerFenced
	case a.Code == source.CodeUnknownLeaderEpoch:
		reply.Kind = replica.AnswerUnknownEpoch
	case a.Code != 0:
		w.c.step(core.SourceFailed{Ticket: w.fetch.Ticket, Reason: reasonOfCode(a.Code), Detail: "the source answered " + a.Code.String()}, nil)
		return false
	case a.End >= 0 && (a.Epoch < q.LastEpoch || a.End < q.Offset):
		reply.Kind, reply.Diverging = replica.AnswerDiverging, replica.EpochEnd{Epoch: a.Epoch, End: a.End}
	default:
		w.agreed = true
	}
	return true
}
