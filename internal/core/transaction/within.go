package transaction

import (
	"slices"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// EndWithin has everything end that touches some partitions, which are closed to data
// for a switchover to another cluster (docs/adr/0028): what is open is aborted, above its
// producer's epoch; what is decided is on its way already. It is answered with a
// WithinResponse at once, and asked again until nothing is left.
type EndWithin struct {
	Request RequestID
	// Partitions are in the order of Metadata.Partitions.
	Partitions []types.TopicPartition
}

// WithinResponse answers EndWithin, in the order of ids.
type WithinResponse struct {
	// Aborted are the transactions whose abort this event has begun; Left are those
	// that aren't complete yet, these among them.
	Aborted, Left []Listing
}

func (EndWithin) event() {}

func (WithinResponse) response() {}

// endWithin aborts what is open and touches the partitions.
func (t *Table) endWithin(now types.Millis, ev EndWithin, out *Effects) {
	var r WithinResponse
	for _, x := range t.inOrder() {
		m := &x.meta
		if m.State != Ongoing && !m.State.isPrepared() || !m.touches(ev.Partitions) {
			continue
		}
		l := Listing{ID: x.id, ProducerID: m.ProducerID, State: m.State}
		r.Left = append(r.Left, l)
		if x.changing || m.State != Ongoing {
			continue // what it becomes shows when the question comes again
		}
		r.Aborted = append(r.Aborted, l)
		out.Notes = append(out.Notes, Note{ID: x.id, What: "transaction is aborted: partitions of it are closed for a switchover", Metadata: *m})
		t.decide(x, m.fenced(t.wall(now)), out, func(errcode.Code, *Effects) {})
	}
	out.reply(ev.Request, r)
}

// touches reports whether any of the partitions belongs to the transaction.
func (m *Metadata) touches(tps []types.TopicPartition) bool {
	for _, tp := range m.Partitions {
		if _, ok := slices.BinarySearchFunc(tps, tp, compare); ok {
			return true
		}
	}
	return false
}

// SortedPartitions gives partitions in the order of Metadata.Partitions, each once.
func SortedPartitions(tps []types.TopicPartition) []types.TopicPartition {
	return (&Metadata{}).with(tps)
}
