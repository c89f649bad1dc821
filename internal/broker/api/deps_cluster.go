package api

import (
	"context"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Cluster changes which replicas there are and who leads. Each method answers
// one error for each partition, in order.
type Cluster interface {
	// ElectLeaders has the preferred replica of each partition lead, or, with
	// unclean, any live replica where nobody leads; it waits until somebody
	// does. ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
	// ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION.
	ElectLeaders(ctx context.Context, partitions []meta.PartitionID, unclean bool) []error
	// Reassign begins, replaces or (without replicas) takes back reassignments. It
	// doesn't wait for their end. INVALID_REPLICA_ASSIGNMENT,
	// NO_REASSIGNMENT_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION.
	Reassign(ctx context.Context, changes []Reassignment) []error
}

// Reassignment gives a partition other replicas.
type Reassignment struct {
	Partition meta.PartitionID
	// Replicas are the new ones in order of preference; nil takes a reassignment back.
	Replicas []types.BrokerID
}
