package mirror

import (
	"context"
	"fmt"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// statusPatience bounds the question to one broker how its partitions are: whoever looks at a
// mirror wants to know at once which broker doesn't answer.
const statusPatience = 3 * time.Second

// StatusEverywhere is Status with each partition as its leader knows it: lag, ends
// and failures are known to whoever copies. A partition whose leader can't be asked
// stays as this node sees it, and its reason says so.
func (m *Mirrors) StatusEverywhere(ctx context.Context, name string) (Status, error) {
	st, err := m.Status(ctx, name)
	if err != nil {
		return st, err
	}
	image := m.o.Node.Image()
	list, unasked := m.everywhere(ctx, partStatus, part{Mirror: name}, statusPatience)
	told := make(map[types.TopicPartition]*PartitionStatus, len(list))
	for _, o := range list {
		if o.Switchover != nil && st.Switchover != nil && o.Switchover.Attempt == st.Switchover.Attempt && o.Switchover.Broker == st.Switchover.Broker {
			st.Switchover = o.Switchover
		} else if o.Status != nil {
			told[o.TopicPartition] = o.Status
		}
	}
	for i := range st.Partitions {
		p := &st.Partitions[i]
		if t := told[types.TopicPartition{Topic: p.Topic, Partition: p.Partition}]; t != nil {
			t.VerifiedTo = max(t.VerifiedTo, p.VerifiedTo) // known where the comparison was made
			*p = *t
		} else if leader := ledBy(image, p); unasked != nil && leader >= 0 && leader != m.o.Node.Me().ID && p.Reason == "" {
			p.Reason = fmt.Sprintf("its leader, broker %d, can't be asked", leader)
		}
	}
	if e, ok := image.Mirror(name); ok {
		st.Loss = sumLoss(st.Partitions)
		m.summarize(&st, e.Record)
	}
	return st, nil
}

// ledBy is the broker that leads a mirrored partition, NoBroker if none does.
func ledBy(image *meta.Image, p *PartitionStatus) types.BrokerID {
	if t, ok := image.TopicByName(p.Topic); ok {
		if rec, _ := image.Partition(t.ID, p.Partition); rec != nil {
			return rec.Leader
		}
	}
	return types.NoBroker
}

// statusHere tells of the mirror's partitions that are led here, and why the way back of a
// switchover that this node is at work at doesn't end.
func (m *Mirrors) statusHere(p part) []outcome {
	image := m.o.Node.Image()
	list := []outcome{}
	for _, l := range m.ledHere(image, func(_ *meta.Topic, e *meta.Partition) bool {
		return e.Record.Mirror != nil && e.Record.Mirror.Name == p.Mirror
	}) {
		if e, ok := image.PartitionEntry(l.id.Topic, l.id.Number); ok && e.Record != nil {
			st := m.partitionStatus(l.tp.Topic, e)
			list = append(list, outcome{TopicPartition: l.tp, Status: &st})
		}
	}
	if e, ok := image.Mirror(p.Mirror); ok {
		if s := m.switchStatus(image, e.Record); s != nil && s.Error != "" {
			list = append(list, outcome{Switchover: s})
		}
	}
	return list
}
