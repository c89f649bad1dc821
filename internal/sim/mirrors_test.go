package sim

import "testing"

// A run of several clusters is a function of its seed too (I-161).
func TestMirrorsSameSeedSameRun(t *testing.T) {
	for seed := range uint64(3) {
		a := run(t, Run{Seed: seed, Profile: "mirrors"})
		b := run(t, Run{Seed: seed, Profile: "mirrors", Story: true})
		if a.Trace != b.Trace || a.Steps != b.Steps {
			t.Fatalf("seed %d: trace %x after %d steps, then %x after %d", seed, a.Trace, a.Steps, b.Trace, b.Steps)
		}
	}
}

// TestMirrorsFindNothing looks through the same seeds each time: when it fails, a change is why.
func TestMirrorsFindNothing(t *testing.T) {
	for profile, count := range map[string]int{"mirrors": 18, "mirrors-calm": 6, "mirrors-kafka": 8, "mirrors-kip1279": 8} {
		totals, err := Look(Search{From: 3_000_000, Count: count, Profile: profile, Found: func(r *Result) {
			t.Errorf("%s\nreplay: tidemark sim --seed %d --profile %s", r.Summary(), r.Run.Seed, profile)
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v", profile, totals)
	}
}
