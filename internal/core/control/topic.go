package control

import (
	"fmt"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// partitionsPerTopicMax bounds what one request can ask for: 10,000 is the
// size that one node is measured with, a hundred times more is a mistake.
const partitionsPerTopicMax = 100_000

// CreateTopicRequest asks for a topic.
type CreateTopicRequest struct {
	Name string
	// ID is fresh and random, or the source's for a mirror's topic.
	ID types.TopicID
	// Partitions is how many; ReplicationFactor how many replicas each gets
	// (ignored with Assignment).
	Partitions        int32
	ReplicationFactor int
	// Assignment lists the replicas of each partition, nil to place them.
	Assignment [][]types.BrokerID
	// Configs are validated settings, MinISR their min.insync.replicas (1 if 0).
	Configs  map[string]string
	MinISR   int
	Internal bool
	// TimelineID is fresh and random: the root timeline of every partition (R16).
	TimelineID string
	// Mirrors, if not nil, makes a mirror's topic: one state for each
	// partition, which is read-only and has no timeline until it adopts its source's.
	Mirrors []meta.MirrorState
}

// CreateTopic makes a topic with its partitions and their first records. The
// topic exists once the last plan was carried out.
func CreateTopic(image *meta.Image, r CreateTopicRequest, me Me, limits Limits) ([]meta.Plan, error) {
	if err := r.check(image, me); err != nil {
		return nil, err
	}
	replicas, err := placement{topic: r.ID, count: r.Partitions, replication: r.ReplicationFactor, assignment: r.Assignment}.replicas(image)
	if err != nil {
		return nil, err
	}
	keys := image.Keys()
	topic := meta.TopicRecord{ID: r.ID, Name: r.Name, Partitions: r.Partitions, Configs: r.Configs, Internal: r.Internal}
	visible := meta.Plan{
		Why: fmt.Sprintf("create topic %s", r.Name),
		If:  []meta.Compare{me.compare(image), meta.Absent(keys.Name(r.Name)), meta.Absent(keys.Topic(r.ID))},
		Then: []meta.Op{
			meta.Put(keys.Name(r.Name), meta.NameRecord{ID: r.ID}.Encode()),
			meta.Put(keys.Topic(r.ID), topic.Encode()),
		},
	}
	born := birth{minISR: r.MinISR, timelineID: r.TimelineID, mirrors: r.Mirrors}
	return withPartitions(image, visible, r.ID, 0, replicas, born, limits), nil
}

func (r CreateTopicRequest) check(image *meta.Image, me Me) error {
	if err := me.registered(image); err != nil {
		return err
	}
	if err := ValidTopicName(r.Name); err != nil {
		return err
	}
	if err := nameIsFree(image, r.Name); err != nil {
		return err
	}
	if r.Partitions < 1 || r.Partitions > partitionsPerTopicMax {
		return fmt.Errorf("%w: %d, from 1 to %d can be asked for", ErrInvalidPartitions, r.Partitions, partitionsPerTopicMax)
	}
	if r.ID.IsZero() {
		return fmt.Errorf("%w: no topic id", ErrInvalidRequest)
	}
	if t, taken := image.TopicEntry(r.ID); taken {
		name := "a topic that can't be read"
		if t.Record != nil {
			name = t.Record.Name
		}
		return fmt.Errorf("topic id %s is taken by %s: %w", r.ID, name, ErrTopicExists)
	}
	return birth{timelineID: r.TimelineID, mirrors: r.Mirrors}.check(r.Partitions)
}

// withPartitions adds the first records of partitions to the plan that makes
// them visible. What doesn't fit into one transaction is written before, in
// plans that nobody sees the effect of until the last.
func withPartitions(image *meta.Image, visible meta.Plan, topic types.TopicID, first int32, replicas [][]types.BrokerID, born birth, limits Limits) []meta.Plan {
	keys := image.Keys()
	single := make([]meta.Plan, len(replicas))
	for i := range replicas {
		n := first + int32(i)
		key := keys.Partition(topic, n)
		single[i] = meta.Plan{
			Why:  fmt.Sprintf("%s: partition %d", visible.Why, n),
			If:   []meta.Compare{meta.ModRevisionIs(key, image.PartitionKeyRevision(topic, n))},
			Then: []meta.Op{meta.Put(key, born.record(image, i, replicas[i]).Encode())},
		}
	}
	if all := Split(append([]meta.Plan{visible}, single...), limits); len(all) == 1 {
		all[0].Why = visible.Why
		return []meta.Plan{checked(all[0])}
	}
	for i := range single {
		single[i].If = append(single[i].If, visible.If...)
	}
	before := Split(single, limits)
	for i := range before {
		before[i].Why = fmt.Sprintf("%s: its partitions, part %d of %d", visible.Why, i+1, len(before))
		checked(before[i])
	}
	// Plans are carried out in order: the last part is there only after the others.
	visible.If = append(visible.If, meta.Exists(before[len(before)-1].Then[0].Key))
	return append(before, checked(visible))
}

// DeleteTopic deletes a topic with all its records, in one transaction
// whatever its size. It also deletes a topic that can't be read.
func DeleteTopic(image *meta.Image, id types.TopicID, me Me) (meta.Plan, error) {
	if err := me.registered(image); err != nil {
		return meta.Plan{}, err
	}
	t, ok := image.TopicEntry(id)
	if !ok {
		return meta.Plan{}, fmt.Errorf("topic id %s: %w", id, ErrUnknownTopic)
	}
	name, known := "", false
	if t.Record != nil {
		name, known = t.Record.Name, true
	} else {
		name, known = image.NameOf(id)
	}
	keys := image.Keys()
	plan := meta.Plan{
		Why:  fmt.Sprintf("delete topic %s (%s)", name, id),
		If:   []meta.Compare{me.compare(image), meta.ModRevisionIs(keys.Topic(id), t.ModRevision)},
		Then: []meta.Op{meta.Delete(keys.Topic(id)), meta.DeletePrefix(keys.Partitions(id))},
	}
	if known {
		plan.Then = append(plan.Then, meta.Delete(keys.Name(name)))
	}
	return checked(plan), nil
}

// CreatePartitionsRequest asks for more partitions.
type CreatePartitionsRequest struct {
	Topic types.TopicID
	// Count is the number of partitions afterwards.
	Count int32
	// Assignment lists the replicas of each new partition, nil to place them
	// with as many replicas as partition 0 has.
	Assignment [][]types.BrokerID
	// MinISR is the topic's min.insync.replicas (1 if 0).
	MinISR int
	// TimelineID and Mirrors are as for CreateTopicRequest, for the new partitions alone.
	TimelineID string
	Mirrors    []meta.MirrorState
}

// CreatePartitions adds partitions to a topic. They exist once the last plan was carried out.
func CreatePartitions(image *meta.Image, r CreatePartitionsRequest, me Me, limits Limits) ([]meta.Plan, error) {
	if err := me.registered(image); err != nil {
		return nil, err
	}
	t, ok := image.Topic(r.Topic)
	if !ok {
		return nil, fmt.Errorf("topic id %s: %w", r.Topic, ErrUnknownTopic)
	}
	if t.Fault != nil {
		return nil, fmt.Errorf("topic %s: %w: %w", t.Record.Name, ErrUnreadable, t.Fault)
	}
	have := t.Record.Partitions
	if r.Count <= have || r.Count > partitionsPerTopicMax {
		return nil, fmt.Errorf("%w: topic %s has %d partitions, %d are asked for", ErrInvalidPartitions, t.Record.Name, have, r.Count)
	}
	born := birth{minISR: r.MinISR, timelineID: r.TimelineID, mirrors: r.Mirrors}
	if err := born.check(r.Count - have); err != nil {
		return nil, err
	}
	replication := 1
	if first, _ := image.Partition(r.Topic, 0); first != nil {
		replication = len(first.Replicas)
	}
	replicas, err := placement{topic: r.Topic, first: have, count: r.Count - have, replication: replication, assignment: r.Assignment}.replicas(image)
	if err != nil {
		return nil, err
	}
	record := *t.Record
	record.Partitions = r.Count
	key := image.Keys().Topic(r.Topic)
	visible := meta.Plan{
		Why:  fmt.Sprintf("add partitions %d to %d to topic %s", have, r.Count-1, record.Name),
		If:   []meta.Compare{me.compare(image), meta.ModRevisionIs(key, t.ModRevision)},
		Then: []meta.Op{meta.Put(key, record.Encode())},
	}
	return withPartitions(image, visible, r.Topic, have, replicas, born, limits), nil
}

// SweepOrphans deletes the partition records that belong to no topic: what a
// creation left that stopped half-way. abandoned says of which topic ids no creation is under way.
func SweepOrphans(image *meta.Image, abandoned func(types.TopicID) bool, me Me, limits Limits) []meta.Plan {
	var plans []meta.Plan
	var last types.TopicID
	keys := image.Keys()
	for pid := range image.Orphans() {
		if _, ok := image.TopicEntry(pid.Topic); ok || pid.Topic == last || !abandoned(pid.Topic) {
			continue // beyond a topic's partition count: a later one overwrites it
		}
		last = pid.Topic
		plans = append(plans, meta.Plan{
			Why:  fmt.Sprintf("delete partition records of no topic (%s)", pid.Topic),
			If:   append(me.compares(image), meta.Absent(keys.Topic(pid.Topic))),
			Then: []meta.Op{meta.DeletePrefix(keys.Partitions(pid.Topic))},
		})
	}
	return Split(plans, limits)
}
