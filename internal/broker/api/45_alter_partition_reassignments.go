package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
	"tidemark/internal/wire"
)

// AlterPartitionReassignments (key 45): give partitions other replicas (KIP-455).
//
// Behaviour
//   - The answer doesn't wait for the new replicas: ListPartitionReassignments
//     shows what is under way. A second one for a partition replaces the first.
//     Null replicas take one back.
//   - A reassignment that changes the number of replicas is refused
//     (INVALID_REPLICATION_FACTOR) where version 1 says so (KIP-860).
//   - Throttles are topic configs.
//
// Versions
//   - 0; 1: allow replication factor change.
func (c *Call) alterPartitionReassignments(in *kmsg.AlterPartitionAssignmentsRequest) (kmsg.Response, error) {
	ctx, cancel := c.within(in.TimeoutMillis)
	defer cancel()
	out := kmsg.NewPtrAlterPartitionAssignmentsResponse()
	out.AllowReplicationFactorChange = in.AllowReplicationFactorChange
	var changes []Reassignment
	for _, t := range in.Topics {
		to := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		to.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			part.Partition = p.Partition
			change, err := c.reassignment(in, t.Topic, p)
			if err == nil {
				changes = append(changes, change)
			} else {
				part.ErrorCode, part.ErrorMessage = int16(c.failed(wire.KeyAlterPartitionReassignments, err)), MessageOf(err)
			}
			to.Partitions = append(to.Partitions, part)
		}
		out.Topics = append(out.Topics, to)
	}
	errs := c.Cluster.Reassign(ctx, changes)
	for i := range out.Topics {
		for j := range out.Topics[i].Partitions {
			part := &out.Topics[i].Partitions[j]
			errs = c.takeError(wire.KeyAlterPartitionReassignments, errs, &part.ErrorCode, &part.ErrorMessage)
		}
	}
	return out, nil
}

func (c *Call) reassignment(in *kmsg.AlterPartitionAssignmentsRequest, topic string, p kmsg.AlterPartitionAssignmentsRequestTopicPartition) (Reassignment, error) {
	t, exists := c.Image.TopicByName(topic)
	if !exists || p.Partition < 0 || p.Partition >= t.Record.Partitions {
		return Reassignment{}, wire.ErrUnknownTopicOrPartition
	}
	change := Reassignment{Partition: meta.PartitionID{Topic: t.ID, Number: p.Partition}}
	if p.Replicas == nil {
		return change, nil
	}
	change.Replicas = brokerIDs(p.Replicas)
	rec, _ := c.Image.Partition(t.ID, p.Partition)
	if in.Version >= 1 && !in.AllowReplicationFactorChange && rec != nil && len(rec.Target()) != len(p.Replicas) {
		return change, wire.Errorf(wire.ErrInvalidReplicationFactor, "%s-%d has %d replicas, %d are asked for, and the request forbids a change of their number.",
			topic, p.Partition, len(rec.Target()), len(p.Replicas))
	}
	return change, nil
}
