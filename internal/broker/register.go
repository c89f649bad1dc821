package broker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
)

// registration is this node's lease. Its own monotonic clock judges whether the
// lease may be over (R10): the store's word can come too late.
type registration struct {
	id    meta.LeaseID
	began time.Time
	until atomic.Int64 // nanoseconds after began, 0: no lease
}

// extend notes that the lease lives for ttl from the given moment on.
func (r *registration) extend(from time.Time, ttl time.Duration) {
	r.until.Store(int64(from.Add(ttl).Sub(r.began)))
}

// over reports whether the lease may have ended.
func (r *registration) over() bool { return int64(time.Since(r.began)) >= r.until.Load() }

// register writes this node's registration, is elected where its partitions
// need a leader (R10: always anew, in a higher leader epoch), and keeps the lease.
func (b *Broker) register(ctx context.Context) error {
	if err := b.registerOnce(ctx); err != nil {
		return err
	}
	if err := b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) { return control.SweepOrphans(i, b.me(), b.limits()), nil }); err != nil {
		return err
	}
	if err := b.settle(ctx); err != nil {
		return err
	}
	b.work.Go(b.keepLease)
	return nil
}

func (b *Broker) registerOnce(ctx context.Context) error {
	ttl := time.Duration(b.cfg.MetadataTTLMs) * time.Millisecond
	from := time.Now()
	id, err := b.store.Grant(ctx, ttl)
	if err != nil {
		return err
	}
	b.lease.id = id
	record := meta.BrokerRecord{
		ID: b.cfg.NodeID, Endpoints: b.addrs, HTTP: b.httpAddr(), Rack: b.cfg.Rack, Roles: []string{"broker", "controller"},
		DirectoryID: b.directoryID(), Incarnation: freshID(), CleanShutdownEpoch: b.cleanShutdownEpoch(),
		Software: "tidemark " + b.opts.Version, StartedAt: b.opts.Now(),
	}
	err = b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) { return control.RegisterBroker(i, record, id) })
	if err != nil {
		return err
	}
	b.lease.extend(from, ttl)
	return b.electAll(ctx)
}

func (b *Broker) httpAddr() string {
	if b.opts.HTTPAddr != "" {
		return b.opts.HTTPAddr
	}
	return b.cfg.HTTPListener
}

// electAll has this node elected wherever it may lead and nobody does.
func (b *Broker) electAll(ctx context.Context) error {
	return b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) {
		elections, plans := control.ElectAll(i, b.cfg.NodeID, b.mayElectUncleanly, b.me(), b.limits())
		for _, e := range elections {
			if e.Kind == control.ElectedUnclean {
				b.logger.Error("unclean election: records may be lost", "partition", b.nameOf(i, e.Partition), "leaderEpoch", e.Record.LeaderEpoch)
				continue
			}
			b.logger.Debug("election", "partition", b.nameOf(i, e.Partition), "kind", string(e.Kind), "leaderEpoch", e.Record.LeaderEpoch)
		}
		return plans, nil
	})
}

func (b *Broker) nameOf(i *meta.Image, id meta.PartitionID) string {
	if t, ok := i.Topic(id.Topic); ok {
		return types.TopicPartition{Topic: t.Record.Name, Partition: id.Number}.String()
	}
	return fmt.Sprintf("%s-%d", id.Topic, id.Number)
}

func (b *Broker) mayElectUncleanly(t *meta.Topic) bool {
	return b.cfg.Topic(t.Record.Configs).UncleanLeaderElection
}

// keepLease renews the lease until the broker closes, and registers anew when it was lost.
func (b *Broker) keepLease() {
	ttl := time.Duration(b.cfg.MetadataTTLMs) * time.Millisecond
	tick := time.NewTicker(ttl / 4)
	defer tick.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-tick.C:
		}
		from := time.Now()
		ctx, cancel := context.WithTimeout(b.ctx, ttl/2)
		left, err := b.store.KeepAlive(ctx, b.lease.id)
		if err == nil {
			b.lease.extend(from, left)
		} else if errors.Is(err, metastore.ErrLeaseNotFound) {
			b.logger.Warn("the registration has lapsed; registering anew")
			err = b.registerOnce(b.ctx)
		}
		cancel()
		if err != nil && b.ctx.Err() == nil {
			b.logger.Warn("the registration can't be renewed", "err", err)
		}
	}
}

// unregister ends the registration of a broker that closes.
func (b *Broker) unregister(ctx context.Context) error {
	if b.lease == nil || b.lease.id == 0 {
		return nil
	}
	b.lease.until.Store(0)
	err := b.store.Revoke(ctx, b.lease.id)
	if errors.Is(err, metastore.ErrLeaseNotFound) {
		return nil
	}
	return err
}
