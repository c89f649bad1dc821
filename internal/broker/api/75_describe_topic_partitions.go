package api

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/acl"
	"tidemark/internal/wire"
)

// DescribeTopicPartitions (key 75): topics with their partitions, page by page (KIP-966).
//
// Behaviour
//   - Topics in order of their names; none named means all. An answer holds at
//     most the asked number of partitions, and at most
//     max.request.partition.size.limit; the cursor says where to go on.
//   - With a cursor, topics before it are left out, and its topic begins at its partition.
//   - Eligible leader replicas are listed; last known ones aren't kept.
//
// Versions
//   - 0: flexible.
func (c *Call) describeTopicPartitions(in *kmsg.DescribeTopicPartitionsRequest) (kmsg.Response, error) {
	limit := c.Settings().MaxPartitionsPerDescribe
	if n := int(in.ResponsePartitionLimit); n > 0 && n < limit {
		limit = n
	}
	out := kmsg.NewPtrDescribeTopicPartitionsResponse()
	for _, name := range c.describedNames(in) {
		if len(in.Topics) == 0 && !c.quietly().mayTopic(acl.Describe, name) {
			continue // of all topics, those that the client may see
		}
		from := int32(0)
		if in.Cursor != nil && in.Cursor.Topic == name {
			from = in.Cursor.Partition
		}
		if limit <= 0 {
			out.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: from}
			return out, nil
		}
		topic, next := c.describedTopic(name, from, limit)
		out.Topics = append(out.Topics, topic)
		limit -= len(topic.Partitions)
		if next >= 0 {
			out.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: next}
			return out, nil
		}
	}
	return out, nil
}

// describedNames lists the topics to answer, from the cursor on, in order.
func (c *Call) describedNames(in *kmsg.DescribeTopicPartitionsRequest) []string {
	var names []string
	if len(in.Topics) == 0 {
		for t := range c.Image.TopicsByName() {
			names = append(names, t.Record.Name)
		}
	}
	for _, t := range in.Topics {
		names = append(names, t.Topic)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if in.Cursor == nil {
		return names
	}
	return slices.DeleteFunc(names, func(n string) bool { return strings.Compare(n, in.Cursor.Topic) < 0 })
}

// describedTopic answers up to limit partitions of one topic; next is the first one left out, -1 for none.
func (c *Call) describedTopic(name string, from int32, limit int) (topic kmsg.DescribeTopicPartitionsResponseTopic, next int32) {
	topic = kmsg.NewDescribeTopicPartitionsResponseTopic()
	topic.Topic = &name
	topic.AuthorizedOperations = c.operations(acl.Topic, name, opsTopic)
	rec, err := topicRef{name: name}.find(c.Image)
	mayDescribe := c.mayTopic(acl.Describe, name)
	if err != nil || !mayDescribe {
		switch {
		case !mayDescribe:
			err = wire.ErrTopicAuthorizationFailed
		case !validTopicName(name):
			err = wire.ErrInvalidTopic
		}
		topic.ErrorCode = int16(CodeOf(err))
		topic.AuthorizedOperations = opsNotAsked
		return topic, -1
	}
	topic.TopicID, topic.IsInternal = rec.ID, rec.Internal
	for p := range c.Image.PartitionsOf(shownID(c.Image, rec)) {
		if p.ID.Number < from {
			continue
		}
		if len(topic.Partitions) == limit {
			return topic, p.ID.Number
		}
		v := c.viewPartition(p, false)
		to := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		to.ErrorCode, to.Partition, to.LeaderID, to.LeaderEpoch = int16(v.code), p.ID.Number, int32(v.leader), int32(v.epoch)
		to.Replicas, to.ISR, to.OfflineReplicas = v.replicas, v.isr, v.offline
		to.EligibleLeaderReplicas, to.LastKnownELR = []int32{}, []int32{} // Java's client takes no null
		if p.Record != nil {
			to.EligibleLeaderReplicas = ids(p.Record.ELRIDs())
		}
		topic.Partitions = append(topic.Partitions, to)
	}
	return topic, -1
}
