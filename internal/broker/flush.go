package broker

import (
	"sync"
	"time"

	"tidemark/internal/assert"
	"tidemark/internal/clock"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
)

// flushing is one sync of a partition under way on a goroutine of its own: the
// shard goes on with other partitions, and this one goes on appending. What is
// appended meanwhile waits for the next sync: that is the group commit.
type flushing struct {
	job  *log.FlushJob
	sync func() error // once; whoever comes second waits for its outcome
}

// startFlush begins a sync unless one is under way, which is followed by another one then.
func (p *Partition) startFlush() {
	if p.offline != nil || p.deleted || p.log == nil {
		return
	}
	if p.flush != nil {
		p.flushAgain = true
		return
	}
	job, err := p.log.StartFlush()
	if err != nil {
		_ = p.storageFault(err) // whoever waits is answered by goOffline
		return
	}
	// Invariant I-124: a partition has one sync under way at a time.
	assert.That(p.flush == nil, "I-124: a second sync of %s", p.tp)
	f := &flushing{job: job, sync: sync.OnceValue(func() error {
		from := time.Now()
		err := job.Sync()
		p.env.metrics.Log.FlushMs.Observe(float64(time.Since(from).Microseconds()) / 1000)
		return err
	})}
	p.flush = f
	clock.Go(p.env.ctx, p.env.background, func() {
		_ = f.sync() // endFlush gets the outcome
		// A shard that has stopped has ended the flush itself (endFlush).
		_ = p.shard.send(p.env.ctx, event{p: p, f: func() { p.flushEnded(f) }})
	})
}

// flushEnded is the event that a sync has ended; another event may have ended it already.
func (p *Partition) flushEnded(f *flushing) {
	if p.flush == f {
		p.endFlush()
	}
	if p.flushAgain {
		p.flushAgain = false
		p.startFlush()
	}
}

// endFlush waits for the sync under way, if there is one, and lets the marks
// move. Everything but an append calls it first: the log takes one flush at a time.
func (p *Partition) endFlush() {
	f := p.flush
	if f == nil {
		return
	}
	p.flush = nil
	if err := p.log.EndFlush(f.job, f.sync()); err != nil {
		_ = p.storageFault(err) // whoever waits is answered by goOffline
		return
	}
	p.refresh()
}

// flushNow syncs and waits for it.
func (p *Partition) flushNow() error {
	p.endFlush()
	if p.offline != nil {
		return p.offline
	}
	if err := p.log.Flush(); err != nil {
		return p.storageFault(err)
	}
	return nil
}

// flushByCount begins a sync when flush.messages records are unsynced.
func (p *Partition) flushByCount(v log.View) {
	if n := zeroIfNever(p.topic.FlushMessages); n > 0 && v.LogEnd-v.RecoveryPoint >= types.Offset(n) && p.flush == nil {
		p.startFlush()
	}
}
