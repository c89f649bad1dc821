package broker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
)

// registration is this node's lease. Its own monotonic clock judges whether the
// lease may be over (R10): the store's word can come too late.
type registration struct {
	lease    atomic.Int64 // meta.LeaseID, 0: none yet
	now      func() time.Time
	endless  bool // the simulator's: over says never
	began    time.Time
	until    atomic.Int64 // nanoseconds after began, 0: no lease
	draining atomic.Bool  // a registration made anew says so too
	epoch    atomic.Int64 // this process's last registration, 0: none yet
	serves   atomic.Int64 // the registration in whose leaderships clients are answered, 0: none
}

func newRegistration(ctx context.Context) *registration {
	now := func() time.Time { return clock.Now(ctx) }
	return &registration{now: now, began: now()}
}

func (r *registration) id() meta.LeaseID { return meta.LeaseID(r.lease.Load()) }

// LeaseID is the lease of this node's present registration, 0 if there is none.
func (b *Broker) LeaseID() meta.LeaseID { return b.lease.id() }

// clockMargin is the part of a lease by which this node's clock may be slower than the store's.
const clockMargin = 50

// extend notes that the lease lives for ttl from the given moment on: less a
// margin, because no two clocks run at the same rate.
func (r *registration) extend(from time.Time, ttl time.Duration) {
	r.until.Store(int64(from.Add(ttl - ttl/clockMargin).Sub(r.began)))
}

// over reports whether the lease may have ended.
func (r *registration) over() bool {
	return !r.endless && int64(r.now().Sub(r.began)) >= r.until.Load()
}

// ended reports whether a leadership of the given registration is over, or may
// be: also one of a registration before the present one, which a shard may not
// have heard of yet (R10).
func (r *registration) ended(of types.BrokerEpoch) bool {
	return r.over() || !r.endless && r.serves.Load() != int64(of)
}

// register writes this node's registration and keeps its lease. If nobody is the
// controller this node becomes it, and elects leaders where partitions need
// them (R10: always anew, in a higher leader epoch).
func (b *Broker) register(ctx context.Context) error {
	if err := b.registerPatiently(ctx); err != nil {
		return err
	}
	b.registered.Store(true)
	b.fetchers.Wake()
	clock.Go(b.ctx, &b.work, b.keepLease)
	if err := b.sweepAlone(ctx); err != nil {
		return err
	}
	if err := b.controller.Step(ctx); err != nil {
		return err
	}
	clock.Go(b.ctx, &b.work, func() { b.controller.Run(b.ctx) })
	return b.settle(ctx)
}

const (
	// registerPatience is how long a start goes on while the metadata store is too
	// busy to say what became of a registration: others of a cluster may be starting too.
	registerPatience = 2 * time.Minute
	registerPause    = 500 * time.Millisecond
)

// registerPatiently registers a node that starts. A store that is slow or away is
// asked again: a registration that was made all the same is ended by the next. So is
// one whose lease has ended before it could be used: the process was stopped meanwhile.
func (b *Broker) registerPatiently(ctx context.Context) error {
	for from := clock.Now(b.ctx); ; {
		err := b.registerOnce(ctx)
		passes := errors.Is(err, metastore.ErrUnknownOutcome) || errors.Is(err, metastore.ErrUnavailable) || errors.Is(err, metastore.ErrLeaseNotFound)
		if !passes || clock.Since(b.ctx, from) > registerPatience {
			return err
		}
		b.logger.Warn("the node can't be registered yet", "err", err)
		if clock.Sleep(b.ctx, registerPause) != nil || ctx.Err() != nil {
			return err
		}
	}
}

// sweepAlone deletes what creations left that stopped half-way. It does so only
// if no other broker is registered: a creation is fenced by its writer's
// registration, and this one's has just begun.
func (b *Broker) sweepAlone(ctx context.Context) error {
	for other := range b.Image().Brokers() {
		if other.ID != b.cfg.NodeID {
			return nil // the controller does it in time
		}
	}
	return b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) {
		return control.SweepOrphans(i, func(types.TopicID) bool { return true }, b.me(), b.limits()), nil
	})
}

func (b *Broker) registerOnce(ctx context.Context) error {
	ttl := time.Duration(b.cfg.MetadataTTLMs) * time.Millisecond
	from := clock.Now(b.ctx)
	id, err := b.store.Grant(ctx, ttl)
	if err != nil {
		return err
	}
	record := meta.BrokerRecord{
		ID: b.cfg.NodeID, Endpoints: b.addrs, HTTP: b.httpAddr(), Rack: b.cfg.Rack, Roles: []string{"broker", "controller"},
		DirectoryID: b.directoryID(), Directories: b.directoryIDs(), Features: b.opts.Features, Incarnation: b.process + "-" + b.fresh.Fresh(), CleanShutdownEpoch: b.keptSince(),
		Software: "tidemark " + b.opts.Version, StartedAt: b.opts.Now(), Draining: b.lease.draining.Load(),
	}
	err = b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) { return control.RegisterBroker(i, record, id) })
	if err != nil {
		// The lease before is still the one that is kept alive: it has ended, and
		// the next try follows from that.
		return err
	}
	b.lease.lease.Store(int64(id))
	if e, ok := b.BrokerEpoch(); ok {
		b.lease.epoch.Store(int64(e))
		b.lease.serves.Store(int64(e))
	}
	b.lease.extend(from, ttl)
	return nil
}

// keptSince names the registration since which this node has lost nothing (R11):
// the one before in this process, which only lapsed, or the one that a clean
// shutdown ended. There is none once a log dir has failed.
func (b *Broker) keptSince() types.BrokerEpoch {
	before := b.lease.epoch.Load()
	if before == 0 {
		return b.cleanSince()
	}
	for _, d := range b.dirs {
		if d.failure() != nil {
			return types.NoBrokerEpoch
		}
	}
	return types.BrokerEpoch(before)
}

func (b *Broker) httpAddr() string {
	if b.opts.HTTPAddr != "" {
		return b.opts.HTTPAddr
	}
	return b.cfg.HTTPListener
}

func (b *Broker) nameOf(i *meta.Image, id meta.PartitionID) string {
	if t, ok := i.Topic(id.Topic); ok {
		return types.TopicPartition{Topic: t.Record.Name, Partition: id.Number}.String()
	}
	return fmt.Sprintf("%s-%d", id.Topic, id.Number)
}

// keepLease renews the lease until the broker closes, and registers anew when it was lost.
func (b *Broker) keepLease() {
	ttl := time.Duration(b.cfg.MetadataTTLMs) * time.Millisecond
	for last := clock.Now(b.ctx); ; {
		if clock.Sleep(b.ctx, max(ttl/4-clock.Since(b.ctx, last), 0)) != nil {
			return
		}
		from := clock.Now(b.ctx)
		last = from
		ctx, cancel := clock.WithTimeout(b.ctx, ttl/2)
		left, err := b.store.KeepAlive(ctx, b.lease.id())
		if err == nil {
			b.lease.extend(from, left)
		} else if errors.Is(err, metastore.ErrLeaseNotFound) {
			b.lease.serves.Store(0)
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
	if b.lease == nil || b.lease.id() == 0 {
		return nil
	}
	b.lease.until.Store(0)
	err := b.store.Revoke(ctx, b.lease.id())
	switch {
	case errors.Is(err, metastore.ErrLeaseNotFound):
		return nil
	case errors.Is(err, metastore.ErrUnknownOutcome) || errors.Is(err, metastore.ErrUnavailable):
		// No quorum: the lease ends by itself, and nothing is lost by waiting for it.
		b.logger.Warn("the registration could not be ended and lapses in time", "err", err)
		return nil
	}
	return err
}
