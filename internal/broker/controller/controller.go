// Package controller drives the cluster's controller: on every broker it
// stands for the office, and on the one that holds it, it watches the image
// and commits what core/control decides of partitions whose brokers came, went
// or are leaving.
//
// It owns when to look and how often to try again; what to write is
// core/control's alone. Its writes compare the office's create revision and the
// partition's record, so that a controller that was replaced without knowing
// changes nothing. It also reports this broker's logs where an unclean election
// waits for them (R11). It talks to no other broker: everything goes through the metadata.
//
// Tests: several nodes on one store in memory, with controllers and leaders
// that are cut off, and the model of elections in core/control.
package controller

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
)

const (
	// tick is how often the controller looks at what no image tells: patience
	// that ran out, commits that failed.
	tick = time.Second
	// sweepEvery is how often everything is looked at, whatever the images said.
	sweepEvery = 5 * time.Minute
	// orphanAge is how long partition records of no topic must have stood still
	// before they are taken for what a creation left that stopped half-way.
	orphanAge = 10 * time.Minute
	// reportPatience is how long an unclean election waits for all live replicas' reports.
	reportPatience = 10 * time.Second
	// refusedDivisor makes transactions smaller after one was refused, so that one
	// contended partition doesn't hold up the others.
	refusedDivisor = 16
	// roundsMax bounds how often one step plans anew; the next one goes on.
	roundsMax = 10
)

// Node is the broker that the controller runs on.
type Node interface {
	// Image is the newest image; Commit returns once it shows the plan, or what came instead (R8).
	Image() *meta.Image
	Commit(ctx context.Context, plan meta.Plan) (meta.Revision, error)
	Me() control.Me
	// Lease is the registration's lease, 0 before the first one.
	Lease() meta.LeaseID
	Limits() control.Limits
	// Unclean says whether an unclean election is allowed for a topic.
	Unclean(*meta.Topic) bool
	// MinISR is what a topic's min.insync.replicas comes to.
	MinISR(*meta.Topic) int
	// Report describes this broker's log of a partition after the cut that it owes (R19).
	Report(ctx context.Context, id meta.PartitionID) meta.LogReport
}

// Options of a controller.
type Options struct {
	Node   Node
	Logger *slog.Logger
	// Rebalance is how often leaders go back to preferred replicas, 0 for never;
	// it begins where a broker leads fewer of those than it should by more than ImbalancePercent.
	Rebalance        time.Duration
	ImbalancePercent int
	// Grow names topics of the cluster's own and how many replicas each of their
	// partitions is to have once there are brokers enough.
	Grow map[string]int
	// Changed is told of each change that was committed.
	Changed func(image *meta.Image, c control.Change)
}

// Controller is one broker's part in the office.
type Controller struct {
	o    Options
	poke chan struct{}

	mu    sync.Mutex // guards the following
	dirty map[meta.PartitionID]struct{}
	all   bool
	// logsAsked: an unclean election may wait for this broker's report.
	logsAsked bool

	// The rest belongs to whoever runs Step: one goroutine at a time.

	reportsMost int           // reportsMax
	office      meta.Revision // create revision of the office held at the last step, 0: none
	began       time.Time     // of that office
	waiting     map[meta.PartitionID]time.Time
	orphans     map[types.TopicID]orphan
	swept       time.Time
	aligned     meta.Revision // the office that has brought min ISRs in step, 0: none
	rebalanced  time.Time
}

// New makes a controller; Step or Run sets it going.
func New(o Options) *Controller {
	return &Controller{
		o: o, poke: make(chan struct{}, 1), dirty: make(map[meta.PartitionID]struct{}), all: true, logsAsked: true,
		waiting: make(map[meta.PartitionID]time.Time), orphans: make(map[types.TopicID]orphan), reportsMost: reportsMax,
	}
}

// ImageChanged is told of every image, in order, once it can be seen. It never blocks.
func (c *Controller) ImageChanged(d meta.Delta) {
	c.mu.Lock()
	if len(d.Brokers) > 0 || d.Controller || len(d.Reports) > 0 {
		c.all = true
	}
	c.logsAsked = c.logsAsked || len(d.Brokers) > 0 || len(d.Topics) > 0
	for _, p := range d.Partitions {
		if !p.Deleted() {
			c.dirty[p.New.ID] = struct{}{}
			c.logsAsked = c.logsAsked || outdatesReports(p)
		}
	}
	c.mu.Unlock()
	c.Poke()
}

// outdatesReports reports a change of a partition whose unclean election may wait: reports
// are of one revision of the record. An election ends the wait, and so does whoever may lead
// cleanly; what else is written into the record (a reassignment, the min ISR, consent) asks anew.
func outdatesReports(p meta.Change[meta.Partition]) bool {
	next := p.New.Record
	if next == nil || p.Old == nil || p.Old.Record == nil {
		return next != nil && next.UncleanOnce
	}
	return next.LeaderEpoch == p.Old.Record.LeaderEpoch && slices.Equal(next.ISR, p.Old.Record.ISR)
}

// Poke has the controller look soon.
func (c *Controller) Poke() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	for {
		if _, err := clock.Wait(ctx, tick, c.poke); err != nil {
			return
		}
		if err := c.Step(ctx); err != nil && ctx.Err() == nil {
			c.o.Logger.Warn("controller: the metadata can't be written; trying again", "err", err)
		}
	}
}

// Step does what there is to do now. It is for one goroutine at a time; Run
// calls it, and a node that starts, before Run.
func (c *Controller) Step(ctx context.Context) error {
	n := c.o.Node
	if err := c.report(ctx); err != nil {
		return err
	}
	me, ok := control.InOffice(n.Image(), n.Me())
	if !ok {
		c.office = 0
		if err := c.stand(ctx); err != nil {
			return err
		}
		if me, ok = control.InOffice(n.Image(), n.Me()); !ok {
			return nil
		}
	}
	if c.office != me.Controller {
		c.take(ctx, me)
	}
	if err := c.settle(ctx); err != nil {
		return err
	}
	return c.chores(ctx)
}

// take begins an office: everything is looked at.
func (c *Controller) take(ctx context.Context, me control.Me) {
	now := clock.Now(ctx)
	c.office, c.began, c.swept, c.rebalanced = me.Controller, now, now, now
	clear(c.waiting)
	clear(c.orphans)
	c.mu.Lock()
	c.all = true
	c.mu.Unlock()
	c.o.Logger.Info("this broker is the controller", "office", me.Controller)
}

// stand takes the office if nobody holds it.
func (c *Controller) stand(ctx context.Context) error {
	n := c.o.Node
	image, me, lease := n.Image(), n.Me(), n.Lease()
	b, registered := image.Broker(me.ID)
	if !registered || lease == 0 || b.Record.Draining {
		return nil
	}
	plans, free, err := control.TakeOffice(image, me, lease)
	if err != nil || !free {
		return nil // the registration ended meanwhile: the next image tells
	}
	for _, plan := range plans {
		_, err := n.Commit(ctx, plan)
		switch {
		case errors.Is(err, metastore.ErrRefused) || errors.Is(err, metastore.ErrLeaseNotFound):
			return nil // another was faster
		case err != nil:
			return err
		}
	}
	return nil
}

// settle commits what becomes of the partitions that may have changed, until
// nothing is left, or what is left is contended: then it goes on at the next step.
func (c *Controller) settle(ctx context.Context) error {
	n := c.o.Node
	limits := n.Limits()
	for range roundsMax {
		ids, all := c.takeDirty()
		if len(ids) == 0 && !all {
			return nil
		}
		image := n.Image()
		me, ok := control.InOffice(image, n.Me())
		if !ok {
			return nil
		}
		policy := control.Policy{Unclean: n.Unclean, Impatient: func(id meta.PartitionID) bool { return c.impatient(clock.Now(ctx), id) }}
		changes, plans := control.SettleAll(image, partitionsOf(image, ids, all), policy, me, limits)
		refused := false
		for _, plan := range plans {
			_, err := n.Commit(ctx, plan)
			if err == nil {
				continue
			}
			c.putBack(ids, all)
			if !errors.Is(err, metastore.ErrRefused) {
				return err
			}
			refused = true
		}
		if refused {
			limits.Ops = max(limits.Ops/refusedDivisor, 1)
		}
		c.tell(image, changes)
	}
	return nil
}

// tell reports the changes that the image now shows.
func (c *Controller) tell(image *meta.Image, changes []control.Change) {
	if c.o.Changed == nil {
		return
	}
	now := c.o.Node.Image()
	for _, change := range changes {
		delete(c.waiting, change.Partition)
		r, _ := now.Partition(change.Partition.Topic, change.Partition.Number)
		if r != nil && r.LeaderEpoch >= change.Record.LeaderEpoch {
			c.o.Changed(image, change)
		}
	}
}

func (c *Controller) takeDirty() (map[meta.PartitionID]struct{}, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids, all := c.dirty, c.all
	c.dirty, c.all = make(map[meta.PartitionID]struct{}), false
	return ids, all
}

func (c *Controller) putBack(ids map[meta.PartitionID]struct{}, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = c.all || all
	for id := range ids {
		c.dirty[id] = struct{}{}
	}
}

// partitionsOf walks all partitions, or those named that still exist.
func partitionsOf(image *meta.Image, ids map[meta.PartitionID]struct{}, all bool) iter.Seq[*meta.Partition] {
	if all {
		return image.Partitions()
	}
	order := slices.SortedFunc(maps.Keys(ids), func(a, b meta.PartitionID) int {
		return cmp.Or(cmp.Compare(a.Topic.String(), b.Topic.String()), cmp.Compare(a.Number, b.Number))
	})
	return func(yield func(*meta.Partition) bool) {
		for _, id := range order {
			if p, ok := image.PartitionEntry(id.Topic, id.Number); ok && !yield(p) {
				return
			}
		}
	}
}

// impatient says that an unclean election has waited for reports for long enough.
func (c *Controller) impatient(now time.Time, id meta.PartitionID) bool {
	since, ok := c.waiting[id]
	if !ok {
		c.waiting[id] = now
		return false
	}
	return now.Sub(since) > reportPatience
}
