package controller

import (
	"context"
	"errors"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
)

// orphan is a topic id whose partition records belong to no topic, and since
// when they have stood still.
type orphan struct {
	revision meta.Revision // the newest of its records
	since    time.Time
}

// chores does what the clock asks of the controller.
func (c *Controller) chores(ctx context.Context) error {
	now := clock.Now(ctx)
	image := c.o.Node.Image()
	for id, since := range c.waiting {
		if r, _ := image.Partition(id.Topic, id.Number); r == nil || !control.NeedsLeader(image, r) {
			delete(c.waiting, id) // the next election of its waits anew
			continue
		}
		if now.Sub(since) > reportPatience {
			// No poke: with nobody to elect the next step would come here again at once.
			c.putBack(map[meta.PartitionID]struct{}{id: {}}, false)
		}
	}
	if now.Sub(c.swept) > sweepEvery {
		c.swept = now
		c.putBack(nil, true)
		if err := c.sweep(ctx, now); err != nil {
			return err
		}
		c.aligned = 0
	}
	if c.aligned != c.office {
		if err := c.alignMinISR(ctx); err != nil {
			return err
		}
	}
	if err := c.grow(ctx); err != nil {
		return err
	}
	if err := c.drills(ctx); err != nil {
		return err
	}
	if c.o.Rebalance > 0 && now.Sub(c.rebalanced) > c.o.Rebalance {
		c.rebalanced = now
		return c.rebalance(ctx)
	}
	return nil
}

// alignMinISR has leaders ask for as many in-sync replicas as the topics' settings say (R12), at
// the beginning of an office and with each sweep.
func (c *Controller) alignMinISR(ctx context.Context) error {
	n := c.o.Node
	me, ok := control.InOffice(n.Image(), n.Me())
	if !ok {
		return nil
	}
	for _, plan := range control.AlignMinISR(n.Image(), n.MinISR, me, n.Limits()) {
		if _, err := n.Commit(ctx, plan); err != nil && !errors.Is(err, metastore.ErrRefused) {
			return err
		}
	}
	c.aligned = c.office // what was refused comes with the next sweep
	return nil
}

// sweep deletes partition records of topics that never came to be. A creation
// in parts may be under way on any broker: only what has stood still for long is taken.
func (c *Controller) sweep(ctx context.Context, now time.Time) error {
	n := c.o.Node
	image := n.Image()
	seen := make(map[types.TopicID]meta.Revision)
	for id := range image.Orphans() {
		seen[id.Topic] = max(seen[id.Topic], image.PartitionKeyRevision(id.Topic, id.Number))
	}
	old := make(map[types.TopicID]bool)
	for id, revision := range seen {
		o, known := c.orphans[id]
		if !known || o.revision != revision {
			c.orphans[id] = orphan{revision: revision, since: now}
			continue
		}
		old[id] = now.Sub(o.since) > orphanAge
	}
	for id := range c.orphans {
		if _, still := seen[id]; !still {
			delete(c.orphans, id)
		}
	}
	me, ok := control.InOffice(image, n.Me())
	if !ok {
		return nil
	}
	for _, plan := range control.SweepOrphans(image, func(id types.TopicID) bool { return old[id] }, me, n.Limits()) {
		if _, err := n.Commit(ctx, plan); err != nil && !errors.Is(err, metastore.ErrRefused) {
			return err
		}
	}
	return nil
}

// rebalance gives leaders back to preferred replicas where a broker leads too few of its own.
func (c *Controller) rebalance(ctx context.Context) error {
	n := c.o.Node
	image := n.Image()
	me, ok := control.InOffice(image, n.Me())
	if !ok {
		return nil
	}
	changes, plans := control.Rebalance(image, c.o.ImbalancePercent, me, n.Limits())
	for _, plan := range plans {
		if _, err := n.Commit(ctx, plan); err != nil && !errors.Is(err, metastore.ErrRefused) {
			return err
		}
	}
	c.tell(image, changes)
	return nil
}

// report writes what this broker's logs hold where an unclean election waits for it.
func (c *Controller) report(ctx context.Context) error {
	n := c.o.Node
	if !c.takeLogsAsked() {
		return nil
	}
	image, me, lease := n.Image(), n.Me(), n.Lease()
	policy := control.Policy{Unclean: n.Unclean}
	var logs []meta.LogReport
	fresh, unread := false, false
	before, _ := image.Report(me.ID)
	for t := range image.Topics() {
		for p := range image.PartitionsOf(t.ID) {
			if !control.WantsReport(image, t, p, me.ID, policy) {
				continue
			}
			if len(logs) == c.reportsMost {
				unread = true
				break
			}
			log := n.Report(ctx, p.ID)
			log.Topic, log.Partition, log.Revision = p.ID.Topic, p.ID.Number, p.ModRevision
			logs = append(logs, log)
			unread = unread || log.Offline && p.Record.Restored // it may be on its way up
			fresh = fresh || before == nil || before.Record.BrokerEpoch != me.Epoch || !has(before.Record.Logs, log)
		}
	}
	if unread {
		c.mu.Lock()
		c.logsAsked = true
		c.mu.Unlock()
	}
	if !fresh || lease == 0 {
		return nil
	}
	plan, err := control.Report(image, logs, me, lease)
	if err != nil {
		return nil // the registration ended meanwhile
	}
	if _, err = n.Commit(ctx, plan); err == nil {
		return nil
	}
	c.mu.Lock()
	c.logsAsked = true
	c.mu.Unlock()
	if errors.Is(err, metastore.ErrRefused) || errors.Is(err, metastore.ErrLeaseNotFound) {
		return nil
	}
	return err
}

func (c *Controller) takeLogsAsked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.logsAsked
	c.logsAsked = false
	return asked
}

// reportsMax keeps a report within one transaction; the rest follows when these have been elected.
const reportsMax = 5000

func has(logs []meta.LogReport, log meta.LogReport) bool {
	for _, l := range logs {
		if l.Equal(log) {
			return true
		}
	}
	return false
}
