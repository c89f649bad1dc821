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
//     (KIP-890). 5: TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE.
func (c *Call) addPartitionsToTxn(in *kmsg.AddPartitionsToTxnRequest) (kmsg.Response, error) {
	if in.Version >= 4 {
		return c.addPartitionsToTxns(in), nil
	}
	out := kmsg.NewPtrAddPartitionsToTxnResponse()
	var tps []types.TopicPartition
	unknown := map[types.TopicPartition]bool{}
	for _, t := range in.Topics {
		for _, n := range t.Partitions {
			tp := types.TopicPartition{Topic: t.Topic, Partition: n}
			tps = append(tps, tp)
			if found, ok := c.Image.TopicByName(t.Topic); !ok || n < 0 || n >= found.Record.Partitions {
				unknown[tp] = true
			}
		}
	}
	code := wire.ErrOperationNotAttempted
	if len(unknown) == 0 {
		code = c.txnCode(c.Transactions.Add(c.Ctx, transaction.Add{
			ID: in.TransactionalID, ProducerID: types.ProducerID(in.ProducerID), Epoch: in.ProducerEpoch, Partitions: cloneNames(tps),
		}))
		if code == wire.ErrProducerFenced && in.Version < 2 {
			code = wire.ErrInvalidProducerEpoch
		}
	}
	for _, t := range in.Topics {
		to := kmsg.NewAddPartitionsToTxnResponseTopic()
		to.Topic = t.Topic
		for _, n := range t.Partitions {
			p := kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: n, ErrorCode: int16(code)}
			if unknown[types.TopicPartition{Topic: t.Topic, Partition: n}] {
				p.ErrorCode = int16(wire.ErrUnknownTopicOrPartition)
			}
			to.Partitions = append(to.Partitions, p)
		}
		out.Topics = append(out.Topics, to)
	}
	return out, nil
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
		add.Partitions = cloneNames(add.Partitions)
		code := c.txnCode(c.Transactions.Add(c.Ctx, add))
		if code == wire.ErrTransactionAbortable && in.Version < 5 {
			code = wire.ErrInvalidTxnState
		}
		to := kmsg.NewAddPartitionsToTxnResponseTransaction()
		to.TransactionalID = t.TransactionalID
		for _, topic := range t.Topics {
			answer := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			answer.Topic = topic.Topic
			for _, n := range topic.Partitions {
				answer.Partitions = append(answer.Partitions, kmsg.AddPartitionsToTxnResponseTransactionTopicPartition{Partition: n, ErrorCode: int16(code)})
			}
			to.Topics = append(to.Topics, answer)
		}
		out.Transactions = append(out.Transactions, to)
	}
	return out
}
