package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// AddPartitionsToTxn (key 24): partitions become part of a producer's transaction.
//
// Behaviour
//   - All partitions are added or none: if one is unknown, the others are
//     OPERATION_NOT_ATTEMPTED.
//   - Older clients (before v2) are told INVALID_PRODUCER_EPOCH where newer ones are
//     told PRODUCER_FENCED.
//
// Versions
//   - 0 to 3 are clients', of one transaction each. 3: flexible.
//   - 4 and 5 are brokers': many transactions, to be added to or only looked at
//     (KIP-890); each with one answer for all its partitions.
func (c *Call) addPartitionsToTxn(in *kmsg.AddPartitionsToTxnRequest) (kmsg.Response, error) {
	if in.Version >= 4 {
		return c.addPartitionsToTxns(in), nil
	}
	out := kmsg.NewPtrAddPartitionsToTxnResponse()
	add := transaction.Add{ID: in.TransactionalID, ProducerID: types.ProducerID(in.ProducerID), Epoch: in.ProducerEpoch}
	for _, t := range in.Topics {
		for _, n := range t.Partitions {
			add.Partitions = append(add.Partitions, types.TopicPartition{Topic: t.Topic, Partition: n})
		}
	}
	code, unknown := c.addAll(add)
	if code == wire.ErrProducerFenced && in.Version < 2 {
		code = wire.ErrInvalidProducerEpoch
	}
	for _, t := range in.Topics {
		to := kmsg.NewAddPartitionsToTxnResponseTopic()
		to.Topic = t.Topic
		for _, n := range t.Partitions {
			to.Partitions = append(to.Partitions, kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: n, ErrorCode: unknown.or(code, t.Topic, n)})
		}
		out.Topics = append(out.Topics, to)
	}
	return out, nil
}

// unknownPartitions are those that no topic has.
type unknownPartitions map[types.TopicPartition]bool

// or gives the code of one partition, where the others have this one.
func (u unknownPartitions) or(code wire.ErrCode, topic string, n int32) int16 {
	if u[types.TopicPartition{Topic: topic, Partition: n}] {
		code = wire.ErrUnknownTopicOrPartition
	}
	return int16(code)
}

// addAll adds all partitions, or looks whether they are there, unless some are unknown.
func (c *Call) addAll(add transaction.Add) (wire.ErrCode, unknownPartitions) {
	unknown := unknownPartitions{}
	for _, tp := range add.Partitions {
		if t, ok := c.Image.TopicByName(tp.Topic); !ok || tp.Partition < 0 || tp.Partition >= t.Record.Partitions {
			unknown[tp] = true
		}
	}
	if len(unknown) > 0 {
		return wire.ErrOperationNotAttempted, unknown
	}
	add.Partitions = cloneNames(add.Partitions)
	return wire.ErrCode(c.Transactions.Add(c.Ctx, add)), nil
}

func (c *Call) addPartitionsToTxns(in *kmsg.AddPartitionsToTxnRequest) kmsg.Response {
	out := kmsg.NewPtrAddPartitionsToTxnResponse()
	for _, t := range in.Transactions {
		add := transaction.Add{ID: t.TransactionalID, ProducerID: types.ProducerID(t.ProducerID), Epoch: t.ProducerEpoch, VerifyOnly: t.VerifyOnly}
		for _, topic := range t.Topics {
			for _, n := range topic.Partitions {
				add.Partitions = append(add.Partitions, types.TopicPartition{Topic: topic.Topic, Partition: n})
			}
		}
		code, unknown := c.addAll(add)
		to := kmsg.NewAddPartitionsToTxnResponseTransaction()
		to.TransactionalID = t.TransactionalID
		for _, topic := range t.Topics {
			answer := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			answer.Topic = topic.Topic
			for _, n := range topic.Partitions {
				answer.Partitions = append(answer.Partitions, kmsg.AddPartitionsToTxnResponseTransactionTopicPartition{Partition: n, ErrorCode: unknown.or(code, topic.Topic, n)})
			}
			to.Topics = append(to.Topics, answer)
		}
		out.Transactions = append(out.Transactions, to)
	}
	return out
}
