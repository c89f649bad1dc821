package sim

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A run of the cluster is a function of its seed too (I-161).
func TestClusterSameSeedSameRun(t *testing.T) {
	for seed := range uint64(6) {
		a := run(t, Run{Seed: seed, Profile: "cluster"})
		b := run(t, Run{Seed: seed, Profile: "cluster", Story: true})
		if a.Trace != b.Trace || a.Steps != b.Steps {
			t.Fatalf("seed %d: trace %x after %d steps, then %x after %d", seed, a.Trace, a.Steps, b.Trace, b.Steps)
		}
	}
}

// The stories of the source documents: with the rule that they are about, no
// record is lost; without it, the harm that they tell of is done.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/stories/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := ParseStory(filepath.Base(file), string(text))
			if err != nil {
				t.Fatal(err)
			}
			var told bytes.Buffer
			if f, err := s.Play(false, &told); f != nil || err != nil {
				t.Fatalf("with its rules: %v, %v\n%s", f, err, &told)
			}
			told.Reset()
			f, err := s.Play(true, &told)
			if err != nil || f == nil || f.Invariant != s.Breaks {
				t.Fatalf("with %s switched off: %v, %v; want %s to break\n%s", s.Mutation, f, err, s.Breaks, &told)
			}
			t.Log(f)
		})
	}
}

func TestAStoryMustGoAsItIsTold(t *testing.T) {
	for _, text := range []string{"dance 1", "topic replicas=1,2,3\nexpect end 1 = 7", "topic replicas=1,2,3\nexpect mood 1 = 7", "crash 9"} {
		s, err := ParseStory("test", text)
		if err != nil {
			continue
		}
		if f, err := s.Play(false, &bytes.Buffer{}); err == nil && f == nil {
			t.Errorf("%q went well", text)
		}
	}
}
