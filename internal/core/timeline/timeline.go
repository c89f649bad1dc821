// Package timeline names the histories of a partition, so that two clusters
// that hand out leader epochs on their own can never take one number for two
// histories.
//
// A partition carries a list of entries (id, first epoch, first offset). Every
// promotion appends one; a mirror carries its source's list. From two lists
// follow, without asking anyone, how they are related (R17), from which epoch
// on records may stand for different histories (the bound), and where a
// replica that slept through any number of changes has to cut before it may
// fetch, lead or answer (the first cut, R19).
//
// The package owns the lists, their text forms (JSON in the partition record,
// the file timeline-checkpoint of a replica) and the last mirrored leader epoch
// that clusters which speak KIP-1279 ask for. It never cuts, reads or writes
// anything. It is tested by named cases, by the first_cut vectors, and by a
// property that compares the cut with records whose writer is known
// (invariant Ownership).
package timeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"tidemark/internal/core/types"
)

// Entry is one timeline of a partition: the history that begins with a promotion
// (or with the creation of the topic).
type Entry struct {
	// ID names the timeline: 1 to IDBytesMax printable ASCII characters without
	// spaces. It is random for a timeline that a cluster of ours began, and derived from the source
	// for a cluster that knows no timelines (Root).
	ID string
	// FirstEpoch is the leader epoch of the promotion, 0 for a root. Every
	// record of this timeline has this epoch or a higher one.
	FirstEpoch types.LeaderEpoch
	// FirstOffset is the log end of the leader that was promoted, 0 for a root.
	FirstOffset types.Offset
}

// IDBytesMax bounds the length of a timeline id.
const IDBytesMax = 64

// MarshalJSON writes an entry as [id, first epoch, first offset].
func (e Entry) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{e.ID, e.FirstEpoch, e.FirstOffset})
}

// UnmarshalJSON reads what MarshalJSON writes; anything else is an error.
func (e *Entry) UnmarshalJSON(b []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return fmt.Errorf("timeline entry: %w", err)
	}
	if len(parts) != 3 {
		return fmt.Errorf("timeline entry: %d elements, want [id, first epoch, first offset]", len(parts))
	}
	var out Entry
	if err := json.Unmarshal(parts[0], &out.ID); err != nil {
		return fmt.Errorf("timeline entry: id: %w", err)
	}
	if err := json.Unmarshal(parts[1], &out.FirstEpoch); err != nil {
		return fmt.Errorf("timeline entry: first epoch: %w", err)
	}
	if err := json.Unmarshal(parts[2], &out.FirstOffset); err != nil {
		return fmt.Errorf("timeline entry: first offset: %w", err)
	}
	*e = out
	return nil
}

// List is the timeline of a partition, oldest entry first (R16). The empty list
// stands for "none known" and is related to nothing but itself.
//
// Invariant I-80: ids are distinct and first epochs rise strictly. First offsets
// may fall: a later leader may have ended below an earlier promotion.
type List []Entry

// ErrList is wrapped by every error of Validate.
var ErrList = errors.New("bad timeline list")

// Validate reports whether the list can be one that R16 makes.
func (l List) Validate() error {
	for i, e := range l {
		if err := e.validate(); err != nil {
			return fmt.Errorf("%w: entry %d: %w", ErrList, i, err)
		}
		if i > 0 && e.FirstEpoch <= l[i-1].FirstEpoch {
			return fmt.Errorf("%w: entry %d: first epoch %d is not above %d", ErrList, i, e.FirstEpoch, l[i-1].FirstEpoch)
		}
		if slices.ContainsFunc(l[:i], func(o Entry) bool { return o.ID == e.ID }) {
			return fmt.Errorf("%w: entry %d: id %q occurs twice", ErrList, i, e.ID)
		}
	}
	return nil
}

func (e Entry) validate() error {
	if len(e.ID) == 0 || len(e.ID) > IDBytesMax {
		return fmt.Errorf("id of %d bytes, want 1 to %d", len(e.ID), IDBytesMax)
	}
	for i := range len(e.ID) {
		if e.ID[i] <= ' ' || e.ID[i] > '~' {
			return fmt.Errorf("id %q has a character outside printable ASCII", e.ID)
		}
	}
	if e.FirstEpoch < 0 {
		return fmt.Errorf("first epoch %d is negative", e.FirstEpoch)
	}
	if e.FirstOffset < 0 {
		return fmt.Errorf("first offset %d is negative", e.FirstOffset)
	}
	return nil
}

// Last gives the newest entry; false for the empty list.
func (l List) Last() (Entry, bool) {
	if len(l) == 0 {
		return Entry{}, false
	}
	return l[len(l)-1], true
}

// Equal reports whether both lists have the same entries.
func (l List) Equal(o List) bool { return slices.Equal(l, o) }

// Clone gives a copy that shares nothing with l.
func (l List) Clone() List { return slices.Clone(l) }

// Owner names the timeline that l assigns to records of an epoch (invariant
// Ownership): the last entry whose first epoch is not above it.
func (l List) Owner(epoch types.LeaderEpoch) (Entry, bool) {
	for i := len(l) - 1; i >= 0; i-- {
		if l[i].FirstEpoch <= epoch {
			return l[i], true
		}
	}
	return Entry{}, false
}
