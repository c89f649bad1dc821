package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// DescribeProducers (key 61, version 0): what the logs that this broker leads know of
// their producers (KIP-664): who has a transaction open, and since which offset.
func (c *Call) describeProducers(in *kmsg.DescribeProducersRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrDescribeProducersResponse()
	for _, t := range in.Topics {
		to := kmsg.NewDescribeProducersResponseTopic()
		to.Topic = t.Topic
		for _, n := range t.Partitions {
			p := kmsg.NewDescribeProducersResponseTopicPartition()
			p.Partition = n
			if err := c.producersOf(&p, t.Topic); err != nil {
				p.ErrorCode, p.ErrorMessage = int16(CodeOf(err)), MessageOf(err)
			}
			to.Partitions = append(to.Partitions, p)
		}
		out.Topics = append(out.Topics, to)
	}
	return out, nil
}

func (c *Call) producersOf(out *kmsg.DescribeProducersResponseTopicPartition, topic string) error {
	t, ok := c.Image.TopicByName(topic)
	if !ok || out.Partition < 0 || out.Partition >= t.Record.Partitions {
		return wire.ErrUnknownTopicOrPartition
	}
	p, err := c.Partitions.Get(t.Record.ID, out.Partition)
	if err != nil {
		return err
	}
	all, err := p.Producers(c.Ctx)
	for _, x := range all {
		to := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		to.ProducerID, to.ProducerEpoch, to.LastSequence = int64(x.ID), int32(x.Epoch), x.LastSequence
		to.LastTimestamp, to.CoordinatorEpoch, to.CurrentTxnStartOffset = int64(x.LastTimestamp), x.CoordinatorEpoch, int64(types.NoOffset)
		if x.TxnFirstOffset >= 0 {
			to.CurrentTxnStartOffset = int64(x.TxnFirstOffset)
		}
		out.ActiveProducers = append(out.ActiveProducers, to)
	}
	return err
}
