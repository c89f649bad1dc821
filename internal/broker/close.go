package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"tidemark/internal/clock"
	"tidemark/internal/core/types"
)

// Close ends the node cleanly: no new requests, requests under way answered
// until ctx ends, mirrors and coordinators stopped, logs synced and closed, the
// registration ended, the clean-shutdown mark written. It may be called more than once.
func (b *Broker) Close(ctx context.Context) error {
	b.closed.Do(func() { b.closeErr = b.shutDown(ctx) })
	return b.closeErr
}

// abort undoes a start that failed.
func (b *Broker) abort() error { return b.Close(context.Background()) }

func (b *Broker) shutDown(ctx context.Context) error {
	var faults []error
	note := func(what string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", what, err))
		}
	}
	b.ready.Store(false)
	if b.view != nil && (b.services.Load() != nil || b.opts.virtual != nil) {
		b.drain(ctx)
	}
	epoch := b.cleanShutdownEpoch() // what nobody has added to, if this process never registered
	if b.view != nil {
		if e, ok := b.BrokerEpoch(); ok {
			epoch = e
		}
	}
	running := b.services.Load()
	if running != nil && running.mirrors != nil {
		running.mirrors.Close()
	}
	if b.server != nil {
		// What doesn't end in time is cut off: that is the caller's choice, not a fault.
		if err := b.server.Shutdown(ctx); err != nil {
			b.logger.Warn("requests were cut off by the shutdown", "err", err)
		}
	}
	if running != nil {
		running.txns.Close()
		running.groups.Close()
	}
	if b.events != nil {
		b.events.Close()
	}
	if b.chores != nil {
		b.chores.close()
	}
	if b.fetchers != nil {
		b.fetchers.Close()
	}
	b.cancel()
	clock.Join(b.ctx, &b.work)
	clean := b.closePartitions()
	if b.store != nil {
		note("end the registration", b.unregister(context.WithoutCancel(ctx)))
	}
	note("write the checkpoints", b.closeDirs(clean, epoch))
	if b.closeMeta != nil {
		note("close the metadata store", b.closeMeta())
	}
	return errors.Join(faults...)
}

// closePartitions closes every log on its shard, and the shards; false if one did not close cleanly.
func (b *Broker) closePartitions() bool {
	var unclean atomic.Bool
	var work sync.WaitGroup
	for p := range b.Partitions() {
		clock.Go(b.ctx, &work, func() {
			done := make(chan struct{})
			var fault error
			err := p.shard.send(context.Background(), event{p: p, f: func() { fault = p.close(); close(done) }})
			if err == nil {
				_, err = clock.Wait(context.WithoutCancel(b.ctx), clock.Forever, done)
			}
			if err = errors.Join(err, fault); err != nil {
				unclean.Store(true)
				b.logger.Error("partition wasn't closed cleanly", "err", err)
			}
		})
	}
	clock.Join(b.ctx, &work)
	for _, s := range b.shards {
		s.close()
	}
	return !unclean.Load()
}

// closeDirs writes the last checkpoints and, after a clean end, the mark.
func (b *Broker) closeDirs(clean bool, epoch types.BrokerEpoch) error {
	var faults []error
	for _, d := range b.dirs {
		if d.failure() == nil && b.view != nil {
			faults = append(faults, d.finish(clean, epoch, markOf(b.view.current())))
		}
		faults = append(faults, d.lock.Close())
	}
	return errors.Join(faults...)
}
