package control

import (
	"fmt"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// AlterTopicConfigs replaces a topic's configs (validated by the caller) and
// brings its partitions' MinISR in step, clearing their ELR where it changes
// (R12). The first plan writes the configs; one that stops half-way is
// finished by asking for the same again.
func AlterTopicConfigs(image *meta.Image, id types.TopicID, configs map[string]string, minISR int, me Me, limits Limits) ([]meta.Plan, error) {
	if err := me.registered(image); err != nil {
		return nil, err
	}
	t, ok := image.Topic(id)
	if !ok {
		return nil, fmt.Errorf("topic id %s: %w", id, ErrUnknownTopic)
	}
	if t.Fault != nil {
		return nil, fmt.Errorf("topic %s: %w: %w", t.Record.Name, ErrUnreadable, t.Fault)
	}
	record := *t.Record
	record.Configs = configs
	key := image.Keys().Topic(id)
	plans := []meta.Plan{{
		Why:  fmt.Sprintf("alter configs of topic %s", record.Name),
		If:   []meta.Compare{me.compare(image), meta.ModRevisionIs(key, t.ModRevision)},
		Then: []meta.Op{meta.Put(key, record.Encode())},
	}}
	for p := range image.PartitionsOf(id) {
		if plan, differs := setMinISR(image, p, minISR, me); differs {
			plans = append(plans, plan)
		}
	}
	return Split(plans, limits), nil
}

// setMinISR brings a partition's min ISR in step, and clears its ELR with it (R12).
func setMinISR(image *meta.Image, p *meta.Partition, minISR int, me Me) (plan meta.Plan, differs bool) {
	if p.Record == nil || p.Record.MinISR == max(minISR, 1) {
		return meta.Plan{}, false
	}
	next := p.Record.Clone()
	next.MinISR, next.ELR = max(minISR, 1), nil
	return writePartition(image, p, next, me, "min ISR of"), true
}

// AlignMinISR brings the partitions' min ISR in step with what their topics' settings come
// to now: the cluster's default may have changed since they were made, or a change of
// configs (AlterTopicConfigs) may have stopped half-way.
func AlignMinISR(image *meta.Image, minISR func(*meta.Topic) int, me Me, limits Limits) []meta.Plan {
	var plans []meta.Plan
	for t := range image.Topics() {
		if t.Fault != nil {
			continue
		}
		want := minISR(t)
		for p := range image.PartitionsOf(t.ID) {
			if plan, differs := setMinISR(image, p, want, me); differs {
				plan.If = append(plan.If, meta.ModRevisionIs(image.Keys().Topic(t.ID), t.ModRevision)) // the configs that it follows from (R8)
				plans = append(plans, plan)
			}
		}
	}
	return Split(plans, limits)
}

// AlterBrokerConfigs replaces the dynamic configs of a broker, or with
// NoBroker those of all. No configs delete the entry.
func AlterBrokerConfigs(image *meta.Image, id types.BrokerID, configs map[string]string, me Me) (meta.Plan, error) {
	if err := me.registered(image); err != nil {
		return meta.Plan{}, err
	}
	key, whose := image.Keys().BrokerConfig(id), fmt.Sprintf("broker %d", id)
	if id == types.NoBroker {
		whose = "all brokers"
	}
	var revision meta.Revision
	if old, ok := image.BrokerConfig(id); ok {
		revision = old.ModRevision
	}
	plan := meta.Plan{
		Why:  "alter configs of " + whose,
		If:   []meta.Compare{me.compare(image), meta.ModRevisionIs(key, revision)},
		Then: []meta.Op{meta.Delete(key)},
	}
	if len(configs) > 0 {
		plan.Then = []meta.Op{meta.Put(key, meta.BrokerConfigRecord{Configs: configs}.Encode())}
	}
	return checked(plan), nil
}
