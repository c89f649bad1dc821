package mirror

import (
	"errors"
	"strings"
	"testing"

	"tidemark/internal/core/meta"
)

func TestTopicStart(t *testing.T) {
	f := func(start string, begun int, id string) {
		t.Helper()
		if got := TopicStart(&meta.MirrorState{StartID: start, Begun: begun}); got != id {
			t.Errorf("start %s, begun %d, is %s, want %s", start, begun, got, id)
		}
		if s, n := SplitStart(id); s != start || n != begun {
			t.Errorf("%s is start %s, begun %d", id, s, n)
		}
	}
	f("s1", 0, "s1")
	f("s1", 12, "s1.12")
	f("s.x", 0, "s.x")
	f("s.x", 1, "s.x.1")
	f("s.0", 0, "s.0") // no number that is given
	f("", 0, "")
}

// TestOfEarlierStart: an order is for the start that it names and what that topic's other partitions began before, for none later.
func TestOfEarlierStart(t *testing.T) {
	f := func(begun int, order string, refused bool) {
		t.Helper()
		err := OfEarlierStart(&meta.MirrorState{StartID: "s1", Begun: begun}, order)
		var r *Refusal
		if errors.As(err, &r) != refused || refused && (r.Reason != StaleRequest || !strings.Contains(r.Detail, "for start "+order) || !strings.Contains(r.Detail, "started anew")) {
			t.Errorf("begun %d, order %q: %v", begun, order, err)
		}
	}
	f(0, "", false)
	f(3, "", false)
	f(0, "s1", false)
	f(1, "s1", true)
	f(2, "s1.1", true)
	f(2, "s1.2", false)
	f(1, "s1.2", false) // the others of its topic were begun once more
	f(0, "s2", true)
	f(0, "s2.7", true)
	if err := OfEarlierStart(nil, "s1"); err != nil {
		t.Errorf("of no mirror: %v", err)
	}
}

// TestBegun counts begins within one start, of what was writable in between, and only where every program knows the count.
func TestBegun(t *testing.T) {
	rec := meta.PartitionRecord{Writable: true, LeaderEpoch: 3}
	r := StartRequest{Mirror: "m", StartID: "s1", CountBegun: true}
	begin := func(want int) {
		t.Helper()
		rec = FenceForStart(&rec, r)
		if rec.Mirror.Begun != want {
			t.Errorf("begun %d, want %d", rec.Mirror.Begun, want)
		}
		if again := startingFrom(&rec, r); again.Mirror.Begun != want {
			t.Errorf("looked at again: begun %d, want %d", again.Mirror.Begun, want)
		}
		back, err := GoBack(&rec, Refusal{Reason: StaleRequest})
		if err != nil {
			t.Fatal(err)
		}
		rec = back
	}
	begin(0)
	begin(1)
	begin(2)
	r.CountBegun = false
	begin(2)
	r.StartID, r.CountBegun = "s2", true
	begin(0)
}
