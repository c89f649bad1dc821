package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// run is one mirror at work on this node, from its start to its deletion, or
// until its record says another way to the source.
type run struct {
	m    *Mirrors
	name string
	made *meta.MirrorRecord // that the run was made for

	record   atomic.Pointer[meta.MirrorRecord]
	settings atomic.Pointer[config.Mirror]
	filter   atomic.Pointer[filter]
	// topicFaults are those of the last look at the source, in order of topics.
	topicFaults atomic.Pointer[[]topicFault]

	client   Source // nil if the client properties can't be used
	trouble  error  // why client is nil
	looks    *lookups
	groups   *groupSync
	watch    *watcher
	throttle *throttle
	health   *healthBook

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	woken  chan struct{} // the record has changed

	// promoting holds one token, which a failover takes: two don't work at once.
	promoting chan struct{}
	// told are the epochs of the promotions that an event told of; promoting's holder owns it.
	told map[types.TopicPartition]types.LeaderEpoch
	// finishing, starting, turning and returning end failovers, starts, pauses or resumptions,
	// and the ways back of switchovers that were begun.
	finishing, starting, turning, returning duty

	mu sync.Mutex
	// guards the following
	closed   bool
	copiers  map[meta.PartitionID]*copier
	fetchers map[fetcherKey]*fetcher
}

func newRun(m *Mirrors, rec *meta.MirrorRecord) *run {
	r := &run{
		m: m, name: rec.Name, made: rec, health: newHealthBook(m.ctx), woken: make(chan struct{}, 1), promoting: make(chan struct{}, 1),
		told: map[types.TopicPartition]types.LeaderEpoch{}, copiers: map[meta.PartitionID]*copier{}, fetchers: map[fetcherKey]*fetcher{},
	}
	r.ctx, r.cancel = context.WithCancel(m.ctx)
	r.promoting <- struct{}{}
	r.looks = newLookups(r)
	r.groups = newGroupSync(r)
	r.watch = newWatcher(r)
	r.setRecord(rec)
	r.throttle = newThrottle(r.ctx, r.settings.Load().ThrottleBytesPerSec)
	cfg, err := clientConfig(rec, r.settings.Load())
	if err != nil {
		r.trouble = err
		r.health.failed(syncMetadata, err)
		return r
	}
	if len(cfg.Unused) > 0 {
		m.log.Warn("client properties that mean nothing to a mirror", "mirror", r.name, "keys", cfg.Unused)
	}
	r.client = m.connect(cfg, rec.SourceClusterID)
	return r
}

// clientConfig lays the mirror's settings under the client properties of its record.
func clientConfig(rec *meta.MirrorRecord, s *config.Mirror) (*source.Config, error) {
	cfg, err := source.NewConfig(rec.Bootstrap, rec.ClientConfig)
	if err != nil {
		return nil, err
	}
	unset := func(key string) bool { return rec.ClientConfig[key] == "" }
	if unset("request.timeout.ms") {
		cfg.RequestTimeout = millis(s.RequestTimeoutMs)
	}
	if unset("fetch.max.bytes") {
		cfg.FetchMaxBytes = s.FetchMaxBytes
	}
	if unset("max.partition.fetch.bytes") {
		cfg.FetchMaxPartitionBytes = s.PartitionFetchBytes
	}
	if unset("fetch.min.bytes") {
		cfg.FetchMinBytes = s.FetchMinBytes
	}
	if unset("fetch.max.wait.ms") {
		cfg.FetchMaxWait = millis(s.FetchMaxWaitMs)
	}
	if unset("client.id") {
		cfg.ClientID = "tidemark-" + rec.Name
	}
	return cfg, nil
}

func millis(ms types.Millis) time.Duration { return time.Duration(ms) * time.Millisecond }

// fits reports whether the run serves the mirror that the record now describes.
func (r *run) fits(rec *meta.MirrorRecord) bool {
	return rec.CreatedAt == r.made.CreatedAt && slices.Equal(rec.Bootstrap, r.made.Bootstrap) && maps.Equal(rec.ClientConfig, r.made.ClientConfig)
}

func (r *run) setRecord(rec *meta.MirrorRecord) {
	s, err := settingsOf(r.m.o.Config.Mirror, rec.Settings)
	if err != nil {
		r.m.log.Error("settings of a mirror can't be used", "mirror", r.name, "err", err)
	}
	r.settings.Store(s)
	f, err := newFilter(rec)
	if err != nil {
		r.m.log.Error("filters of a mirror can't be used", "mirror", r.name, "err", err)
		f = &filter{}
	}
	r.filter.Store(f)
	before := r.record.Load()
	r.record.Store(rec)
	if rec.Want == meta.WantStopped && before != nil && before.Want != meta.WantStopped {
		// A failover began, perhaps at another node: each promotes what it leads (R23).
		r.finishing.ask(r.spawn, func() { r.finishFailover(r.ctx) })
	}
	if before != nil && r.m.isReturnDue(rec) {
		r.returning.ask(r.spawn, func() { r.finishReturn(r.ctx) })
	}
	if r.throttle != nil {
		r.throttle.set(s.ThrottleBytesPerSec)
	}
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// isRunning reports whether the operator wants the mirror to copy.
func (r *run) isRunning() bool { return r.record.Load().Want == meta.WantRunning }

func (r *run) start() {
	r.spawn(r.looks.loop)
	r.spawn(r.discover)
	r.spawn(r.groups.loop)
	r.spawn(func() {
		r.syncEvery(syncACLs, func(s *config.Mirror) types.Millis { return s.ACLSyncMs }, r.syncACLs)
	})
	r.spawn(func() {
		r.syncEvery(syncScram, func(s *config.Mirror) types.Millis { return s.ScramSyncMs }, r.syncScram)
	})
	r.spawn(r.verifyLoop)
	r.spawn(r.watch.loop)
	if r.record.Load().Want == meta.WantStopped {
		// A failover that a restart interrupted goes on: it was decided.
		r.finishing.ask(r.spawn, func() { r.finishFailover(r.ctx) })
	}
}

// close ends the run and waits for everything it started.
func (r *run) close() {
	r.cancel()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	if r.client != nil {
		r.client.Close()
	}
	clock.Join(r.ctx, &r.work)
}

// spawn starts work that close waits for; after close it does nothing.
func (r *run) spawn(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	clock.Go(r.ctx, &r.work, f)
}

// after runs f after d unless the run ends first.
func (r *run) after(d time.Duration, f func()) {
	r.spawn(func() {
		if pause(r.ctx, d) {
			f()
		}
	})
}

// backoff is the wait before attempt n (1 is the first retry): full jitter below
// a bound that doubles (mirror.retry.backoff.ms, .max.ms).
func (r *run) backoff(n int) time.Duration {
	s := r.settings.Load()
	bound := s.RetryBackoffMs
	for range n - 1 {
		if bound *= 2; bound >= s.RetryBackoffMaxMs {
			bound = s.RetryBackoffMaxMs
			break
		}
	}
	return time.Duration(r.m.draw(int64(millis(bound)) + 1))
}

// show has a copier for the partition, if this node holds it, and shows it the record.
func (r *run) show(id meta.PartitionID) {
	part, held := r.m.o.Node.Partition(id.Topic, id.Number)
	rec, _ := r.m.o.Node.Image().Partition(id.Topic, id.Number)
	if !held || rec == nil || !rec.IsMirror() {
		r.drop(id)
		return
	}
	settled := !r.m.isUnsettled(id)
	r.mu.Lock()
	c := r.copiers[id]
	// The topic was deleted and made again; or what has halted it came to nothing, and
	// whoever ordered that is gone.
	if c != nil && (c.part != part || settled && c.halted.Load()) {
		delete(r.copiers, id)
		c.halted.Store(true)
		defer r.stopFetching(c, ^uint64(0))
		c = nil
	}
	made := c == nil && !r.closed
	if made {
		c = newCopier(r, id, part)
		r.copiers[id] = c
	}
	r.mu.Unlock()
	switch {
	case r.m.isUnsettled(id):
		// One that was there knows how far the source was seen: the promotion halts it.
		if made {
			r.drop(id) // it is made again once that is settled
		}
	case c != nil:
		c.show()
	}
	switch me := r.m.o.Node.NodeID(); {
	case rec.Leader != me || !rec.IsMirror():
	case r.record.Load().Want == meta.WantStopped:
		// The failover was decided: whoever leads now carries it out.
		r.finishing.ask(r.spawn, func() { r.finishFailover(r.ctx) })
	case isUnturned(r.record.Load().Want, rec):
		r.turning.ask(r.spawn, func() { r.finishTurn(r.ctx) })
	case rec.Mirror.State == meta.MirrorStarting:
		r.starting.ask(r.spawn, func() {
			if r.m.awaitStarts(r.ctx) {
				r.finishStarts(r.ctx)
			}
		})
	}
}

// startLook is how often it is looked whether a verb's starts are over.
const startLook = 50 * time.Millisecond

// awaitStarts waits while verbs start partitions that are led here: what they have
// begun they end, one way or the other. False if ctx ended first.
func (m *Mirrors) awaitStarts(ctx context.Context) bool {
	for m.starting.Load() > 0 {
		if !pause(ctx, startLook) {
			return false
		}
	}
	return true
}

// drop forgets a partition that the mirror has no more to do with.
func (r *run) drop(id meta.PartitionID) {
	r.mu.Lock()
	c := r.copiers[id]
	delete(r.copiers, id)
	r.mu.Unlock()
	if c != nil {
		c.halted.Store(true)
		r.stopFetching(c, ^uint64(0))
	}
}

// all lists the copiers in order of topic and partition.
func (r *run) all() []*copier {
	r.mu.Lock()
	list := slices.Collect(maps.Values(r.copiers))
	r.mu.Unlock()
	slices.SortFunc(list, func(a, b *copier) int { return comparePartitions(a.tp, b.tp) })
	return list
}

func (r *run) copier(id meta.PartitionID) *copier {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.copiers[id]
}

func comparePartitions(a, b types.TopicPartition) int {
	if a.Topic != b.Topic {
		if a.Topic < b.Topic {
			return -1
		}
		return 1
	}
	return int(a.Partition) - int(b.Partition)
}

// source gives the client, or why there is none.
func (r *run) source() (Source, error) {
	if r.client == nil {
		return nil, fmt.Errorf("mirror %s: %w", r.name, r.trouble)
	}
	return r.client, nil
}
