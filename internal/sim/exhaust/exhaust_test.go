package exhaust

import (
	"bytes"
	"slices"
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
	f("cluster", 5, 64)
	f("mirrored", 4, 64)
	f("promoted", 4, 64)
	f("forked", 4, 64)
}

// TestRulesAreNeeded switches off each rule: within its depth an invariant breaks.
// With -v it prints at which.
func TestRulesAreNeeded(t *testing.T) {
	err := SwitchOff(func(f Found) {
		t.Log(f)
		switch {
		case f.Unreached != "":
		case f.Story == nil:
			t.Errorf("%s (%s) is not found", f.Name, f.Rule)
		case !f.Expected:
			t.Errorf("%s (%s): %s broke, which it doesn't guard:\n%s", f.Name, f.Rule, f.Story.Invariant, strings.Join(f.Story.Lines, "\n"))
		}
	})
	if err != nil {
		t.Fatal(err)
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

// TestReplicasAreInterchangeable: states that differ in their replicas' names are
// one, others are not.
func TestReplicasAreInterchangeable(t *testing.T) {
	w, err := worldNamed("cluster")
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.first()
	if err != nil {
		t.Fatal(err)
	}
	after := func(lines ...string) []byte {
		s := s
		for _, a := range steps(lines...) {
			x := &step{w: w, s: s.clone()}
			if !x.carryOut(a) || x.problem != nil {
				t.Fatalf("%s: %v", a, x.problem)
			}
			s = x.s
		}
		return bytes.Clone(newEncoder().encode(s))
	}
	first := after("stop a1", "start a1", "elect a1")
	if second := after("stop a2", "start a2", "elect a2"); !bytes.Equal(first, second) {
		t.Errorf("the same of the other replica is another state:\n%q\n%q", first, second)
	}
	if other := after("stop a1", "start a1", "elect a2"); bytes.Equal(first, other) {
		t.Error("states that differ have one text")
	}
}

// TestStepsRead: a script's lines are the steps that they name.
func TestStepsRead(t *testing.T) {
	for _, a := range []action{act(doUnclean, 1, 1), act(doBegin, 0, 0).with(1), act(doCopyOnce, 1, 0), act(doSettle, 1, 0)} {
		line := strings.Replace(a.String(), " (quoting the plan)", " quoting", 1)
		if got := steps(line)[0]; got != a {
			t.Errorf("%q is read as %s", line, got)
		}
	}
}
