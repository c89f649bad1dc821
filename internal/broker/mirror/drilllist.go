package mirror

import (
	"context"
	"errors"
	"fmt"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
)

// Drills lists the forks that are there.
func (m *Mirrors) Drills(context.Context) ([]Drill, error) {
	list := []Drill{}
	place := map[string]int{}
	image := m.o.Node.Image()
	for t := range image.TopicsByName() {
		name, of, ok := drillOf(image, t)
		if !ok {
			continue
		}
		i, known := place[name]
		if !known {
			i, place[name] = len(list), len(list)
			list = append(list, Drill{Drill: name, Mirror: of.Mirror, At: of.At, Topics: []string{}})
		}
		list[i].Topics = append(list[i].Topics, t.Record.Name)
		list[i].Partitions += int(t.Record.Partitions)
	}
	return list, nil
}

// drillOf says which drill a topic is a fork of, and from what: it is in the record
// of its first partition.
func drillOf(image *meta.Image, t *meta.Topic) (drill string, made meta.PromotionRecord, ok bool) {
	rec, _ := image.Partition(t.ID, 0)
	if drill, _, ok = core.Forked(rec); !ok {
		return "", made, false
	}
	return drill, rec.Promotions[0], true
}

// DeleteDrill deletes the topics of a drill; its groups' offsets go with them. Topics
// of such names that no drill made stay. What it did, or would do, comes back in words.
func (m *Mirrors) DeleteDrill(ctx context.Context, drill string, dryRun bool) ([]string, error) {
	var words []string
	var faults []error
	image := m.o.Node.Image()
	for t := range image.TopicsByName() {
		name, _, ok := drillOf(image, t)
		if !ok || name != drill {
			continue
		}
		if dryRun {
			words = append(words, fmt.Sprintf("topic %s would be deleted, with %d partitions", t.Record.Name, t.Record.Partitions))
			continue
		}
		err := m.commitAll(ctx, func(image *meta.Image) ([]meta.Plan, error) {
			plan, err := control.DeleteTopic(image, t.ID, m.o.Node.Me())
			return []meta.Plan{plan}, err
		})
		if err != nil && !errors.Is(err, control.ErrUnknownTopic) { // somebody else has deleted it
			faults = append(faults, fmt.Errorf("topic %s: %w", t.Record.Name, err))
			continue
		}
		words = append(words, fmt.Sprintf("topic %s was deleted", t.Record.Name))
	}
	switch {
	case len(faults) > 0:
		return words, fmt.Errorf("drill %s: %w; the same command again deletes the rest", drill, errors.Join(faults...))
	case len(words) == 0:
		return nil, fmt.Errorf("drill %s: %w", drill, ErrUnknownDrill)
	}
	return words, nil
}
