package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// DeleteRecords (key 21): raise the log start of partitions.
//
// Behaviour
//   - Offset -1 is the high watermark; above it is OFFSET_OUT_OF_RANGE; at or
//     below the log start is fine and changes nothing.
//   - The answer holds the new log start. A mirror refuses: its log start is its source's.
//   - Internal topics are refused (INVALID_TOPIC_EXCEPTION), as in Kafka.
//
// Versions
//   - 0-1 alike; 2: flexible.
func (c *Call) deleteRecords(in *kmsg.DeleteRecordsRequest) (kmsg.Response, error) {
	ctx, cancel := c.within(in.TimeoutMillis)
	defer cancel()
	out := kmsg.NewPtrDeleteRecordsResponse()
	type job struct {
		topic string
		from  *kmsg.DeleteRecordsRequestTopicPartition
		to    *kmsg.DeleteRecordsResponseTopicPartition
	}
	var jobs []job
	for _, t := range in.Topics {
		to := kmsg.NewDeleteRecordsResponseTopic()
		to.Topic = t.Topic
		to.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(t.Partitions))
		for i := range t.Partitions {
			jobs = append(jobs, job{t.Topic, &t.Partitions[i], &to.Partitions[i]})
		}
		out.Topics = append(out.Topics, to)
	}
	each(c.Ctx, len(jobs), appendAllMax, func(i int) {
		j := jobs[i]
		j.to.Default()
		j.to.Partition = j.from.Partition
		low, err := c.deleteBefore(ctx, j.topic, j.from.Partition, types.Offset(j.from.Offset))
		if err != nil {
			low = types.NoOffset
			j.to.ErrorCode = int16(c.failed(wire.KeyDeleteRecords, err))
		}
		j.to.LowWatermark = int64(low)
	})
	return out, nil
}

func (c *Call) deleteBefore(ctx context.Context, topic string, index int32, before types.Offset) (types.Offset, error) {
	if t, ok := c.Image.TopicByName(topic); ok && t.Record.Internal {
		return types.NoOffset, wire.ErrInvalidTopic
	}
	if before < types.NoOffset {
		return types.NoOffset, wire.ErrOffsetOutOfRange
	}
	p, err := c.partition(c.Image, topicRef{name: topic}, index)
	if err != nil {
		return types.NoOffset, err
	}
	return p.DeleteRecords(ctx, before)
}
