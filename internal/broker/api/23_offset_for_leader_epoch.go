package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// OffsetForLeaderEpoch (key 23): where a leader epoch ends.
//
// Behaviour
//   - The largest epoch of the history at or below the one asked for, and its
//     end (R5); -1 and -1 if there is none, or the epoch asked for is above the
//     leader epoch. Clients use it to find out what a cut took (KIP-320).
//
// Versions
//   - 2: current leader epoch, fenced. 3: replica id. 4: flexible.
func (c *Call) offsetForLeaderEpoch(in *kmsg.OffsetForLeaderEpochRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for _, t := range in.Topics {
		to := kmsg.NewOffsetForLeaderEpochResponseTopic()
		to.Topic = t.Topic
		for _, p := range t.Partitions {
			a := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			a.Partition = p.Partition
			epoch, end, err := c.epochEnd(t.Topic, p)
			if err != nil {
				epoch, end = types.NoLeaderEpoch, types.NoOffset
				a.ErrorCode = int16(c.failed(wire.KeyOffsetForLeaderEpoch, err))
			}
			a.LeaderEpoch, a.EndOffset = int32(epoch), int64(end)
			to.Partitions = append(to.Partitions, a)
		}
		out.Topics = append(out.Topics, to)
	}
	return out, nil
}

func (c *Call) epochEnd(topic string, p kmsg.OffsetForLeaderEpochRequestTopicPartition) (types.LeaderEpoch, types.Offset, error) {
	part, err := c.partition(c.Image, topicRef{name: topic}, p.Partition)
	if err != nil {
		return types.NoLeaderEpoch, types.NoOffset, err
	}
	return part.EpochEnd(types.LeaderEpoch(p.CurrentLeaderEpoch), types.LeaderEpoch(p.LeaderEpoch))
}
