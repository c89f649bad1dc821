package consumer

import (
	"cmp"
	"hash/fnv"
	"iter"
	"maps"
	"slices"

	"tidemark/internal/core/types"
)

// Topic is what a group needs to know of a topic.
type Topic struct {
	Name       string
	ID         types.TopicID
	Partitions int32
}

// Topics is what the cluster's metadata says of topics at one moment. It never changes.
type Topics interface {
	// Version differs between two that don't say the same; 0 or more.
	Version() int64
	ByName(name string) (Topic, bool)
	ByID(id types.TopicID) (Topic, bool)
	// All walks all topics in the order of their names.
	All() iter.Seq[Topic]
}

// Partition is a partition by its topic's id.
type Partition struct {
	Topic  types.TopicID
	Number int32
}

// Compare orders partitions by topic id and number.
func (p Partition) Compare(q Partition) int {
	return cmp.Or(slices.Compare(p.Topic[:], q.Topic[:]), cmp.Compare(p.Number, q.Number))
}

// Partitions is a set of partitions, each with the epoch in which it was given to its
// member (KIP-1251). A set that is part of a Member or a Record never changes.
type Partitions map[Partition]int32

// Sorted gives the partitions in order.
func (p Partitions) Sorted() []Partition {
	return slices.SortedFunc(maps.Keys(p), Partition.Compare)
}

// samePartitions compares two sets, epochs aside.
func samePartitions(a, b Partitions) bool {
	if len(a) != len(b) {
		return false
	}
	for p := range a {
		if _, ok := b[p]; !ok {
			return false
		}
	}
	return true
}

// hashOf stands for names, ids and sizes of topics: another value means that members
// may have to be given others. 0 stands for no topics.
func hashOf(topics []Topic) int64 {
	if len(topics) == 0 {
		return 0
	}
	h := fnv.New64a()
	for _, t := range topics {
		_, _ = h.Write(t.ID[:])
		n := uint32(t.Partitions)
		_, _ = h.Write([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
		_, _ = h.Write([]byte(t.Name))
		_, _ = h.Write([]byte{0})
	}
	return int64(h.Sum64())
}
