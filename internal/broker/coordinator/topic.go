package coordinator

import (
	"context"
	"strconv"

	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/core/types"
)

// FindCoordinator implements api.Groups.
func (c *Coordinator) FindCoordinator(ctx context.Context, groupID string) (types.BrokerID, error) {
	return c.topic.Leader(ctx, groupID)
}

// offsetsTopic names the topic in which groups and their offsets are kept.
func offsetsTopic(o Options) *statelog.Topic {
	return statelog.NewTopic(statelog.TopicOptions{
		Node: o.Node, Name: OffsetsTopic, Partitions: o.Config.TopicPartitions, Replication: o.Config.TopicReplication, Configs: topicConfigs(o.Config),
	})
}

// TopicAsMade is the request by which __consumer_offsets is made at its first use.
func (c *Coordinator) TopicAsMade() api.CreateTopic { return c.topic.AsMade() }

// topicConfigs are what Kafka sets on the topic itself: "producer" leaves the
// coordinator's own choice of codec as it is.
func topicConfigs(cfg Config) map[string]*string {
	policy, compression, segment := "compact", "producer", strconv.Itoa(int(cfg.TopicSegmentBytes))
	return map[string]*string{"cleanup.policy": &policy, "compression.type": &compression, "segment.bytes": &segment}
}

// home gives the loop that a group belongs to, if this node has it.
func (c *Coordinator) home(groupID string) *loop {
	p, ok := c.topic.Partition(groupID)
	if !ok {
		return nil
	}
	return c.Of(p)
}
