package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// ListOffsets (key 2): an offset for a time, or for a special point of the log.
//
// Behaviour
//   - -1 latest (the last stable offset for read_committed), -2 earliest, -3 the
//     record with the largest time, -4 earliest local (the earliest, as nothing is
//     tiered), -5 latest tiered and -6 earliest pending upload (none: -1). Each
//     from the version that has it; else UNSUPPORTED_VERSION for the partition.
//   - A time gives the first record at or after it; beyond all records -1, no error.
//   - A partition that is named twice is INVALID_REQUEST, both times.
//   - The leader epoch answered is the record's, from the history (R6).
//
// Versions
//   - 1: one offset. 2: isolation level. 4: leader epochs. 6: flexible. 7: -3
//     (KIP-734). 8: -4 (KIP-405). 9: -5 (KIP-1005). 10: timeout. 11: -6 (KIP-1023).
func (c *Call) listOffsets(in *kmsg.ListOffsetsRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrListOffsetsResponse()
	times := make(map[types.TopicPartition]int)
	for _, t := range in.Topics {
		for _, p := range t.Partitions {
			times[types.TopicPartition{Topic: t.Topic, Partition: p.Partition}]++
		}
	}
	for _, t := range in.Topics {
		to := kmsg.NewListOffsetsResponseTopic()
		to.Topic = t.Topic
		for _, p := range t.Partitions {
			twice := times[types.TopicPartition{Topic: t.Topic, Partition: p.Partition}] > 1
			to.Partitions = append(to.Partitions, c.listOffset(in, t.Topic, p, twice))
		}
		out.Topics = append(out.Topics, to)
	}
	return out, nil
}

func (c *Call) listOffset(in *kmsg.ListOffsetsRequest, topic string, p kmsg.ListOffsetsRequestTopicPartition, twice bool) kmsg.ListOffsetsResponseTopicPartition {
	to := kmsg.NewListOffsetsResponseTopicPartition()
	to.Partition = p.Partition
	to.Offset, to.Timestamp, to.LeaderEpoch = -1, -1, -1
	var a OffsetAnswer
	var err error
	switch {
	case twice:
		err = wire.ErrInvalidRequest
	case !hasTimestamp(types.Millis(p.Timestamp), in.Version):
		err = wire.ErrUnsupportedVersion
	default:
		a, err = c.askOffset(in, topic, p)
	}
	if err != nil {
		to.ErrorCode = int16(c.failed(wire.KeyListOffsets, err))
		return to
	}
	to.Offset, to.Timestamp, to.LeaderEpoch = int64(a.Offset), int64(a.Timestamp), int32(a.LeaderEpoch)
	return to
}

func (c *Call) askOffset(in *kmsg.ListOffsetsRequest, topic string, p kmsg.ListOffsetsRequestTopicPartition) (OffsetAnswer, error) {
	part, err := c.partition(c.Image, topicRef{name: topic}, p.Partition)
	if err != nil {
		return OffsetAnswer{}, err
	}
	q := OffsetQuery{Timestamp: types.Millis(p.Timestamp), Committed: in.IsolationLevel == 1,
		CurrentLeaderEpoch: types.LeaderEpoch(p.CurrentLeaderEpoch), Replica: types.BrokerID(in.ReplicaID)}
	if q.Replica < 0 {
		q.Replica = types.NoBroker // -2 is a debugging consumer
	}
	return part.ListOffset(q)
}

// hasTimestamp reports whether a request of this version may ask for ts.
func hasTimestamp(ts types.Millis, version int16) bool {
	switch ts {
	case TimestampLatest, TimestampEarliest:
		return true
	case TimestampMax:
		return version >= 7
	case TimestampEarliestLocal:
		return version >= 8
	case TimestampLatestTiered:
		return version >= 9
	case TimestampEarliestPending:
		return version >= 11
	}
	return ts >= 0
}
