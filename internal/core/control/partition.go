package control

import (
	"fmt"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// UpdatePartition writes a partition record that its leader changed: the plan
// compares the old record and the writer's registration, and is refused with
// ErrNotLeader unless the old record says leader = me in my registration (R7).
// A record that breaks an invariant (meta.ValidateRecord) is a bug of the caller and panics.
func UpdatePartition(image *meta.Image, id types.TopicID, partition int32, record meta.PartitionRecord, me Me) (meta.Plan, error) {
	if err := me.registered(image); err != nil {
		return meta.Plan{}, err
	}
	p, ok := image.PartitionEntry(id, partition)
	if !ok {
		return meta.Plan{}, fmt.Errorf("partition %d of topic id %s: %w", partition, id, ErrUnknownPartition)
	}
	if p.Record == nil {
		return meta.Plan{}, fmt.Errorf("partition %d of topic id %s: %w: %w", partition, id, ErrUnreadable, p.Fault)
	}
	if p.Record.Leader != me.ID || p.Record.LeaderBrokerEpoch != me.Epoch {
		return meta.Plan{}, fmt.Errorf("partition %d of topic id %s is led by broker %d, epoch %d: %w",
			partition, id, p.Record.Leader, p.Record.LeaderBrokerEpoch, ErrNotLeader)
	}
	return writePartition(image, p, record, me, "update"), nil
}

// writePartition overwrites one record, comparing what it was and who writes (R7).
func writePartition(image *meta.Image, p *meta.Partition, next meta.PartitionRecord, me Me, verb string) meta.Plan {
	err := meta.ValidateRecord(p.Record, &next)
	assert.That(err == nil, "%v (partition %d of topic id %s)", err, p.ID.Number, p.ID.Topic)
	name := p.ID.Topic.String()
	if t, ok := image.Topic(p.ID.Topic); ok {
		name = t.Record.Name
	}
	key := image.Keys().Partition(p.ID.Topic, p.ID.Number)
	return checked(meta.Plan{
		Why:  fmt.Sprintf("%s %s-%d", verb, name, p.ID.Number),
		If:   append(me.compares(image), meta.ModRevisionIs(key, p.ModRevision)),
		Then: []meta.Op{meta.Put(key, next.Encode())},
	})
}
