package timeline

import (
	"fmt"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
)

// CutKind says what a replica owes before it may fetch, lead, answer or report
// for an election (R19).
type CutKind int8

const (
	// CutNothing: the log stays; if the lists differ the checkpoint is written.
	CutNothing CutKind = iota
	// CutAt: Cut(At), cause TIMELINE, then the checkpoint.
	CutAt
	// CutEverything: the whole log goes, into the vault, and only if another
	// in-sync replica or the source has the data; else TIMELINE_UNKNOWN.
	CutEverything
	// CutRefused: the record is older than what this replica has applied or holds:
	// don't cut, don't serve, wait; METADATA_WENT_BACK if it stays so.
	CutRefused
)

// String is the kind as scripts print it.
func (k CutKind) String() string {
	return [...]string{"nothing", "cut", "everything", "refused"}[k]
}

// Owed is what FirstCut decides.
type Owed struct {
	Kind CutKind
	At   types.Offset // for CutAt
	// Why explains CutEverything and CutRefused.
	Why string
	// WriteCheckpoint: the checkpoint's list differs from the record's and is to
	// be written, after the cut is synced. Never set for CutRefused. An equal list
	// keeps the epoch of the record that it came from: elections cost no sync.
	WriteCheckpoint bool
	Comparison      Comparison
}

// Replica is what FirstCut looks at.
type Replica struct {
	Applied          Checkpoint
	HasApplied       bool
	History          *epoch.History
	LogStart, LogEnd types.Offset
}

func (r *Replica) isEmpty() bool { return r.LogEnd <= r.LogStart }

// Rules names what a test switches off to see that its checks find it. The zero
// value has every rule on.
type Rules struct {
	NoCut          bool // R19: the list is taken without the cut
	EpochsOnly     bool // R19: the record's first unshared offset is not looked at
	BelieveOlder   bool // R19: a record older than the checkpoint is applied
	UnknownIsEqual bool // R19: a missing checkpoint counts as the record's list
	LargerBound    bool // R17: the bound is the larger of the two first unshared epochs
}

// FirstCutUnder is FirstCut with rules switched off.
func FirstCutUnder(rules Rules, r Replica, record List, recordEpoch types.LeaderEpoch) Owed {
	if rules.UnknownIsEqual && !r.HasApplied {
		r.Applied, r.HasApplied = Checkpoint{List: record, LeaderEpoch: recordEpoch}, true
	}
	if rules.BelieveOlder {
		r.Applied.LeaderEpoch = min(r.Applied.LeaderEpoch, recordEpoch)
		if last, ok := r.History.Latest(); ok {
			recordEpoch = max(recordEpoch, last.Epoch)
		}
	}
	if rules.EpochsOnly {
		record = record.Clone()
		for i := range record {
			if i >= len(r.Applied.List) || record[i] != r.Applied.List[i] {
				record[i].FirstOffset = max(record[i].FirstOffset, r.LogEnd)
			}
		}
	}
	if rules.LargerBound {
		r.History = fromLargerBound(r, record)
	}
	owed := FirstCut(r, record, recordEpoch)
	if rules.NoCut && owed.Kind != CutRefused {
		owed.Kind = CutNothing
	}
	return owed
}

// fromLargerBound is a replica's history without the entries that only the smaller
// of the two first unshared epochs covers.
func fromLargerBound(r Replica, record List) *epoch.History {
	n := Compare(r.Applied.List, record).Shared
	bound := types.NoLeaderEpoch
	for _, rest := range []List{r.Applied.List[n:], record[n:]} {
		if len(rest) > 0 {
			bound = max(bound, rest[0].FirstEpoch)
		}
	}
	var out epoch.History
	for _, e := range r.History.Entries() {
		if e.Epoch >= bound {
			_, _ = out.Assign(e.Epoch, e.Start) // they rise as they are
		}
	}
	return &out
}

// FirstCut compares a replica with the partition record's list and leader epoch
// (R19). Nobody commands the cut: it holds whenever the replica returns, however
// many changes of the list it slept through.
//
// An empty record list is a mirror's that has not adopted its source's yet: it
// asks for nothing.
func FirstCut(r Replica, record List, recordEpoch types.LeaderEpoch) Owed {
	if r.HasApplied && recordEpoch < r.Applied.LeaderEpoch {
		return Owed{Kind: CutRefused, Why: fmt.Sprintf("the record's leader epoch %d is below %d, which this replica has applied", recordEpoch, r.Applied.LeaderEpoch)}
	}
	if last, ok := r.History.Latest(); ok && recordEpoch < last.Epoch {
		return Owed{Kind: CutRefused, Why: fmt.Sprintf("the record's leader epoch %d is below this log's %d", recordEpoch, last.Epoch)}
	}
	if len(record) == 0 {
		return Owed{Kind: CutNothing}
	}
	write := !r.HasApplied || !r.Applied.List.Equal(record)
	if !r.HasApplied {
		if r.isEmpty() {
			return Owed{Kind: CutNothing, WriteCheckpoint: true}
		}
		return Owed{Kind: CutEverything, Why: "no timeline checkpoint", WriteCheckpoint: true}
	}
	c := Compare(r.Applied.List, record)
	owed := Owed{WriteCheckpoint: write, Comparison: c}
	switch {
	case c.Relation == Equal:
		return owed
	case c.Relation == NoCommon && r.isEmpty():
		return owed
	case c.Relation == NoCommon:
		owed.Kind, owed.Why = CutEverything, "no common timeline"
		return owed
	}
	if at, ok := cutOffset(r, record, c); ok {
		owed.Kind, owed.At = CutAt, at
	}
	return owed
}

// cutOffset is the smaller of the start of the first history entry from the
// bound on, and the first offset of the record's first unshared entry; not
// below the log start. ok is false if that leaves log and history as they are.
func cutOffset(r Replica, record List, c Comparison) (at types.Offset, ok bool) {
	at = r.LogEnd
	if e, found := firstFrom(r.History, c.Bound); found {
		at, ok = min(at, e.Start), true
	}
	if c.Shared < len(record) && record[c.Shared].FirstOffset < r.LogEnd {
		at, ok = min(at, record[c.Shared].FirstOffset), true
	}
	return max(at, r.LogStart), ok
}

// firstFrom is the first history entry with an epoch not below bound.
func firstFrom(h *epoch.History, bound types.LeaderEpoch) (epoch.Entry, bool) {
	if e, ok := h.Entry(bound); ok {
		return e, true
	}
	return h.Next(bound)
}
