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
		if got := m.hasEnded("m", start); got != ended {
			t.Errorf("%s in start %q, asked for %q: ended %t", want, present, start, got)
		}
	}
	f(Rules{}, meta.WantRunning, "s2", "s2", false)
	f(Rules{}, meta.WantPaused, "s2", "s2", false)
	f(Rules{}, meta.WantStopped, "s1", "s2", false)
	f(Rules{}, meta.WantStopped, "s2", "", false)
	f(Rules{}, meta.WantStopped, "s2", "s2", true)
	f(Rules{MadeUnasked: true}, meta.WantStopped, "s2", "s2", false)
	if m := (&Mirrors{o: Options{Node: newPaperNode(t, 1)}}); m.hasEnded("m", "s2") {
		t.Error("a mirror that isn't there has ended")
	}
}
