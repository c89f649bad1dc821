package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// DescribeTransactions (key 65, version 0): the transactional ids that this broker
// coordinates, by name (KIP-664). TRANSACTIONAL_ID_NOT_FOUND for one that nobody used,
// INVALID_REQUEST for the empty one.
func (c *Call) describeTransactions(in *kmsg.DescribeTransactionsRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrDescribeTransactionsResponse()
	for _, id := range in.TransactionalIDs {
		to := kmsg.NewDescribeTransactionsResponseTransactionState()
		to.TransactionalID = id
		if id == "" {
			to.ErrorCode = int16(wire.ErrInvalidRequest)
			out.TransactionStates = append(out.TransactionStates, to)
			continue
		}
		m, code := c.Transactions.Describe(c.Ctx, id)
		to.ErrorCode = int16(code)
		if code == 0 {
			to.State, to.TimeoutMillis, to.StartTimestamp = m.State.String(), int32(m.Timeout), int64(m.StartedAt)
			to.ProducerID, to.ProducerEpoch = int64(m.ProducerID), m.Epoch
			for _, tp := range m.Partitions {
				n := len(to.Topics)
				if n == 0 || to.Topics[n-1].Topic != tp.Topic {
					to.Topics = append(to.Topics, kmsg.DescribeTransactionsResponseTransactionStateTopic{Topic: tp.Topic})
					n++
				}
				to.Topics[n-1].Partitions = append(to.Topics[n-1].Partitions, tp.Partition)
			}
		}
		out.TransactionStates = append(out.TransactionStates, to)
	}
	return out, nil
}
