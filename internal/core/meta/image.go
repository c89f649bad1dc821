package meta

import (
	"bytes"
	"cmp"
	"iter"
	"strings"

	"tidemark/internal/core/types"
)

// Entry is one key of the image: its record and the revisions that writes of it compare (R7).
type Entry[ID comparable, R any] struct {
	ID ID
	// Record must not be changed: images share it. It is nil for a partition
	// whose value can't be read; lookups of other kinds never give such an entry.
	Record *R
	// CreateRevision and ModRevision are the key's.
	CreateRevision, ModRevision Revision
	// Fault says why the key's value can't be read, nil if it can. Except for
	// partitions, Record then is the last one that could.
	Fault error
}

// PartitionID names a partition by its topic's id.
type PartitionID struct {
	Topic  types.TopicID
	Number int32
}

func comparePartitionID(a, b PartitionID) int {
	if c := compareTopicID(a.Topic, b.Topic); c != 0 {
		return c
	}
	return cmp.Compare(a.Number, b.Number)
}

func compareTopicID(a, b types.TopicID) int { return bytes.Compare(a[:], b[:]) }

// The entries of an image by kind.
type (
	Topic        = Entry[types.TopicID, TopicRecord]
	Name         = Entry[string, NameRecord]
	Partition    = Entry[PartitionID, PartitionRecord]
	Broker       = Entry[types.BrokerID, BrokerRecord]
	Mirror       = Entry[string, MirrorRecord]
	BrokerConfig = Entry[types.BrokerID, BrokerConfigRecord]
	Report       = Entry[types.BrokerID, ReportRecord]
	Node         = Entry[types.BrokerID, NodeRecord]
	ProducerIDs  = Entry[struct{}, ProducerIDsRecord]
	Controller   = Entry[struct{}, ControllerRecord]
	Cluster      = Entry[struct{}, ClusterRecord]
	FeatureLevel = Entry[struct{}, FeaturesRecord]
)

// Image is everything the metadata store says about one cluster at one
// revision. It never changes; Apply makes the next one. It is safe for any
// number of readers. A handler takes one image per request (R9).
type Image struct {
	clusterID string
	keys      Keys
	revision  Revision

	topics        tree[types.TopicID, *Topic]
	names         tree[string, *Name]
	foldedNames   tree[string, string] // foldName(name) + "\x00" + name → name
	partitions    tree[PartitionID, *Partition]
	brokers       tree[types.BrokerID, *Broker]
	mirrors       tree[string, *Mirror]
	brokerConfigs tree[types.BrokerID, *BrokerConfig]
	reports       tree[types.BrokerID, *Report]
	producerIDs   *ProducerIDs
	controller    *Controller
	cluster       *Cluster
	nodes         tree[types.BrokerID, *Node]
	features      *FeatureLevel
	drills        tree[string, *Drill]
	faults        tree[string, *ValueError]
	security      security
}

// Empty is the image of a cluster about which nothing is written, at revision 0.
func Empty(clusterID string) *Image {
	return &Image{
		clusterID:     clusterID,
		keys:          KeysOf(clusterID),
		topics:        newTree[types.TopicID, *Topic](compareTopicID),
		names:         newTree[string, *Name](strings.Compare),
		foldedNames:   newTree[string, string](strings.Compare),
		partitions:    newTree[PartitionID, *Partition](comparePartitionID),
		brokers:       newTree[types.BrokerID, *Broker](cmp.Compare[types.BrokerID]),
		mirrors:       newTree[string, *Mirror](strings.Compare),
		brokerConfigs: newTree[types.BrokerID, *BrokerConfig](cmp.Compare[types.BrokerID]),
		reports:       newTree[types.BrokerID, *Report](cmp.Compare[types.BrokerID]),
		nodes:         newTree[types.BrokerID, *Node](cmp.Compare[types.BrokerID]),
		drills:        newTree[string, *Drill](strings.Compare),
		faults:        newTree[string, *ValueError](strings.Compare),
		security:      emptySecurity(),
	}
}

// ClusterID is the id of the cluster whose keys the image holds.
func (i *Image) ClusterID() string { return i.clusterID }

// Keys builds the keys of the image's cluster.
func (i *Image) Keys() Keys { return i.keys }

// Revision is the revision up to which the image knows everything.
func (i *Image) Revision() Revision { return i.revision }

// Topic finds a topic by id. One that is part of a drill exists while that is ready.
func (i *Image) Topic(id types.TopicID) (*Topic, bool) {
	t, ok := i.topics.get(id)
	return t, ok && i.shows(t)
}

// TopicByName finds a topic by name.
func (i *Image) TopicByName(name string) (*Topic, bool) {
	n, ok := i.names.get(name)
	if !ok || n.Record == nil {
		return nil, false
	}
	return i.Topic(n.Record.ID)
}

// TopicEntry finds a topic's key whether or not its value can be read: its
// Record may be nil, and its drill not be ready. Use it where a topic that can't be read must be dealt with.
func (i *Image) TopicEntry(id types.TopicID) (*Topic, bool) { return i.topics.get(id) }

// NameOf gives the name that is reserved for a topic id, by looking at all of
// them: for topics whose record can't be read.
func (i *Image) NameOf(id types.TopicID) (string, bool) {
	for name, entry := range i.names.all() {
		if entry.Record != nil && entry.Record.ID == id {
			return name, true
		}
	}
	return "", false
}

// NameEntry gives the reservation of a topic's name, whether or not the topic can be read.
func (i *Image) NameEntry(name string) (*Name, bool) { return i.names.get(name) }

// NameCollision gives a topic, other than name itself, whose name differs from
// name only in '.' and '_': their metrics would be mixed up, as Kafka says.
func (i *Image) NameCollision(name string) (string, bool) {
	prefix := foldName(name) + "\x00"
	for folded, other := range i.foldedNames.from(prefix) {
		if !strings.HasPrefix(folded, prefix) {
			break
		}
		if other != name {
			return other, true
		}
	}
	return "", false
}

func foldName(name string) string { return strings.ReplaceAll(name, ".", "_") }

// Topics walks all topics in order of their ids.
func (i *Image) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for t := range readable(i.topics) {
			if i.shows(t) && !yield(t) {
				return
			}
		}
	}
}

// TopicsByName walks all topics in order of their names.
func (i *Image) TopicsByName() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for name := range i.names.all() {
			if t, ok := i.TopicByName(name); ok && !yield(t) {
				return
			}
		}
	}
}

// SameTopics reports whether another image is known to say the same of all topics: their
// names, ids and numbers of partitions. It costs nothing; it may be false though they are the same.
func (i *Image) SameTopics(o *Image) bool {
	return i.topics.root == o.topics.root && i.names.root == o.names.root && i.drills.root == o.drills.root
}

// TopicCount is the number of topic names in use.
func (i *Image) TopicCount() int { return i.names.len() }

// readable walks the entries that have a record.
func readable[ID comparable, R any](t tree[ID, *Entry[ID, R]]) iter.Seq[*Entry[ID, R]] {
	return func(yield func(*Entry[ID, R]) bool) {
		for _, e := range t.all() {
			if e.Record != nil && !yield(e) {
				return
			}
		}
	}
}

// Partition gives a partition's record and the modification revision that a
// write of it compares. The record is nil for a partition that doesn't exist
// (revision 0) or can't be read (PartitionEntry says why).
func (i *Image) Partition(id types.TopicID, partition int32) (*PartitionRecord, Revision) {
	p, ok := i.PartitionEntry(id, partition)
	if !ok {
		return nil, 0
	}
	return p.Record, p.ModRevision
}

// PartitionEntry finds a partition. It exists if its topic does and its number
// is below the topic's partition count; its Record is nil if Fault is set.
func (i *Image) PartitionEntry(id types.TopicID, partition int32) (*Partition, bool) {
	t, ok := i.Topic(id)
	if !ok || partition < 0 || partition >= t.Record.Partitions {
		return nil, false
	}
	return i.partitions.get(PartitionID{Topic: id, Number: partition})
}

// PartitionKeyRevision gives the modification revision of a partition's key,
// 0 if there is none, whether or not the partition exists: what a creation stopped half-way
// left is overwritten by comparing it.
func (i *Image) PartitionKeyRevision(id types.TopicID, partition int32) Revision {
	p, ok := i.partitions.get(PartitionID{Topic: id, Number: partition})
	if !ok {
		return 0
	}
	return p.ModRevision
}

// PartitionsOf walks the partitions of a topic by number, faulty ones included.
func (i *Image) PartitionsOf(id types.TopicID) iter.Seq[*Partition] {
	return func(yield func(*Partition) bool) {
		t, ok := i.Topic(id)
		if !ok {
			return
		}
		for pid, p := range i.partitions.from(PartitionID{Topic: id}) {
			if pid.Topic != id || pid.Number >= t.Record.Partitions || !yield(p) {
				return
			}
		}
	}
}

// Partitions walks all partitions of all topics, faulty ones included.
func (i *Image) Partitions() iter.Seq[*Partition] {
	return func(yield func(*Partition) bool) {
		var t *Topic
		var ok bool
		for pid, p := range i.partitions.all() {
			if t == nil || t.ID != pid.Topic {
				t, ok = i.topics.get(pid.Topic)
				ok = ok && i.shows(t)
			}
			if ok && pid.Number < t.Record.Partitions && !yield(p) {
				return
			}
		}
	}
}

// Known reports whether any key speaks of the topic, readable or not. The data
// of a topic that is known but can't be read must be left alone.
func (i *Image) Known(id types.TopicID) bool {
	if _, ok := i.topics.get(id); ok {
		return true
	}
	for pid := range i.partitions.from(PartitionID{Topic: id}) {
		return pid.Topic == id
	}
	return false
}

// Orphans walks partition records that belong to no topic or lie beyond its
// partition count: what a creation or deletion left that stopped half-way.
func (i *Image) Orphans() iter.Seq[PartitionID] {
	return func(yield func(PartitionID) bool) {
		for pid := range i.partitions.all() {
			t, ok := i.topics.get(pid.Topic)
			if ok && (t.Record == nil || pid.Number < t.Record.Partitions) {
				continue
			}
			if !yield(pid) {
				return
			}
		}
	}
}

// Broker finds a live registration. Its CreateRevision is the broker epoch.
func (i *Image) Broker(id types.BrokerID) (*Broker, bool) {
	b, ok := i.brokers.get(id)
	return b, ok && b.Record != nil
}

// BrokerEntry finds a registration whether or not its value can be read: its Record may be nil.
func (i *Image) BrokerEntry(id types.BrokerID) (*Broker, bool) { return i.brokers.get(id) }

// BrokerEpoch gives the present broker epoch of a broker that is registered.
func (i *Image) BrokerEpoch(id types.BrokerID) (types.BrokerEpoch, bool) {
	b, ok := i.Broker(id)
	if !ok {
		return types.NoBrokerEpoch, false
	}
	return types.BrokerEpoch(b.CreateRevision), true
}

// Brokers walks the live registrations by broker id.
func (i *Image) Brokers() iter.Seq[*Broker] { return readable(i.brokers) }

// Mirror finds a mirror by name.
func (i *Image) Mirror(name string) (*Mirror, bool) {
	m, ok := i.mirrors.get(name)
	return m, ok && m.Record != nil
}

// Mirrors walks the mirrors by name.
func (i *Image) Mirrors() iter.Seq[*Mirror] { return readable(i.mirrors) }

// BrokerConfig gives a broker's own dynamic settings, or with NoBroker those
// of all brokers; ok is false where none were ever set.
func (i *Image) BrokerConfig(id types.BrokerID) (*BrokerConfig, bool) {
	c, ok := i.brokerConfigs.get(id)
	return c, ok && c.Record != nil
}

// Report gives what a broker said of its logs, in any of its registrations.
func (i *Image) Report(id types.BrokerID) (*Report, bool) {
	r, ok := i.reports.get(id)
	return r, ok && r.Record != nil
}

// Node gives what is remembered of a node, whether or not it is registered.
func (i *Image) Node(id types.BrokerID) (*Node, bool) {
	n, ok := i.nodes.get(id)
	return n, ok && n.Record != nil
}

// NodeEntry finds a node's key whether or not its value can be read: its Record may be nil.
func (i *Image) NodeEntry(id types.BrokerID) (*Node, bool) { return i.nodes.get(id) }

// Nodes walks the nodes that are remembered, by id.
func (i *Image) Nodes() iter.Seq[*Node] { return readable(i.nodes) }

// Features gives the finalized feature levels, if any were ever written.
func (i *Image) Features() (*FeatureLevel, bool) {
	return i.features, i.features != nil && i.features.Record != nil
}

// FeatureEntry gives the key of the finalized levels whether or not its value can
// be read: its Record may be nil. It is nil if there is no such key.
func (i *Image) FeatureEntry() *FeatureLevel { return i.features }

// ProducerIDs gives the producer id counter, if a block was ever taken.
func (i *Image) ProducerIDs() (*ProducerIDs, bool) {
	return i.producerIDs, i.producerIDs != nil && i.producerIDs.Record != nil
}

// Controller gives the present controller, if there is one.
func (i *Image) Controller() (*Controller, bool) {
	return i.controller, i.controller != nil && i.controller.Record != nil
}

// Cluster gives the cluster's own record, if it was written.
func (i *Image) Cluster() (*Cluster, bool) {
	return i.cluster, i.cluster != nil && i.cluster.Record != nil
}

// Faults walks the keys whose values can't be read, by key.
func (i *Image) Faults() iter.Seq[*ValueError] {
	return func(yield func(*ValueError) bool) {
		for _, f := range i.faults.all() {
			if !yield(f) {
				return
			}
		}
	}
}
