package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/log"
)

// compactor chooses which partition to compact next: the one with the largest
// dirty part among those that are due. Its workers share it.
type compactor struct {
	b      *Broker
	limits log.CompactionLimits

	mu sync.Mutex // guards the following
	// busy are being compacted; resting failed and are left alone until then.
	busy    map[*Partition]bool
	resting map[*Partition]time.Time
}

// compactionRest is how long a partition whose compaction failed is left alone.
const compactionRest = 10 * time.Minute

// keyBytes is what the map from keys to offsets takes for one key, about.
const keyBytes = 50

// startCompaction starts log.cleaner.threads workers.
func (b *Broker) startCompaction() {
	threads := int(b.cfg.LogCleanerThreads)
	if threads == 0 {
		return
	}
	keys := b.cfg.LogCleanerDedupeBufferSize / int64(threads) / keyBytes
	c := &compactor{
		b: b, busy: make(map[*Partition]bool), resting: make(map[*Partition]time.Time),
		limits: log.CompactionLimits{MaxKeys: int(max(keys, 1000))},
	}
	for range threads {
		clock.Go(b.chores.ctx, &b.chores.work, func() { c.run(b.chores.ctx) })
	}
}

func (c *compactor) run(ctx context.Context) {
	pause := time.Duration(max(c.b.cfg.LogCleanerBackoffMs, 1)) * time.Millisecond
	for ctx.Err() == nil {
		if p := c.choose(ctx); p != nil {
			c.compact(ctx, p)
			continue
		}
		_ = clock.Sleep(ctx, pause) // the loop looks at ctx
	}
}

// choose takes the dirtiest partition that is due, nil if none is.
func (c *compactor) choose(ctx context.Context) *Partition {
	var best *Partition
	var most float64
	for p := range c.b.Partitions() {
		if !p.compacts.Load() || !c.free(p) {
			continue
		}
		var what log.Cleanable
		err := p.Do(ctx, func(o *Owned) error {
			if o.Log() != nil {
				what = o.Log().Cleanable(p.env.now())
			}
			return nil
		})
		if err == nil && what.Due && (best == nil || what.Ratio() > most) {
			best, most = p, what.Ratio()
		}
	}
	if best == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[best] {
		return nil // another worker was faster
	}
	c.busy[best] = true
	return best
}

func (c *compactor) free(p *Partition) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	until, rests := c.resting[p]
	if rests && clock.Now(c.b.ctx).After(until) {
		delete(c.resting, p)
		rests = false
	}
	return !c.busy[p] && !rests
}

// compact runs one compaction: begun and ended on the shard, done beside it.
func (c *compactor) compact(ctx context.Context, p *Partition) {
	err := c.compactOnce(ctx, p)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, p)
	if err == nil || ctx.Err() != nil || errors.Is(err, log.ErrCompactionOvertaken) {
		return
	}
	c.resting[p] = clock.Now(c.b.ctx).Add(compactionRest)
	c.b.metrics.Log.CompactionErrors.Inc()
	c.b.logger.Error("compaction failed; the partition is left alone for a while", "partition", p.tp.String(), "err", err, "for", compactionRest)
}

func (c *compactor) compactOnce(ctx context.Context, p *Partition) error {
	var job *log.Compaction
	err := p.Do(ctx, func(o *Owned) (err error) {
		job, err = o.Log().StartCompaction(p.env.now(), c.limits)
		return err
	})
	if err != nil || job == nil {
		return err
	}
	runErr := job.Run(ctx)
	// The end must be told to the log also when the node is closing.
	return p.Do(context.WithoutCancel(ctx), func(o *Owned) error {
		r, err := o.Log().FinishCompaction(job, runErr)
		if err == nil {
			c.b.metrics.Log.CompactionRuns.Inc()
			c.b.metrics.Log.CompactedBytes.Add(float64(r.BytesBefore))
		}
		return err
	})
}

// setChoreFlags notes, for the background work, what the topic asks of it.
func (p *Partition) setChoreFlags() {
	p.flushMs.Store(int64(zeroIfNever(p.topic.FlushMs)))
	p.compacts.Store(p.topic.Compact)
}
