package source

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
)

// keyDescribeProducers is the API that tells who writes to a partition (KIP-664, Kafka 2.8).
const keyDescribeProducers = 61

// Producer is one that a partition's leader remembers.
type Producer struct {
	ID    types.ProducerID
	Epoch int16
	// LastAt is the time stamp of its last record, LastSequence that record's sequence; -1 if unknown.
	LastAt       types.Millis
	LastSequence int32
}

// Producers asks the leader broker who writes to the partitions: idempotent and
// transactional producers only, others leave no trace. Nil for a broker that
// doesn't know the API; a partition with an error is missing in the answer.
func (c *Client) Producers(ctx context.Context, broker types.BrokerID, list []types.TopicPartition) (map[types.TopicPartition][]Producer, error) {
	cn, err := c.brokerConn(ctx, broker, purposeRequests)
	if err != nil {
		return nil, err
	}
	if _, offered := cn.versions[keyDescribeProducers]; !offered {
		return nil, nil
	}
	req := kmsg.NewPtrDescribeProducersRequest()
	grouped(list, func(tp types.TopicPartition) types.TopicPartition { return tp },
		func(name string) {
			t := kmsg.NewDescribeProducersRequestTopic()
			t.Topic = name
			req.Topics = append(req.Topics, t)
		},
		func(tp types.TopicPartition) {
			t := &req.Topics[len(req.Topics)-1]
			t.Partitions = append(t.Partitions, tp.Partition)
		})
	kr, err := cn.ask(ctx, req)
	if err != nil {
		return nil, err
	}
	out := map[types.TopicPartition][]Producer{}
	for _, t := range kr.(*kmsg.DescribeProducersResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				continue
			}
			producers := make([]Producer, 0, len(p.ActiveProducers))
			for _, a := range p.ActiveProducers {
				producers = append(producers, Producer{ID: types.ProducerID(a.ProducerID), Epoch: int16(a.ProducerEpoch), LastAt: types.Millis(a.LastTimestamp), LastSequence: a.LastSequence})
			}
			out[types.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = producers
		}
	}
	return out, nil
}
