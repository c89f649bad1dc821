package broker

import (
	"context"
	"time"

	"tidemark/internal/broker/controller"
	"tidemark/internal/broker/coordinator"
	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/clock"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
)

// officeNode is this node as the controller sees it.
type officeNode struct{ *Broker }

var _ controller.Node = officeNode{}

// Me implements controller.Node.
func (n officeNode) Me() control.Me { return n.me() }

// Lease implements controller.Node.
func (n officeNode) Lease() meta.LeaseID { return n.lease.id() }

// Limits implements controller.Node.
func (n officeNode) Limits() control.Limits { return n.limits() }

// Unclean implements controller.Node.
func (n officeNode) Unclean(t *meta.Topic) bool {
	return n.cfg.Topic(t.Record.Configs).UncleanLeaderElection
}

// MinISR implements controller.Node.
func (n officeNode) MinISR(t *meta.Topic) int {
	return int(n.cfg.Topic(t.Record.Configs).MinInsyncReplicas)
}

// reportWait bounds the wait for a partition's owner.
const reportWait = 5 * time.Second

// Report implements controller.Node: the log's end and last epoch after the first cut that it owes (R19).
func (n officeNode) Report(ctx context.Context, id meta.PartitionID) meta.LogReport {
	p, ok := n.Partition(id.Topic, id.Number)
	if !ok {
		return meta.LogReport{Offline: true}
	}
	ctx, cancel := clock.WithTimeout(ctx, reportWait)
	defer cancel()
	var report meta.LogReport
	err := p.Do(ctx, func(o *Owned) error {
		report = o.p.report()
		return nil
	})
	if err != nil {
		return meta.LogReport{Offline: true}
	}
	return report
}

// report runs on the shard.
func (p *Partition) report() meta.LogReport {
	if p.log == nil || p.record == nil {
		return meta.LogReport{Offline: true}
	}
	v := p.log.View()
	applied, ok := p.applied()
	if p.record.Restored {
		return restoredReport(v, applied)
	}
	owed := timeline.FirstCut(timeline.Replica{
		Applied: applied, HasApplied: ok, History: v.History, LogStart: v.LogStart, LogEnd: v.LogEnd,
	}, p.record.Timelines, p.record.LeaderEpoch)
	end := v.LogEnd
	switch owed.Kind {
	case timeline.CutRefused, timeline.CutEverything:
		return meta.LogReport{Offline: true} // it would not serve
	case timeline.CutAt:
		end = min(end, owed.At)
	}
	return meta.LogReport{LogEnd: end, LastEpoch: lastEpoch(v, end)}
}

// restoredReport tells the log as it is, where the record came from a backup: what
// is owed follows from the list that is chosen of all reports (R19).
func restoredReport(v log.View, applied timeline.Checkpoint) meta.LogReport {
	known := applied.LeaderEpoch
	if latest, ok := v.History.Latest(); ok {
		known = max(known, latest.Epoch)
	}
	return meta.LogReport{LogEnd: v.LogEnd, LastEpoch: lastEpoch(v, v.LogEnd), Restored: &meta.RestoredLog{EpochMax: known, Timelines: applied.List}}
}

// lastEpoch is the epoch of the last record below end.
func lastEpoch(v log.View, end types.Offset) types.LeaderEpoch {
	last := types.NoLeaderEpoch
	for _, e := range v.History.Entries() {
		if e.Start < end {
			last = e.Epoch
		}
	}
	return last
}

// newController makes this node's part in the office.
func (b *Broker) newController() *controller.Controller {
	o := controller.Options{Node: officeNode{b}, Logger: b.logger, Changed: b.officeChanged,
		Grow: map[string]int{coordinator.OffsetsTopic: int(b.cfg.Offsets.TopicReplicationFactor), transactions.StateTopic: int(b.cfg.Transactions.TopicReplicationFactor)}}
	if b.cfg.AutoLeaderRebalance {
		o.Rebalance = time.Duration(b.cfg.LeaderImbalanceCheckSeconds) * time.Second
		o.ImbalancePercent = int(b.cfg.LeaderImbalancePercent)
	}
	return controller.New(o)
}

// officeChanged tells of what the controller did to a partition.
func (b *Broker) officeChanged(image *meta.Image, c control.Change) {
	name := b.nameOf(image, c.Partition)
	if c.Kind != "" {
		b.metrics.Replication.Elections.WithLabelValues(string(c.Kind)).Inc()
	}
	if c.Kind == control.ElectedUnclean {
		b.metrics.Replication.Unclean.Inc()
	}
	switch c.Kind {
	case "":
		b.logger.Debug("ISR settled", "partition", name, "isr", c.Record.ISRIDs(), "elr", c.Record.ELRIDs())
	case control.ElectedRestored:
		b.logger.Info("leader elected after the restore", "partition", name, "leader", c.Record.Leader, "leaderEpoch", c.Record.LeaderEpoch,
			"logs", control.ReportsOf(image, c.Partition))
	case control.ElectedUnclean:
		b.logger.Error("unclean election: records may be lost", "partition", name, "leader", c.Record.Leader,
			"leaderEpoch", c.Record.LeaderEpoch, "inSyncBefore", c.Old.ISRIDs(), "logs", control.ReportsOf(image, c.Partition))
	default:
		b.logger.Debug("election", "partition", name, "kind", string(c.Kind), "leader", c.Record.Leader, "leaderEpoch", c.Record.LeaderEpoch)
	}
}

// drainPatience bounds a controlled shutdown's wait for the controller.
const drainPatience = 15 * time.Second

// drain moves this node's leaders to other brokers before it stops. With no
// other broker registered there is nothing to wait for. What isn't moved in time is elected after the end.
func (b *Broker) drain(ctx context.Context) {
	if b.controller == nil || !b.cfg.ControlledShutdown || !b.hasPeers() {
		return
	}
	if _, ok := b.BrokerEpoch(); !ok || b.lease.over() {
		return
	}
	ctx, cancel := clock.WithTimeout(ctx, drainPatience)
	defer cancel()
	from := time.Now()
	b.lease.draining.Store(true)
	err := b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) {
		p, err := control.Drain(i, b.me(), b.lease.id())
		return []meta.Plan{p}, err
	})
	for err == nil && !control.Drained(b.Image(), b.cfg.NodeID) {
		err = b.view.await(ctx, b.Image().Revision()+1)
	}
	if err != nil {
		b.logger.Warn("leaders could not be moved before the shutdown", "err", err)
		return
	}
	b.logger.Info("leaders moved", "took", time.Since(from).Round(time.Millisecond))
}

// hasPeers reports whether another broker is registered that isn't leaving too.
func (b *Broker) hasPeers() bool {
	for other := range b.Image().Brokers() {
		if other.ID != b.cfg.NodeID && !other.Record.Draining {
			return true
		}
	}
	return false
}
