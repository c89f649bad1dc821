package control

import (
	"fmt"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// CreateForks makes topics whose replicas were forked from others: all of them
// come to be in one transaction, the last plan, or none does. The replicas that are
// called in sync must be registered as they were when they made the fork: one that
// has started anew since has removed what it had made.
func CreateForks(image *meta.Image, topics []ForkedTopic, me Me, limits Limits) ([]meta.Plan, error) {
	if err := me.registered(image); err != nil {
		return nil, err
	}
	keys := image.Keys()
	visible := meta.Plan{Why: fmt.Sprintf("make %d forked topics", len(topics)), If: []meta.Compare{me.compare(image)}}
	registrations := map[types.BrokerID]types.BrokerEpoch{me.ID: me.Epoch}
	var single []meta.Plan
	for _, t := range topics {
		if err := t.check(image); err != nil {
			return nil, err
		}
		record := meta.TopicRecord{ID: t.ID, Name: t.Name, Partitions: int32(len(t.Partitions)), Configs: t.Configs}
		visible.If = append(visible.If, meta.Absent(keys.Name(t.Name)), meta.Absent(keys.Topic(t.ID)))
		visible.Then = append(visible.Then, meta.Put(keys.Name(t.Name), meta.NameRecord{ID: t.ID}.Encode()), meta.Put(keys.Topic(t.ID), record.Encode()))
		for n := range t.Partitions {
			p := &t.Partitions[n]
			for _, m := range p.ISR {
				epoch, known := registrations[m.ID]
				if !known {
					registrations[m.ID] = m.BrokerEpoch
					visible.If = append(visible.If, meta.CreateRevisionIs(keys.Broker(m.ID), meta.Revision(m.BrokerEpoch)))
				} else if epoch != m.BrokerEpoch {
					return nil, fmt.Errorf("%s-%d: broker %d was registered anew meanwhile: %w", t.Name, n, m.ID, ErrNotRegistered)
				}
			}
			key := keys.Partition(t.ID, int32(n))
			single = append(single, meta.Plan{
				Why:  fmt.Sprintf("fork %s-%d", t.Name, n),
				If:   []meta.Compare{meta.Absent(key)},
				Then: []meta.Op{meta.Put(key, p.Encode())},
			})
		}
	}
	if most := forksMax(limits, len(registrations)); len(topics) > most {
		return nil, fmt.Errorf("%w: %d topics can't be forked in one transaction of this metadata store, %d can: choose fewer", ErrInvalidRequest, len(topics), most)
	}
	if all := Split(append([]meta.Plan{visible}, single...), limits); len(all) == 1 {
		all[0].Why = visible.Why
		return []meta.Plan{checked(all[0])}, nil
	}
	for i := range single {
		single[i].If = append(single[i].If, me.compare(image), meta.Absent(keys.Topic(topics[0].ID)))
	}
	before := Split(single, limits)
	for i := range before {
		before[i].Why = fmt.Sprintf("%s: their partitions, part %d of %d", visible.Why, i+1, len(before))
		checked(before[i])
	}
	visible.If = append(visible.If, meta.Exists(before[len(before)-1].Then[0].Key))
	return append(before, checked(visible)), nil
}

// forksMax is how many topics one transaction can make visible beside the compares
// of registrations: two compares and two operations each.
func forksMax(limits Limits, registrations int) int {
	ops := limits.Ops
	if ops <= 0 {
		ops = defaultOps
	}
	return (ops - registrations - 1) / 2
}

