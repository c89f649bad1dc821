package mirror

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/metastore"
)

// writer commits changes of partition records, many in one transaction where
// they come together. It is shared by all mirrors of the node.
type writer struct {
	m *Mirrors

	mu sync.Mutex
	// guards the following
	queue []*change
	wake  chan struct{}

	slots chan struct{} // holds a token for each transaction more that may be under way
}

// change is a new record for one partition.
type change struct {
	id     meta.PartitionID
	from   meta.Revision // of the record that the new one was made from
	record meta.PartitionRecord
	// beside is what must hold besides for the change to be right; where it no longer does
	// the change is refused (R8).
	beside []meta.Compare
	// done is called once the outcome is certain and the image shows it (R8). It
	// must not block.
	done func(applied bool)
}

// commitsAtOnce bounds the transactions of the writer at one time.
const commitsAtOnce = 8

func newWriter(m *Mirrors) *writer {
	w := &writer{m: m, wake: make(chan struct{}, 1), slots: make(chan struct{}, commitsAtOnce)}
	for range commitsAtOnce {
		w.slots <- struct{}{}
	}
	return w
}

// submit queues a machine's proposal; its answer is a Proposed.
func (w *writer) submit(c *copier, p proposal) {
	w.put(&change{id: c.id, from: p.from, record: p.Record, done: func(applied bool) {
		c.send(core.Proposed{Ticket: p.Ticket, Applied: applied})
	}})
}

func (w *writer) put(changes ...*change) {
	w.mu.Lock()
	w.queue = append(w.queue, changes...)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// loop takes what is queued and commits it. It ends with the mirrors; changes
// that are not decided then are never answered: their machines end as well.
func (w *writer) loop() {
	for {
		if _, err := clock.Wait(w.m.ctx, clock.Forever, w.wake); err != nil {
			return
		}
		w.mu.Lock()
		queue := w.queue
		w.queue = nil
		w.mu.Unlock()
		w.commit(queue)
	}
}

// commit groups changes into transactions and starts them.
func (w *writer) commit(queue []*change) {
	node := w.m.o.Node
	image, me := node.Image(), node.Me()
	byKey := make(map[string]*change, len(queue))
	var plans []meta.Plan
	for _, c := range queue {
		plan, ok := w.planOf(image, c, me)
		if !ok || byKey[plan.Then[0].Key] != nil {
			c.done(false)
			continue
		}
		byKey[plan.Then[0].Key] = c
		plans = append(plans, plan)
	}
	for _, plan := range control.Split(plans, node.Limits()) {
		var group []*change
		for _, op := range plan.Then {
			if c := byKey[op.Key]; c != nil {
				group = append(group, c)
			}
		}
		if _, err := clock.Wait(w.m.ctx, clock.Forever, w.slots); err != nil {
			return
		}
		clock.Go(w.m.ctx, &w.m.work, func() {
			defer func() { w.slots <- struct{}{} }()
			w.carryOut(w.m.ctx, plan, group)
		})
	}
}

// planOf makes the plan of one change; false if the record is another one by now,
// or if the new one may not follow it: such a program error costs its partition the
// change, and not the node its life.
func (w *writer) planOf(image *meta.Image, c *change, me control.Me) (meta.Plan, bool) {
	old, rev := image.Partition(c.id.Topic, c.id.Number)
	if rev != c.from || old == nil {
		return meta.Plan{}, false
	}
	if err := meta.ValidateRecord(old, &c.record); err != nil {
		w.m.log.Error("invariant broken: a partition record that may not be written is left out", "topicId", c.id.Topic.String(), "partition", c.id.Number, "err", err)
		return meta.Plan{}, false
	}
	plan, err := control.UpdatePartition(image, c.id.Topic, c.id.Number, c.record, me)
	plan.If = append(plan.If, c.beside...)
	return plan, err == nil && len(plan.Then) > 0
}

// carryOut commits one transaction and answers its changes.
func (w *writer) carryOut(ctx context.Context, plan meta.Plan, group []*change) {
	_, err := w.m.o.Node.Commit(ctx, plan)
	switch {
	case err == nil:
		for _, c := range group {
			c.done(true)
		}
	case len(group) > 1:
		// One change that came too late must not take the others with it.
		for _, c := range group {
			w.alone(ctx, c, !errors.Is(err, metastore.ErrRefused))
		}
	default:
		w.settle(ctx, plan, group[0], err, false)
	}
}

// alone commits one change on its own; maybe: an earlier attempt may have happened, or happen yet.
func (w *writer) alone(ctx context.Context, c *change, maybe bool) {
	node := w.m.o.Node
	if decided, applied := w.outcome(c); decided {
		c.done(applied)
		return
	}
	plan, ok := w.planOf(node.Image(), c, node.Me())
	if !ok {
		c.done(false)
		return
	}
	_, err := node.Commit(ctx, plan)
	if err == nil {
		c.done(true)
		return
	}
	w.settle(ctx, plan, c, err, maybe)
}

// settle finds the outcome after an error: by the image as soon as it shows a
// later record (R8), or by trying again. maybe: an attempt before the one that gave the
// error may have happened, or happen yet. That this one was refused says nothing of it.
func (w *writer) settle(ctx context.Context, plan meta.Plan, c *change, err error, maybe bool) {
	for ; ; pause(ctx, 200*time.Millisecond) {
		if ctx.Err() != nil {
			return
		}
		if decided, applied := w.outcome(c); decided {
			c.done(applied)
			return
		}
		if errors.Is(err, metastore.ErrRefused) && (!maybe || w.isPast(plan, c)) {
			// The record is as it was, so another compare failed: our registration is another one,
			// or what the change was decided on beside it is.
			c.done(false)
			return
		}
		maybe = maybe || !errors.Is(err, metastore.ErrRefused)
		w.m.log.Warn("a partition record can't be written yet", "plan", plan.Why, "err", err)
		if _, err = w.m.o.Node.Commit(ctx, plan); err == nil {
			c.done(true)
			return
		}
	}
}

// outcome looks a change up in the image: decided once its record is another
// than the one it was made from.
func (w *writer) outcome(c *change) (decided, applied bool) {
	rec, rev := w.m.o.Node.Image().Partition(c.id.Topic, c.id.Number)
	if rev == c.from {
		return false, false
	}
	return true, rec != nil && bytes.Equal(rec.Encode(), c.record.Encode())
}

// isPast reports whether an image that still shows the record which a change was made from
// shows that its transaction can never happen any more, nor has: another compare fails.
func (w *writer) isPast(plan meta.Plan, c *change) bool {
	node := w.m.o.Node
	image := node.Image()
	fresh, ok := w.planOf(image, c, node.Me())
	if !ok {
		return false // the record is another one by now: outcome tells
	}
	same := func(a, b meta.Compare) bool { return a.Kind == b.Kind && a.Key == b.Key && a.Revision == b.Revision }
	if !slices.EqualFunc(fresh.If, plan.If, same) {
		return true // our registration's
	}
	return slices.ContainsFunc(c.beside, func(compare meta.Compare) bool {
		now := meta.Absent(compare.Key)
		for e := range image.Mirrors() {
			if image.Keys().Mirror(e.ID) == compare.Key {
				now = meta.ModRevisionIs(compare.Key, e.ModRevision)
			}
		}
		return !same(now, compare)
	})
}
