package api

import (
	"context"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Operator does what concerns the nodes of the cluster themselves.
type Operator interface {
	// Quorum describes the metadata quorum; UNSUPPORTED_VERSION with a sentence
	// where it is an etcd that the user runs.
	Quorum(ctx context.Context) (Quorum, error)
	// Features are the levels that this broker's program supports.
	Features() meta.Features
	// UpdateFeatures finalizes feature levels, all or none; INVALID_UPDATE_VERSION.
	UpdateFeatures(ctx context.Context, changes []control.FeatureChange, validateOnly bool) error
	// Forget ends what is remembered of a broker that is gone and holds nothing:
	// BROKER_ID_NOT_REGISTERED, INVALID_REQUEST.
	Forget(ctx context.Context, id types.BrokerID) error
}

// Quorum is the metadata quorum in Kafka's words. Offsets are indexes of its log.
type Quorum struct {
	// Leader is NoBroker while there is none; Epoch is its term.
	Leader types.BrokerID
	Epoch  int32
	// HighWatermark is one above the last committed index.
	HighWatermark int64
	Voters        []QuorumReplica
	// Observers are learners, and brokers that only ask the members.
	Observers []QuorumReplica
}

// QuorumReplica is one node as far as the metadata quorum goes.
type QuorumReplica struct {
	ID types.BrokerID
	// Directory is the node's data folder, zero if unknown.
	Directory [16]byte
	// LogEnd is one above its last index, -1 if it doesn't answer or has no log.
	LogEnd int64
	// Host and Port are where other members reach it; empty for one that is none.
	Host string
	Port int32
}
