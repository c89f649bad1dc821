package control

import (
	"fmt"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// ForkedTopic is a topic whose in-sync replicas hold records already when it is made.
type ForkedTopic struct {
	Name    string
	ID      types.TopicID // fresh and random
	Configs map[string]string
	// Partitions are the records that the partitions begin with, by number.
	Partitions []meta.PartitionRecord
}

// WriteForks writes topics of a drill that is being made. Nobody sees any of them
// before FinishDrill; each plan is refused once the drill is dropped.
func WriteForks(image *meta.Image, run meta.DrillMark, topics []ForkedTopic, me Me, limits Limits) ([]meta.Plan, error) {
	d, err := beingMade(image, run, me)
	if err != nil {
		return nil, err
	}
	keys := image.Keys()
	var plans []meta.Plan
	for _, t := range topics {
		if err := t.check(image); err != nil {
			return nil, err
		}
		record := meta.TopicRecord{ID: t.ID, Name: t.Name, Partitions: int32(len(t.Partitions)), Configs: t.Configs, Drill: &run}
		plans = append(plans, meta.Plan{
			Why:  fmt.Sprintf("fork topic %s", t.Name),
			If:   append(unchanged(image, d, me), meta.Absent(keys.Name(t.Name)), meta.Absent(keys.Topic(t.ID))),
			Then: []meta.Op{meta.Put(keys.Name(t.Name), meta.NameRecord{ID: t.ID}.Encode()), meta.Put(keys.Topic(t.ID), record.Encode())},
		})
		for n := range t.Partitions {
			key := keys.Partition(t.ID, int32(n))
			plans = append(plans, meta.Plan{
				Why:  fmt.Sprintf("fork %s-%d", t.Name, n),
				If:   append(unchanged(image, d, me), meta.Absent(key)),
				Then: []meta.Op{meta.Put(key, t.Partitions[n].Encode())},
			})
		}
	}
	plans = Split(plans, limits)
	for i := range plans {
		plans[i] = checked(plans[i])
	}
	return plans, nil
}

// FinishDrill shows all topics of a drill at once: those that WriteForks wrote. The
// replicas that are called in sync must be registered as they were when they made
// the fork: one that has started anew since has removed what it had made.
func FinishDrill(image *meta.Image, run meta.DrillMark, topics []ForkedTopic, me Me, limits Limits) (meta.Plan, error) {
	d, err := beingMade(image, run, me)
	if err != nil {
		return meta.Plan{}, err
	}
	written := 0
	for t := range image.DrillTopics(run) {
		written++
		for n := range t.Record.Partitions {
			if image.PartitionKeyRevision(t.ID, n) == 0 {
				return meta.Plan{}, fmt.Errorf("drill %s: %s-%d was never written: %w", run.Name, t.Record.Name, n, ErrDrillOver)
			}
		}
	}
	if written != len(topics) {
		return meta.Plan{}, fmt.Errorf("drill %s: %d of %d topics were written: %w", run.Name, written, len(topics), ErrDrillOver)
	}
	next := *d.Record
	next.State = meta.DrillReady
	plan := meta.Plan{
		Why: fmt.Sprintf("show the %d topics of drill %s", len(topics), run.Name),
		If:  unchanged(image, d, me), Then: []meta.Op{meta.Put(image.Keys().Drill(run.Name), next.Encode())},
	}
	registrations := map[types.BrokerID]types.BrokerEpoch{me.ID: me.Epoch}
	for _, t := range topics {
		for n := range t.Partitions {
			for _, m := range t.Partitions[n].ISR {
				epoch, known := registrations[m.ID]
				if !known {
					registrations[m.ID] = m.BrokerEpoch
					plan.If = append(plan.If, meta.CreateRevisionIs(image.Keys().Broker(m.ID), meta.Revision(m.BrokerEpoch)))
				} else if epoch != m.BrokerEpoch {
					return meta.Plan{}, fmt.Errorf("%s-%d: broker %d was registered anew meanwhile: %w", t.Name, n, m.ID, ErrNotRegistered)
				}
			}
		}
	}
	if most := limits.ops(); len(plan.If) > most {
		return meta.Plan{}, fmt.Errorf("%w: the fork's replicas are on %d brokers, and one transaction of this metadata store compares %d registrations: choose topics on fewer brokers",
			ErrInvalidRequest, len(registrations), most-1)
	}
	return checked(plan), nil
}

func (t ForkedTopic) check(image *meta.Image) error {
	if err := ValidTopicName(t.Name); err != nil {
		return err
	}
	if err := nameIsFree(image, t.Name); err != nil {
		return err
	}
	if n := len(t.Partitions); n < 1 || n > partitionsPerTopicMax {
		return fmt.Errorf("%w: topic %s with %d", ErrInvalidPartitions, t.Name, n)
	}
	for n := range t.Partitions {
		p := &t.Partitions[n]
		// Invariant I-311: a fork begins a history of its own, led by a replica that made
		// it, in an epoch above all of its records'.
		assert.That(p.Writable && p.Mirror == nil && len(p.Timelines) == 1 && p.InISR(p.Leader) && len(p.Promotions) > 0 &&
			p.LeaderEpoch == p.Promotions[0].PromotedEpoch, "I-311: fork %s-%d begins as %+v", t.Name, n, p)
		if len(p.ISR) < p.MinISRNow() {
			return fmt.Errorf("%w: %s-%d has %d of %d in-sync replicas", ErrInvalidReplication, t.Name, n, len(p.ISR), p.MinISRNow())
		}
	}
	return nil
}
