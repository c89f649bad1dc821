package broker

import (
	"errors"

	"tidemark/internal/core/control"
	"tidemark/internal/metastore"
	"tidemark/internal/wire"
)

// refusals gives the Kafka error of each refusal of core/control.
var refusals = []struct {
	refusal error
	code    wire.ErrCode
}{
	{control.ErrNotRegistered, wire.ErrStaleBrokerEpoch},
	{control.ErrNotLeader, wire.ErrNotLeaderOrFollower},
	{control.ErrTopicExists, wire.ErrTopicAlreadyExists},
	{control.ErrInvalidTopic, wire.ErrInvalidTopic},
	{control.ErrUnknownTopic, wire.ErrUnknownTopicOrPartition},
	{control.ErrUnknownPartition, wire.ErrUnknownTopicOrPartition},
	{control.ErrInvalidPartitions, wire.ErrInvalidPartitions},
	{control.ErrInvalidReplication, wire.ErrInvalidReplicationFactor},
	{control.ErrInvalidAssignment, wire.ErrInvalidReplicaAssignment},
	{control.ErrInvalidConfig, wire.ErrInvalidConfig},
	{control.ErrElectionNotNeeded, wire.ErrElectionNotNeeded},
	{control.ErrPreferredUnavailable, wire.ErrPreferredLeaderNotAvailable},
	{control.ErrEligibleUnavailable, wire.ErrEligibleLeadersNotAvailable},
	{control.ErrNoReassignment, wire.ErrNoReassignmentInProgress},
	{control.ErrInvalidRequest, wire.ErrInvalidRequest},
	{control.ErrFeatureLevel, wire.ErrInvalidUpdateVersion},
	{control.ErrUnknownNode, wire.ErrBrokerIDNotRegistered},
	{control.ErrUnreadable, wire.ErrKafkaStorageError},
	{control.ErrUnknownCredential, wire.ErrResourceNotFound},
	{control.ErrBadCredential, wire.ErrUnacceptableCredential},
	{control.ErrSecurityLevel, wire.ErrUnsupportedVersion},
	{metastore.ErrUnavailable, wire.ErrRequestTimedOut},
	{metastore.ErrUnknownOutcome, wire.ErrRequestTimedOut},
	{metastore.ErrRefused, wire.ErrRequestTimedOut},
}

// topicFault gives a failed change of topics the code that a client gets.
func topicFault(err error) error {
	if err == nil || wire.CodeOf(err) != wire.ErrUnknownServerError {
		return err
	}
	for _, r := range refusals {
		if errors.Is(err, r.refusal) {
			return wire.Errorf(r.code, "%s", err)
		}
	}
	return err
}
