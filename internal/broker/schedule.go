package broker

import (
	"context"
	"errors"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// startChores starts what happens by the clock.
func (b *Broker) startChores() {
	c, cfg := b.chores, b.cfg
	c.every(cfg.LogRetentionCheckIntervalMs, b.enforceRetention)
	c.every(flushEvery(cfg.LogFlushSchedulerMs), b.flushDue)
	c.every(cfg.LogFlushCheckpointMs, b.writeCheckpoints)
	c.every(vaultPurgeEvery, b.purgeVault)
	c.every(prepareEvery, b.prepareAgain)
	c.every(min(max(cfg.ReplicaLagTimeMaxMs/8, isrTickMin), isrTickMax), b.watchISRs)
	if cfg.LogCleanerEnable {
		b.startCompaction()
	}
}

// registerMetrics adds the figures that are taken when somebody asks for them.
func (b *Broker) registerMetrics() {
	if err := errors.Join(b.metrics.Register(newPartitionCollector(b)), b.metrics.Register(newNetCollector(b)), b.metrics.Register(newGroupCollector(b))); err != nil {
		b.logger.Error("metrics are missing", "err", err)
	}
}

// vaultPurgeEvery is how often entries older than vault.max.age.ms are looked for, in milliseconds.
const vaultPurgeEvery types.Millis = 60_000

// prepareEvery is how often partitions are tried again that could not be made
// ready to lead, in milliseconds.
const prepareEvery types.Millis = 1000

// prepareAgain tries the partitions again that are led here and could not be
// made ready to answer, as on a disk that was full, and minds those that are offline.
func (b *Broker) prepareAgain() {
	b.mindOffline()
	for p := range b.Partitions() {
		if !p.isUnprepared() {
			continue
		}
		if err := p.Do(b.chores.ctx, func(*Owned) error { return p.prepareAgain() }); err != nil && b.chores.ctx.Err() == nil {
			b.logger.Warn("partition still can't be served", "partition", p.tp.String(), "err", err)
		}
	}
}

// flushEvery is how often partitions with flush.ms are looked at. Kafka's default
// of "never" would leave a topic's own flush.ms without effect, so a second is the most.
func flushEvery(configured types.Millis) types.Millis { return min(configured, 1000) }

// onEach runs f on every partition's shard, one after the other, so that a pass
// over 10,000 partitions leaves room for clients in between.
func (b *Broker) onEach(ctx context.Context, f func(p *Partition) error) {
	for p := range b.Partitions() {
		if ctx.Err() != nil {
			return
		}
		err := p.Do(ctx, func(*Owned) error { return f(p) })
		if err != nil && ctx.Err() == nil && p.serving.Load().err == nil {
			b.logger.Warn("background work failed", "partition", p.tp.String(), "err", err)
		}
	}
}

// enforceRetention removes what is older or larger than the topics keep. A
// mirror's log start follows its source's; its own retention works beside that,
// as it does on a follower.
func (b *Broker) enforceRetention() {
	var partitions, segments int
	var bytes int64
	b.onEach(b.chores.ctx, func(p *Partition) error {
		if p.log == nil {
			return nil
		}
		r, err := p.log.EnforceRetention(p.env.now())
		if err != nil {
			return p.storageFault(err)
		}
		if r.Segments > 0 {
			p.env.metrics.Log.RetentionRemoved.Add(float64(r.Segments))
			partitions, segments, bytes = partitions+1, segments+r.Segments, bytes+r.Bytes
		}
		return nil
	})
	if segments > 0 {
		b.logger.Info("retention removed segments", "partitions", partitions, "segments", segments, "bytes", bytes)
	}
}

// flushDue syncs partitions whose oldest unsynced record is older than flush.ms.
func (b *Broker) flushDue() {
	now := clock.Now(b.ctx)
	for p := range b.Partitions() {
		v, ok := p.View()
		if !ok || v.RecoveryPoint >= v.LogEnd || !p.flushIsDue(now) {
			continue
		}
		err := p.Do(b.chores.ctx, func(*Owned) error {
			p.unsyncedSince.Store(0)
			p.startFlush()
			return nil
		})
		if err != nil && b.chores.ctx.Err() == nil {
			b.logger.Warn("flush failed", "partition", p.tp.String(), "err", err)
		}
	}
}

// flushIsDue notes when a partition was first seen with unsynced records, and
// says whether that is longer ago than its flush.ms.
func (p *Partition) flushIsDue(now time.Time) bool {
	limit := p.flushMs.Load()
	if limit <= 0 {
		return false
	}
	since := p.unsyncedSince.Load()
	if since == 0 {
		p.unsyncedSince.Store(now.UnixMilli())
		return limit <= 1
	}
	return now.UnixMilli()-since >= limit
}

// writeCheckpoints writes each log dir's recovery points, high watermarks and log
// starts. On a full disk those written before stay: they only have more checked
// after a crash.
func (b *Broker) writeCheckpoints() {
	now := markOf(b.Image())
	for _, d := range b.dirs {
		if d.failure() != nil {
			continue
		}
		for _, err := range []error{d.checkpoints.Write(), d.writeSeen(now)} {
			b.wroteIn(d, err, "checkpoints can't be written: the disk is full")
		}
	}
}

// wroteIn takes the outcome of a write of a log dir's own files. A full disk is told, in
// these words, and the next write waited for; anything else takes the dir offline (DESIGN §3).
func (b *Broker) wroteIn(d *logDir, err error, full string) {
	switch {
	case err == nil:
	case vfs.IsNoSpace(err):
		d.room.refused()
		b.logger.Warn(full, "dir", d.path, "err", err)
	default:
		d.fail(err)
	}
}

// purgeVault drops vault entries beyond their age.
func (b *Broker) purgeVault() {
	gone, err := b.vault.PurgeExpired()
	if err != nil {
		b.logger.Warn("vault can't be purged", "err", err)
	}
	if len(gone) > 0 {
		b.logger.Info("vault entries purged for their age", "entries", len(gone))
	}
}
