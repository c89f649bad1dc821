package sim

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// run makes a run and fails the test, with the story's end, if anything is found.
func run(t *testing.T, r Run) *Result {
	t.Helper()
	out, err := Make(r)
	if err != nil {
		t.Fatal(err)
	}
	if out.Failure != nil {
		r.Story, r.StoryLines = true, 60
		again, err := Make(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = again.WriteStory(os.Stderr) // the failure below says what matters
		t.Fatalf("%s\nreplay: tidemark sim --seed %d --profile %s", out.Failure, r.Seed, out.Run.Profile)
	}
	return out
}

// Invariant I-161: a run is a function of its seed, options and plan.
func TestSameSeedSameRun(t *testing.T) {
	for seed := range uint64(8) {
		a := run(t, Run{Seed: seed})
		b := run(t, Run{Seed: seed, Story: true})
		if a.Trace != b.Trace || a.Steps != b.Steps {
			t.Fatalf("seed %d: trace %x after %d steps, then %x after %d", seed, a.Trace, a.Steps, b.Trace, b.Steps)
		}
	}
	if a, b := run(t, Run{Seed: 1}), run(t, Run{Seed: 2}); a.Trace == b.Trace {
		t.Fatal("two seeds give one trace")
	}
}

func TestRegressionSeeds(t *testing.T) {
	text, err := os.ReadFile("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	runs, err := ParseSeeds(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		t.Run(SeedLine(r, ""), func(t *testing.T) { run(t, r) })
	}
}

// TestSeedsFindNothing looks through the same seeds each time: when it fails, a
// change is why. TIDEMARK_SIM_SEED gives another first one ("fresh" one that
// nobody has run before), TIDEMARK_SIM_RUNS how many; tidemark sim --search looks for as long as it is told.
func TestSeedsFindNothing(t *testing.T) {
	from, count := uint64(1_000_000), 120
	if s := os.Getenv("TIDEMARK_SIM_SEED"); s == "fresh" {
		from = uint64(time.Now().UnixNano()) >> 16
	} else if s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		from = n
	}
	if s := os.Getenv("TIDEMARK_SIM_RUNS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		count = n
	}
	for profile, share := range map[string]int{"swarm": 1, "cluster": 4} { // a cluster's run takes longer
		totals, err := Look(Search{From: from, Count: max(count/share, 1), Profile: profile, Found: func(r *Result) {
			t.Errorf("%s\nreplay: tidemark sim --seed %d --profile %s", r.Summary(), r.Run.Seed, profile)
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s from seed %d: %v", profile, from, totals)
	}
}

// TestProfilesFindNothing runs a few seeds of each mixture.
func TestProfilesFindNothing(t *testing.T) {
	for name := range profiles {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(6) {
				run(t, Run{Seed: seed, Profile: name})
			}
		})
	}
	for name := range clusterProfiles {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				run(t, Run{Seed: seed, Profile: name})
			}
		})
	}
}

// Each mutation is found, by one of the invariants it must break: a check that
// can't fail is no check.
func TestMutationsAreFound(t *testing.T) {
	const runsMost = 120
	for _, m := range Mutations() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			var found *Result
			totals, err := Look(Search{From: m.from, Count: runsMost, Profile: m.Profile, Mutation: m.Name, Stop: true, Found: func(r *Result) { found = r }})
			if err != nil {
				t.Fatal(err)
			}
			if found == nil {
				t.Fatalf("%s: not found: %v", m.Rule, totals)
			}
			if !slices.Contains(m.Finds, found.Failure.Invariant) {
				t.Fatalf("%s: found by %v, want one of %v", m.Rule, found.Failure, m.Finds)
			}
			t.Logf("%s: %s after %d runs, %d steps, %v virtual", m.Rule, found.Failure.Invariant, totals.Runs, totals.Steps, totals.Virtual.Round(time.Second))
		})
	}
}

func TestShrinkKeepsTheFailure(t *testing.T) {
	r, err := Make(Run{Seed: 2, Profile: "divergence", Mutation: "no-realign"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Failure == nil {
		t.Fatal("the mutation was not found: choose another seed")
	}
	small, err := Shrink(r, 60)
	if err != nil {
		t.Fatal(err)
	}
	if small.Failure == nil || small.Failure.Invariant != r.Failure.Invariant {
		t.Fatalf("shrunk to %v, was %v", small.Failure, r.Failure)
	}
	if n := len(small.Run.Keep); n == 0 || n >= r.Actions {
		t.Fatalf("%d of %d actions are left", n, r.Actions)
	}
	again, err := ParseSeeds(SeedLine(small.Run, "shrunk"))
	if err != nil || len(again) != 1 {
		t.Fatalf("%v, %v", again, err)
	}
	replayed, err := Make(again[0])
	if err != nil {
		t.Fatal(err)
	}
	if replayed.Trace != small.Trace {
		t.Fatalf("replayed trace %x, was %x", replayed.Trace, small.Trace)
	}
}

// TestMixturesOfMutations: a mutation's features and faults with all rules on find nothing, and are not the profile's own.
func TestMixturesOfMutations(t *testing.T) {
	for _, name := range []string{"no-identity", "kept-after-crash", "mirrors-epochs-only"} {
		m, err := MutationNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, Run{Seed: 1, Mixture: name})
		if other := run(t, Run{Seed: 1, Profile: m.Profile}); r.Run.Profile == "" || r.Trace == other.Trace {
			t.Errorf("%s: profile %q, trace %x, and without it %x", name, r.Run.Profile, r.Trace, other.Trace)
		}
		again, err := ParseSeeds(SeedLine(r.Run, ""))
		if err != nil || again[0].Mixture != name || again[0].Profile != r.Run.Profile {
			t.Errorf("%+v, %v", again, err)
		}
	}
	if _, err := Make(Run{Mutation: "no-identity", Mixture: "no-identity"}); err == nil {
		t.Error("a run has rules off and on")
	}
}
