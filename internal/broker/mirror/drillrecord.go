package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/metastore"
)

const (
	// dropPatience bounds how long a drill that is to go is tried to be dropped, and
	// goneTimeout how long somebody waits until the controller has deleted it.
	dropPatience = time.Minute
	goneTimeout  = time.Minute
	goneEvery    = 20 * time.Millisecond
)

// freeDrillName refuses a name that is in use. What a drill left that came to nothing
// is dropped first, so that the same command again is one drill, whatever became of the first.
func (m *Mirrors) freeDrillName(ctx context.Context, name string, dryRun bool) error {
	image, me := m.o.Node.Image(), m.o.Node.Me()
	e, taken := image.DrillEntry(name)
	if !taken {
		// Only for what it refuses: the level, and a registration that is over.
		_, err := control.BeginDrill(image, meta.DrillRecord{Name: name}, me)
		return drillRefusal(err)
	}
	if e.Record == nil {
		return fmt.Errorf("drill %s: %w: %w", name, ErrState, e.Fault)
	}
	switch r := e.Record; {
	case r.State == meta.DrillReady:
		return fmt.Errorf("drill %s of mirror %s exists, begun at %s: %w; delete it first (mirror drill delete %s), or choose another name",
			name, r.Mirror, time.UnixMilli(int64(r.At)).UTC().Format(time.RFC3339), ErrState, name)
	case r.State == meta.DrillMaking && !control.IsAbandoned(image, r) && r.Broker != me.ID:
		return fmt.Errorf("drill %s of mirror %s is being made through broker %d: %w; wait for it, give it up (mirror drill delete %s), or choose another name",
			name, r.Mirror, r.Broker, ErrState, name)
	}
	// Nobody makes it: this node makes one drill at a time, and this is the one.
	if dryRun {
		return nil
	}
	if _, err := m.dropUnless(ctx, e.Record.Mark(), ""); err != nil {
		return fmt.Errorf("drill %s: what is left of an earlier one can't be dropped: %w", name, err)
	}
	if !m.awaitDrillGone(ctx, e.Record.Mark()) {
		return fmt.Errorf("drill %s: an earlier one is still being deleted: %w; try again", name, ErrState)
	}
	return nil
}

// drillRefusal gives refusals of core/control the kinds that verbs have.
func drillRefusal(err error) error {
	for _, kind := range []error{control.ErrDrillExists, control.ErrDrillLevel, control.ErrDrillOver} {
		if errors.Is(err, kind) {
			return fmt.Errorf("%w: %w", ErrState, err)
		}
	}
	return err
}

// begin writes the drill's record.
func (d *drill) begin(ctx context.Context) error {
	n := d.m.o.Node
	plan, err := control.BeginDrill(n.Image(), meta.DrillRecord{Name: d.run.Name, Run: d.run.Run, Mirror: d.mirror, At: d.report.At}, n.Me())
	if err != nil {
		return drillRefusal(err)
	}
	if _, err := n.Commit(ctx, plan); err != nil {
		return fmt.Errorf("%w; another drill of the name was begun, or this node was registered anew: try again", err)
	}
	e, ok := n.Image().Drill(d.run.Name)
	if !ok || !e.Record.Is(d.run) {
		return errDrillDropped
	}
	d.begun = e.ModRevision
	return nil
}

// commit writes the fork's topics, which nobody sees, and then shows them.
func (d *drill) commit(ctx context.Context) error {
	n := d.m.o.Node
	topics, err := d.forked()
	if err != nil {
		return err
	}
	plans, err := control.WriteForks(n.Image(), d.run, topics, n.Me(), n.Limits())
	if err != nil {
		return drillRefusal(err)
	}
	for _, plan := range plans {
		if err := d.carryOut(ctx, plan); err != nil {
			return err
		}
	}
	plan, err := control.FinishDrill(n.Image(), d.run, topics, n.Me(), n.Limits())
	if err != nil {
		return drillRefusal(err)
	}
	return d.carryOut(ctx, plan)
}

// forked gives the topics with the records that their partitions begin with.
func (d *drill) forked() ([]control.ForkedTopic, error) {
	image, now := d.m.o.Node.Image(), d.m.o.Node.Now()
	topics := make([]control.ForkedTopic, len(d.topics))
	for i, t := range d.topics {
		topics[i] = control.ForkedTopic{Name: t.name, ID: t.id, Configs: t.configs}
		for _, p := range t.partitions {
			rec, _ := image.Partition(p.of.Topic, p.of.Number)
			if rec == nil {
				return nil, fmt.Errorf("%s was deleted meanwhile", p.tp)
			}
			topics[i].Partitions = append(topics[i].Partitions, core.Fork(rec, core.ForkRequest{
				Drill: d.run.Name, ID: d.run.Run, TimelineID: p.timeline, At: p.point.To, Made: p.made, InSync: p.inSync, Now: now,
			}))
		}
	}
	return topics, nil
}

// carryOut commits one plan and says what a refusal comes from.
func (d *drill) carryOut(ctx context.Context, plan meta.Plan) error {
	_, err := d.m.o.Node.Commit(ctx, plan)
	switch {
	case !errors.Is(err, metastore.ErrRefused):
		return err
	case d.m.o.Node.Image().DrillState(&d.run) != meta.DrillMaking:
		return errDrillDropped
	}
	return fmt.Errorf("%w; a topic of such a name was made meanwhile, or a broker was registered anew: try again", err)
}

// giveUp drops a drill that failed, unless its last transaction has shown it after
// all: made says so. Dropping it settles what an unknown outcome left open (R8): the
// two compare the same record, and one of them is refused. known is false if even that
// can't be found out. What an operator interrupts leaves nothing, however far it has come.
func (d *drill) giveUp(ctx context.Context) (made, known bool) {
	keep := meta.DrillReady
	if ctx.Err() != nil {
		keep = ""
	}
	ctx = context.WithoutCancel(ctx)
	made, err := d.m.dropUnless(ctx, d.run, keep)
	if err != nil {
		d.m.log.Warn("drill that came to nothing can't be dropped", "mirror", d.mirror, "drill", d.run.Name, "err", err)
		return false, false
	}
	if !made && !d.m.awaitDrillGone(ctx, d.run) {
		d.m.log.Info("drill that came to nothing is still being deleted", "mirror", d.mirror, "drill", d.run.Name)
	}
	return made, true
}

// dropUnless drops a drill's run, for everybody at once, unless it is found in the
// state to keep.
func (m *Mirrors) dropUnless(ctx context.Context, run meta.DrillMark, keep string) (kept bool, err error) {
	n := m.o.Node
	until := clock.Now(ctx).Add(dropPatience)
	for wait := goneEvery; ; wait = min(2*wait, time.Second) {
		image := n.Image()
		switch state := image.DrillState(&run); state {
		case "", meta.DrillDropping:
			return false, nil
		case keep:
			return true, nil
		}
		e, _ := image.Drill(run.Name)
		plan, due, err := control.DropDrill(image, e, n.Me())
		if err == nil && due {
			if _, err = n.Commit(ctx, plan); err == nil {
				return false, nil
			}
		}
		if err != nil && (!clock.Now(ctx).Before(until) || !pause(ctx, wait)) {
			return false, err
		}
	}
}

// awaitDrillGone waits until the controller has deleted a dropped drill.
func (m *Mirrors) awaitDrillGone(ctx context.Context, run meta.DrillMark) bool {
	ctx, cancel := clock.WithTimeout(ctx, goneTimeout)
	defer cancel()
	for m.o.Node.Image().DrillState(&run) != "" {
		if !pause(ctx, goneEvery) {
			return false
		}
	}
	return true
}
