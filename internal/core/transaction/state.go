package transaction

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"tidemark/internal/core/types"
)

// State is where a transactional id is in its life, by Kafka's numbers in
// __transaction_state.
type State int8

// The states that are written. Kafka's Dead (6) and PrepareEpochFence (7) are
// never in a record.
const (
	Empty          State = 0
	Ongoing        State = 1
	PrepareCommit  State = 2
	PrepareAbort   State = 3
	CompleteCommit State = 4
	CompleteAbort  State = 5
)

var stateNames = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}

// String gives Kafka's name of the state.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", int8(s))
	}
	return stateNames[s]
}

// ParseState reads Kafka's name of a state; false if there is none of that name.
func ParseState(name string) (State, bool) {
	i := slices.Index(stateNames[:], name)
	return State(i), i >= 0
}

// IsKnown reports whether the number is one of the states above.
func (s State) IsKnown() bool { return s >= 0 && int(s) < len(stateNames) }

func (s State) isPrepared() bool { return s == PrepareCommit || s == PrepareAbort }

// NoEpoch is the epoch of a producer that has none yet.
const NoEpoch int16 = -1

// lastClientEpoch is the highest epoch that a producer is ever told; one more is
// left for the markers of whoever fences it.
const lastClientEpoch int16 = math.MaxInt16 - 1

// Metadata is what the log keeps of a transactional id (Kafka's TransactionLogValue).
type Metadata struct {
	ProducerID types.ProducerID
	Epoch      int16
	// PrevProducerID is the id before the last change of it, NextProducerID the one
	// that begins when the transaction is complete: epochs had run out. NoProducer: none.
	PrevProducerID, NextProducerID types.ProducerID
	// LastEpoch is what the producer was told before Epoch, NoEpoch if nobody knows:
	// the log doesn't keep it. It tells a repeated request from a fenced producer's (KIP-360).
	LastEpoch int16
	// Timeout is how long a transaction may be open.
	Timeout types.Millis
	State   State
	// Partitions are those of the transaction that is open or being ended, in order.
	Partitions []types.TopicPartition
	// StartedAt is when the transaction began, NoTimestamp before its first partition;
	// UpdatedAt is when the id last changed. Both by the wall clock.
	StartedAt, UpdatedAt types.Millis
	// Bumps is set by clients whose every transaction ends with a new epoch
	// (transaction.version 2, KIP-890).
	Bumps bool
}

func fresh(id types.ProducerID) Metadata {
	return Metadata{ProducerID: id, Epoch: NoEpoch, PrevProducerID: types.NoProducer, NextProducerID: types.NoProducer,
		LastEpoch: NoEpoch, StartedAt: types.NoTimestamp}
}

// has reports whether all of the partitions belong to the transaction.
func (m *Metadata) has(tps []types.TopicPartition) bool {
	for _, tp := range tps {
		if _, ok := slices.BinarySearchFunc(m.Partitions, tp, compare); !ok {
			return false
		}
	}
	return true
}

// with gives the partitions and more, in order.
func (m *Metadata) with(more []types.TopicPartition) []types.TopicPartition {
	all := slices.Concat(m.Partitions, more)
	slices.SortFunc(all, compare)
	return slices.Compact(all)
}

func compare(a, b types.TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// begun is the state after a new producer, or a restarted one, has been given its epoch.
func (m Metadata) begun(now, timeout types.Millis) Metadata {
	m.State, m.Partitions, m.StartedAt, m.UpdatedAt, m.Timeout = Empty, nil, types.NoTimestamp, now, timeout
	m.NextProducerID = types.NoProducer
	return m
}

// renewed gives the producer a new id, at epoch 0.
func (m Metadata) renewed(id types.ProducerID, lastEpoch int16) Metadata {
	m.PrevProducerID, m.ProducerID, m.Epoch, m.LastEpoch = m.ProducerID, id, 0, lastEpoch
	return m
}

// fenced is the abort of a transaction whose producer must not go on: the markers
// carry an epoch above the producer's.
func (m Metadata) fenced(now types.Millis) Metadata {
	m.State, m.UpdatedAt = PrepareAbort, now
	m.LastEpoch = m.Epoch
	if m.Epoch < math.MaxInt16 {
		m.Epoch++
	}
	return m
}

// ended is the decision of a transaction. With bump the producer's next epoch is
// the markers' (KIP-890); next is the id that follows where epochs have run out.
func (m Metadata) ended(now types.Millis, commit, bump bool, next types.ProducerID) Metadata {
	m.State, m.UpdatedAt = PrepareAbort, now
	if commit {
		m.State = PrepareCommit
	}
	if m.StartedAt == types.NoTimestamp {
		m.StartedAt = now // an abort of nothing
	}
	m.Bumps = bump
	if bump {
		if m.Epoch >= lastClientEpoch {
			m.NextProducerID = next
		}
		m.LastEpoch = m.Epoch
		m.Epoch++
	}
	return m
}

// completed is the end of a transaction whose markers are all written.
func (m Metadata) completed(now types.Millis) Metadata {
	m.State, m.UpdatedAt, m.Partitions = CompleteAbort+(m.State-PrepareAbort), now, nil
	if m.NextProducerID != types.NoProducer {
		m = m.renewed(m.NextProducerID, lastClientEpoch)
		m.NextProducerID = types.NoProducer
	}
	return m
}

// told is the id and epoch that the producer goes on with.
func (m *Metadata) told() (types.ProducerID, int16) {
	if m.NextProducerID != types.NoProducer {
		return m.NextProducerID, 0
	}
	return m.ProducerID, m.Epoch
}

// repeatsEnd reports whether an end of a client that bumps is about the
// transaction before the present epoch: its answer was lost.
func (m *Metadata) repeatsEnd(id types.ProducerID, epoch int16) bool {
	if id == m.PrevProducerID && epoch == lastClientEpoch && m.Epoch == 0 {
		return true
	}
	return id == m.ProducerID && m.Epoch > 0 && epoch == m.Epoch-1
}

// SortPartitions puts the partitions into the order that the table keeps, each once.
func (m *Metadata) SortPartitions() { m.Partitions = (&Metadata{}).with(m.Partitions) }
