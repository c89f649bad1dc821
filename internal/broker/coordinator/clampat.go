package coordinator

import (
	"context"
	"slices"

	"tidemark/internal/core/types"
	"tidemark/internal/probe"
	"tidemark/internal/wire"
)

var unloadedProbe = probe.New("groups: a cut meets a coordinator that has yet to load them")

// Office is the coordination of the groups of one partition of the offsets topic, by
// whom the metadata names as its leader.
type Office struct {
	Partition int32             `json:"partition"`
	Broker    types.BrokerID    `json:"broker"`
	Epoch     types.LeaderEpoch `json:"epoch"`
}

// ClampAt is ClampAll for whoever must know that all groups were reached: the offices
// that name this node are ones that it holds, each in its epoch. NOT_COORDINATOR if
// not: it has yet to hear of its election, and what it would load holds what the cut
// took; or another one was elected meanwhile. Offices of other nodes say nothing here.
func (c *Coordinator) ClampAt(ctx context.Context, cuts []Cut, offices []Office) ([]Lowered, error) {
	loops := c.All()
	for _, o := range offices {
		held := slices.ContainsFunc(loops, func(l *loop) bool { return l.Partition == o.Partition && l.Epoch == o.Epoch })
		if o.Broker == c.o.NodeID && !held {
			unloadedProbe.Reached()
			return nil, wire.Errorf(wire.ErrNotCoordinator, "broker %d doesn't coordinate the groups of %s-%d in epoch %d yet", o.Broker, OffsetsTopic, o.Partition, o.Epoch)
		}
	}
	return clamp(ctx, loops, cuts)
}
