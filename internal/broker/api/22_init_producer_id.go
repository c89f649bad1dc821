package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// InitProducerId (key 22): a producer id for an idempotent producer.
//
// Behaviour
//   - Without a transactional id: a fresh id of this cluster's range (R30), epoch 0.
//   - With one: the coordinator's id for it and the next epoch, which fences whoever
//     had it before; what was open is aborted first, and CONCURRENT_TRANSACTIONS says so.
//   - An empty transactional id, or only one of producer id and epoch, is INVALID_REQUEST.
//
// Versions
//   - 2: flexible. 3: producer id and epoch to go on with (KIP-360). 4: PRODUCER_FENCED
//     in place of INVALID_PRODUCER_EPOCH. 5: transactions v2 (KIP-890). 6 (two-phase commit) is unstable in Kafka and not advertised.
func (c *Call) initProducerID(in *kmsg.InitProducerIDRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrInitProducerIDResponse()
	out.ProducerID, out.ProducerEpoch = -1, -1
	switch {
	case in.TransactionalID != nil && *in.TransactionalID == "",
		in.Version >= 3 && (in.ProducerID == -1) != (in.ProducerEpoch == -1):
		out.ErrorCode = int16(wire.ErrInvalidRequest)
		return out, nil
	case in.TransactionalID != nil:
		c.initTransactional(in, out)
		return out, nil
	}
	id, err := c.ProducerIDs.Next(c.Ctx)
	if err != nil {
		out.ErrorCode = int16(c.failed(wire.KeyInitProducerId, err))
		return out, nil
	}
	out.ProducerID, out.ProducerEpoch = int64(id), 0
	return out, nil
}

func (c *Call) initTransactional(in *kmsg.InitProducerIDRequest, out *kmsg.InitProducerIDResponse) {
	ev := transaction.Init{
		ID: *in.TransactionalID, Timeout: types.Millis(in.TransactionTimeoutMillis), ProducerID: types.NoProducer, Epoch: transaction.NoEpoch,
	}
	if in.Version >= 3 && in.ProducerID != -1 {
		ev.ProducerID, ev.Epoch = types.ProducerID(in.ProducerID), in.ProducerEpoch
	}
	r := c.Transactions.Init(c.Ctx, ev)
	code := r.Code
	if code == wire.ErrProducerFenced && in.Version < 4 {
		code = wire.ErrInvalidProducerEpoch
	}
	out.ErrorCode, out.ProducerID, out.ProducerEpoch = int16(code), int64(r.ProducerID), r.Epoch
}
