package broker

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/clock"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// imageComing brings the partitions in line with an image that nobody sees yet.
// It runs on the viewer's goroutine; what a partition has to do runs on its shard.
func (b *Broker) imageComing(old, image *meta.Image, d meta.Delta) {
	for _, c := range d.Partitions {
		if c.Old != nil && (c.New == nil || c.New.CreateRevision != c.Old.CreateRevision) {
			b.dropPartition(old, c.Old.ID)
			continue
		}
		if c.New != nil && c.New.Record != nil && !b.isReplica(c.New.Record) {
			b.dropPartition(old, c.New.ID) // a reassignment took it away
		}
	}
	told := make(map[meta.PartitionID]bool)
	for _, c := range d.Partitions {
		if c.New != nil {
			b.showPartition(image, c.New)
			told[c.New.ID] = true
		}
	}
	b.showTopics(image, d, told)
	if slices.ContainsFunc(d.Brokers, func(c meta.Change[meta.Broker]) bool { return idOf(c) == b.cfg.NodeID }) {
		// A new registration leads nothing that an older one led (R10).
		for p := range image.Partitions() {
			if !told[p.ID] {
				b.showPartition(image, p)
			}
		}
	}
}

func idOf(c meta.Change[meta.Broker]) types.BrokerID {
	if c.New != nil {
		return c.New.ID
	}
	return c.Old.ID
}

// showTopics tells the partitions of topics whose configs may have changed.
func (b *Broker) showTopics(image *meta.Image, d meta.Delta, told map[meta.PartitionID]bool) {
	for _, c := range d.Topics {
		if c.New == nil {
			b.counts.forget(c.Old.Record.Name)
			continue
		}
		if c.Old == nil {
			continue
		}
		for p := range image.PartitionsOf(c.New.ID) {
			if !told[p.ID] {
				b.showPartition(image, p)
			}
		}
	}
}

// imageChanged tells the services of an image that everybody can see now.
func (b *Broker) imageChanged(_, image *meta.Image, d meta.Delta) {
	b.metrics.Meta.Revision.Set(float64(image.Revision()))
	b.controller.ImageChanged(d)
	if len(d.BrokerConfigs) > 0 {
		b.showBrokerConfigs(image)
	}
	if len(d.Drills) > 0 {
		b.dropEndedForks(image)
	}
	if d.Features {
		if err := b.checkFeatures(image); err != nil {
			b.fail(err) // it registered before the level rose, and wasn't seen
		}
	}
	s := b.services.Load()
	if s == nil {
		return // they take the image when they start
	}
	b.showStateTopic(s.groups, coordinator.OffsetsTopic, image, d)
	b.showStateTopic(s.txns, transactions.StateTopic, image, d)
	var gone []coordinator.DeletedTopic
	for _, c := range d.Topics {
		if c.Deleted() {
			gone = append(gone, coordinator.DeletedTopic{Name: c.Old.Record.Name, ID: c.Old.Record.ID})
		}
	}
	if len(gone) > 0 {
		// Not on this goroutine: the coordinator may itself be waiting for an image.
		clock.Go(b.ctx, &b.work, func() { s.groups.TopicsDeleted(b.ctx, gone) })
	}
	if s.mirrors != nil {
		s.mirrors.ImageChanged(image, d)
	}
}

// isReplica reports whether this node holds a copy of the partition.
func (b *Broker) isReplica(r *meta.PartitionRecord) bool {
	return r != nil && slices.Contains(r.Replicas, b.cfg.NodeID)
}

// leads is R10 without R19: the record names this node in its present registration.
func (b *Broker) leads(image *meta.Image, r *meta.PartitionRecord) bool {
	e, ok := b.ownEpoch(image)
	return r != nil && ok && r.Leader == b.cfg.NodeID && (r.LeaderBrokerEpoch == e || b.env.rules.KeepsEpoch)
}

// shardOf gives the event loop of a partition. It depends on the name alone, so
// that a topic's deletion and its successor's creation keep their order on disk.
func (b *Broker) shardOf(tp types.TopicPartition) *shard {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s-%d", tp.Topic, tp.Partition)
	return b.shards[h.Sum32()%uint32(len(b.shards))]
}

// showPartition tells a partition what the image says of it, and makes it if this node is to hold it.
func (b *Broker) showPartition(image *meta.Image, e *meta.Partition) {
	t, ok := image.Topic(e.ID.Topic)
	if !ok {
		return
	}
	p, held := b.Partition(e.ID.Topic, e.ID.Number)
	if !held {
		if !b.isReplica(e.Record) {
			return
		}
		p = b.newPartition(t, e)
	}
	rec, rev, leading := e.Record, e.ModRevision, b.leads(image, e.Record)
	topic := b.topicConfig(t)
	b.tell(p, func() { p.show(rec, rev, topic, leading) })
}

// topicConfig gives a topic's effective configuration, worked out once for all of
// its partitions. It runs on the viewer's goroutine, or before that has begun.
func (b *Broker) topicConfig(t *meta.Topic) config.Topic {
	if b.lastTopic != t {
		b.lastTopic, b.lastConfig = t, b.cfg.Topic(t.Record.Configs)
	}
	return b.lastConfig
}

// tell queues work for a partition's owner; a broker that closes drops it.
func (b *Broker) tell(p *Partition, f func()) {
	if err := p.shard.send(context.WithoutCancel(b.ctx), event{p: p, f: f}); err != nil {
		b.logger.Debug("event dropped", "partition", p.tp.String(), "err", err)
	}
}

// newPartition makes the object of a partition and chooses its log dir.
func (b *Broker) newPartition(t *meta.Topic, e *meta.Partition) *Partition {
	tp := types.TopicPartition{Topic: t.Record.Name, Partition: e.ID.Number}
	p := newPartition(b.env, b.shardOf(tp), e.ID.Topic, tp, b.chooseDir(e.ID, tp))
	b.partitions.Store(e.ID, p)
	return p
}

// dropPartition deletes a partition's data with its topic's end, or when it has moved to other brokers.
func (b *Broker) dropPartition(old *meta.Image, id meta.PartitionID) {
	p, held := b.Partition(id.Topic, id.Number)
	if !held {
		return
	}
	b.partitions.Delete(id)
	b.tell(p, func() {
		if folder := p.delete(); folder != "" {
			b.chores.removeLater(p.dir, folder, deleteDelay(p.topic))
		}
	})
	_ = old // the old image's record isn't needed: the partition knows its own
}

// showStateTopic tells a coordinator which partitions of its topic this node leads.
func (b *Broker) showStateTopic(c elected, topic string, image *meta.Image, d meta.Delta) {
	// Before the next one of its name, whose leader epochs begin anew.
	for _, gone := range d.Topics {
		if gone.Deleted() && gone.Old.Record.Name == topic {
			for n := range gone.Old.Record.Partitions {
				c.Resigned(n)
			}
		}
	}
	t, ok := image.TopicByName(topic)
	if !ok {
		return
	}
	all := slices.ContainsFunc(d.Brokers, func(c meta.Change[meta.Broker]) bool { return idOf(c) == b.cfg.NodeID })
	for p := range image.PartitionsOf(t.ID) {
		if all || slices.ContainsFunc(d.Partitions, func(x meta.Change[meta.Partition]) bool { return x.New != nil && x.New.ID == p.ID }) {
			b.showCoordinator(c, image, p)
		}
	}
}

// get finds a partition that this node may serve now, for api.Partitions.
func (b *Broker) get(id types.TopicID, number int32) (*Partition, error) {
	p, ok := b.Partition(id, number)
	if !ok {
		if _, exists := b.Image().PartitionEntry(id, number); exists {
			return nil, errNotLeading
		}
		return nil, wire.ErrUnknownTopicOrPartition
	}
	s := p.serving.Load()
	if s.err != nil {
		return nil, s.err
	}
	if b.env.ended(s.registration) {
		return nil, errLapsed
	}
	return p, nil
}

// getReplica finds a partition that consumers may read here.
func (b *Broker) getReplica(id types.TopicID, number int32) (*Partition, error) {
	p, ok := b.Partition(id, number)
	if !ok {
		return b.get(id, number) // says why not
	}
	if s := p.serving.Load(); s.readErr != nil {
		return nil, s.readErr
	}
	if b.lease.over() {
		return nil, errLapsed
	}
	return p, nil
}
