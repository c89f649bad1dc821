package mirror

import (
	"context"
	"fmt"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
)

// An order to change sides names the mirror's start that it is about, as the status
// tells it: what a client sends twice, because an answer was lost, is one order then.
// The start is compared where the order is written and once more where each
// partition is changed (R23). An order that names none is about the present start.

// FailoverOrder is what a failover is asked to do.
type FailoverOrder struct {
	// Topics bound it; empty means the whole mirror.
	Topics []string
	// StartID names the start that it ends; empty: the present one.
	StartID string
	// Consistent promotes at a consistent cut; Plan, if given, must be that of its preview.
	Consistent bool
	Plan       string
}

// FailoverOf carries out a failover. The same order once more finishes what is left and
// gives the same outcome, until the mirror is started anew: then it is refused.
func (m *Mirrors) FailoverOf(ctx context.Context, name string, o FailoverOrder) (Status, error) {
	switch {
	case !o.Consistent && o.Plan != "":
		return Status{}, fmt.Errorf("a plan belongs to a consistent failover: %w", ErrSpec)
	case o.Consistent:
		return m.failoverConsistent(ctx, name, o)
	}
	if err := m.mayFailOver(name, o); err != nil {
		return Status{}, err
	}
	start := m.startOf(name)
	if e, _ := m.o.Node.Image().Mirror(name); len(o.Topics) == 0 || e != nil && e.Record.Cut != nil {
		err := m.update(ctx, name, func(rec *meta.MirrorRecord) error {
			if err := isPresent(rec, o.StartID); err != nil {
				return err
			}
			start = rec.StartID
			rec.Cut = nil // of a consistent failover that could not be finished: this one takes what is there
			if len(o.Topics) == 0 {
				rec.Want = meta.WantStopped
			}
			return nil
		})
		if err != nil {
			return Status{}, err
		}
	}
	if o.StartID != "" {
		start = o.StartID
	}
	return m.failover(ctx, name, o.Topics, start, "")
}

// isPresent refuses an order for another start of the mirror than the present one;
// an empty one is whichever it is.
func isPresent(rec *meta.MirrorRecord, start string) error {
	if start == "" || start == rec.StartID {
		return nil
	}
	present := rec.StartID
	if present == "" {
		present = "none: it was never started"
	}
	return fmt.Errorf("mirror %s: %s: the order is for start %s, the mirror's present one is %s, and nothing was changed; look at mirror status %s, and order anew what is still wanted: %w",
		rec.Name, core.StaleRequest, start, present, rec.Name, ErrState)
}

// presentStart refuses an order for another start than the present one, as this
// node's image shows it.
func (m *Mirrors) presentStart(name, start string) error {
	e, ok := m.o.Node.Image().Mirror(name)
	if !ok {
		return fmt.Errorf("%w: %s", ErrUnknownMirror, name)
	}
	return isPresent(e.Record, start)
}

// isAbandoned reports whether everything of the topics that a start began was taken
// back already: the same order once more.
func (m *Mirrors) isAbandoned(name, start string, topics []string) bool {
	image, found, p := m.o.Node.Image(), false, part{Mirror: name, Topics: topics}
	for t := range image.TopicsByName() {
		for e := range image.PartitionsOf(t.ID) {
			r := e.Record
			if r == nil || r.Mirror == nil || r.Mirror.Name != name || !p.names(t.Record.Name) {
				continue
			}
			if !r.Writable {
				return false
			}
			found = found || r.Mirror.StartID == start && r.Mirror.Reason == core.Abandoned
		}
	}
	return start != "" && found
}

// switchedAlready answers a switchover of a start that has ended in the meantime:
// the client's first answer was lost, or another verb was quicker.
func (m *Mirrors) switchedAlready(ctx context.Context, name string, r SwitchoverRequest) (Status, bool, error) {
	e, ok := m.o.Node.Image().Mirror(name)
	if !ok || r.DryRun || r.StartID == "" || e.Record.StartID != r.StartID || e.Record.Want != meta.WantStopped {
		return Status{}, false, nil
	}
	st, err := m.failover(ctx, name, nil, r.StartID, "") // finishes what a crash left
	if err != nil {
		return st, true, err
	}
	st.Message = append(st.Message, fmt.Sprintf("Start %s of the mirror had ended before this order came: nothing was closed or drained for it.", r.StartID))
	if r.Reverse {
		st.Message = append(st.Message, fmt.Sprintf("Whether the old side mirrors this cluster is told there: mirror status %s-back.", name))
	}
	return st, true, nil
}
