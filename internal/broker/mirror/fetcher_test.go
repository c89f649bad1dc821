package mirror

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// sessionSource is a source whose sessions wait until they are told to fail.
type sessionSource struct {
	Source
	fails chan error
}

func (sessionSource) Config() *source.Config { return &source.Config{} }

func (s sessionSource) NewSession(types.BrokerID, source.SessionOptions) Session { return s }

func (sessionSource) Set(source.FetchPartition) {}

func (sessionSource) Remove(types.TopicPartition) {}

func (s sessionSource) Fetch(ctx context.Context, _ source.FetchLimits) (*source.FetchAnswer, error) {
	select {
	case err := <-s.fails:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func fetchingRun(ctx context.Context, fails chan error, t *testing.T) *run {
	n := holdingNode{newPaperNode(t, 0)}
	r := &run{m: &Mirrors{o: Options{Node: n}, ctx: ctx}, name: "m", ctx: ctx, client: sessionSource{fails: fails}, health: newHealthBook(ctx),
		fetchers: map[fetcherKey]*fetcher{}, copiers: map[meta.PartitionID]*copier{}, throttle: newThrottle(ctx, -1)}
	r.settings.Store(&config.Mirror{FetchersPerSource: 1, MaxInflightBytes: 1})
	return r
}

// TestAFetcherEndsWithItsBroker: a broker that the source has no more left a fetcher behind,
// and an error that stood in the mirror's description for ever.
func TestAFetcherEndsWithItsBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		fails := make(chan error)
		r := fetchingRun(ctx, fails, t)
		c := newCopier(r, meta.PartitionID{}, unready{n: &leadingNode{}})
		c.leader.Store(&sourceLeader{broker: 7})
		r.fetch(c, core.Fetch{Ticket: 1}, 1)
		fails <- errors.New("connection refused")
		synctest.Wait()
		if list := r.health.list(); len(r.fetchers) != 1 || len(list) != 1 || list[0].Error == "" {
			t.Fatalf("%d fetchers, %+v", len(r.fetchers), list)
		}
		first := c.fetcher.Load()
		time.Sleep(2 * fetcherIdle) // the bubble's clock
		synctest.Wait()
		if list := r.health.list(); len(r.fetchers) != 0 || len(list) != 0 {
			t.Errorf("%d fetchers are left, and %+v", len(r.fetchers), list)
		}
		if first.put(&want{c: c, seq: 2}) {
			t.Error("a fetcher that has ended takes a wish")
		}
		r.stopFetching(c, 3)
		r.fetch(c, core.Fetch{Ticket: 2}, 4)
		synctest.Wait()
		if f := c.fetcher.Load(); f == first || len(r.fetchers) != 1 {
			t.Error("the broker is back, and nobody fetches from it")
		}
		end()
		r.work.Wait()
	})
}

// TestAHaltedCopiersWishIsNone: of a topic that was deleted and made again the earlier
// copier's wish may still be on its way. It took the place of the later one's, which was never answered.
func TestAHaltedCopiersWishIsNone(t *testing.T) {
	for range 20 { // of two wishes for one partition either may come first
		r := fetchingRun(t.Context(), nil, t)
		f := &fetcher{run: r, pending: map[*copier]*want{}, wake: make(chan struct{}, 1), wants: map[types.TopicPartition]*want{}}
		f.session = f.newSession()
		earlier, later := newCopier(r, meta.PartitionID{}, unready{}), newCopier(r, meta.PartitionID{}, unready{})
		earlier.halted.Store(true)
		f.put(&want{c: later, seq: 1})
		f.put(&want{c: earlier, seq: 9})
		f.apply()
		if w := f.wants[later.tp]; w == nil || w.c != later {
			t.Fatal("the later copier asks for nothing")
		}
	}
}

// TestAwaitShards: a fetcher waits for shards that get on, not for one that
// stands still, and not without end.
func TestAwaitShards(t *testing.T) {
	for _, c := range []struct {
		name     string
		answers  int64
		each     time.Duration // one answer's work; the shards do one after the other
		stuck    int64         // answers that never end
		from, to time.Duration // how long the wait may last
	}{
		{"fast", 100, 10 * time.Microsecond, 0, time.Millisecond, time.Millisecond},
		{"thousands that get on", 10_000, 100 * time.Microsecond, 0, time.Second, time.Second},
		{"one stands still", 100, 10 * time.Microsecond, 1, slowShard, 2 * slowShard},
		{"all stand still", 100, time.Hour, 100, slowShard, slowShard},
		{"few and slow", 100, 50 * time.Millisecond, 0, slowShard, slowShard},
		{"thousands and slow", 10_000, time.Millisecond, 0, 4 * time.Second, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				left := func() int64 {
					return c.answers - min(c.answers-c.stuck, int64(time.Since(begin)/c.each))
				}
				done := make(chan struct{})
				if c.stuck == 0 {
					time.AfterFunc(time.Duration(c.answers)*c.each, func() { close(done) })
				}
				awaitShards(t.Context(), done, left)
				if took := time.Since(begin); took < c.from || took > c.to {
					t.Errorf("waited %v, want between %v and %v", took, c.from, c.to)
				}
			})
		})
	}
}
