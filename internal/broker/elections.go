package broker

import (
	"context"
	"errors"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/wire"
)

// elections changes leaders and replicas on request (api.Cluster). Any broker
// does it: each write compares the record and the writer's registration (R7).
type elections struct{ b *Broker }

var _ api.Cluster = (*elections)(nil)

// errDone says that a partition is as it was asked to be.
var errDone = errors.New("done")

// ElectLeaders implements api.Cluster.
func (e *elections) ElectLeaders(ctx context.Context, partitions []meta.PartitionID, unclean bool) []error {
	if !unclean {
		return e.each(ctx, len(partitions), func(i int, image *meta.Image, again bool) (meta.Plan, error) {
			p, ok := image.PartitionEntry(partitions[i].Topic, partitions[i].Number)
			if !ok {
				return meta.Plan{}, wire.ErrUnknownTopicOrPartition
			}
			c, err := control.ElectPreferred(image, p, e.b.me())
			if again && errors.Is(err, control.ErrElectionNotNeeded) {
				err = errDone
			}
			return c.Plan, err
		})
	}
	errs := e.each(ctx, len(partitions), func(i int, image *meta.Image, again bool) (meta.Plan, error) {
		p, ok := image.PartitionEntry(partitions[i].Topic, partitions[i].Number)
		if !ok {
			return meta.Plan{}, wire.ErrUnknownTopicOrPartition
		}
		if p.Record != nil && p.Record.UncleanOnce {
			return meta.Plan{}, errDone
		}
		plan, err := control.AllowUnclean(image, p, e.b.me())
		if again && errors.Is(err, control.ErrElectionNotNeeded) {
			err = errDone
		}
		return plan, err
	})
	for i, id := range partitions {
		if errs[i] == nil {
			errs[i] = e.awaitLeader(ctx, id)
		}
	}
	return errs
}

// awaitLeader waits until the controller has elected somebody.
func (e *elections) awaitLeader(ctx context.Context, id meta.PartitionID) error {
	for {
		image := e.b.Image()
		r, _ := image.Partition(id.Topic, id.Number)
		if r == nil {
			return wire.ErrUnknownTopicOrPartition
		}
		if !control.NeedsLeader(image, r) {
			return nil
		}
		if err := e.b.view.await(ctx, image.Revision()+1); err != nil {
			return wire.Errorf(wire.ErrEligibleLeadersNotAvailable, "No live replica could be elected in time; the election is still allowed.")
		}
	}
}

// Reassign implements api.Cluster.
func (e *elections) Reassign(ctx context.Context, changes []api.Reassignment) []error {
	return e.each(ctx, len(changes), func(i int, image *meta.Image, again bool) (meta.Plan, error) {
		change := changes[i]
		p, ok := image.PartitionEntry(change.Partition.Topic, change.Partition.Number)
		if !ok {
			return meta.Plan{}, wire.ErrUnknownTopicOrPartition
		}
		plan, differs, err := control.Reassign(image, p, change.Replicas, e.b.me())
		if again && errors.Is(err, control.ErrNoReassignment) || err == nil && !differs {
			err = errDone
		}
		return plan, err
	})
}

// each makes a plan for each of n things and commits them, many in one
// transaction; those whose transaction was refused are planned anew. again
// tells plan that it has given a plan for this one before.
func (e *elections) each(ctx context.Context, n int, plan func(i int, image *meta.Image, again bool) (meta.Plan, error)) []error {
	errs := make([]error, n)
	pending := make([]bool, n)
	tried := make([]bool, n)
	for i := range pending {
		pending[i] = true
	}
	limits := e.b.limits()
	for try := 0; try <= commitTries; try++ {
		var plans []meta.Plan
		image := e.b.Image()
		for i := range n {
			if !pending[i] {
				continue
			}
			one, err := plan(i, image, tried[i])
			if err != nil {
				pending[i] = false
				if !errors.Is(err, errDone) {
					errs[i] = topicFault(err)
				}
				continue
			}
			tried[i] = true
			plans = append(plans, one)
		}
		if len(plans) == 0 {
			return errs
		}
		for _, plan := range control.Split(plans, limits) {
			if _, err := e.b.Commit(ctx, plan); err != nil && !errors.Is(err, ErrRefused) {
				return failPending(errs, pending, topicFault(err))
			}
		}
		limits.Ops = max(limits.Ops/4, 8) // what is contended must not hold up the rest
	}
	return failPending(errs, pending, wire.Errorf(wire.ErrRequestTimedOut, "The partition's record changed too often meanwhile."))
}

func failPending(errs []error, pending []bool, err error) []error {
	for i := range pending {
		if pending[i] {
			errs[i] = err
		}
	}
	return errs
}
