package api

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/clock"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
	"tidemark/internal/wire"
)

var (
	probeSessionUnknown = probe.New("fetch session: not known here")
	probeSessionEpoch   = probe.New("fetch session: a request out of turn")
	probeSessionNoSlot  = probe.New("fetch session: no slot is free")
	probeSessionEvicted = probe.New("fetch session: an idle one gives its slot to another")
	probeSessionRemoved = probe.New("fetch session: ended while a request waited for its turn")
	probeSessionTwo     = probe.New("fetch session: two requests at once")
)

// Fetch sessions (KIP-227): the broker remembers which partitions a client
// fetches and what it was told, so that requests and answers name only what changed.
//
//	session id 0, epoch -1: no session (also ends the one that is named)
//	session id 0 or n, epoch 0: a new session (n ends), a full answer
//	session id n, epoch e: the next request of session n, an incremental answer
//
// The epoch counts a session's requests from 1, and wraps to 1. A session is
// evicted for a new one only once it was idle for Settings.FetchSessionIdle;
// if no slot can be freed the client gets session id 0 and sends full requests.

// The session epochs that are not counts.
const (
	sessionEpochNew  int32 = 0
	sessionEpochNone int32 = -1
)

// partKey names a partition in a session as requests do.
type partKey struct {
	ref   topicRef
	index int32
}

// fetchSession is one client's session.
type fetchSession struct {
	id int32
	// usesIDs: made by version 13 or later; others can't use it.
	usesIDs bool

	// busy is held during a request of the session. Of two at once the older
	// answers early: the younger closes its interrupt.
	busy token

	turn      sync.Mutex // guards the following; never held across busy
	waiting   int        // requests that wait for busy
	interrupt chan struct{}
	// at is the epoch of the request at work, or the last one; woken is the one
	// that must not wait (WakeFetch).
	at, woken int32

	// The following are guarded by busy.
	epoch  int32
	parts  map[partKey]*fetchPart
	topics map[topicRef]int
	queue  *fetchQueue

	// removed: not in the cache any more, not to be used.
	removed atomic.Bool

	// The following are guarded by the cache's lock.
	lastUsed time.Time
	place    *list.Element
}

// sessionCache holds all sessions, the least recently used first.
type sessionCache struct {
	settings func() Settings

	mu    sync.Mutex // guards the following
	byID  map[int32]*fetchSession
	order *list.List
}

func newSessionCache(settings func() Settings) *sessionCache {
	return &sessionCache{settings: settings, byID: make(map[int32]*fetchSession), order: list.New()}
}

// openFetch prepares a request: with a session, or without.
func (c *Call) openFetch(in *kmsg.FetchRequest) (*fetchCall, wire.ErrCode) {
	f := c.newFetch(in)
	if in.Version < 7 || in.SessionEpoch == sessionEpochNone || in.SessionEpoch == sessionEpochNew {
		if in.Version >= 7 && in.SessionID != 0 {
			c.sessions.remove(in.SessionID)
		}
		f.full, f.queue = true, newFetchQueue()
		f.takeParts()
		if in.Version >= 7 && in.SessionEpoch == sessionEpochNew && len(f.parts) > 0 {
			c.startSession(f)
			if f.session != nil && f.replica != types.NoBroker {
				f.deadline = time.Time{} // a follower's first answer tells it where it stands
			}
		}
		return f, wire.None
	}
	return c.resumeSession(f)
}

// takeParts makes the parts of a full request; one named twice counts once.
func (f *fetchCall) takeParts() {
	in := f.in
	n := 0
	for i := range in.Topics {
		n += len(in.Topics[i].Partitions)
	}
	var seen map[partKey]struct{}
	if n > 1 {
		seen = make(map[partKey]struct{}, n)
	}
	parts := make([]fetchPart, 0, n)
	f.parts, f.touched = make([]*fetchPart, 0, n), make([]*fetchPart, 0, n)
	eachPart(in, func(topic int, key partKey, p *kmsg.FetchRequestTopicPartition) {
		if _, twice := seen[key]; twice {
			return
		}
		if seen != nil {
			seen[key] = struct{}{}
		}
		parts = append(parts, fetchPart{ref: key.ref, index: key.index, topic: topic})
		part := &parts[len(parts)-1]
		part.ask(p)
		f.parts = append(f.parts, part)
	})
}

// startSession makes a session of a full request, if there is a slot for it.
func (c *Call) startSession(f *fetchCall) {
	s := &fetchSession{usesIDs: f.in.Version >= 13, epoch: 1,
		busy: newToken(), parts: make(map[partKey]*fetchPart, len(f.parts)), topics: make(map[topicRef]int), queue: f.queue}
	for _, p := range f.parts {
		p.topic = s.number(p.ref)
		s.parts[partKey{p.ref, p.index}] = p
	}
	s.acquire(c.Ctx)
	if !c.sessions.add(s, clock.Now(c.Ctx)) {
		probeSessionNoSlot.Reached()
		return
	}
	f.session, f.id = s, s.id
}

// resumeSession applies an incremental request to its session.
func (c *Call) resumeSession(f *fetchCall) (*fetchCall, wire.ErrCode) {
	in := f.in
	s := c.sessions.use(in.SessionID, clock.Now(c.Ctx))
	if s == nil {
		probeSessionUnknown.Reached()
		return nil, wire.ErrFetchSessionIDNotFound
	}
	s.acquire(c.Ctx)
	code := wire.None
	switch {
	case s.removed.Load():
		probeSessionRemoved.Reached()
		code = wire.ErrFetchSessionIDNotFound
	case s.usesIDs != (in.Version >= 13):
		code = wire.ErrFetchSessionTopicIDError
	case s.epoch != in.SessionEpoch:
		probeSessionEpoch.Reached()
		code = wire.ErrInvalidFetchSessionEpoch
	}
	if code != wire.None {
		s.release()
		return nil, code
	}
	s.begin(in.SessionEpoch)
	if s.epoch++; s.epoch < 0 {
		s.epoch = 1
	}
	s.update(in)
	f.session, f.queue, f.id = s, s.queue, s.id
	if len(s.parts) == 0 {
		// A session of nothing ends; the answer says so by session id 0.
		c.sessions.remove(s.id)
		f.id, f.full = 0, true
	}
	return f, wire.None
}

// token is a lock that a request of the simulator can wait for, too: whoever has
// received from it holds it.
type token chan struct{}

func newToken() token {
	t := make(token, 1)
	t.Unlock()
	return t
}

// Lock waits however long it takes: who holds it is told to hurry.
func (t token) Lock(ctx context.Context) {
	_, _ = clock.Wait(context.WithoutCancel(ctx), clock.Forever, t)
}

// TryLock reports whether it was free, and is held now.
func (t token) TryLock() bool {
	select {
	case <-t:
		return true
	default:
		return false
	}
}

// Unlock must be called by who holds it.
func (t token) Unlock() { t <- struct{}{} }

// acquire takes the session for a request. A request that waits in it is told
// to answer, and so is this one if yet another comes before it waits.
func (s *fetchSession) acquire(ctx context.Context) {
	s.turn.Lock()
	s.waiting++
	s.interruptLocked()
	s.turn.Unlock()

	if len(s.busy) == 0 {
		probeSessionTwo.Reached()
	}
	s.busy.Lock(ctx)

	s.turn.Lock()
	defer s.turn.Unlock()
	s.waiting--
	s.interrupt = make(chan struct{})
	if s.waiting > 0 {
		s.interruptLocked()
	}
}

// begin notes the epoch of the request at work, which may have been woken already.
func (s *fetchSession) begin(epoch int32) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.at = epoch; s.woken == epoch {
		s.interruptLocked()
	}
}

// wake has the request of an epoch answer, now or when it comes.
func (s *fetchSession) wake(epoch int32) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.woken = epoch; s.at == epoch {
		s.interruptLocked()
	}
}

// interruptLocked ends the wait of the request at work. The caller holds turn.
func (s *fetchSession) interruptLocked() {
	if s.interrupt != nil {
		close(s.interrupt)
		s.interrupt = nil
	}
}

// interrupted gives the channel that is closed when the request at work must answer.
func (s *fetchSession) interrupted() <-chan struct{} {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.interrupt == nil {
		return closedChannel
	}
	return s.interrupt
}

var closedChannel = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// release ends a request's hold of the session.
func (s *fetchSession) release() {
	s.busy.Unlock()
	s.endIfRemoved()
}

// endIfRemoved drops a removed session's subscriptions, unless a request is at
// work in it: that one calls this again when it is done.
func (s *fetchSession) endIfRemoved() {
	if s.removed.Load() && s.busy.TryLock() {
		s.end()
		s.busy.Unlock()
	}
}

// end drops the subscriptions. The caller holds busy.
func (s *fetchSession) end() {
	for _, p := range s.parts {
		p.unsubscribe()
		p.part = nil
	}
}

// update takes over what an incremental request changes.
func (s *fetchSession) update(in *kmsg.FetchRequest) {
	for i := range in.ForgottenTopics {
		t := &in.ForgottenTopics[i]
		ref := topicRef{name: t.Topic, id: t.TopicID, useID: s.usesIDs}
		for _, index := range t.Partitions {
			key := partKey{ref, index}
			if p, ok := s.parts[key]; ok {
				p.unsubscribe()
				p.forgotten = true
				delete(s.parts, key)
			}
		}
	}
	eachPart(in, func(_ int, key partKey, asked *kmsg.FetchRequestTopicPartition) {
		p, ok := s.parts[key]
		if !ok {
			p = &fetchPart{ref: key.ref, index: key.index, topic: s.number(key.ref)}
			s.parts[key] = p
		}
		p.ask(asked)
		s.queue.add(p)
	})
}

// ask takes over what the client wants of the partition.
func (p *fetchPart) ask(a *kmsg.FetchRequestTopicPartition) {
	p.offset, p.logStart, p.maxBytes = types.Offset(a.FetchOffset), types.Offset(a.LogStartOffset), a.PartitionMaxBytes
	p.currentEpoch, p.lastEpoch = types.LeaderEpoch(a.CurrentLeaderEpoch), types.LeaderEpoch(a.LastFetchedEpoch)
	p.tail, p.asked = types.Tail{}, true
	a.UnknownTags.Each(func(tag uint32, value []byte) {
		if tag == wire.FetchTailTag {
			p.tail = wire.ParseFetchTail(value, p.offset)
		}
	})
}

func eachPart(in *kmsg.FetchRequest, f func(topic int, key partKey, p *kmsg.FetchRequestTopicPartition)) {
	for i := range in.Topics {
		t := &in.Topics[i]
		ref := topicRef{name: t.Topic, id: t.TopicID, useID: in.Version >= 13}
		for k := range t.Partitions {
			f(i, partKey{ref, t.Partitions[k].Partition}, &t.Partitions[k])
		}
	}
}

// number gives the topic's number in the session.
func (s *fetchSession) number(ref topicRef) int {
	n, ok := s.topics[ref]
	if !ok {
		n = len(s.topics)
		s.topics[ref] = n
	}
	return n
}

// use finds a session and notes its use.
func (sc *sessionCache) use(id int32, now time.Time) *fetchSession {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	s := sc.byID[id]
	if s != nil {
		s.lastUsed = now
		sc.order.MoveToBack(s.place)
	}
	return s
}

// find finds a session without using it.
func (sc *sessionCache) find(id int32) *fetchSession {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.byID[id]
}

// add gives the session an id and a slot; false if there is none.
func (sc *sessionCache) add(s *fetchSession, now time.Time) bool {
	set := sc.settings()
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if len(sc.byID) >= set.FetchSessionSlots && !sc.evict(now, set.FetchSessionIdle) {
		return false
	}
	for s.id == 0 || sc.byID[s.id] != nil {
		s.id = rand.Int32N(1<<31-1) + 1
	}
	s.lastUsed = now
	s.place = sc.order.PushBack(s)
	sc.byID[s.id] = s
	return true
}

// evict frees the slot of the session that was idle longest, if that is long
// enough and no request is at work in it.
func (sc *sessionCache) evict(now time.Time, idle time.Duration) bool {
	front := sc.order.Front()
	if front == nil {
		return false
	}
	s := front.Value.(*fetchSession)
	if now.Sub(s.lastUsed) < idle || !s.busy.TryLock() {
		return false
	}
	defer s.busy.Unlock()
	probeSessionEvicted.Reached()
	sc.forget(s)
	s.end()
	return true
}

// remove ends a session, if it exists.
func (sc *sessionCache) remove(id int32) {
	sc.mu.Lock()
	s := sc.byID[id]
	if s != nil {
		sc.forget(s)
	}
	sc.mu.Unlock()
	if s != nil {
		s.turn.Lock()
		s.interruptLocked()
		s.turn.Unlock()
		s.endIfRemoved()
	}
}

func (sc *sessionCache) forget(s *fetchSession) {
	s.removed.Store(true)
	delete(sc.byID, s.id)
	sc.order.Remove(s.place)
}

// count is the number of sessions.
func (sc *sessionCache) count() int {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return len(sc.byID)
}
