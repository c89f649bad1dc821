package epoch

import (
	"slices"

	"tidemark/internal/core/types"
)

// EndOffsetFor answers "what is your largest epoch not above this one, and
// where does it end?" (R5), as a replica asks it and as divergence is judged:
//
//   - undefined epoch (negative): (-1, -1)
//   - empty history: (asked, logStart)
//   - below the first entry: (asked, first start)
//   - at or above the last entry: (last epoch, logEnd); above it Kafka says
//     (-1, -1), from which KAFKA-15608's live-lock came
//   - else the floor entry's epoch and the next entry's start
func (h *History) EndOffsetFor(asked types.LeaderEpoch, logStart, logEnd types.Offset) (types.LeaderEpoch, types.Offset) {
	if asked < 0 {
		return types.NoLeaderEpoch, types.NoOffset
	}
	if len(h.entries) == 0 {
		return asked, logStart
	}
	i := h.floor(asked)
	switch {
	case i < 0:
		return asked, h.entries[0].Start
	case i == len(h.entries)-1:
		return h.entries[i].Epoch, logEnd
	default:
		return h.entries[i].Epoch, h.entries[i+1].Start
	}
}

// OffsetForLeaderEpoch is the answer of that API: (-1, -1) for an epoch above
// the current leader epoch, which clients expect there, else EndOffsetFor (R5).
func (h *History) OffsetForLeaderEpoch(asked, current types.LeaderEpoch, logStart, logEnd types.Offset) (types.LeaderEpoch, types.Offset) {
	if asked > current {
		return types.NoLeaderEpoch, types.NoOffset
	}
	return h.EndOffsetFor(asked, logStart, logEnd)
}

// Latest is the last entry.
func (h *History) Latest() (Entry, bool) {
	if len(h.entries) == 0 {
		return Entry{}, false
	}
	return h.entries[len(h.entries)-1], true
}

// Earliest is the first entry.
func (h *History) Earliest() (Entry, bool) {
	if len(h.entries) == 0 {
		return Entry{}, false
	}
	return h.entries[0], true
}

// Entry is the entry of exactly this epoch.
func (h *History) Entry(epoch types.LeaderEpoch) (Entry, bool) {
	if i := h.floor(epoch); i >= 0 && h.entries[i].Epoch == epoch {
		return h.entries[i], true
	}
	return Entry{}, false
}

// Previous is the last entry with an epoch below the given one. What precedes
// the latest entry is Previous(latest.Epoch).
func (h *History) Previous(epoch types.LeaderEpoch) (Entry, bool) {
	i := h.floor(epoch)
	if i >= 0 && h.entries[i].Epoch == epoch {
		i--
	}
	if i < 0 {
		return Entry{}, false
	}
	return h.entries[i], true
}

// Next is the first entry with an epoch above the given one.
func (h *History) Next(epoch types.LeaderEpoch) (Entry, bool) {
	i := h.floor(epoch) + 1
	if i >= len(h.entries) {
		return Entry{}, false
	}
	return h.entries[i], true
}

// EpochForOffset is the epoch of the record at o, or of the one that would be
// written there. ok is false below the first entry. The caller bounds o by the log end.
func (h *History) EpochForOffset(o types.Offset) (types.LeaderEpoch, bool) {
	n := h.entriesAtOrBelow(o)
	if n == 0 {
		return types.NoLeaderEpoch, false
	}
	return h.entries[n-1].Epoch, true
}

// EntriesInRange is the history restricted to [start, end): the entry that
// covers start begins at start, entries from end on are left out.
func (h *History) EntriesInRange(start, end types.Offset) []Entry {
	c := h.Clone()
	c.TruncateFromStart(start)
	c.TruncateFromEnd(end)
	return c.entries
}

// floor is the index of the entry with the largest epoch not above the given one, or -1.
func (h *History) floor(epoch types.LeaderEpoch) int {
	n, found := slices.BinarySearchFunc(h.entries, epoch, func(e Entry, epoch types.LeaderEpoch) int {
		return compareOffsets(types.Offset(e.Epoch), types.Offset(epoch))
	})
	if found {
		return n
	}
	return n - 1
}
