package transaction

import (
	"slices"

	"tidemark/internal/core/types"
)

// Listing is one line of ListTransactions.
type Listing struct {
	ID         string
	ProducerID types.ProducerID
	State      State
}

// Filter narrows a list; empty lists let everything through (KIP-664, KIP-994).
type Filter struct {
	States      []State
	ProducerIDs []types.ProducerID
	// OpenFor lists transactions only that have been open for at least so long, in
	// milliseconds; below 0: all.
	OpenFor types.Millis
	// Match is asked for each id; nil lets all through.
	Match func(id string) bool
}

// List gives the ids that match, in order.
func (t *Table) List(now types.Millis, f Filter) []Listing {
	var all []Listing
	for _, x := range t.inOrder() {
		m := &x.meta
		switch {
		case !x.persisted,
			len(f.States) > 0 && !slices.Contains(f.States, m.State),
			len(f.ProducerIDs) > 0 && !slices.Contains(f.ProducerIDs, m.ProducerID),
			f.OpenFor >= 0 && (m.StartedAt == types.NoTimestamp || m.State != Ongoing && !m.State.isPrepared() || t.wall(now)-m.StartedAt < f.OpenFor),
			f.Match != nil && !f.Match(x.id):
			continue
		}
		all = append(all, Listing{ID: x.id, ProducerID: m.ProducerID, State: m.State})
	}
	return all
}

// Describe gives what the log says of an id; false if it knows none of that name.
func (t *Table) Describe(id string) (Metadata, bool) {
	x := t.ids[id]
	if x == nil || !x.persisted {
		return Metadata{}, false
	}
	m := x.meta
	m.Partitions = slices.Clone(m.Partitions)
	return m, true
}
