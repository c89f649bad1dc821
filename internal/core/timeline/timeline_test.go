package timeline

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
)

func list(t *testing.T, text string) List {
	t.Helper()
	var l List
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatal(err)
	}
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestCompare(t *testing.T) {
	f := func(ours, theirs string, want Comparison) {
		t.Helper()
		if diff := cmp.Diff(want, Compare(list(t, ours), list(t, theirs))); diff != "" {
			t.Errorf("Compare(%s, %s): -want +got\n%s", ours, theirs, diff)
		}
		mirrored := want
		mirrored.Relation = map[Relation]Relation{Equal: Equal, Behind: Ahead, Ahead: Behind, Fork: Fork, NoCommon: NoCommon}[want.Relation]
		if diff := cmp.Diff(mirrored, Compare(list(t, theirs), list(t, ours))); diff != "" {
			t.Errorf("Compare(%s, %s): -want +got\n%s", theirs, ours, diff)
		}
	}
	f(`[]`, `[]`, Comparison{})
	f(`[["r",0,0]]`, `[["r",0,0]]`, Comparison{Shared: 1})
	f(`[["r",0,0]]`, `[["r",0,0],["p",9,4]]`, Comparison{Relation: Behind, Shared: 1, Bound: 9, HasBound: true})
	f(`[["r",0,0],["p",9,4]]`, `[["r",0,0],["q",7,5]]`, Comparison{Relation: Fork, Shared: 1, Bound: 7, HasBound: true})
	f(`[["r",0,0],["p",9,4]]`, `[["s",0,0],["p",9,4]]`, Comparison{Relation: NoCommon, Bound: 0, HasBound: true})
	f(`[]`, `[["r",0,0]]`, Comparison{Relation: NoCommon, Bound: 0, HasBound: true})
	// One id with other numbers is not the same entry: the list was damaged somewhere.
	f(`[["r",0,0],["p",9,4]]`, `[["r",0,0],["p",9,5]]`, Comparison{Relation: Fork, Shared: 1, Bound: 9, HasBound: true})
}

func TestGivenUpFromTakesTheLowestUnsharedOffset(t *testing.T) {
	from, ok := GivenUpFrom(list(t, `[["r",0,0],["p",9,10],["q",20,4]]`), list(t, `[["r",0,0],["s",15,6]]`))
	if !ok || from != 4 {
		t.Errorf("got %d, %v, want 4", from, ok)
	}
	if _, ok := GivenUpFrom(list(t, `[["r",0,0]]`), list(t, `[["r",0,0]]`)); ok {
		t.Error("equal lists give up nothing")
	}
}

func TestListJSON(t *testing.T) {
	text := `[["r",0,0],["p",1026,4]]`
	b, err := json.Marshal(list(t, text))
	if err != nil || string(b) != text {
		t.Fatalf("got %s, %v", b, err)
	}
	f := func(text string) {
		t.Helper()
		var l List
		if err := json.Unmarshal([]byte(text), &l); err == nil && l.Validate() == nil {
			t.Errorf("%s was taken: %v", text, l)
		}
	}
	f(`[["r",0]]`)
	f(`[["r",0,0,0]]`)
	f(`[{"id":"r"}]`)
	f(`[[5,0,0]]`)
	f(`[["r","0",0]]`)
	f(`[["r",3000000000,0]]`)
	f(`[["r",0,1.5]]`)
	f(`[["",0,0]]`)
	f(`[["a b",0,0]]`)
	f(`[["r",-1,0]]`)
	f(`[["r",0,-1]]`)
	f(`[["r",0,0],["p",0,4]]`)
	f(`[["r",0,0],["r",5,4]]`)
	f(`[["` + strings.Repeat("x", IDBytesMax+1) + `",0,0]]`)
}

func TestRootFollowsFromClusterAndTopic(t *testing.T) {
	a := Root("c1", types.TopicID{1})
	if a != Root("c1", types.TopicID{1}) {
		t.Error("not stable")
	}
	if a.ID == Root("c2", types.TopicID{1}).ID || a.ID == Root("c1", types.TopicID{2}).ID {
		t.Error("the same root for another cluster or topic")
	}
	// The text is stored in metadata and on disk: it must never change.
	if want := "derived-wfEj4L0o0eerLunA"; a.ID != want {
		t.Errorf("got %s, want %s", a.ID, want)
	}
	if err := (List{a}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestExtendAndPromotedEpoch(t *testing.T) {
	l := list(t, `[["r",0,0],["p",1026,4]]`)
	e, err := PromotedEpoch(65536, 3, 1026, types.NoLeaderEpoch, 7)
	if err != nil || e != 66562 {
		t.Fatalf("got %d, %v", e, err)
	}
	got, err := l.Extend(Entry{ID: "q", FirstEpoch: e, FirstOffset: 2})
	if diff := cmp.Diff(list(t, `[["r",0,0],["p",1026,4],["q",66562,2]]`), got); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
	if _, err := l.Extend(Entry{ID: "q", FirstEpoch: 1026, FirstOffset: 9}); !errors.Is(err, ErrEpochTooLow) {
		t.Errorf("epoch that doesn't rise: %v", err)
	}
	if _, err := l.Extend(Entry{ID: "p", FirstEpoch: 1027, FirstOffset: 9}); !errors.Is(err, ErrList) {
		t.Errorf("id used twice: %v", err)
	}
	if _, err := PromotedEpoch(65536, math.MaxInt32-65535); !errors.Is(err, ErrNoEpochLeft) {
		t.Errorf("overflow: %v", err)
	}
	if e, err := PromotedEpoch(1); err != nil || e != 0 {
		t.Errorf("nothing seen: %d, %v", e, err)
	}
}

func TestLastMirroredEpoch(t *testing.T) {
	h, err := epoch.FromEntries([]epoch.Entry{{Epoch: 1, Start: 0}, {Epoch: 3, Start: 4}, {Epoch: 65539, Start: 6}})
	if err != nil {
		t.Fatal(err)
	}
	if got := LastMirroredEpoch(&h, 65539); got != 3 {
		t.Errorf("got %d, want 3", got)
	}
	if got := LastMirroredEpoch(&h, 1); got != types.NoLeaderEpoch {
		t.Errorf("got %d, want none", got)
	}
}

func TestOwner(t *testing.T) {
	l := list(t, `[["r",0,0],["p",1026,4]]`)
	f := func(e types.LeaderEpoch, want string) {
		t.Helper()
		if got, _ := l.Owner(e); got.ID != want {
			t.Errorf("epoch %d: %q, want %q", e, got.ID, want)
		}
	}
	f(0, "r")
	f(1025, "r")
	f(1026, "p")
	f(9999, "p")
	f(-1, "")
}

func TestCheckpointRoundTrip(t *testing.T) {
	f := func(c Checkpoint, want string) {
		t.Helper()
		if got := string(c.Format()); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		back, err := ParseCheckpoint([]byte(want))
		if diff := cmp.Diff(c, back); err != nil || diff != "" {
			t.Errorf("%v, -want +got\n%s", err, diff)
		}
	}
	f(Checkpoint{LeaderEpoch: 7}, "0\n7\n0\n")
	f(Checkpoint{LeaderEpoch: 1027, List: list(t, `[["r",0,0],["p",1026,9223372036854775807]]`)}, "0\n1027\n2\nr 0 0\np 1026 9223372036854775807\n")
}

func TestCheckpointErrorsNameLineAndField(t *testing.T) {
	f := func(content string, line int, field string) {
		t.Helper()
		_, err := ParseCheckpoint([]byte(content))
		var bad *CheckpointError
		if !errors.As(err, &bad) || bad.Line != line || bad.Field != field {
			t.Errorf("%q: got %v, want line %d, %s", content, err, line, field)
		}
		if err != nil && !strings.Contains(err.Error(), CheckpointFile) {
			t.Errorf("%v doesn't name the file", err)
		}
	}
	f("", 1, "version")
	f("0", 1, "version")
	f("1\n0\n0\n", 1, "version")
	f("x\n0\n0\n", 1, "version")
	f("0\n", 2, "leader epoch")
	f("0\n-1\n0\n", 2, "leader epoch")
	f("0\n3000000000\n0\n", 2, "leader epoch")
	f("0\n1\n", 3, "count")
	f("0\n1\n+1\n", 3, "count")
	f("0\n1\n1\n", 4, "entry")
	f("0\n1\n1\nr 0 0", 4, "entry")
	f("0\n1\n1\nr 0\n", 4, "entry")
	f("0\n1\n1\nr  0 0\n", 4, "entry")
	f("0\n1\n1\nr 0 0 \n", 4, "entry")
	f("0\n1\n1\nr 00 0\n", 4, "first epoch")
	f("0\n1\n1\nr 0 -1\n", 4, "first offset")
	f("0\n1\n1\nr\x01 0 0\n", 4, "id")
	f("0\n1\n1\nr 0 0\nx", 5, "end")
	f("0\n1\n2\nr 0 0\nr 1 1\n", 5, "list")
	f("0\n1\n2\nr 5 0\np 5 1\n", 5, "list")
	f("\x00\x00\x00\x00", 1, "version")
	f("0\n1\n2000000000\nr 0 0\n", 5, "entry")
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte("0\n1027\n2\nr 0 0\np 1026 4\n"))
	f.Add([]byte("0\n7\n0\n"))
	f.Add([]byte("0\n1\n1\nr 0"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCheckpoint(data)
		if err != nil {
			return
		}
		if string(c.Format()) != string(data) {
			t.Errorf("%q reads as %v, which is written as %q", data, c, c.Format())
		}
	})
}
