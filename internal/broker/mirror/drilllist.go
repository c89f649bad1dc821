package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
)

// Drills lists the forks that are there, are being made, or are being deleted.
func (m *Mirrors) Drills(context.Context) ([]Drill, error) {
	list := []Drill{}
	place := map[string]int{}
	image := m.o.Node.Image()
	for e := range image.Drills() {
		d := Drill{Drill: e.ID, Mirror: e.Record.Mirror, At: e.Record.At, State: e.Record.State, Topics: []string{}}
		for t := range image.DrillTopics(e.Record.Mark()) {
			d.Topics = append(d.Topics, t.Record.Name)
			d.Partitions += int(t.Record.Partitions)
		}
		slices.Sort(d.Topics)
		list = append(list, d)
	}
	for t := range image.TopicsByName() {
		name, of, ok := oldDrillOf(image, t)
		if !ok {
			continue
		}
		i, known := place[name]
		if !known {
			i, place[name] = len(list), len(list)
			list = append(list, Drill{Drill: name, Mirror: of.Mirror, At: of.At, State: meta.DrillReady, Topics: []string{}})
		}
		list[i].Topics = append(list[i].Topics, t.Record.Name)
		list[i].Partitions += int(t.Record.Partitions)
	}
	return list, nil
}

// oldDrillOf says which drill without a record of its own a topic is a fork of, as
// programs made them below meta.LevelDrills: it is in the record of its first partition.
func oldDrillOf(image *meta.Image, t *meta.Topic) (drill string, made meta.PromotionRecord, ok bool) {
	rec, _ := image.Partition(t.ID, 0)
	if drill, _, ok = core.Forked(rec); !ok || t.Record.Drill != nil {
		return "", made, false
	}
	return drill, rec.Promotions[0], true
}

// DeleteDrill deletes a drill: its topics are gone for everybody at once, and its
// groups' offsets with them; one that is being made is given up. What it did, or would
// do, comes back in words.
func (m *Mirrors) DeleteDrill(ctx context.Context, drill string, dryRun bool) ([]string, error) {
	image := m.o.Node.Image()
	e, ok := image.DrillEntry(drill)
	switch {
	case !ok:
		return m.deleteOldDrill(ctx, drill, dryRun)
	case e.Record == nil:
		return nil, fmt.Errorf("drill %s: %w: %w", drill, ErrState, e.Fault)
	}
	run := e.Record.Mark()
	var words []string
	if e.Record.State == meta.DrillMaking {
		words = append(words, fmt.Sprintf("drill %s is being made through broker %d: %s", drill, e.Record.Broker, would(dryRun, "given up")))
	}
	if e.Record.State == meta.DrillReady {
		for t := range image.DrillTopics(run) {
			words = append(words, fmt.Sprintf("topic %s %s, with %d partitions", t.Record.Name, would(dryRun, "deleted"), t.Record.Partitions))
		}
		slices.Sort(words)
	}
	if dryRun {
		return words, nil
	}
	if _, err := m.dropUnless(ctx, run, ""); err != nil {
		return nil, fmt.Errorf("drill %s: %w; it may have been dropped or not: the same command again settles it", drill, err)
	}
	if !m.awaitDrillGone(ctx, run) {
		return append(words, fmt.Sprintf("nobody sees drill %s any more; the controller is still deleting its records, and until then the name is in use", drill)), nil
	}
	return append(words, fmt.Sprintf("drill %s is gone", drill)), nil
}

func would(dryRun bool, done string) string {
	if dryRun {
		return "would be " + done
	}
	return "was " + done
}

// deleteOldDrill deletes the topics of a drill that has no record. Topics of such
// names that no drill made stay.
func (m *Mirrors) deleteOldDrill(ctx context.Context, drill string, dryRun bool) ([]string, error) {
	var words []string
	var faults []error
	image := m.o.Node.Image()
	for t := range image.TopicsByName() {
		name, _, ok := oldDrillOf(image, t)
		if !ok || name != drill {
			continue
		}
		if !dryRun {
			err := m.commitAll(ctx, func(image *meta.Image) ([]meta.Plan, error) {
				plan, err := control.DeleteTopic(image, t.ID, m.o.Node.Me())
				return []meta.Plan{plan}, err
			})
			if err != nil && !errors.Is(err, control.ErrUnknownTopic) { // somebody else has deleted it
				faults = append(faults, fmt.Errorf("topic %s: %w", t.Record.Name, err))
				continue
			}
		}
		words = append(words, fmt.Sprintf("topic %s %s, with %d partitions", t.Record.Name, would(dryRun, "deleted"), t.Record.Partitions))
	}
	switch {
	case len(faults) > 0:
		return words, fmt.Errorf("drill %s: %w; the same command again deletes the rest", drill, errors.Join(faults...))
	case len(words) == 0:
		return nil, fmt.Errorf("drill %s: %w", drill, ErrUnknownDrill)
	}
	return words, nil
}
