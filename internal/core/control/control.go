// Package control decides what to write into the metadata: it turns an image
// and a request into plans whose compares hold only as long as what the
// decision was based on (R7). It never talks to a store, has no clock and no
// randomness: fresh ids and times come in with the request.
package control

import (
	"errors"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// Me is the writer of a plan: a broker in its present registration. Every plan
// that writes partition records compares it (R7).
type Me struct {
	ID    types.BrokerID
	Epoch types.BrokerEpoch
}

// Limits bound one transaction; Split keeps plans within them.
type Limits struct {
	// Ops bounds the compares, and the operations, of a transaction (metastore.Store.MaxTxnOps).
	Ops int
	// Bytes bounds keys and values together; etcd refuses requests above 1.5 MiB. 0 means 1 MiB.
	Bytes int
}

var errSkeleton = errors.New("not written yet")

// RegisterBroker registers a broker under a lease.
func RegisterBroker(image *meta.Image, broker meta.BrokerRecord, lease meta.LeaseID) ([]meta.Plan, error) {
	return nil, errSkeleton
}

// UnregisterBroker ends a registration.
func UnregisterBroker(image *meta.Image, me Me) (meta.Plan, error) { return meta.Plan{}, errSkeleton }

// CreateTopicRequest asks for a topic.
type CreateTopicRequest struct {
	Name string
	// ID is fresh and random, or the source's for a mirror's topic.
	ID types.TopicID
	// Partitions and ReplicationFactor must be positive unless Assignment is given.
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

// CreateTopic makes a topic.
func CreateTopic(image *meta.Image, r CreateTopicRequest, me Me, limits Limits) ([]meta.Plan, error) {
	return nil, errSkeleton
}

// DeleteTopic deletes a topic with all its records.
func DeleteTopic(image *meta.Image, id types.TopicID, me Me) (meta.Plan, error) {
	return meta.Plan{}, errSkeleton
}

// CreatePartitionsRequest asks for more partitions.
type CreatePartitionsRequest struct {
	Topic types.TopicID
	// Count is the number of partitions afterwards.
	Count int32
	// Assignment lists the replicas of each new partition, nil to place them.
	Assignment [][]types.BrokerID
	MinISR     int
	// TimelineID and Mirrors are as for CreateTopicRequest, for the new partitions alone.
	TimelineID string
	Mirrors    []meta.MirrorState
}

// CreatePartitions adds partitions to a topic.
func CreatePartitions(image *meta.Image, r CreatePartitionsRequest, me Me, limits Limits) ([]meta.Plan, error) {
	return nil, errSkeleton
}

// AlterTopicConfigs replaces a topic's configs (validated by the caller) and
// brings its partitions' MinISR in step, clearing their ELR where it changes (R12).
func AlterTopicConfigs(image *meta.Image, id types.TopicID, configs map[string]string, minISR int, me Me, limits Limits) ([]meta.Plan, error) {
	return nil, errSkeleton
}

// AlterBrokerConfigs replaces the dynamic configs of a broker, or with NoBroker of all.
func AlterBrokerConfigs(image *meta.Image, id types.BrokerID, configs map[string]string, me Me) (meta.Plan, error) {
	return meta.Plan{}, errSkeleton
}

// UpdatePartition writes one partition record that its leader changed: it
// compares the old record, the writer's registration and that the writer leads (R7).
func UpdatePartition(image *meta.Image, id types.TopicID, partition int32, record meta.PartitionRecord, me Me) (meta.Plan, error) {
	return meta.Plan{}, errSkeleton
}

// ElectionKind says how a leader was found (R11).
type ElectionKind string

// Election is the outcome of an election of one partition.
type Election struct {
	Partition meta.PartitionID
	Kind      ElectionKind
	Record    meta.PartitionRecord
	Plan      meta.Plan
}

// Elect elects candidate for one partition; ok is false if it may not lead.
func Elect(image *meta.Image, id types.TopicID, partition int32, candidate types.BrokerID, unclean bool, me Me) (Election, bool, error) {
	return Election{}, false, errSkeleton
}

// ElectAll elects a broker wherever its partitions need a leader, as after a
// registration (R10), and gives the elections and their plans within limits.
func ElectAll(image *meta.Image, candidate types.BrokerID, unclean func(*meta.Topic) bool, me Me, limits Limits) ([]Election, []meta.Plan) {
	return nil, nil
}

// ProducerIDBlock is a range of producer ids: First to First+Size-1.
type ProducerIDBlock struct {
	First types.ProducerID
	Size  int
}

// AllocateProducerIDs takes a block from the cluster's range (R30). random31
// are 31 random bits, used only where a range must begin.
func AllocateProducerIDs(image *meta.Image, random31 uint32, size int, me Me) (meta.Plan, ProducerIDBlock, error) {
	return meta.Plan{}, ProducerIDBlock{}, errSkeleton
}

// CreateMirror writes a new mirror.
func CreateMirror(image *meta.Image, record meta.MirrorRecord, me Me) (meta.Plan, error) {
	return meta.Plan{}, errSkeleton
}

// UpdateMirror overwrites a mirror's record, comparing the one in the image.
func UpdateMirror(image *meta.Image, record meta.MirrorRecord, me Me) (meta.Plan, error) {
	return meta.Plan{}, errSkeleton
}

// DeleteMirror deletes a mirror's record. Partitions that still follow it are a refusal.
func DeleteMirror(image *meta.Image, name string, me Me) (meta.Plan, error) {
	return meta.Plan{}, errSkeleton
}

// Split merges plans of single partitions into as few transactions as limits
// allow, each of which may be carried out or not on its own.
func Split(plans []meta.Plan, limits Limits) []meta.Plan { return plans }

var _ timeline.List
