package meta

import (
	"cmp"
	"slices"
	"strings"

	"tidemark/internal/core/types"
)

// Change is one entry that differs between two images: Old is nil if it was
// created, New is nil if it was deleted. A key that was deleted and made anew
// in between has other create revisions in Old and New.
type Change[E any] struct{ Old, New *E }

// Created reports whether the entry didn't exist before.
func (c Change[E]) Created() bool { return c.Old == nil }

// Deleted reports whether the entry no longer exists.
func (c Change[E]) Deleted() bool { return c.New == nil }

// Delta is what differs between one image and a later one, each list in order of ids.
type Delta struct {
	// Revision is the later image's.
	Revision Revision
	// Topics changed, their configs included. A topic whose value became
	// unreadable is a change with Fault set, never a deletion.
	Topics []Change[Topic]
	// Partitions changed, those of created and deleted topics included. New may
	// be faulty (Record nil).
	Partitions []Change[Partition]
	Brokers    []Change[Broker]
	Mirrors    []Change[Mirror]
	// BrokerConfigs changed; id NoBroker is the default of all brokers.
	BrokerConfigs []Change[BrokerConfig]
	Reports       []Change[Report]
	Nodes         []Change[Node]
	Drills        []Change[Drill]
	// ProducerIDs, Controller, Cluster and Features tell whether those single records changed.
	ProducerIDs, Controller, Cluster, Features bool
}

// IsEmpty reports whether the images differ only in their revision.
func (d *Delta) IsEmpty() bool {
	return len(d.Topics) == 0 && len(d.Partitions) == 0 && len(d.Brokers) == 0 && len(d.Mirrors) == 0 &&
		len(d.BrokerConfigs) == 0 && len(d.Reports) == 0 && len(d.Nodes) == 0 && len(d.Drills) == 0 &&
		!d.ProducerIDs && !d.Controller && !d.Cluster && !d.Features
}

// touched lists what may differ; an id may be named more than once.
type touched struct {
	topics        []types.TopicID
	partitions    []PartitionID
	brokers       []types.BrokerID
	mirrors       []string
	brokerConfigs []types.BrokerID
	reports       []types.BrokerID
	nodes         []types.BrokerID
	drills        []string
}

func unique[T any](ids []T, compare func(a, b T) int) []T {
	slices.SortFunc(ids, compare)
	return slices.CompactFunc(ids, func(a, b T) bool { return compare(a, b) == 0 })
}

func keysOf[K, V any](ids []K, trees ...tree[K, V]) []K {
	for _, t := range trees {
		for id := range t.all() {
			ids = append(ids, id)
		}
	}
	return ids
}

// touchedByEither lists everything that either image holds.
func touchedByEither(a, b *Image) touched {
	return touched{
		topics:        keysOf(nil, a.topics, b.topics),
		partitions:    keysOf(nil, a.partitions, b.partitions),
		brokers:       keysOf(nil, a.brokers, b.brokers),
		mirrors:       keysOf(nil, a.mirrors, b.mirrors),
		brokerConfigs: keysOf(nil, a.brokerConfigs, b.brokerConfigs),
		reports:       keysOf(nil, a.reports, b.reports),
		nodes:         keysOf(nil, a.nodes, b.nodes),
		drills:        keysOf(nil, a.drills, b.drills),
	}
}

// diff compares two images where they may differ.
func diff(old, next *Image, t touched) Delta {
	drills := changes(unique(t.drills, strings.Compare), old.Drill, next.Drill)
	t.topics = append(t.topics, unveiled(old, next, drills)...)
	d := Delta{
		Revision:      next.revision,
		Drills:        drills,
		Topics:        changes(unique(t.topics, compareTopicID), old.Topic, next.Topic),
		Brokers:       changes(unique(t.brokers, cmp.Compare), old.Broker, next.Broker),
		Mirrors:       changes(unique(t.mirrors, strings.Compare), old.Mirror, next.Mirror),
		BrokerConfigs: changes(unique(t.brokerConfigs, cmp.Compare), old.BrokerConfig, next.BrokerConfig),
		Reports:       changes(unique(t.reports, cmp.Compare), old.Report, next.Report),
		Nodes:         changes(unique(t.nodes, cmp.Compare), old.Node, next.Node),
		Features:      entryDiffers(old.features, next.features),
		ProducerIDs:   entryDiffers(old.producerIDs, next.producerIDs),
		Controller:    entryDiffers(old.controller, next.controller),
		Cluster:       entryDiffers(old.cluster, next.cluster),
	}
	ids := t.partitions
	for _, c := range d.Topics {
		ids = append(ids, revealed(old, next, c)...)
	}
	d.Partitions = changes(unique(ids, comparePartitionID), old.partitionByID, next.partitionByID)
	return d
}

func (i *Image) partitionByID(id PartitionID) (*Partition, bool) {
	return i.PartitionEntry(id.Topic, id.Number)
}

// revealed lists the partitions that a topic's change brings into being or ends
// although their own keys weren't touched.
func revealed(old, next *Image, c Change[Topic]) []PartitionID {
	if c.Old != nil && c.New != nil && c.Old.Record.Partitions == c.New.Record.Partitions {
		return nil
	}
	var ids []PartitionID
	if c.Old != nil {
		for p := range old.PartitionsOf(c.Old.ID) {
			ids = append(ids, p.ID)
		}
	}
	if c.New != nil {
		for p := range next.PartitionsOf(c.New.ID) {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// changes gives the entries that differ, in order of ids.
func changes[ID comparable, R any](ids []ID, old, next func(ID) (*Entry[ID, R], bool)) []Change[Entry[ID, R]] {
	var out []Change[Entry[ID, R]]
	for _, id := range ids {
		a, wasThere := old(id)
		b, isThere := next(id)
		if !wasThere {
			a = nil
		}
		if !isThere {
			b = nil
		}
		if entryDiffers(a, b) {
			out = append(out, Change[Entry[ID, R]]{Old: a, New: b})
		}
	}
	return out
}

func entryDiffers[ID comparable, R any](a, b *Entry[ID, R]) bool {
	if a == nil || b == nil {
		return a != b
	}
	return a.ModRevision != b.ModRevision || a.CreateRevision != b.CreateRevision
}
