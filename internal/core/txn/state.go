package txn

import (
	"cmp"
	"errors"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/types"
)

// Errors of Check. Their texts are Kafka's error names.
var (
	ErrOutOfOrderSequence = errors.New("OUT_OF_ORDER_SEQUENCE_NUMBER")
	ErrProducerEpoch      = errors.New("INVALID_PRODUCER_EPOCH")
	ErrTxnState           = errors.New("INVALID_TXN_STATE")
	ErrCoordinatorFenced  = errors.New("TRANSACTION_COORDINATOR_FENCED")
)

// NoSequence is the sequence number of a producer that has none yet, and of markers.
const NoSequence int32 = -1

// NoEpoch is the producer epoch of a producer of which nothing is known.
const NoEpoch int16 = -1

// RetainedBatches is how many batches per producer are remembered to recognise
// a repetition: five, as many as a client may have in flight (KAFKA-5494).
const RetainedBatches = 5

// Batch is what the state needs to know of a data batch, from its header.
type Batch struct {
	ProducerID    types.ProducerID
	ProducerEpoch int16
	FirstSequence int32
	LastSequence  int32
	FirstOffset   types.Offset
	LastOffset    types.Offset
	MaxTimestamp  types.Millis
	Transactional bool
}

// Marker is the end of a transaction: one control batch.
type Marker struct {
	ProducerID       types.ProducerID
	ProducerEpoch    int16
	CoordinatorEpoch int32
	Abort            bool
	// Bumped: the marker's epoch is above that of the transaction that it ends (KIP-890).
	Bumped    bool
	Offset    types.Offset
	Timestamp types.Millis
}

// batchMeta is one remembered batch. Its first offset is last - delta.
type batchMeta struct {
	firstSeq, lastSeq int32
	firstOffset       types.Offset
	lastOffset        types.Offset
	timestamp         types.Millis
}

// producer is what is known of one producer id.
type producer struct {
	epoch            int16
	coordinatorEpoch int32 // of the last marker, -1 before one
	lastTimestamp    types.Millis
	txnFirst         types.Offset // first offset of the open transaction
	txnOpen          bool
	n                int8 // remembered batches, oldest first in batches[:n]
	batches          [RetainedBatches]batchMeta
}

func (p *producer) lastSequence() int32 {
	if p.n == 0 {
		return NoSequence
	}
	return p.batches[p.n-1].lastSeq
}

func (p *producer) setEpoch(e int16) {
	if p.epoch != e {
		p.epoch, p.n = e, 0
	}
}

func (p *producer) remember(b batchMeta) {
	if p.n == RetainedBatches {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = b
	p.n++
}

// Txn is a transaction that holds the last stable offset.
type Txn struct {
	ProducerID  types.ProducerID
	FirstOffset types.Offset
	// LastOffset is the marker's offset; -1 while the transaction is open.
	LastOffset types.Offset
}

// Aborted is one entry of the aborted index (.txnindex).
type Aborted struct {
	ProducerID  types.ProducerID
	FirstOffset types.Offset
	LastOffset  types.Offset // the marker's
	// LastStable is the last stable offset right after the marker: a reader
	// whose upper bound lies at or below it has seen all entries it needs.
	LastStable types.Offset
}

// Producer is one line of Kafka's DescribeProducers.
type Producer struct {
	ID               types.ProducerID
	Epoch            int16
	LastSequence     int32 // NoSequence if none
	LastTimestamp    types.Millis
	CoordinatorEpoch int32        // -1 if none
	TxnFirstOffset   types.Offset // -1 if no transaction is open
}

// State is the producer state of one log up to End.
//
// Invariant I-21: open transactions are ordered by first offset, and every one
// of them belongs to a producer whose txnOpen is set.
type State struct {
	producers map[types.ProducerID]*producer
	open      []Txn // by first offset
	// ended are transactions whose marker is written but may not be below the
	// high watermark yet: they hold the last stable offset until it passes.
	ended []Txn
	end   types.Offset
	// whole says that every producer that ever wrote to the log is known: the state
	// was built from offset 0 on, and forgot nobody.
	whole bool
}

// New gives an empty state at the offset.
func New(end types.Offset) *State {
	return &State{producers: make(map[types.ProducerID]*producer), end: end, whole: end == 0}
}

// End is the log end up to which the state has been told of batches.
func (s *State) End() types.Offset { return s.end }

// Advance tells the state that the log reaches to the offset, with batches of no producer.
func (s *State) Advance(end types.Offset) {
	if end > s.end {
		s.end = end
	}
}

// Verdict is the answer of Check: append it, or answer the earlier base offset.
type Verdict struct {
	Duplicate   bool
	FirstOffset types.Offset // of the earlier batch, if Duplicate
	LastOffset  types.Offset
	Timestamp   types.Millis // max timestamp of the earlier batch
}

// Check says whether a client's batch may be appended. A batch that was
// appended already among its producer's last RetainedBatches is a duplicate.
// The state does not change.
func (s *State) Check(b Batch) (Verdict, error) {
	if b.ProducerID < 0 {
		return Verdict{}, nil
	}
	p, known := s.producers[b.ProducerID]
	if !known {
		// Nothing is known (never seen, expired, or cut away): any start is
		// taken, as in Kafka since KIP-360.
		return Verdict{}, nil
	}
	if p.epoch == b.ProducerEpoch {
		for _, m := range p.batches[:p.n] {
			if m.firstSeq == b.FirstSequence && m.lastSeq == b.LastSequence {
				return Verdict{Duplicate: true, FirstOffset: m.firstOffset, LastOffset: m.lastOffset, Timestamp: m.timestamp}, nil
			}
		}
	}
	if b.ProducerEpoch < p.epoch {
		return Verdict{}, ErrProducerEpoch
	}
	switch {
	case b.ProducerEpoch != p.epoch:
		if b.FirstSequence != 0 {
			return Verdict{}, ErrOutOfOrderSequence
		}
	case !inSequence(p.lastSequence(), b.FirstSequence):
		return Verdict{}, ErrOutOfOrderSequence
	}
	if p.txnOpen && !b.Transactional {
		return Verdict{}, ErrTxnState
	}
	return Verdict{}, nil
}

// CheckEpoch is Check for a batch of this broker's coordinators, which number nothing.
func (s *State) CheckEpoch(b Batch) error {
	if p, known := s.producers[b.ProducerID]; known && b.ProducerEpoch < p.epoch {
		return ErrProducerEpoch
	}
	return nil
}

// InTransaction reports whether the producer has a transaction open in this epoch of its.
func (s *State) InTransaction(id types.ProducerID, epoch int16) bool {
	p, known := s.producers[id]
	return known && p.txnOpen && p.epoch == epoch
}

// HasOpen reports whether the producer has a transaction open, in whatever epoch of its.
func (s *State) HasOpen(id types.ProducerID) bool {
	p, known := s.producers[id]
	return known && p.txnOpen
}

// CheckBegin refuses the first batch of a producer that begins above sequence 0,
// where nobody can have been forgotten: a batch before it was refused or lost, and
// is on its way again. Taken, it would have that one refused for ever (KAFKA-15591,
// KAFKA-14312; Kafka 4.5 refuses it on partitions that were never written to). Where
// somebody may have been forgotten any start is taken (KIP-360).
func (s *State) CheckBegin(b Batch) error {
	if b.ProducerID < 0 || b.FirstSequence == 0 || !s.whole {
		return nil
	}
	if _, known := s.producers[b.ProducerID]; known {
		return nil
	}
	return ErrOutOfOrderSequence
}

// inSequence says whether next follows last; numbers wrap after 2^31-1 to 0.
func inSequence(last, next int32) bool {
	return int64(next) == int64(last)+1 || (next == 0 && last == 1<<31-1)
}

// CheckMarker says whether a coordinator's marker may be appended.
func (s *State) CheckMarker(m Marker) error {
	p, known := s.producers[m.ProducerID]
	if !known {
		return nil
	}
	if m.ProducerEpoch < p.epoch {
		return ErrProducerEpoch
	}
	if m.CoordinatorEpoch < p.coordinatorEpoch {
		return ErrCoordinatorFenced
	}
	if m.Bumped && p.txnOpen && m.ProducerEpoch <= p.epoch {
		return ErrProducerEpoch // a late copy: what is open is the producer's next transaction
	}
	return nil
}

func (s *State) producerFor(id types.ProducerID) *producer {
	p := s.producers[id]
	if p == nil {
		p = &producer{epoch: NoEpoch, coordinatorEpoch: -1, lastTimestamp: types.NoTimestamp}
		s.producers[id] = p
	}
	return p
}

// Append takes a data batch that the log now holds. It does not check: a
// follower and a replay take what the leader took.
func (s *State) Append(b Batch) {
	s.noteGap(b.FirstOffset)
	s.Advance(b.LastOffset + 1)
	if b.ProducerID < 0 {
		return
	}
	p := s.producerFor(b.ProducerID)
	p.setEpoch(b.ProducerEpoch)
	p.remember(batchMeta{b.FirstSequence, b.LastSequence, b.FirstOffset, b.LastOffset, b.MaxTimestamp})
	p.lastTimestamp = b.MaxTimestamp
	if b.Transactional && !p.txnOpen {
		p.txnOpen, p.txnFirst = true, b.FirstOffset
		s.openTxn(Txn{b.ProducerID, b.FirstOffset, -1})
	}
}

// noteGap takes note that what is next lies above the end: compaction has taken
// what was between, and with it perhaps the last trace of a producer.
func (s *State) noteGap(next types.Offset) {
	if next > s.end {
		s.whole = false
	}
}

func (s *State) openTxn(t Txn) {
	n := len(s.open)
	if n > 0 && s.open[n-1].FirstOffset > t.FirstOffset { // snapshots list producers in any order
		i, _ := slices.BinarySearchFunc(s.open, t, func(a, b Txn) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
		s.open = slices.Insert(s.open, i, t)
		return
	}
	s.open = append(s.open, t)
}

// AppendMarker takes a marker that the log now holds. If it ended a transaction
// by abort, the entry for the aborted index comes back.
func (s *State) AppendMarker(m Marker) (Aborted, bool) {
	s.noteGap(m.Offset)
	s.Advance(m.Offset + 1)
	if m.ProducerID < 0 {
		return Aborted{}, false
	}
	p := s.producerFor(m.ProducerID)
	p.setEpoch(m.ProducerEpoch)
	p.coordinatorEpoch = m.CoordinatorEpoch
	p.lastTimestamp = m.Timestamp
	if !p.txnOpen {
		return Aborted{}, false // an empty transaction moves nothing (PS-031)
	}
	first := p.txnFirst
	p.txnOpen = false
	i := slices.IndexFunc(s.open, func(t Txn) bool { return t.ProducerID == m.ProducerID })
	assert.That(i >= 0, "I-21: producer %d has an open transaction that is not listed", m.ProducerID)
	s.open = slices.Delete(s.open, i, i+1)
	s.ended = append(s.ended, Txn{m.ProducerID, first, m.Offset})
	if !m.Abort {
		return Aborted{}, false
	}
	stable := m.Offset + 1
	if len(s.open) > 0 {
		stable = s.open[0].FirstOffset
	}
	return Aborted{m.ProducerID, first, m.Offset, stable}, true
}

// Stable gives the last stable offset under a high watermark, and forgets
// ended transactions whose marker the mark has passed. A transaction that has
// its marker holds the offset until then (KAFKA-5247, PS-015).
func (s *State) Stable(logStart, highWatermark types.Offset) types.Offset {
	s.ended = slices.DeleteFunc(s.ended, func(t Txn) bool { return t.LastOffset < highWatermark })
	stable := highWatermark
	for _, t := range s.ended {
		stable = min(stable, t.FirstOffset)
	}
	if len(s.open) > 0 {
		stable = min(stable, s.open[0].FirstOffset)
	}
	return min(max(stable, logStart), highWatermark)
}

// Ended lists the transactions that have their marker but still hold the last
// stable offset. A cut at o carries those with LastOffset < o over into the
// replayed state by Hold, because a snapshot does not hold them.
func (s *State) Ended() []Txn { return slices.Clone(s.ended) }

// Hold adds ended transactions that a replay from a snapshot did not see.
func (s *State) Hold(ended []Txn) {
	for _, t := range ended {
		if !slices.Contains(s.ended, t) {
			s.ended = append(s.ended, t)
		}
	}
}

// Open lists the open transactions by first offset.
func (s *State) Open() []Txn { return slices.Clone(s.open) }

// Reset forgets every producer without an open transaction, as KIP-1279's
// MIRROR_PID_RESET record asks; the log reaches to end.
func (s *State) Reset(end types.Offset) {
	s.Advance(end)
	s.whole = false
	for id, p := range s.producers {
		if !p.txnOpen {
			delete(s.producers, id)
		}
	}
}

// Expire forgets producers without an open transaction that wrote nothing for
// the given time (producer.id.expiration.ms), and says how many went.
func (s *State) Expire(now, after types.Millis) int {
	n := 0
	for id, p := range s.producers {
		if !p.txnOpen && now-p.lastTimestamp >= after {
			delete(s.producers, id)
			n++
		}
	}
	s.whole = s.whole && n == 0
	return n
}

// Recall gives each producer of which the newest batch alone is remembered, as
// after a snapshot, the batches before it that older remembers. older is the state
// of the same log's end, replayed from somewhere lower.
func (s *State) Recall(older *State) {
	for id, p := range s.producers {
		q := older.producers[id]
		if p.n == 1 && q != nil && q.n > 1 && q.epoch == p.epoch && q.batches[q.n-1].lastOffset == p.batches[0].lastOffset {
			p.n, p.batches = q.n, q.batches
		}
	}
}

// Newest is the latest time at which a known producer wrote; NoTimestamp if none is known.
func (s *State) Newest() types.Millis {
	at := types.NoTimestamp
	for _, p := range s.producers {
		at = max(at, p.lastTimestamp)
	}
	return at
}

// Producers lists what is known, by producer id.
func (s *State) Producers() []Producer {
	out := make([]Producer, 0, len(s.producers))
	for id, p := range s.producers {
		x := Producer{id, p.epoch, p.lastSequence(), p.lastTimestamp, p.coordinatorEpoch, types.NoOffset}
		if p.txnOpen {
			x.TxnFirstOffset = p.txnFirst
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b Producer) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// LastBatches maps each known producer to the offset of its last data batch's
// last record; compaction keeps those batches, if need be empty. A producer of
// which only markers are known maps to -1 and its epoch.
func (s *State) LastBatches() map[types.ProducerID]LastBatch {
	out := make(map[types.ProducerID]LastBatch, len(s.producers))
	for id, p := range s.producers {
		l := LastBatch{Epoch: p.epoch, LastOffset: types.NoOffset}
		if p.n > 0 {
			l.LastOffset = p.batches[p.n-1].lastOffset
		}
		out[id] = l
	}
	return out
}

// LastBatch is the newest batch of a producer.
type LastBatch struct {
	Epoch      int16
	LastOffset types.Offset // -1: only a marker
}

// Len is the number of producers known.
func (s *State) Len() int { return len(s.producers) }

// Clone copies the state.
func (s *State) Clone() *State {
	c := &State{producers: make(map[types.ProducerID]*producer, len(s.producers)), open: slices.Clone(s.open), ended: slices.Clone(s.ended), end: s.end, whole: s.whole}
	for id, p := range s.producers {
		q := *p
		c.producers[id] = &q
	}
	return c
}
