package timeline

import (
	"tidemark/internal/core/types"
)

// CheckpointFile is the name of a replica's checkpoint in its partition's folder.
const CheckpointFile = "timeline-checkpoint"

// Checkpoint is what a replica has applied (R19): the list, and the leader epoch
// of the partition record that it came from.
type Checkpoint struct {
	List        List
	LeaderEpoch types.LeaderEpoch
}
