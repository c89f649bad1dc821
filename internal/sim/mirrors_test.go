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
