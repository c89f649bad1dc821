package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// EndTxn (key 26): a transaction is committed or aborted. The answer says that the
// decision is durable; the markers follow, and the next transaction may meet
// CONCURRENT_TRANSACTIONS until they are written.
//
// Versions 0 to 5. Before v2 PRODUCER_FENCED is INVALID_PRODUCER_EPOCH. 3:
// flexible. 4: TRANSACTION_ABORTABLE. 5: every end gives the producer a new epoch,
// and an abort of nothing is one too (KIP-890).
func (c *Call) endTxn(in *kmsg.EndTxnRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrEndTxnResponse()
	done := c.Transactions.End(c.Ctx, transaction.End{
		ID: in.TransactionalID, ProducerID: types.ProducerID(in.ProducerID), Epoch: in.ProducerEpoch, Commit: in.Commit, Bumps: in.Version >= 5,
	})
	code := done.Code
	if code == wire.ErrProducerFenced && in.Version < 2 {
		code = wire.ErrInvalidProducerEpoch
	}
	out.ErrorCode = int16(code)
	if code == wire.None && in.Version >= 5 {
		out.ProducerID, out.ProducerEpoch = int64(done.ProducerID), done.Epoch
	}
	return out, nil
}
