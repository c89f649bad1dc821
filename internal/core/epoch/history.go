// Package epoch holds the leader-epoch history of one partition: which leader
// epoch wrote from which offset on (KIP-101, KIP-279), the answer to "where
// does this epoch end?", and the text format of leader-epoch-checkpoint.
//
// Entries rise strictly in epoch and in start offset at all times (R3). The
// package does no I/O: the log writes the checkpoint, syncs it and decides when.
// It never guesses an epoch: an offset or an epoch that the history doesn't
// cover is answered with ok=false, sentinels exist only at the wire.
//
// Tested by the vectors epoch_history and checkpoint_file, by a state machine
// against a small model that keeps one epoch per offset, and by a fuzz target
// over the parser.
package epoch

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"tidemark/internal/assert"
	"tidemark/internal/core/types"
)

// Entry says that the records from Start on, up to the next entry's start, were
// written in Epoch. An entry may cover no record: an election alone makes one (KAFKA-7415).
type Entry struct {
	Epoch types.LeaderEpoch
	Start types.Offset
}

// String prints "epoch@start".
func (e Entry) String() string { return fmt.Sprintf("%d@%d", e.Epoch, e.Start) }

var (
	// ErrInvalid refuses a negative epoch or a negative start offset.
	ErrInvalid = errors.New("negative leader epoch or start offset")
	// ErrEpochFalls refuses a batch whose epoch is below the epoch of a record that precedes it (R2, R13).
	ErrEpochFalls = errors.New("leader epoch falls")
)

// History is the list of entries, oldest first. The zero value is an empty
// history. Copies share memory: Clone before a copy is changed.
//
// Invariant I-01: epochs and starts both rise strictly from entry to entry.
type History struct {
	entries []Entry
}

// FromEntries builds a history by assigning entries in the order given, so
// that conflicting ones are removed as KAFKA-7415 asks: the last assignment wins.
// Entries with negative numbers are refused with ErrInvalid.
func FromEntries(entries []Entry) (History, error) {
	var h History
	for _, e := range entries {
		if _, err := h.Assign(e.Epoch, e.Start); err != nil {
			return History{}, err
		}
	}
	return h, nil
}

// Clone returns a copy that shares nothing with h.
func (h *History) Clone() History { return History{entries: slices.Clone(h.entries)} }

// Len is the number of entries.
func (h *History) Len() int { return len(h.entries) }

// Entries returns a copy of the entries, oldest first.
func (h *History) Entries() []Entry { return slices.Clone(h.entries) }

// Equal reports whether both histories have the same entries.
func (h *History) Equal(o *History) bool { return slices.Equal(h.entries, o.entries) }

// String prints the entries, oldest first: "[0@0 3@17]".
func (h *History) String() string {
	words := make([]string, len(h.entries))
	for i, e := range h.entries {
		words[i] = e.String()
	}
	return "[" + strings.Join(words, " ") + "]"
}

// Assign records that epoch begins at start (R3). Every entry whose epoch or
// start is not below the new one goes first. The latest epoch at the same or a
// later offset changes nothing. The caller syncs the checkpoint if changed.
func (h *History) Assign(epoch types.LeaderEpoch, start types.Offset) (changed bool, err error) {
	if epoch < 0 || start < 0 {
		return false, fmt.Errorf("assign %d@%d: %w", epoch, start, ErrInvalid)
	}
	if last, ok := h.Latest(); ok && last.Epoch == epoch && start >= last.Start {
		return false, nil
	}
	keep := len(h.entries)
	for keep > 0 && (h.entries[keep-1].Epoch >= epoch || h.entries[keep-1].Start >= start) {
		keep--
	}
	h.entries = append(h.entries[:keep:keep], Entry{Epoch: epoch, Start: start})
	h.check()
	return true, nil
}

// AppendedBatch takes note of a batch of the given epoch that was copied to a
// log which ended at oldLogEnd (follower, mirror, recovery). A batch of the last
// record's epoch assigns nothing; one that raises the epoch assigns at the old
// log end, not at its base offset (R4). A trailing entry that covers no record,
// left by an election of this replica, gives way to what the batch says. A batch
// whose epoch is below that of the records before it is refused with ErrEpochFalls.
func (h *History) AppendedBatch(epoch types.LeaderEpoch, oldLogEnd types.Offset) (changed bool, err error) {
	if epoch < 0 || oldLogEnd < 0 {
		return false, fmt.Errorf("batch %d@%d: %w", epoch, oldLogEnd, ErrInvalid)
	}
	last, ok := h.Latest()
	if ok && last.Epoch == epoch && last.Start <= oldLogEnd {
		return false, nil
	}
	keep := h.entriesBelow(oldLogEnd)
	if keep > 0 {
		covered := h.entries[keep-1].Epoch
		if epoch < covered {
			return false, fmt.Errorf("batch of epoch %d at %d after epoch %d: %w", epoch, oldLogEnd, covered, ErrEpochFalls)
		}
		if epoch == covered {
			return h.cutEntries(keep), nil
		}
	}
	h.entries = append(h.entries[:keep:keep], Entry{Epoch: epoch, Start: oldLogEnd})
	h.check()
	return true, nil
}

// BecomeFollower drops a trailing entry that starts at or after the log end: an
// election of this replica that wrote nothing (R3). Kept, a late batch of an
// older epoch would erase the entry below it.
func (h *History) BecomeFollower(logEnd types.Offset) (changed bool) {
	return h.cutEntries(h.entriesBelow(logEnd))
}

// TruncateFromEnd drops the entries that start at or after o: the log was cut
// there. A negative offset does nothing.
func (h *History) TruncateFromEnd(o types.Offset) (changed bool) {
	if o < 0 {
		return false
	}
	return h.cutEntries(h.entriesBelow(o))
}

// TruncateFromStart follows a log start that moved up to o: the entry that
// covers o is kept and starts at o, those below it go. A negative offset does
// nothing. A follower or mirror whose log start reaches its log end calls Clear
// instead (R1).
func (h *History) TruncateFromStart(o types.Offset) (changed bool) {
	covering := h.entriesAtOrBelow(o) - 1
	if o < 0 || covering < 0 || (covering == 0 && h.entries[0].Start == o) {
		return false
	}
	rest := slices.Clone(h.entries[covering:])
	rest[0].Start = o
	h.entries = rest
	h.check()
	return true
}

// Reconcile makes a possibly stale history fit the log found on disk: cut from
// the end at the log end, then from the start at the log start (R2).
func (h *History) Reconcile(logStart, logEnd types.Offset) (changed bool) {
	fromEnd := h.TruncateFromEnd(logEnd)
	fromStart := h.TruncateFromStart(logStart)
	return fromEnd || fromStart
}

// LowerFirst begins the first entry at o, if it begins above: the caller knows
// that the record at o is of its epoch. A log start that rises moves the entry
// with it, and a crash may bring the old log start back alone (R2).
func (h *History) LowerFirst(o types.Offset) (changed bool) {
	if o < 0 || len(h.entries) == 0 || h.entries[0].Start <= o {
		return false
	}
	h.entries = slices.Clone(h.entries)
	h.entries[0].Start = o
	h.check()
	return true
}

// Clear forgets everything.
func (h *History) Clear() (changed bool) { return h.cutEntries(0) }

// entriesBelow is the number of entries that start below o.
func (h *History) entriesBelow(o types.Offset) int {
	n, _ := slices.BinarySearchFunc(h.entries, o, func(e Entry, o types.Offset) int { return compareOffsets(e.Start, o) })
	return n
}

// entriesAtOrBelow is the number of entries that start at or below o.
func (h *History) entriesAtOrBelow(o types.Offset) int {
	n, found := slices.BinarySearchFunc(h.entries, o, func(e Entry, o types.Offset) int { return compareOffsets(e.Start, o) })
	if found {
		n++
	}
	return n
}

// cutEntries keeps the first n entries. The capacity is cut too, so that a later
// append never writes into a copy that a reader still holds.
func (h *History) cutEntries(n int) (changed bool) {
	changed = n != len(h.entries)
	h.entries = h.entries[:n:n]
	return changed
}

// check asserts the order of the newest two entries: every mutation but
// TruncateFromStart only appends after a cut, so the rest is in order by induction.
func (h *History) check() {
	assert.That(h.entries[0].Epoch >= 0 && h.entries[0].Start >= 0, "I-01: negative entry %v", h.entries[0])
	if n := len(h.entries); n > 1 {
		a, b := h.entries[n-2], h.entries[n-1]
		assert.That(a.Epoch < b.Epoch && a.Start < b.Start, "I-01: entries don't rise: %v", h)
	}
}

func compareOffsets(a, b types.Offset) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
