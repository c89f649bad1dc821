package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// UnregisterBroker (key 64): forgets a broker that is gone (KIP-631).
//
// Behaviour
//   - A registration ends with its broker by itself. What is forgotten is whose
//     the id was: any data folder may take it then.
//   - A broker that is alive, or that still holds replicas, is INVALID_REQUEST with
//     a sentence; one that nobody knows is BROKER_ID_NOT_REGISTERED.
func (c *Call) unregisterBroker(in *kmsg.UnregisterBrokerRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrUnregisterBrokerResponse()
	if err := c.Operator.Forget(c.Ctx, types.BrokerID(in.BrokerID)); err != nil {
		out.ErrorCode, out.ErrorMessage = int16(c.failed(wire.KeyUnregisterBroker, err)), MessageOf(err)
	}
	return out, nil
}
