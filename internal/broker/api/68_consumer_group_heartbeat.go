package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// ConsumerGroupHeartbeat (key 68), versions 0 and 1: all that a member of the new
// protocol says (KIP-848): it joins (epoch 0), is there, leaves (-1), or is away for a
// while (-2, static members).
//
// Behaviour
//   - What the member has to read comes with the answer when it has changed, or when the
//     member tells all of itself. Null fields of the request are as they were.
//   - UNSUPPORTED_VERSION while the cluster's group.version is 0.
//   - A member of a group that isn't here is told UNKNOWN_MEMBER_ID and joins anew, where
//     Kafka says GROUP_ID_NOT_FOUND, of which Java's consumer dies: after a failover the
//     group's offsets are here and its members aren't. Kafka's answer is kept for those who leave.
//   - An expression stands for the topics that the member may describe.
//   - A classic group with members takes nobody in: GROUP_ID_NOT_FOUND.
//
// Versions
//   - 1: subscription by a regular expression (RE2); members bring ids of their own.
func consumerGroupHeartbeat(c *Call, req *kmsg.ConsumerGroupHeartbeatRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	if c.Image.FeatureLevel(meta.FeatureGroups) < 1 {
		resp.ErrorCode = int16(wire.ErrUnsupportedVersion)
		return resp, nil
	}
	r := c.Groups.ConsumerHeartbeat(c.Ctx, group.ConsumerHeartbeat{Group: req.Group, Heartbeat: heartbeatOf(c, req)})
	if r.Code != errcode.None {
		resp.ErrorCode, resp.ErrorMessage = wireCode(r.Code), nullable(r.Message)
		return resp, nil
	}
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = nullable(r.MemberID), r.Epoch, int32(r.HeartbeatInterval)
	if r.HasAssignment {
		resp.Assignment = &kmsg.ConsumerGroupHeartbeatResponseAssignment{}
		for id, numbers := range byTopic(r.Assignment) {
			resp.Assignment.Topics = append(resp.Assignment.Topics, kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{TopicID: id, Partitions: numbers})
		}
	}
	return resp, nil
}

func heartbeatOf(c *Call, req *kmsg.ConsumerGroupHeartbeatRequest) consumer.Heartbeat {
	h := consumer.Heartbeat{
		MemberID: req.MemberID, Epoch: req.MemberEpoch, InstanceID: req.InstanceID, RackID: req.RackID,
		ClientID: c.Req.ClientID, ClientHost: clientHost(c.Req), RebalanceTimeout: types.Millis(req.RebalanceTimeoutMillis),
		Topics: req.SubscribedTopicNames, HasTopics: req.SubscribedTopicNames != nil, Assignor: req.ServerAssignor,
		HasOwned: req.Topics != nil, OwnMemberID: req.Version >= 1,
	}
	if req.Version >= 1 {
		h.Regex, h.Sees = req.SubscribedTopicRegex, c.describes()
	}
	for _, t := range req.Topics {
		for _, n := range t.Partitions {
			h.Owned = append(h.Owned, consumer.Partition{Topic: t.TopicID, Number: n})
		}
	}
	return h
}
