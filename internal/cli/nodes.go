package cli

import (
	"context"
	"errors"
	"fmt"

	"tidemark/internal/console"
	"tidemark/internal/core/types"
)

// eachNode calls f for every live node of the cluster, beginning with the one
// that --api names: events and vaults are each node's own. A node that can't be
// asked is told and passed over, so that the others' answers still come; with
// all of them out of reach the first error is given.
func (t Target) eachNode(ctx context.Context, s Streams, f func(id types.BrokerID, cl *console.Client) error) error {
	first, err := t.client()
	if err != nil {
		return err
	}
	cluster, err := first.Cluster(ctx)
	if err != nil {
		return err
	}
	if err := f(cluster.NodeID, first); err != nil {
		return err
	}
	for _, b := range cluster.Brokers {
		if b.ID == cluster.NodeID {
			continue
		}
		err := errors.New("it serves no HTTP API")
		if b.HTTP != "" {
			var cl *console.Client
			if cl, err = t.clientOf(b.HTTP); err == nil {
				err = f(b.ID, cl)
			}
		}
		if err != nil {
			fmt.Fprintf(s.Err, "node %d is left out: %v\n", b.ID, err)
		}
	}
	return nil
}
