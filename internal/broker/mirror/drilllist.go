package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
)

// Drills lists the forks that are there, are being made, or are being deleted, and which
// partitions of those that are there can't be used.
func (m *Mirrors) Drills(ctx context.Context) ([]Drill, error) {
	image := m.o.Node.Image()
	list := drillsOf(image)
	m.addOffline(ctx, image, list)
	return list, nil
}

func drillsOf(image *meta.Image) []Drill {
	list := []Drill{}
	place := map[string]int{}
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
	return list
}

// offlineShown bounds how many partitions of a drill are named that can't be used.
const offlineShown = 5

// addOffline asks the leaders of ready drills' partitions whether they can be used, and
// adds those that can't. A record that says ready knows nothing of it: a fork's folder may be
// lost, or its disk, long after it was made.
func (m *Mirrors) addOffline(ctx context.Context, image *meta.Image, list []Drill) {
	of := map[string]*Drill{}
	for i := range list {
		for _, topic := range list[i].Topics {
			if list[i].State == meta.DrillReady {
				of[topic] = &list[i]
			}
		}
	}
	if len(of) == 0 {
		return
	}
	say := func(topic, sentence string) {
		d := of[topic]
		if d.Offline++; d.Offline <= offlineShown {
			d.Faults = append(d.Faults, sentence)
		}
	}
	answers, unasked := m.everywhere(ctx, partDrillLook, part{Drill: &drillPart{}}, statusPatience)
	told := map[types.TopicPartition]outcome{}
	for _, o := range answers {
		told[o.TopicPartition] = o
	}
	for t := range image.TopicsByName() {
		if of[t.Record.Name] == nil {
			continue
		}
		for p := range image.PartitionsOf(t.ID) {
			tp := types.TopicPartition{Topic: t.Record.Name, Partition: p.ID.Number}
			st := PartitionStatus{Topic: tp.Topic, Partition: tp.Partition}
			switch o, ok := told[tp]; {
			case p.Record == nil:
				say(tp.Topic, fmt.Sprintf("%s: its metadata can't be read: %v", tp, p.Fault))
			case ok && o.Reason != "":
				say(tp.Topic, o.sentence())
			case control.NeedsLeader(image, p.Record):
				describeLeaderless(image, p, m.o.Node.Me(), &st)
				say(tp.Topic, fmt.Sprintf("%s: %s", tp, st.Reason))
			case !ok && unasked != nil:
				of[tp.Topic].Faults = append(of[tp.Topic].Faults, fmt.Sprintf("%s: its leader, broker %d, can't be asked", tp, p.Record.Leader))
			}
		}
	}
}

// drillsHere tells of each drill's partition that is led here whether it can be used.
func (m *Mirrors) drillsHere() []outcome {
	image := m.o.Node.Image()
	list := []outcome{}
	for _, l := range m.ledHere(image, func(t *meta.Topic, _ *meta.Partition) bool {
		_, _, old := oldDrillOf(image, t)
		return t.Record.Drill != nil || old
	}) {
		o := outcome{TopicPartition: l.tp}
		if _, err := l.part.LeaderEpoch(); err != nil {
			o.Reason, o.Detail = core.LogOffline, err.Error()
		}
		list = append(list, o)
	}
	return list
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
