package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// DescribeCluster (key 60): brokers, cluster id, controller (KIP-700).
//
// Behaviour
//   - Brokers with their address on the request's listener. There are no
//     controllers to connect to: endpoint type 2 is MISMATCHED_ENDPOINT_TYPE, and
//     others UNSUPPORTED_ENDPOINT_TYPE.
//   - Fenced brokers don't exist: a broker is registered or it isn't.
//
// Versions
//   - 1: endpoint type (KIP-919). 2: fenced brokers (KIP-1073).
func (c *Call) describeCluster(in *kmsg.DescribeClusterRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrDescribeClusterResponse()
	out.EndpointType = 1
	var err error
	switch {
	case in.Version >= 1 && in.EndpointType == 2:
		err = wire.Errorf(wire.ErrMismatchedEndpointType, "This is a broker's address; controllers have none of their own.")
	case in.Version >= 1 && in.EndpointType != 1:
		err = wire.Errorf(wire.ErrUnsupportedEndpointType, "Endpoint type %d is unknown.", in.EndpointType)
	}
	if err != nil {
		out.ErrorCode, out.ErrorMessage = int16(CodeOf(err)), MessageOf(err)
		return out, nil
	}
	out.ClusterID, out.ControllerID = c.ClusterID, int32(c.controllerID())
	out.ClusterAuthorizedOperations = opsNotAsked
	if in.IncludeClusterAuthorizedOperations {
		out.ClusterAuthorizedOperations = c.clusterOperations()
	}
	for _, n := range c.nodes(c.Image) {
		out.Brokers = append(out.Brokers, kmsg.DescribeClusterResponseBroker{NodeID: int32(n.ID), Host: n.Host, Port: n.Port, Rack: nullable(n.Rack)})
	}
	return out, nil
}
