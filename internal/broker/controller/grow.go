package controller

import (
	"context"
	"errors"
	"maps"
	"slices"

	"tidemark/internal/core/control"
	"tidemark/internal/metastore"
)

// grow adds replicas to the cluster's own topics after brokers have joined: one
// transaction for each partition, so that one that others write doesn't hold up the
// rest. What can't be done now is looked at again at the next tick.
func (c *Controller) grow(ctx context.Context) error {
	n := c.o.Node
	for _, name := range slices.Sorted(maps.Keys(c.o.Grow)) {
		image := n.Image()
		t, ok := image.TopicByName(name)
		if !ok || t.Record == nil || t.Fault != nil {
			continue
		}
		me, ok := control.InOffice(image, n.Me())
		if !ok {
			return nil
		}
		g, due, err := control.Grow(image, t, c.o.Grow[name], me)
		if err != nil {
			c.o.Logger.Error("a topic of the cluster's own can't get more replicas", "topic", name, "replicas", c.o.Grow[name], "err", err)
			continue
		}
		if !due {
			continue
		}
		refused := 0
		for _, plan := range g.Plans {
			if _, err := n.Commit(ctx, plan); errors.Is(err, metastore.ErrRefused) {
				refused++
			} else if err != nil {
				return err
			}
		}
		if refused+g.Waiting > 0 {
			continue
		}
		if _, err := n.Commit(ctx, g.Done); err != nil && !errors.Is(err, metastore.ErrRefused) {
			return err
		}
		c.o.Logger.Info("a topic of the cluster's own gets more replicas", "topic", name, "replicas", g.To, "partitions", len(g.Plans))
	}
	return nil
}
