package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// InitProducerId (key 22): a producer id for an idempotent producer.
//
// Behaviour
//   - Without a transactional id: a fresh id of this cluster's range (R30), epoch 0.
//   - With one: COORDINATOR_NOT_AVAILABLE, which is what Kafka says while its
//     transaction topic can't be used. Transactions aren't served yet.
//   - An empty transactional id, or only one of producer id and epoch, is INVALID_REQUEST.
//
// Versions
//   - 2: flexible. 3: producer id and epoch to go on with (KIP-360). 4, 5: alike
//     here. 6 (two-phase commit) is unstable in Kafka and not advertised.
func (c *Call) initProducerID(in *kmsg.InitProducerIDRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrInitProducerIDResponse()
	out.ProducerID, out.ProducerEpoch = -1, -1
	switch {
	case in.TransactionalID != nil && *in.TransactionalID == "",
		in.Version >= 3 && (in.ProducerID == -1) != (in.ProducerEpoch == -1):
		out.ErrorCode = int16(wire.ErrInvalidRequest)
		return out, nil
	case in.TransactionalID != nil:
		out.ErrorCode = int16(wire.ErrCoordinatorNotAvailable)
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
