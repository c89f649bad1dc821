package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// The kinds of coordinator.
const (
	coordinatorGroup       = 0
	coordinatorTransaction = 1
	coordinatorShare       = 2
)

// FindCoordinator, versions 0 to 6.
//
//   - v0 is about groups; v1 adds the type; v4 several keys in one request,
//     each with its own answer; v6 share groups.
//   - Groups and transactional ids: share groups answer INVALID_REQUEST with a sentence
//     (clients give up), not COORDINATOR_NOT_AVAILABLE (they would retry forever).
//   - While nobody leads the key's partition, or it is being made:
//     COORDINATOR_NOT_AVAILABLE at once; clients ask again.
func findCoordinator(c *Call, req *kmsg.FindCoordinatorRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if req.Version >= 4 {
		for _, key := range req.CoordinatorKeys {
			resp.Coordinators = append(resp.Coordinators, c.coordinatorOf(key, req.CoordinatorType))
		}
		return resp, nil
	}
	one := c.coordinatorOf(req.CoordinatorKey, req.CoordinatorType)
	resp.ErrorCode, resp.ErrorMessage = one.ErrorCode, one.ErrorMessage
	resp.NodeID, resp.Host, resp.Port = one.NodeID, one.Host, one.Port
	return resp, nil
}

func (c *Call) coordinatorOf(key string, kind int8) kmsg.FindCoordinatorResponseCoordinator {
	out := kmsg.NewFindCoordinatorResponseCoordinator()
	out.Key = key
	out.NodeID, out.Port = -1, -1
	node, err := c.findCoordinator(key, kind)
	if err == nil {
		out.NodeID, out.Host, out.Port = int32(node.ID), node.Host, node.Port
	}
	out.ErrorCode, out.ErrorMessage = int16(CodeOf(err)), wire.MessageOf(err)
	return out
}

func (c *Call) findCoordinator(key string, kind int8) (wire.Node, error) {
	find := c.Groups.FindCoordinator
	switch kind {
	case coordinatorGroup:
	case coordinatorTransaction:
		find = c.Transactions.FindCoordinator
	case coordinatorShare:
		return wire.Node{}, wire.Errorf(wire.ErrInvalidRequest, "This broker doesn't serve share groups.")
	default:
		return wire.Node{}, wire.Errorf(wire.ErrInvalidRequest, "Coordinator type %d is unknown.", kind)
	}
	id, err := find(c.Ctx, key)
	if err != nil {
		return wire.Node{}, err
	}
	// The newest image: the coordinator may just have been made.
	node, ok := c.node(c.Server.Image(), id)
	if !ok {
		return wire.Node{}, wire.Errorf(wire.ErrCoordinatorNotAvailable, "Broker %d isn't registered with listener %s.", id, c.Req.Listener)
	}
	return node, nil
}
