package statelog

import (
	"context"
	"errors"
	"unicode/utf16"

	"tidemark/internal/broker/api"
	"tidemark/internal/clock"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// TopicOptions say which topic a coordinator keeps its state in.
type TopicOptions struct {
	Node
	Name string
	// Partitions and Replication are those of a topic that is made anew; with fewer
	// brokers it begins with a replica on each.
	Partitions  int32
	Replication int16
	// Configs are those of a topic that is made anew.
	Configs map[string]*string
}

// Topic is the internal topic of a coordinator. Its methods may be called from any goroutine.
type Topic struct {
	o        TopicOptions
	creating chan struct{} // holds one token: who has it may create the topic
}

// NewTopic names the topic; it is made at its first use.
func NewTopic(o TopicOptions) *Topic {
	t := &Topic{o: o, creating: make(chan struct{}, 1)}
	t.creating <- struct{}{}
	return t
}

// Ensure gives the topic, made at its first use with the configs that Kafka gives
// it. COORDINATOR_NOT_AVAILABLE if that can't be done yet.
func (t *Topic) Ensure(ctx context.Context) (*meta.Topic, error) {
	if found, ok := t.o.Image().TopicByName(t.o.Name); ok {
		return found, nil
	}
	if _, err := clock.Wait(ctx, clock.Forever, t.creating); err != nil {
		return nil, wire.ErrCoordinatorNotAvailable
	}
	defer func() { t.creating <- struct{}{} }()
	if found, ok := t.o.Image().TopicByName(t.o.Name); ok {
		return found, nil
	}
	_, err := t.o.Topics.Create(ctx, t.AsMade())
	if err != nil && !errors.Is(err, wire.ErrTopicAlreadyExists) {
		t.o.Logger.Warn("a coordinator's topic can't be created", "topic", t.o.Name, "err", err)
		return nil, wire.Errorf(wire.ErrCoordinatorNotAvailable, "%s can't be created yet.", t.o.Name)
	}
	if found, ok := t.o.Image().TopicByName(t.o.Name); ok {
		return found, nil
	}
	return nil, wire.Errorf(wire.ErrCoordinatorNotAvailable, "%s is being created.", t.o.Name)
}

// AsMade is the request by which the topic is made at its first use.
func (t *Topic) AsMade() api.CreateTopic {
	return api.CreateTopic{Name: t.o.Name, Partitions: t.o.Partitions, ReplicationFactor: t.replication(), Configs: t.o.Configs}
}

// replication is what is asked for, or as many brokers as there are; the
// controller adds the rest once more have joined.
func (t *Topic) replication() int16 {
	return int16(control.ReplicasFor(t.o.Image(), int(t.o.Replication)))
}

// Leader gives the broker that coordinates a key, and has the topic made at its first
// use. COORDINATOR_NOT_AVAILABLE as long as nobody leads the key's partition.
func (t *Topic) Leader(ctx context.Context, key string) (types.BrokerID, error) {
	found, err := t.Ensure(ctx)
	if err != nil {
		return types.NoBroker, err
	}
	p := PartitionFor(key, found.Record.Partitions)
	rec, _ := t.o.Image().Partition(found.Record.ID, p)
	if rec == nil || rec.Leader == types.NoBroker {
		return types.NoBroker, wire.Errorf(wire.ErrCoordinatorNotAvailable, "Partition %d of %s has no leader.", p, t.o.Name)
	}
	return rec.Leader, nil
}

// Partition gives the partition that a key belongs to; false while there is no topic.
func (t *Topic) Partition(key string) (int32, bool) {
	found, ok := t.o.Image().TopicByName(t.o.Name)
	if !ok {
		return 0, false
	}
	return PartitionFor(key, found.Record.Partitions), true
}

// PartitionFor gives the partition that keeps a key (a group, a transactional id):
// Java's String.hashCode (over UTF-16 units), its absolute value, modulo the
// partition count, as every Kafka client and tool computes it.
func PartitionFor(key string, partitions int32) int32 {
	var h int32
	for _, unit := range utf16.Encode([]rune(key)) {
		h = 31*h + int32(unit)
	}
	switch {
	case h == -1<<31:
		h = 0 // Kafka parity: the one number without an absolute value
	case h < 0:
		h = -h
	}
	return h % partitions
}
