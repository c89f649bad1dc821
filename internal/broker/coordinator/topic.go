package coordinator

import (
	"context"
	"errors"
	"strconv"

	"tidemark/internal/broker/api"
	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// FindCoordinator implements api.Groups.
func (c *Coordinator) FindCoordinator(ctx context.Context, groupID string) (types.BrokerID, error) {
	topic, err := c.ensureTopic(ctx)
	if err != nil {
		return types.NoBroker, err
	}
	p := PartitionFor(groupID, topic.Record.Partitions)
	rec, _ := c.o.Image().Partition(topic.Record.ID, p)
	if rec == nil || rec.Leader == types.NoBroker {
		return types.NoBroker, wire.Errorf(wire.ErrCoordinatorNotAvailable, "Partition %d of %s has no leader.", p, OffsetsTopic)
	}
	return rec.Leader, nil
}

// ensureTopic gives the offsets topic, made at its first use with the configs
// that Kafka gives it.
func (c *Coordinator) ensureTopic(ctx context.Context) (*meta.Topic, error) {
	if t, ok := c.o.Image().TopicByName(OffsetsTopic); ok {
		return t, nil
	}
	if _, err := clock.Wait(ctx, clock.Forever, c.creating); err != nil {
		return nil, wire.ErrCoordinatorNotAvailable
	}
	defer func() { c.creating <- struct{}{} }()
	if t, ok := c.o.Image().TopicByName(OffsetsTopic); ok {
		return t, nil
	}
	_, err := c.o.Topics.Create(ctx, api.CreateTopic{
		Name: OffsetsTopic, Partitions: c.o.Config.TopicPartitions, ReplicationFactor: c.replication(),
		Configs: topicConfigs(c.o.Config),
	})
	if err != nil && !errors.Is(err, wire.ErrTopicAlreadyExists) {
		c.o.Logger.Warn("offsets topic can't be created", "topic", OffsetsTopic, "err", err)
		return nil, wire.Errorf(wire.ErrCoordinatorNotAvailable, "%s can't be created yet.", OffsetsTopic)
	}
	if t, ok := c.o.Image().TopicByName(OffsetsTopic); ok {
		return t, nil
	}
	return nil, wire.Errorf(wire.ErrCoordinatorNotAvailable, "%s is being created.", OffsetsTopic)
}

// replication is what the setting asks for, or as many brokers as there are; the
// controller adds the rest once more have joined.
func (c *Coordinator) replication() int16 {
	brokers := int16(0)
	for b := range c.o.Image().Brokers() {
		if !b.Record.Draining && brokers < c.o.Config.TopicReplication {
			brokers++
		}
	}
	return max(brokers, 1)
}

// topicConfigs are what Kafka sets on the topic itself: "producer" leaves the
// coordinator's own choice of codec as it is.
func topicConfigs(cfg Config) map[string]*string {
	policy, compression, segment := "compact", "producer", strconv.Itoa(int(cfg.TopicSegmentBytes))
	return map[string]*string{"cleanup.policy": &policy, "compression.type": &compression, "segment.bytes": &segment}
}

// home gives the loop that a group belongs to, if this node has it.
func (c *Coordinator) home(groupID string) *loop {
	t, ok := c.o.Image().TopicByName(OffsetsTopic)
	if !ok {
		return nil
	}
	return c.loop(PartitionFor(groupID, t.Record.Partitions))
}
