package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
	"tidemark/internal/wire"
)

// ElectLeaders (key 43): preferred leaders, or unclean elections (KIP-460).
//
// Behaviour
//   - Null topics are all partitions; the answer then leaves out those that needed no election.
//   - An unclean election is for a partition that nobody leads and nobody may lead
//     cleanly: the live replica with the longest history is elected, whatever the
//     topic's unclean.leader.election.enable says, once.
//   - A topic or partition that doesn't exist is UNKNOWN_TOPIC_OR_PARTITION.
//
// Versions
//   - 0: preferred only. 1: election type, an error for the whole answer. 2: flexible.
func (c *Call) electLeaders(in *kmsg.ElectLeadersRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrElectLeadersResponse()
	if in.ElectionType != electPreferred && in.ElectionType != electUnclean {
		out.ErrorCode = int16(wire.ErrInvalidRequest)
		return out, nil
	}
	ctx, cancel := c.within(in.TimeoutMillis)
	defer cancel()
	var known []meta.PartitionID
	for _, t := range c.electionTopics(in) {
		topic, exists := c.Image.TopicByName(t.Topic)
		to := kmsg.NewElectLeadersResponseTopic()
		to.Topic = t.Topic
		for _, n := range t.Partitions {
			part := kmsg.NewElectLeadersResponseTopicPartition()
			part.Partition = n
			if !exists || n < 0 || n >= topic.Record.Partitions {
				part.ErrorCode = int16(wire.ErrUnknownTopicOrPartition)
			} else {
				known = append(known, meta.PartitionID{Topic: topic.ID, Number: n})
			}
			to.Partitions = append(to.Partitions, part)
		}
		out.Topics = append(out.Topics, to)
	}
	errs := c.Cluster.ElectLeaders(ctx, known, in.ElectionType == electUnclean)
	for i := range out.Topics {
		for j := range out.Topics[i].Partitions {
			part := &out.Topics[i].Partitions[j]
			errs = c.takeError(wire.KeyElectLeaders, errs, &part.ErrorCode, &part.ErrorMessage)
		}
	}
	if in.Topics == nil {
		withoutNeedless(out)
	}
	return out, nil
}

// Kafka's ElectionType.
const (
	electPreferred int8 = 0
	electUnclean   int8 = 1
)

// electionTopics lists what the request names, or everything.
func (c *Call) electionTopics(in *kmsg.ElectLeadersRequest) []kmsg.ElectLeadersRequestTopic {
	if in.Topics != nil {
		return in.Topics
	}
	var all []kmsg.ElectLeadersRequestTopic
	for t := range c.Image.TopicsByName() {
		topic := kmsg.NewElectLeadersRequestTopic()
		topic.Topic = t.Record.Name
		for n := range t.Record.Partitions {
			topic.Partitions = append(topic.Partitions, n)
		}
		all = append(all, topic)
	}
	return all
}

func withoutNeedless(out *kmsg.ElectLeadersResponse) {
	for i := range out.Topics {
		out.Topics[i].Partitions = slices.DeleteFunc(out.Topics[i].Partitions, func(p kmsg.ElectLeadersResponseTopicPartition) bool {
			return p.ErrorCode == int16(wire.ErrElectionNotNeeded)
		})
	}
	out.Topics = slices.DeleteFunc(out.Topics, func(t kmsg.ElectLeadersResponseTopic) bool { return len(t.Partitions) == 0 })
}
