package api

import (
	"iter"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/acl"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// memberTypeConsumer is Kafka's number of a member that speaks the new protocol.
const memberTypeConsumer int8 = 1

// ConsumerGroupDescribe (key 69), versions 0 and 1: groups of the new protocol (KIP-848).
//
// Behaviour
//   - GROUP_ID_NOT_FOUND for what is none, or a classic group: DescribeGroups tells of those.
//   - TOPIC_AUTHORIZATION_FAILED, without members, if a member reads a topic that the
//     client may not describe.
//   - What a member is to let go of counts as its own until it has. A member without an
//     expression has an empty one, as in Kafka.
//   - Partitions of topics that are there no more are left out.
//
// Versions
//   - 1: the protocol of each member.
func consumerGroupDescribe(c *Call, req *kmsg.ConsumerGroupDescribeRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	for _, id := range req.Groups {
		out := c.describeConsumerGroup(id)
		if req.IncludeAuthorizedOperations && out.ErrorCode == 0 {
			out.AuthorizedOperations = c.operations(acl.Group, id, allGroupOperations)
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp, nil
}

func (c *Call) describeConsumerGroup(id string) kmsg.ConsumerGroupDescribeResponseGroup {
	out := kmsg.NewConsumerGroupDescribeResponseGroup()
	out.Group = id
	if c.Image.FeatureLevel(meta.FeatureGroups) < 1 {
		out.ErrorCode = int16(wire.ErrUnsupportedVersion)
		return out
	}
	d, code := c.Groups.DescribeConsumer(c.Ctx, id)
	switch {
	case code != errcode.None:
		out.ErrorCode = wireCode(code)
		return out
	case d.Code != errcode.None:
		out.ErrorCode, out.ErrorMessage = wireCode(d.Code), nullable(d.Message)
		return out
	case !c.mayDescribeAll(d):
		out.ErrorCode = int16(wire.ErrTopicAuthorizationFailed)
		out.ErrorMessage = nullable("The group has topics that the client is not authorized to describe.")
		return out
	}
	out.State, out.Epoch, out.AssignmentEpoch, out.AssignorName = string(d.State), d.Epoch, d.TargetEpoch, d.Assignor
	for _, m := range d.Members {
		member := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		member.MemberID, member.InstanceID, member.RackID, member.MemberEpoch = m.ID, nullable(m.InstanceID), nullable(m.RackID), m.Epoch
		member.ClientID, member.ClientHost, member.MemberType = m.ClientID, m.ClientHost, memberTypeConsumer
		member.SubscribedTopics, member.SubscribedTopicRegex = m.Topics, &m.Regex
		member.Assignment.TopicPartitions = namedPartitions(m.Owned, d.Topics)
		member.TargetAssignment.TopicPartitions = namedPartitions(m.Target, d.Topics)
		out.Members = append(out.Members, member)
	}
	return out
}

// mayDescribeAll reports whether the client may know of all topics that members read.
func (c *Call) mayDescribeAll(d group.ConsumerDescription) bool {
	if c.Access == nil {
		return true
	}
	c = c.quietly()
	for _, name := range d.Topics {
		if !c.mayTopic(acl.Describe, name) {
			return false
		}
	}
	for _, m := range d.Members {
		for _, name := range m.Topics {
			if !c.mayTopic(acl.Describe, name) {
				return false
			}
		}
	}
	return true
}

func namedPartitions(sorted []consumer.Partition, names map[types.TopicID]string) []kmsg.AssignmentTopicPartition {
	var all []kmsg.AssignmentTopicPartition
	for id, numbers := range byTopic(sorted) {
		if name, ok := names[id]; ok {
			all = append(all, kmsg.AssignmentTopicPartition{TopicID: id, Topic: name, Partitions: numbers})
		}
	}
	return all
}

// byTopic walks sorted partitions by topic.
func byTopic(sorted []consumer.Partition) iter.Seq2[types.TopicID, []int32] {
	return func(yield func(types.TopicID, []int32) bool) {
		for len(sorted) > 0 {
			id, numbers := sorted[0].Topic, []int32(nil)
			for len(sorted) > 0 && sorted[0].Topic == id {
				numbers = append(numbers, sorted[0].Number)
				sorted = sorted[1:]
			}
			if !yield(id, numbers) {
				return
			}
		}
	}
}
