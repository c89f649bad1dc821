package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// AddOffsetsToTxn (key 25): a group's offsets become part of a producer's
// transaction, as the partition of __consumer_offsets that keeps the group.
//
// Versions 0 to 4. Before v2 PRODUCER_FENCED is INVALID_PRODUCER_EPOCH. 3:
// flexible. 4: TRANSACTION_ABORTABLE (KIP-890); producers of transactions v2 don't
// ask, TxnOffsetCommit adds the partition itself.
func (c *Call) addOffsetsToTxn(in *kmsg.AddOffsetsToTxnRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrAddOffsetsToTxnResponse()
	add := transaction.Add{ID: in.TransactionalID, ProducerID: types.ProducerID(in.ProducerID), Epoch: in.ProducerEpoch}
	code := wire.None
	if in.Group == "" {
		code = wire.ErrInvalidGroupID
	} else if tp, err := c.Groups.PartitionOf(c.Ctx, in.Group); err != nil {
		code = CodeOf(err)
	} else {
		add.Partitions = []types.TopicPartition{tp}
		code = c.Transactions.Add(c.Ctx, add)
	}
	if code == wire.ErrProducerFenced && in.Version < 2 {
		code = wire.ErrInvalidProducerEpoch
	}
	out.ErrorCode = int16(code)
	return out, nil
}
