package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// DeleteTopics (key 20): delete topics, each for itself.
//
// Behaviour
//   - The name is free at once. An unknown name is UNKNOWN_TOPIC_OR_PARTITION,
//     an unknown id UNKNOWN_TOPIC_ID; both at once, neither, or a repetition (also once
//     by name and once by id), INVALID_REQUEST.
//   - delete.topic.enable=false: TOPIC_DELETION_DISABLED (INVALID_REQUEST below version 3).
//   - A topic that is being mirrored is refused: its mirror would make it anew.
//
// Versions
//   - 1: throttle time. 4: flexible. 5: messages. 6: by id.
func (c *Call) deleteTopics(in *kmsg.DeleteTopicsRequest) (kmsg.Response, error) {
	ctx, cancel := c.within(in.TimeoutMillis)
	defer cancel()
	asked := in.Topics
	if in.Version < 6 {
		for i := range in.TopicNames {
			asked = append(asked, kmsg.DeleteTopicsRequestTopic{Topic: &in.TopicNames[i]})
		}
	}
	twice, same := repeated(asked, deleteRef), c.named(asked)
	out := kmsg.NewPtrDeleteTopicsResponse()
	for _, t := range asked {
		to := kmsg.NewDeleteTopicsResponseTopic()
		to.Topic, to.TopicID = t.Topic, t.TopicID
		ref := deleteRef(t)
		var err error
		switch {
		case t.Topic == nil && t.TopicID == [16]byte{}:
			err = wire.Errorf(wire.ErrInvalidRequest, "Neither a name nor an id names the topic.")
		case twice[ref], same[ref] > 1:
			err = wire.Errorf(wire.ErrInvalidRequest, "The topic is named more than once.")
		case t.Topic != nil && t.TopicID != [16]byte{}:
			err = wire.Errorf(wire.ErrInvalidRequest, "A topic is named either by name or by id.")
		default:
			err = c.deleteTopic(ctx, in.Version, ref, &to)
		}
		if err != nil {
			to.ErrorCode, to.ErrorMessage = int16(CodeOf(err)), MessageOf(err)
			c.failed(wire.KeyDeleteTopics, err)
		}
		if in.Version < 6 && to.Topic == nil {
			to.Topic = new(string)
		}
		out.Topics = append(out.Topics, to)
	}
	return out, nil
}

// named counts for each reference how many of them mean its topic.
func (c *Call) named(asked []kmsg.DeleteTopicsRequestTopic) map[topicRef]int {
	topics, out := make(map[types.TopicID]int), make(map[topicRef]int)
	for _, t := range asked {
		if rec, err := deleteRef(t).find(c.Image); err == nil {
			topics[rec.ID]++
		}
	}
	for _, t := range asked {
		if rec, err := deleteRef(t).find(c.Image); err == nil {
			out[deleteRef(t)] = topics[rec.ID]
		}
	}
	return out
}

func deleteRef(t kmsg.DeleteTopicsRequestTopic) topicRef {
	if t.Topic != nil {
		return topicRef{name: *t.Topic}
	}
	return topicRef{id: t.TopicID, useID: true}
}

func (c *Call) deleteTopic(ctx context.Context, version int16, ref topicRef, to *kmsg.DeleteTopicsResponseTopic) error {
	if !c.Settings().DeleteTopics {
		if version < 3 {
			return wire.ErrInvalidRequest
		}
		return wire.Errorf(wire.ErrTopicDeletionDisabled, "Topics can't be deleted: delete.topic.enable is false.")
	}
	t, err := ref.find(c.Image)
	if err != nil {
		return err
	}
	to.Topic, to.TopicID = &t.Name, t.ID
	err = c.Topics.Delete(ctx, t.ID)
	if CodeOf(err) == wire.ErrUnknownTopicID && !ref.useID {
		return wire.ErrUnknownTopicOrPartition // gone since the image was taken
	}
	return err
}
