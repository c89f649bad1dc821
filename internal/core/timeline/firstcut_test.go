package timeline

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
)

func TestFirstCutBeforeAnyCut(t *testing.T) {
	root, promoted := list(t, `[["r",0,0]]`), list(t, `[["r",0,0],["p",9,4]]`)
	h, err := epoch.FromEntries([]epoch.Entry{{Epoch: 1, Start: 0}, {Epoch: 5, Start: 3}})
	if err != nil {
		t.Fatal(err)
	}
	full := Replica{Applied: Checkpoint{List: root, LeaderEpoch: 5}, HasApplied: true, History: &h, LogEnd: 8}
	f := func(name string, change func(*Replica), record List, epoch types.LeaderEpoch, want CutKind, write bool) {
		t.Helper()
		r := full
		change(&r)
		if got := FirstCut(r, record, epoch); got.Kind != want || got.WriteCheckpoint != write {
			t.Errorf("%s: got %v (%s), write %v; want %v, %v", name, got.Kind, got.Why, got.WriteCheckpoint, want, write)
		}
	}
	same := func(*Replica) {}
	f("equal", same, root, 5, CutNothing, false)
	f("a later epoch of the same list", same, root, 6, CutNothing, false)
	f("the record went back", func(r *Replica) { r.Applied.LeaderEpoch = 7 }, promoted, 6, CutRefused, false)
	f("the record is below the log", same, promoted, 4, CutRefused, false)
	f("behind", same, promoted, 10, CutAt, true)
	f("no root in common", same, list(t, `[["s",0,0]]`), 10, CutEverything, true)
	f("no root in common, nothing held", func(r *Replica) { r.LogStart = 8 }, list(t, `[["s",0,0]]`), 10, CutNothing, true)
	f("no checkpoint", func(r *Replica) { r.HasApplied = false }, root, 5, CutEverything, true)
	f("no checkpoint, nothing held", func(r *Replica) { r.HasApplied = false; r.LogStart = 8 }, root, 5, CutNothing, true)
	f("not adopted yet", same, nil, 6, CutNothing, false)
}

// written is one record as the model knows it: which timeline wrote it.
type written struct {
	epoch types.LeaderEpoch
	owner string
}

// branch is a cluster's log with the writer of each record.
type branch struct {
	list  List
	epoch types.LeaderEpoch
	log   []written
}

// grow elects and writes a few times on the newest timeline.
func (b *branch) grow(t *rapid.T, label string) {
	last, _ := b.list.Last()
	for range rapid.IntRange(0, 3).Draw(t, label+" elections") {
		b.epoch += types.LeaderEpoch(rapid.IntRange(1, 3).Draw(t, label+" step"))
		for range rapid.IntRange(0, 3).Draw(t, label+" records") {
			b.log = append(b.log, written{max(b.epoch, last.FirstEpoch), last.ID})
		}
	}
}

// mirror copies a beginning of the branch, promotes at times, and goes on.
func (b *branch) mirror(t *rapid.T, label string) branch {
	copied := rapid.IntRange(0, len(b.log)).Draw(t, label+" mirrored")
	out := branch{list: b.list.Clone(), epoch: b.epoch, log: slices.Clone(b.log[:copied])}
	for i := range rapid.IntRange(0, 2).Draw(t, label+" promotions") {
		e, err := PromotedEpoch(int32(rapid.IntRange(1, 4).Draw(t, label+" jump")), out.epoch)
		if err != nil {
			t.Fatal(err)
		}
		out.list, err = out.list.Extend(Entry{ID: label + string(rune('0'+i)), FirstEpoch: e, FirstOffset: types.Offset(len(out.log))})
		if err != nil {
			t.Fatal(err)
		}
		out.epoch = e
		out.grow(t, label)
	}
	return out
}

func (b *branch) history() epoch.History {
	var h epoch.History
	for o, w := range b.log {
		if _, err := h.AppendedBatch(w.epoch, types.Offset(o)); err != nil {
			panic(err)
		}
	}
	return h
}

// twoBranches are two clusters after a split: both begin alike and hand out
// epochs on their own afterwards, the same numbers as a rule. The first may be
// the old source, which writes on under the list it had.
type twoBranches struct{ ours, theirs branch }

var splits = rapid.Custom(func(t *rapid.T) twoBranches {
	common := branch{list: List{{ID: "root"}}}
	common.grow(t, "common")
	s := twoBranches{ours: common.mirror(t, "ours"), theirs: common.mirror(t, "theirs")}
	if rapid.Bool().Draw(t, "old source writes on") {
		s.ours = branch{list: common.list.Clone(), epoch: common.epoch, log: slices.Clone(common.log)}
		s.ours.grow(t, "old source")
	}
	return s
})

type cutFunc func(r Replica, record List, recordEpoch types.LeaderEpoch) Owed

// ownership makes a replica of ours do the first cut for theirs, and looks at
// what is left: only records that were written on the timeline which the new
// list names for their epoch.
func (s twoBranches) ownership(cut cutFunc) error {
	history := s.ours.history()
	r := Replica{Applied: Checkpoint{List: s.ours.list, LeaderEpoch: s.ours.epoch}, HasApplied: true, History: &history, LogEnd: types.Offset(len(s.ours.log))}
	owed := cut(r, s.theirs.list, max(s.ours.epoch, s.theirs.epoch)+1)
	keep := len(s.ours.log)
	switch owed.Kind {
	case CutAt:
		keep = int(owed.At)
	case CutNothing:
	default:
		return fmt.Errorf("unexpected %v", owed)
	}
	if owed.Comparison.Relation == Equal && keep != len(s.ours.log) {
		return errors.New("equal lists, yet a cut")
	}
	for o, w := range s.ours.log[:keep] {
		if e, _ := s.theirs.list.Owner(w.epoch); e.ID != w.owner {
			return fmt.Errorf("record %d of epoch %d was written on %s, the list %v says %s", o, w.epoch, w.owner, s.theirs.list, e.ID)
		}
	}
	return nil
}

// TestFirstCutKeepsOwnership: invariant Ownership.
func TestFirstCutKeepsOwnership(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := splits.Draw(t, "split").ownership(FirstCut); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFirstCutMutationsAreFound: each rule of the cut, switched off, breaks Ownership on some split.
func TestFirstCutMutationsAreFound(t *testing.T) {
	f := func(name string, cut cutFunc) {
		t.Helper()
		for seed := range 3000 {
			if splits.Example(seed).ownership(cut) != nil {
				return
			}
		}
		t.Errorf("%s: not found", name)
	}
	f("R19: no first cut", func(r Replica, record List, e types.LeaderEpoch) Owed { return Owed{Kind: CutNothing} })
	f("R17: the bound looks at the record's list only", func(r Replica, record List, e types.LeaderEpoch) Owed {
		owed := FirstCut(r, record, e)
		c := owed.Comparison
		if owed.Kind != CutAt || c.Shared == len(record) {
			return Owed{Kind: CutNothing}
		}
		c.Bound = record[c.Shared].FirstEpoch
		owed.At, _ = cutOffset(r, record, c)
		return owed
	})
	f("R19: the cut looks at offsets only", func(r Replica, record List, e types.LeaderEpoch) Owed {
		c := Compare(r.Applied.List, record)
		if c.Relation == Equal || c.Shared == len(record) {
			return Owed{Kind: CutNothing}
		}
		return Owed{Kind: CutAt, At: min(r.LogEnd, record[c.Shared].FirstOffset)}
	})
}
