package sim

import (
	"os"
	"testing"
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
		t.Fatalf("seed %d: %v\nreplay: tidemark sim --seed %d --profile %s", r.Seed, out.Failure, r.Seed, out.Run.Profile)
	}
	return out
}

func TestSameSeedSameRun(t *testing.T) {
	for seed := range uint64(6) {
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
