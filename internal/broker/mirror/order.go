package mirror

import (
	"context"
	"fmt"
	"slices"

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
	// StartID names the start that it ends: the mirror's, or, of an order for topics, theirs
	// (core.TopicStart). Empty: the present one.
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
			if err := isPresent(rec, o.StartID, o.Topics...); err != nil {
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
	return m.failover(ctx, o.part(name, start))
}

// part is what the brokers do of an order in the mirror's present start.
func (o FailoverOrder) part(name, present string) part {
	return part{Mirror: name, Topics: o.Topics, StartID: present}.of(o.StartID)
}

// of has a part be of the start that an order names, if it names one. An order for topics
// names their start, which says the mirror's.
func (p part) of(order string) part {
	switch {
	case order == "":
	case len(p.Topics) == 0:
		p.StartID = order
	default:
		p.StartID, _ = core.SplitStart(order)
		p.TopicStart = order
	}
	return p
}

// topicsFollow refuses an order for topics of which one was begun anew since the start that it names.
func topicsFollow(image *meta.Image, name, order string, topics []string) error {
	for _, topic := range topics {
		t, ok := image.TopicByName(topic)
		if !ok {
			continue
		}
		for p := range image.PartitionsOf(t.ID) {
			if p.Record == nil || p.Record.Mirror == nil || p.Record.Mirror.Name != name || p.Record.Writable {
				continue
			}
			if err := core.OfEarlierStart(p.Record.Mirror, order); err != nil {
				return fmt.Errorf("mirror %s: topic %s: %w; nothing was changed: %w", name, topic, err, ErrState)
			}
		}
	}
	return nil
}

// isPresent refuses an order for another start of the mirror than the present one;
// an empty one is whichever it is. An order for topics may name their start.
func isPresent(rec *meta.MirrorRecord, order string, topics ...string) error {
	start := order
	if len(topics) > 0 {
		start, _ = core.SplitStart(order)
	}
	if start == "" || start == rec.StartID {
		return nil
	}
	present := rec.StartID
	if present == "" {
		present = "none: it was never started"
	}
	return fmt.Errorf("mirror %s: %s: the order is for start %s, the mirror's present one is %s, and nothing was changed; look at mirror status %s, and order anew what is still wanted: %w",
		rec.Name, core.StaleRequest, order, present, rec.Name, ErrState)
}

// presentStart refuses an order for another start than the present one, as this
// node's image shows it.
func (m *Mirrors) presentStart(name, start string, topics ...string) error {
	e, ok := m.o.Node.Image().Mirror(name)
	if !ok {
		return fmt.Errorf("%w: %s", ErrUnknownMirror, name)
	}
	return isPresent(e.Record, start, topics...)
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
			of := r.Mirror.StartID
			if len(topics) > 0 {
				of = core.TopicStart(r.Mirror)
			}
			found = found || of == start && r.Mirror.Reason == core.Abandoned
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
	st, err := m.failover(ctx, part{Mirror: name, StartID: r.StartID}) // finishes what a crash left
	if err != nil {
		return st, true, err
	}
	st.Message = append(st.Message, fmt.Sprintf("Start %s of the mirror had ended before this order came: nothing was closed or drained for it.", r.StartID))
	if r.Reverse {
		st.Message = append(st.Message, fmt.Sprintf("Whether the old side mirrors this cluster is told there: mirror status %s-back.", name))
	}
	return st, true, nil
}

// StartsOf groups topics by the start that an order for them quotes, in the order of their
// first: all of the mirror's, under its own, where none are named. The partitions of a
// topic may have been begun differently often: the order is for the newest.
func (s Status) StartsOf(topics []string) []FailoverOrder {
	if len(topics) == 0 {
		return []FailoverOrder{{StartID: s.StartID}}
	}
	var orders []FailoverOrder
	for _, topic := range topics {
		newest, most := s.StartID, 0
		for _, p := range s.Partitions {
			if _, begun := core.SplitStart(p.StartID); p.Topic == topic && begun > most {
				newest, most = p.StartID, begun
			}
		}
		at := slices.IndexFunc(orders, func(o FailoverOrder) bool { return o.StartID == newest })
		if at < 0 {
			at, orders = len(orders), append(orders, FailoverOrder{StartID: newest})
		}
		orders[at].Topics = append(orders[at].Topics, topic)
	}
	return orders
}
