package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
)

// ListPartitionReassignments (key 46): which partitions get other replicas now (KIP-455).
//
// Behaviour
//   - Null topics are all. Partitions without a reassignment are left out, and so
//     are topics and partitions that don't exist.
//
// Versions
//   - 0.
func (c *Call) listPartitionReassignments(in *kmsg.ListPartitionReassignmentsRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrListPartitionReassignmentsResponse()
	if in.Topics == nil {
		for t := range c.Image.TopicsByName() {
			to := kmsg.NewListPartitionReassignmentsResponseTopic()
			to.Topic = t.Record.Name
			for p := range c.Image.PartitionsOf(t.ID) {
				listReassignment(&to, p)
			}
			if len(to.Partitions) > 0 {
				out.Topics = append(out.Topics, to)
			}
		}
		return out, nil
	}
	for _, asked := range in.Topics {
		t, exists := c.Image.TopicByName(asked.Topic)
		if !exists {
			continue
		}
		to := kmsg.NewListPartitionReassignmentsResponseTopic()
		to.Topic = asked.Topic
		for _, n := range asked.Partitions {
			if p, ok := c.Image.PartitionEntry(t.ID, n); ok {
				listReassignment(&to, p)
			}
		}
		if len(to.Partitions) > 0 {
			out.Topics = append(out.Topics, to)
		}
	}
	return out, nil
}

func listReassignment(to *kmsg.ListPartitionReassignmentsResponseTopic, p *meta.Partition) {
	r := p.Record
	if r == nil || len(r.Adding)+len(r.Removing) == 0 {
		return
	}
	part := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
	part.Partition, part.Replicas = p.ID.Number, ids(r.Replicas)
	part.AddingReplicas, part.RemovingReplicas = ids(r.Adding), ids(r.Removing)
	to.Partitions = append(to.Partitions, part)
}
