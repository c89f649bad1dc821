package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// OffsetCommit, versions 2 to 10.
//
//   - v2-4 carry a retention of their own; v6 the leader epoch of the last
//     record that was read; v7 the instance id (KIP-345); from v9 on the generation may
//     be a member's epoch (KIP-848); v10 topic ids in place of names.
//   - A topic that doesn't exist is refused by itself: UNKNOWN_TOPIC_OR_PARTITION,
//     by id UNKNOWN_TOPIC_ID; the other topics are committed.
//   - The offset itself isn't compared with the log, as in Kafka: clients
//     commit what they have.
func offsetCommit(c *Call, req *kmsg.OffsetCommitRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	ev := group.Commit{
		Group: req.Group, MemberID: req.MemberID, InstanceID: text(req.InstanceID), Generation: req.Generation,
		UnknownGroupIsNotFound: req.Version >= 9,
	}
	// places says where in the answer each partition of the event stands.
	var places []*int16
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Topic, out.TopicID = in.Topic, in.TopicID
		out.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(in.Partitions))
		name, id, code := c.commitTopic(topicRef{name: in.Topic, id: in.TopicID, useID: c.Req.Version >= 10})
		for j := range in.Partitions {
			p := &in.Partitions[j]
			out.Partitions[j].Partition = p.Partition
			if code != wire.None {
				out.Partitions[j].ErrorCode = int16(code)
				continue
			}
			places = append(places, &out.Partitions[j].ErrorCode)
			ev.Offsets = append(ev.Offsets, commitOffset(req, p, name, id))
		}
	}
	if len(ev.Offsets) == 0 && len(req.Topics) > 0 {
		return resp, nil
	}
	answer := c.Groups.Commit(c.Ctx, ev)
	for i, place := range places {
		if answer.Code != errcode.None {
			*place = wireCode(answer.Code)
		} else {
			*place = wireCode(answer.Partitions[i])
		}
	}
	return resp, nil
}

// commitTopic finds the topic that is committed for.
func (c *Call) commitTopic(ref topicRef) (string, types.TopicID, wire.ErrCode) {
	t, err := ref.find(c.Image)
	switch {
	case err == nil:
		return t.Name, t.ID, wire.None
	case ref.useID:
		return "", types.TopicID{}, wire.ErrUnknownTopicID
	}
	return "", types.TopicID{}, wire.ErrUnknownTopicOrPartition
}

func commitOffset(req *kmsg.OffsetCommitRequest, p *kmsg.OffsetCommitRequestTopicPartition, name string, id types.TopicID) group.CommitOffset {
	o := group.CommitOffset{
		Topic: name, TopicID: id, Partition: p.Partition, Offset: types.Offset(p.Offset),
		LeaderEpoch: types.NoLeaderEpoch, Metadata: text(p.Metadata), Retention: -1,
	}
	if req.Version >= 6 {
		o.LeaderEpoch = types.LeaderEpoch(p.LeaderEpoch)
	}
	if req.Version <= 4 {
		o.Retention = types.Millis(req.RetentionTimeMillis)
	}
	return o
}
