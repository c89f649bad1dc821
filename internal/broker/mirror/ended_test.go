package mirror

import (
	"testing"

	"tidemark/internal/core/meta"
)

// TestAStartThatHasEnded: nothing begins to follow a start that was ordered to end, of
// which a cut may have been found without it; what this node hasn't heard of yet, or is
// about another start, ends nothing (I-260).
func TestAStartThatHasEnded(t *testing.T) {
	f := func(rules Rules, want, present, start string, ended bool) {
		t.Helper()
		n := newPaperNode(t, 1)
		m := &Mirrors{o: Options{Node: n, Rules: rules}}
		n.put(t, meta.KeysOf(paperCluster).Mirror("m"), meta.MirrorRecord{Name: "m", Want: want, StartID: present, Bootstrap: []string{"h:1"}}.Encode())
		if _, got := m.standing(part{Mirror: "m", StartID: start}); got != ended {
			t.Errorf("%s in start %q, asked for %q: ended %t", want, present, start, got)
		}
	}
	f(Rules{}, meta.WantRunning, "s2", "s2", false)
	f(Rules{}, meta.WantPaused, "s2", "s2", false)
	f(Rules{}, meta.WantStopped, "s1", "s2", false)
	f(Rules{}, meta.WantStopped, "s2", "", false)
	f(Rules{}, meta.WantStopped, "s2", "s2", true)
	f(Rules{MadeUnasked: true}, meta.WantStopped, "s2", "s2", false)
	m := &Mirrors{o: Options{Node: newPaperNode(t, 1)}}
	if _, ended := m.standing(part{Mirror: "m", StartID: "s2"}); ended {
		t.Error("a mirror that isn't there has ended")
	}
}

// TestAnAdoptionBesideAFailover: whoever hasn't heard that the mirror was failed over
// adopts nothing all the same, and takes no other partition's change along.
func TestAnAdoptionBesideAFailover(t *testing.T) {
	for _, isOrdered := range []bool{false, true} {
		n := newPaperNode(t, 2)
		key := meta.KeysOf(paperCluster).Mirror("m")
		running := meta.MirrorRecord{Name: "m", Want: meta.WantRunning, StartID: "s2", Bootstrap: []string{"h:1"}}
		n.put(t, key, running.Encode())
		m := &Mirrors{o: Options{Node: n}}
		holds, ended := m.standing(part{Mirror: "m", StartID: "s2"})
		if ended {
			t.Fatal("ended")
		}
		adoption := n.paused(t, 0)
		adoption.beside = holds
		if isOrdered {
			running.Want = meta.WantStopped
			if _, err := n.commit(meta.Plan{Why: "fail over", Then: []meta.Op{meta.Put(key, running.Encode())}}); err != nil {
				t.Fatal(err)
			}
		}
		if got := n.write(t, adoption, n.paused(t, 1)); got[0] == isOrdered || !got[1] {
			t.Errorf("failed over %t: applied %v", isOrdered, got)
		}
	}
}
