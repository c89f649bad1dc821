package controller

import (
	"context"
	"errors"

	"tidemark/internal/core/control"
	"tidemark/internal/metastore"
)

// drillPlansMax bounds the transactions of one step, so that a large drill's end
// doesn't hold elections up.
const drillPlansMax = 16

// drills ends what nobody makes any more and deletes what belongs to dropped drills.
func (c *Controller) drills(ctx context.Context) error {
	n := c.o.Node
	image := n.Image()
	me, ok := control.InOffice(image, n.Me())
	if !ok {
		return nil
	}
	plans := control.TidyDrills(image, me, n.Limits())
	for i, plan := range plans {
		if i == drillPlansMax {
			c.Poke()
			return nil
		}
		if _, err := n.Commit(ctx, plan); err != nil && !errors.Is(err, metastore.ErrRefused) {
			return err
		}
	}
	return nil
}
