package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/acl"
	"tidemark/internal/wire"
)

// groupRules are those of the group APIs.
func groupRules() []rule {
	return []rule{
		{wire.KeyJoinGroup, onGroup(acl.Read, func(in *kmsg.JoinGroupRequest) string { return in.Group },
			func(_ *kmsg.JoinGroupRequest, out *kmsg.JoinGroupResponse, code wire.ErrCode) {
				out.ErrorCode = int16(code)
			})},
		{wire.KeyHeartbeat, onGroup(acl.Read, func(in *kmsg.HeartbeatRequest) string { return in.Group },
			func(_ *kmsg.HeartbeatRequest, out *kmsg.HeartbeatResponse, code wire.ErrCode) {
				out.ErrorCode = int16(code)
			})},
		{wire.KeyLeaveGroup, onGroup(acl.Read, func(in *kmsg.LeaveGroupRequest) string { return in.Group },
			func(_ *kmsg.LeaveGroupRequest, out *kmsg.LeaveGroupResponse, code wire.ErrCode) {
				out.ErrorCode = int16(code)
			})},
		{wire.KeySyncGroup, onGroup(acl.Read, func(in *kmsg.SyncGroupRequest) string { return in.Group },
			func(_ *kmsg.SyncGroupRequest, out *kmsg.SyncGroupResponse, code wire.ErrCode) {
				out.ErrorCode = int16(code)
			})},
		{wire.KeyOffsetCommit, guardOffsetCommit},
		{wire.KeyOffsetFetch, guardOffsetFetch},
		{wire.KeyFindCoordinator, guardFindCoordinator},
		{wire.KeyDescribeGroups, eachOf(func(in *kmsg.DescribeGroupsRequest) *[]string { return &in.Groups },
			func(c *Call, _ *kmsg.DescribeGroupsRequest, id *string) wire.ErrCode {
				return codeUnless(c.may(acl.Describe, acl.Group, *id), acl.Group)
			},
			func(_ *kmsg.DescribeGroupsRequest, out *kmsg.DescribeGroupsResponse, id *string, code wire.ErrCode) {
				g := kmsg.NewDescribeGroupsResponseGroup()
				g.Group, g.ErrorCode = *id, int16(code)
				out.Groups = append(out.Groups, g)
			})},
		{wire.KeyListGroups, guardListGroups},
		{wire.KeyDeleteGroups, eachOf(func(in *kmsg.DeleteGroupsRequest) *[]string { return &in.Groups },
			func(c *Call, _ *kmsg.DeleteGroupsRequest, id *string) wire.ErrCode {
				return codeUnless(c.may(acl.Delete, acl.Group, *id), acl.Group)
			},
			func(_ *kmsg.DeleteGroupsRequest, out *kmsg.DeleteGroupsResponse, id *string, code wire.ErrCode) {
				g := kmsg.NewDeleteGroupsResponseGroup()
				g.Group, g.ErrorCode = *id, int16(code)
				out.Groups = append(out.Groups, g)
			})},
		{wire.KeyOffsetDelete, guardOffsetDelete},
		{wire.KeyConsumerGroupHeartbeat, guardConsumerHeartbeat},
		{wire.KeyConsumerGroupDescribe, eachOf(func(in *kmsg.ConsumerGroupDescribeRequest) *[]string { return &in.Groups },
			func(c *Call, _ *kmsg.ConsumerGroupDescribeRequest, id *string) wire.ErrCode {
				return codeUnless(c.may(acl.Describe, acl.Group, *id), acl.Group)
			},
			func(_ *kmsg.ConsumerGroupDescribeRequest, out *kmsg.ConsumerGroupDescribeResponse, id *string, code wire.ErrCode) {
				g := kmsg.NewConsumerGroupDescribeResponseGroup()
				g.Group, g.ErrorCode = *id, int16(code)
				out.Groups = append(out.Groups, g)
			})},
	}
}

// onGroup is asWhole for an operation on the one group that a request names.
func onGroup[In kmsg.Request, Out kmsg.Response](op acl.Operation, name func(In) string, refuse func(in In, out Out, code wire.ErrCode)) guard {
	return asWhole(func(c *Call, in In) wire.ErrCode { return codeUnless(c.may(op, acl.Group, name(in)), acl.Group) }, refuse)
}

// guardOffsetCommit asks for READ, of the group and of each topic.
func guardOffsetCommit(c *Call, m kmsg.Request) verdict {
	in := m.(*kmsg.OffsetCommitRequest)
	if code := codeUnless(c.may(acl.Read, acl.Group, in.Group), acl.Group); code != wire.None {
		out := in.ResponseKind().(*kmsg.OffsetCommitResponse)
		for i := range in.Topics {
			refuseOffsetCommit(in, out, &in.Topics[i], code)
		}
		return verdict{answer: out}
	}
	return eachOf(func(in *kmsg.OffsetCommitRequest) *[]kmsg.OffsetCommitRequestTopic { return &in.Topics },
		func(c *Call, in *kmsg.OffsetCommitRequest, t *kmsg.OffsetCommitRequestTopic) wire.ErrCode {
			return codeUnless(c.mayRef(acl.Read, topicRef{name: t.Topic, id: t.TopicID, useID: in.Version >= 10}), acl.Topic)
		}, refuseOffsetCommit)(c, m)
}

func refuseOffsetCommit(_ *kmsg.OffsetCommitRequest, out *kmsg.OffsetCommitResponse, t *kmsg.OffsetCommitRequestTopic, code wire.ErrCode) {
	to := kmsg.NewOffsetCommitResponseTopic()
	to.Topic, to.TopicID = t.Topic, t.TopicID
	for _, p := range t.Partitions {
		to.Partitions = append(to.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: int16(code)})
	}
	out.Topics = append(out.Topics, to)
}

// guardOffsetFetch asks for DESCRIBE, of each group and of each topic. Of all
// topics only those are shown that the client may describe.
func guardOffsetFetch(c *Call, m kmsg.Request) verdict {
	in := m.(*kmsg.OffsetFetchRequest)
	if in.Version < 8 {
		return guardOldOffsetFetch(c, in)
	}
	kept, refused := sift(in.Groups, func(g *kmsg.OffsetFetchRequestGroup) wire.ErrCode {
		return codeUnless(c.may(acl.Describe, acl.Group, g.Group), acl.Group)
	})
	in.Groups = kept
	missing := make([][]kmsg.OffsetFetchRequestGroupTopic, len(kept))
	for i := range kept {
		missing[i] = c.siftOffsets(&kept[i])
	}
	return verdict{amend: func(m kmsg.Response) {
		out := m.(*kmsg.OffsetFetchResponse)
		for i := range out.Groups {
			c.amendOffsets(&out.Groups[i], missing[i])
		}
		for _, r := range refused {
			g := kmsg.NewOffsetFetchResponseGroup()
			g.Group, g.ErrorCode = r.item.Group, int16(r.code)
			out.Groups = append(out.Groups, g)
		}
	}}
}

// siftOffsets takes the topics out of a group's request that the client may not
// describe, and gives them.
func (c *Call) siftOffsets(g *kmsg.OffsetFetchRequestGroup) (missing []kmsg.OffsetFetchRequestGroupTopic) {
	if g.Topics == nil {
		return nil // all of them: the answer is looked through
	}
	kept, refused := sift(g.Topics, func(t *kmsg.OffsetFetchRequestGroupTopic) wire.ErrCode {
		return codeUnless(c.mayRef(acl.Describe, topicRef{name: t.Topic, id: t.TopicID, useID: c.Req.Version >= 10}), acl.Topic)
	})
	g.Topics = kept
	for _, r := range refused {
		missing = append(missing, r.item)
	}
	return missing
}

// amendOffsets hides what the client may not describe, and refuses what it asked for by name.
func (c *Call) amendOffsets(g *kmsg.OffsetFetchResponseGroup, missing []kmsg.OffsetFetchRequestGroupTopic) {
	c = c.quietly()
	g.Topics = slices.DeleteFunc(g.Topics, func(t kmsg.OffsetFetchResponseGroupTopic) bool {
		return !c.mayRef(acl.Describe, topicRef{name: t.Topic, id: t.TopicID, useID: c.Req.Version >= 10})
	})
	if g.ErrorCode == 0 {
		g.Topics = append(g.Topics, failedOffsets(&kmsg.OffsetFetchRequestGroup{Topics: missing}, int16(wire.ErrTopicAuthorizationFailed))...)
	}
}

// guardOldOffsetFetch is guardOffsetFetch for the versions that ask for one group.
func guardOldOffsetFetch(c *Call, in *kmsg.OffsetFetchRequest) verdict {
	if code := codeUnless(c.may(acl.Describe, acl.Group, in.Group), acl.Group); code != wire.None {
		out := in.ResponseKind().(*kmsg.OffsetFetchResponse)
		out.ErrorCode = int16(code)
		if in.Version < 2 {
			out.Topics = refusedOffsets(in.Topics, code) // v1 has no other place for it
		}
		return verdict{answer: out}
	}
	if in.Topics == nil {
		return verdict{amend: func(m kmsg.Response) {
			out, c := m.(*kmsg.OffsetFetchResponse), c.quietly()
			out.Topics = slices.DeleteFunc(out.Topics, func(t kmsg.OffsetFetchResponseTopic) bool { return !c.mayTopic(acl.Describe, t.Topic) })
		}}
	}
	kept, refused := sift(in.Topics, func(t *kmsg.OffsetFetchRequestTopic) wire.ErrCode {
		return codeUnless(c.mayTopic(acl.Describe, t.Topic), acl.Topic)
	})
	in.Topics = kept
	var missing []kmsg.OffsetFetchRequestTopic
	for _, r := range refused {
		missing = append(missing, r.item)
	}
	return verdict{amend: func(m kmsg.Response) {
		out := m.(*kmsg.OffsetFetchResponse)
		out.Topics = append(out.Topics, refusedOffsets(missing, wire.ErrTopicAuthorizationFailed)...)
	}}
}

func refusedOffsets(topics []kmsg.OffsetFetchRequestTopic, code wire.ErrCode) []kmsg.OffsetFetchResponseTopic {
	var out []kmsg.OffsetFetchResponseTopic
	for _, t := range topics {
		to := kmsg.NewOffsetFetchResponseTopic()
		to.Topic = t.Topic
		for _, p := range t.Partitions {
			to.Partitions = append(to.Partitions, kmsg.OffsetFetchResponseTopicPartition{
				Partition: p, Offset: -1, LeaderEpoch: -1, Metadata: new(string), ErrorCode: int16(code)})
		}
		out = append(out, to)
	}
	return out
}

// guardFindCoordinator asks for DESCRIBE of what the coordinator is looked for.
func guardFindCoordinator(c *Call, m kmsg.Request) verdict {
	in := m.(*kmsg.FindCoordinatorRequest)
	may := func(key string) wire.ErrCode {
		switch in.CoordinatorType {
		case coordinatorGroup:
			return codeUnless(c.may(acl.Describe, acl.Group, key), acl.Group)
		case coordinatorTransaction:
			return codeUnless(c.may(acl.Describe, acl.TransactionalID, key), acl.TransactionalID)
		default:
			return codeUnless(c.mayCluster(acl.ClusterAction), acl.Cluster)
		}
	}
	if in.Version < 4 {
		return asWhole(func(_ *Call, in *kmsg.FindCoordinatorRequest) wire.ErrCode { return may(in.CoordinatorKey) },
			func(_ *kmsg.FindCoordinatorRequest, out *kmsg.FindCoordinatorResponse, code wire.ErrCode) {
				out.ErrorCode, out.NodeID, out.Port = int16(code), -1, -1
			})(c, m)
	}
	return eachOf(func(in *kmsg.FindCoordinatorRequest) *[]string { return &in.CoordinatorKeys },
		func(_ *Call, _ *kmsg.FindCoordinatorRequest, key *string) wire.ErrCode { return may(*key) },
		func(_ *kmsg.FindCoordinatorRequest, out *kmsg.FindCoordinatorResponse, key *string, code wire.ErrCode) {
			to := kmsg.NewFindCoordinatorResponseCoordinator()
			to.Key, to.NodeID, to.Port, to.ErrorCode = *key, -1, -1, int16(code)
			out.Coordinators = append(out.Coordinators, to)
		})(c, m)
}

// guardListGroups shows the groups that the client may describe; all to who may
// describe the cluster.
func guardListGroups(c *Call, _ kmsg.Request) verdict {
	c = c.quietly()
	if c.mayCluster(acl.Describe) {
		return verdict{}
	}
	return verdict{amend: func(m kmsg.Response) {
		out := m.(*kmsg.ListGroupsResponse)
		out.Groups = slices.DeleteFunc(out.Groups, func(g kmsg.ListGroupsResponseGroup) bool {
			return !c.may(acl.Describe, acl.Group, g.Group)
		})
	}}
}

// guardOffsetDelete asks for DELETE of the group and READ of each topic.
func guardOffsetDelete(c *Call, m kmsg.Request) verdict {
	in := m.(*kmsg.OffsetDeleteRequest)
	if code := codeUnless(c.may(acl.Delete, acl.Group, in.Group), acl.Group); code != wire.None {
		out := in.ResponseKind().(*kmsg.OffsetDeleteResponse)
		out.ErrorCode = int16(code)
		return verdict{answer: out}
	}
	return eachOf(func(in *kmsg.OffsetDeleteRequest) *[]kmsg.OffsetDeleteRequestTopic { return &in.Topics },
		func(c *Call, _ *kmsg.OffsetDeleteRequest, t *kmsg.OffsetDeleteRequestTopic) wire.ErrCode {
			return codeUnless(c.mayTopic(acl.Read, t.Topic), acl.Topic)
		},
		func(_ *kmsg.OffsetDeleteRequest, out *kmsg.OffsetDeleteResponse, t *kmsg.OffsetDeleteRequestTopic, code wire.ErrCode) {
			if out.ErrorCode != 0 {
				return // an error of the whole group leaves the topics out
			}
			to := kmsg.NewOffsetDeleteResponseTopic()
			to.Topic = t.Topic
			for _, p := range t.Partitions {
				to.Partitions = append(to.Partitions, kmsg.OffsetDeleteResponseTopicPartition{Partition: p.Partition, ErrorCode: int16(code)})
			}
			out.Topics = append(out.Topics, to)
		})(c, m)
}

// guardConsumerHeartbeat asks for READ of the group and DESCRIBE of every topic
// that is subscribed to by name (KIP-848). An expression stands for those that the
// member may describe: the group leaves the others out.
func guardConsumerHeartbeat(c *Call, m kmsg.Request) verdict {
	return asWhole(func(c *Call, in *kmsg.ConsumerGroupHeartbeatRequest) wire.ErrCode {
		if !c.may(acl.Read, acl.Group, in.Group) {
			return wire.ErrGroupAuthorizationFailed
		}
		for _, t := range in.SubscribedTopicNames {
			if !c.mayTopic(acl.Describe, t) {
				return wire.ErrTopicAuthorizationFailed
			}
		}
		return wire.None
	}, func(_ *kmsg.ConsumerGroupHeartbeatRequest, out *kmsg.ConsumerGroupHeartbeatResponse, code wire.ErrCode) {
		out.ErrorCode = int16(code)
	})(c, m)
}
