// Package control decides what to write into the metadata: it turns an image
// and a request into plans whose compares hold only as long as what the
// decision was based on (R7).
//
// It owns registration, the controller's office, topics, partitions, configs,
// elections (R10, R11), what becomes of ISR and ELR when brokers come and go
// (R15), reassignments, producer id blocks (R30) and the records of mirrors; what a mirrored
// partition's record becomes is core/mirror's decision, for which
// UpdatePartition adds the compares and checks the invariants. It never talks
// to a store, has no clock and no randomness: fresh ids and times come in with
// the request.
//
// A request that can't be done is refused with an error that matches one of
// the Err… values and says why in a sentence for the client. A plan that is
// too large for one transaction comes as several, of which only the last makes
// anything visible, so that stopping in between does no harm.
//
// Tests carry plans out on metastore/mem and look at the image; named tables
// hold the refusals.
package control

import (
	"errors"
	"fmt"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Refusals. The comments give the Kafka error that a client gets.
var (
	ErrNodeIDInUse          = errors.New("the node id is in use")                  // DUPLICATE_BROKER_REGISTRATION
	ErrOtherFolder          = errors.New("the node id is another data folder's")   // DUPLICATE_BROKER_REGISTRATION
	ErrNodeReplaced         = errors.New("the node was replaced")                  // DUPLICATE_BROKER_REGISTRATION
	ErrUnknownNode          = errors.New("there is no such node")                  // BROKER_ID_NOT_REGISTERED
	ErrFeatureLevel         = errors.New("feature level")                          // INVALID_UPDATE_VERSION
	ErrNotRegistered        = errors.New("this registration has ended")            // STALE_BROKER_EPOCH
	ErrNotLeader            = errors.New("this broker doesn't lead")               // NOT_LEADER_OR_FOLLOWER
	ErrTopicExists          = errors.New("the topic exists")                       // TOPIC_ALREADY_EXISTS
	ErrInvalidTopic         = errors.New("invalid topic name")                     // INVALID_TOPIC_EXCEPTION
	ErrUnknownTopic         = errors.New("the topic doesn't exist")                // UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID
	ErrUnknownPartition     = errors.New("the partition doesn't exist")            // UNKNOWN_TOPIC_OR_PARTITION
	ErrInvalidPartitions    = errors.New("invalid number of partitions")           // INVALID_PARTITIONS
	ErrInvalidReplication   = errors.New("invalid replication factor")             // INVALID_REPLICATION_FACTOR
	ErrInvalidAssignment    = errors.New("invalid replica assignment")             // INVALID_REPLICA_ASSIGNMENT
	ErrInvalidConfig        = errors.New("invalid config")                         // INVALID_CONFIG
	ErrInvalidRequest       = errors.New("invalid request")                        // INVALID_REQUEST
	ErrUnreadable           = errors.New("the metadata can't be read")             // KAFKA_STORAGE_ERROR
	ErrMirrorExists         = errors.New("the mirror exists")                      // INVALID_REQUEST
	ErrUnknownMirror        = errors.New("the mirror doesn't exist")               // RESOURCE_NOT_FOUND
	ErrMirrorInUse          = errors.New("partitions still follow the mirror")     // INVALID_REQUEST
	ErrElectionNotNeeded    = errors.New("the partition has the leader it should") // ELECTION_NOT_NEEDED
	ErrPreferredUnavailable = errors.New("the preferred leader isn't in sync")     // PREFERRED_LEADER_NOT_AVAILABLE
	ErrEligibleUnavailable  = errors.New("no replica may lead")                    // ELIGIBLE_LEADERS_NOT_AVAILABLE
	ErrNoReassignment       = errors.New("no reassignment is under way")           // NO_REASSIGNMENT_IN_PROGRESS
	ErrLeaderEpochExhausted = errors.New("the leader epoch can't rise any more")   // UNKNOWN_SERVER_ERROR
)

// Me is the writer of a plan: a broker in its present registration. Every plan
// that writes partition records compares it (R7).
type Me struct {
	ID    types.BrokerID
	Epoch types.BrokerEpoch
	// Controller is the create revision of the controller's key if the writer
	// writes as the controller, else 0: its writes end with its office.
	Controller meta.Revision
}

// compare holds while the writer's registration is the one it speaks in.
func (me Me) compare(image *meta.Image) meta.Compare {
	return meta.CreateRevisionIs(image.Keys().Broker(me.ID), meta.Revision(me.Epoch))
}

// compares is compare, and the controller's office if the writer writes in it.
func (me Me) compares(image *meta.Image) []meta.Compare {
	all := []meta.Compare{me.compare(image)}
	if me.Controller != 0 {
		all = append(all, meta.CreateRevisionIs(image.Keys().Controller(), me.Controller))
	}
	return all
}

// registered refuses a writer whose registration the image no longer has.
func (me Me) registered(image *meta.Image) error {
	epoch, ok := image.BrokerEpoch(me.ID)
	if !ok || epoch != me.Epoch {
		return fmt.Errorf("broker %d, epoch %d: %w", me.ID, me.Epoch, ErrNotRegistered)
	}
	return nil
}

// checked asserts what every plan must keep to, whatever it does.
func checked(plan meta.Plan) meta.Plan {
	assert.That(plan.Why != "" && len(plan.If) > 0, "I-56: plan %q compares nothing", plan.Why)
	seen := make(map[string]bool, len(plan.Then))
	for _, op := range plan.Then {
		// Invariant I-56: a plan compares something and touches no key twice.
		assert.That(!seen[op.Key], "I-56: plan %q touches %s twice", plan.Why, op.Key)
		seen[op.Key] = true
	}
	return plan
}
