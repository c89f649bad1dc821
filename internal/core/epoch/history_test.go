package epoch_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
)

func history(t *testing.T, entries ...epoch.Entry) epoch.History {
	t.Helper()
	h, err := epoch.FromEntries(entries)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestCloneSharesNothing: readers hold a copy while the owner goes on.
func TestCloneSharesNothing(t *testing.T) {
	h := history(t, epoch.Entry{0, 0}, epoch.Entry{3, 10}, epoch.Entry{5, 20})
	copied, taken := h.Clone(), h // a plain copy must survive too: cuts never write into shared memory
	h.TruncateFromEnd(15)
	if _, err := h.Assign(9, 15); err != nil {
		t.Fatal(err)
	}
	h.TruncateFromStart(12)
	want := []epoch.Entry{{0, 0}, {3, 10}, {5, 20}}
	if !slices.Equal(copied.Entries(), want) || !slices.Equal(taken.Entries(), want) {
		t.Fatalf("clone %v, copy %v, expected %v", copied.String(), taken.String(), want)
	}
	if got := h.Entries(); !slices.Equal(got, []epoch.Entry{{3, 12}, {9, 15}}) {
		t.Fatal(got)
	}
}

// TestLateBatchAfterElection is R3's reason: an election that wrote nothing must
// not take the older entry with it when a late batch of that entry's epoch comes.
func TestLateBatchAfterElection(t *testing.T) {
	f := func(forget bool, batch types.LeaderEpoch, want ...epoch.Entry) {
		t.Helper()
		h := history(t, epoch.Entry{3, 0}, epoch.Entry{4, 1})
		if forget {
			h.BecomeFollower(1)
		}
		if _, err := h.AppendedBatch(batch, 1); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(h.Entries(), want) {
			t.Fatalf("got %v, expected %v", h.String(), want)
		}
	}
	f(true, 3, epoch.Entry{3, 0})
	f(false, 3, epoch.Entry{3, 0})
	f(true, 4, epoch.Entry{3, 0}, epoch.Entry{4, 1})
	f(false, 4, epoch.Entry{3, 0}, epoch.Entry{4, 1})
	f(false, 7, epoch.Entry{3, 0}, epoch.Entry{7, 1})
}

func TestRefusals(t *testing.T) {
	h := history(t, epoch.Entry{3, 0}, epoch.Entry{5, 10})
	f := func(want error, epochOf types.LeaderEpoch, logEnd types.Offset) {
		t.Helper()
		if _, err := h.AppendedBatch(epochOf, logEnd); !errors.Is(err, want) {
			t.Fatalf("batch %d at %d: %v, expected %v", epochOf, logEnd, err, want)
		}
		if h.String() != "[3@0 5@10]" {
			t.Fatalf("a refusal changed the history to %v", h.String())
		}
	}
	f(epoch.ErrInvalid, -1, 20)
	f(epoch.ErrInvalid, 5, -1)
	f(epoch.ErrEpochFalls, 4, 20)
	f(epoch.ErrEpochFalls, 0, 5)
	if _, err := epoch.FromEntries([]epoch.Entry{{1, -5}}); !errors.Is(err, epoch.ErrInvalid) {
		t.Fatal(err)
	}
}

// TestCheckpointErrorNamesTheLine: an operator must find the damage.
func TestCheckpointErrorNamesTheLine(t *testing.T) {
	f := func(content string, line int, text string) {
		t.Helper()
		_, err := epoch.ParseCheckpoint([]byte(content))
		var bad *epoch.CheckpointError
		if !errors.As(err, &bad) || bad.Line != line || !strings.Contains(bad.Error(), text) {
			t.Fatalf("%q: %v, expected line %d and %q", content, err, line, text)
		}
	}
	f("", 1, "end of file")
	f("0\n", 2, "end of file")
	f("0\n2\n0 0\nx 7\n", 4, "x 7")
	f("0\n3\n0 0\n", 4, "3 entries announced")
	f("0\n0\n5 9\n", 3, "5 9")
	f("0\n1\n"+strings.Repeat("z", 500)+"\n", 3, "…")
}

// FuzzParseCheckpoint: damage gives an error with a line, what parses survives a
// round trip and makes a history that rises.
func FuzzParseCheckpoint(f *testing.F) {
	for _, seed := range []string{"", "0\n", "0\n0\n", "0\n2\n0 0\n1 10\n", "0\n3\n1 5\n2 6\n1 7\n", "0\n1\n2147483647 9223372036854775807\n", "0\n99999999\n0 0\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := epoch.ParseCheckpoint(data)
		if err != nil {
			var bad *epoch.CheckpointError
			if !errors.As(err, &bad) || bad.Line < 1 || len(bad.Error()) > 400 {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		again, err := epoch.ParseCheckpoint(epoch.FormatCheckpoint(entries))
		if err != nil || !slices.Equal(again, entries) {
			t.Fatalf("round trip of %v gives %v, %v", entries, again, err)
		}
		h, err := epoch.FromEntries(entries)
		if err != nil {
			t.Fatal(err)
		}
		all := h.Entries()
		for i := 1; i < len(all); i++ {
			if all[i].Epoch <= all[i-1].Epoch || all[i].Start <= all[i-1].Start {
				t.Fatalf("%v doesn't rise", all)
			}
		}
	})
}

// TestLowerFirst: only the first entry moves, only down, and no copy notices.
func TestLowerFirst(t *testing.T) {
	h := history(t, epoch.Entry{3, 10}, epoch.Entry{5, 20})
	taken := h
	for _, o := range []types.Offset{-1, 10, 11, 25} {
		if h.LowerFirst(o) || h.String() != "[3@10 5@20]" {
			t.Errorf("lowered to %d: %v", o, h.String())
		}
	}
	if !h.LowerFirst(7) || h.String() != "[3@7 5@20]" || taken.String() != "[3@10 5@20]" {
		t.Errorf("lowered to 7: %v, the copy taken before: %v", h.String(), taken.String())
	}
	if empty := history(t); empty.LowerFirst(0) {
		t.Errorf("an empty history was lowered: %v", empty.String())
	}
}
