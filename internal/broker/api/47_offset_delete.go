package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// OffsetDelete, version 0 (KIP-496): removes committed offsets of a group, in
// a consumer group with members only of topics that it doesn't subscribe to
// (GROUP_SUBSCRIBED_TO_TOPIC). An error of the whole group leaves the topics out.
func offsetDelete(c *Call, req *kmsg.OffsetDeleteRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	ev := group.DeleteOffsets{Group: req.Group}
	var places []*int16
	topics := make([]kmsg.OffsetDeleteResponseTopic, len(req.Topics))
	for i, in := range req.Topics {
		topics[i].Topic = in.Topic
		topics[i].Partitions = make([]kmsg.OffsetDeleteResponseTopicPartition, len(in.Partitions))
		_, known := c.Image.TopicByName(in.Topic)
		for j, p := range in.Partitions {
			out := &topics[i].Partitions[j]
			out.Partition = p.Partition
			if !known {
				out.ErrorCode = int16(wire.ErrUnknownTopicOrPartition)
				continue
			}
			places = append(places, &out.ErrorCode)
			ev.Partitions = append(ev.Partitions, types.TopicPartition{Topic: in.Topic, Partition: p.Partition})
		}
	}
	r := c.Groups.DeleteOffsets(c.Ctx, ev)
	if r.Code != errcode.None {
		resp.ErrorCode = wireCode(r.Code)
		return resp, nil
	}
	for i, place := range places {
		*place = wireCode(r.Partitions[i])
	}
	resp.Topics = topics
	return resp, nil
}
