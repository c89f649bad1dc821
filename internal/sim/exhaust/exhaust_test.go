package exhaust

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEveryOrder looks at every order to a small depth. A counterexample is
// printed as its story.
func TestEveryOrder(t *testing.T) {
	f := func(name string, depth int, sample uint64) {
		t.Helper()
		w, err := worldNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := look(Search{Depth: depth, Sample: sample}, w)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", name, r.Summary())
		if r.Story != nil {
			t.Errorf("%s:\n%s", name, strings.Join(r.Story.Lines, "\n"))
		}
	}
	f("whole", 3, 64)
	f("cluster", 4, 64)
	f("mirrored", 3, 64)
	f("promoted", 3, 64)
}

// TestRulesAreNeeded switches off each rule: within its depth an invariant breaks.
func TestRulesAreNeeded(t *testing.T) {
	for _, m := range mutations() {
		t.Run(m.name, func(t *testing.T) {
			if m.unreached != "" {
				t.Skipf("%s: %s", m.rule, m.unreached)
			}
			w, err := worldNamed(m.world)
			if err != nil {
				t.Fatal(err)
			}
			w.switchOff(m)
			depth := m.depth
			if depth == 0 {
				depth = 5
			}
			r, err := look(Search{Depth: depth, Sample: 0}, w)
			if err != nil {
				t.Fatal(err)
			}
			if r.Story == nil {
				t.Fatalf("%s: not found: %s", m.rule, r.Summary())
			}
			if !slices.Contains(m.finds, r.Story.Invariant) {
				t.Errorf("%s: %s broke, want one of %v", m.rule, r.Story.Invariant, m.finds)
			}
			t.Logf("%s: depth %d: %s: %s (%s)", m.rule, r.Story.Depth, r.Story.Invariant, r.Story.Detail, r.Summary())
			if os.Getenv("TIDEMARK_STORIES") != "" {
				t.Log("\n" + strings.Join(r.Story.Lines, "\n"))
			}
		})
	}
}

// TestSameFromAnyJobs: what a search counts depends on neither jobs nor the order of their work.
func TestSameFromAnyJobs(t *testing.T) {
	count := func(jobs int) []int64 {
		r, err := Look(Search{World: "promoted", Depth: 3, Jobs: jobs})
		if err != nil {
			t.Fatal(err)
		}
		var list []int64
		for _, l := range r.Levels {
			list = append(list, l.States, l.Steps)
		}
		return list
	}
	if a, b := count(1), count(3); !slices.Equal(a, b) {
		t.Errorf("one job counts %v, three %v", a, b)
	}
}

// TestReplicasAreInterchangeable: two states that differ in the replicas' names are one.
func TestReplicasAreInterchangeable(t *testing.T) {
	w, err := worldNamed("cluster")
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.first()
	if err != nil {
		t.Fatal(err)
	}
	do := func(list ...action) []byte {
		s := s
		for _, a := range list {
			x := &step{w: w, s: s.clone()}
			if !x.carryOut(a) || x.problem != nil {
				t.Fatalf("%s: %v", a, x.problem)
			}
			s = x.s
		}
		return bytes.Clone(newEncoder().encode(s))
	}
	a := do(act(doElect, 0, 1), act(doReplicate, 0, 0), act(doElect, 0, 0), act(doReplicate, 0, 1))
	b := do(act(doElect, 0, 1), act(doReplicate, 0, 0), act(doElect, 0, 0))
	if bytes.Equal(a, b) {
		t.Error("states that differ have one text")
	}
}

// TestOne searches a world to a depth that the environment names, for people.
func TestOne(t *testing.T) {
	name := os.Getenv("TIDEMARK_WORLD")
	if name == "" {
		t.Skip("TIDEMARK_WORLD isn't set")
	}
	depth, _ := strconv.Atoi(os.Getenv("TIDEMARK_DEPTH"))
	r, err := Look(Search{World: name, Depth: depth, Sample: 64, Mutation: os.Getenv("TIDEMARK_MUTATION"), Level: func(l Level) { t.Log(l) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r.Summary())
	if r.Story != nil {
		t.Fatal("\n" + strings.Join(r.Story.Lines, "\n"))
	}
}
