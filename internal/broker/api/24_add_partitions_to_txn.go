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
//     OPERATION_NOT_ATTEMPTED; so they are if a switchover has closed one, or a mirror writes it, which is
//     POLICY_VIOLATION.
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
	code, refused := c.addAll(add)
	if code == wire.ErrProducerFenced && in.Version < 2 {
		code = wire.ErrInvalidProducerEpoch
	}
	for _, t := range in.Topics {
		to := kmsg.NewAddPartitionsToTxnResponseTopic()
		to.Topic = t.Topic
		for _, n := range t.Partitions {
			to.Partitions = append(to.Partitions, kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: n, ErrorCode: refused.or(code, t.Topic, n)})
		}
		out.Topics = append(out.Topics, to)
	}
	return out, nil
}

// refusedPartitions are those that can't be added, with why.
type refusedPartitions map[types.TopicPartition]wire.ErrCode

// or gives the code of one partition, where the others have this one.
func (r refusedPartitions) or(code wire.ErrCode, topic string, n int32) int16 {
	if own, refused := r[types.TopicPartition{Topic: topic, Partition: n}]; refused {
		code = own
	}
	return int16(code)
}

// addAll adds all partitions, or looks whether they are there, unless no topic has
// some, a switchover has closed some, or a mirror writes them.
func (c *Call) addAll(add transaction.Add) (wire.ErrCode, refusedPartitions) {
	refused := refusedPartitions{}
	for _, tp := range add.Partitions {
		t, ok := c.Image.TopicByName(tp.Topic)
		if !ok || tp.Partition < 0 || tp.Partition >= t.Record.Partitions {
			refused[tp] = wire.ErrUnknownTopicOrPartition
			continue
		}
		if rec, _ := c.Image.Partition(t.Record.ID, tp.Partition); rec != nil && (rec.Fence != nil || rec.IsMirror()) && !add.VerifyOnly {
			refused[tp] = wire.ErrPolicyViolation
		}
	}
	if len(refused) > 0 {
		return wire.ErrOperationNotAttempted, refused
	}
	add.Partitions = cloneNames(add.Partitions)
	return c.Transactions.Add(c.Ctx, add), nil
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
		code, refused := c.addAll(add)
		to := kmsg.NewAddPartitionsToTxnResponseTransaction()
		to.TransactionalID = t.TransactionalID
		for _, topic := range t.Topics {
			answer := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			answer.Topic = topic.Topic
			for _, n := range topic.Partitions {
				answer.Partitions = append(answer.Partitions, kmsg.AddPartitionsToTxnResponseTransactionTopicPartition{Partition: n, ErrorCode: refused.or(code, topic.Topic, n)})
			}
			to.Topics = append(to.Topics, answer)
		}
		out.Transactions = append(out.Transactions, to)
	}
	return out
}
