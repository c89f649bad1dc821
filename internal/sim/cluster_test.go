package sim

import "testing"

func TestClusterCalm(t *testing.T) {
	for seed := range uint64(3) {
		r := run(t, Run{Seed: seed, Profile: "cluster-calm"})
		t.Logf("%s", r.Summary())
	}
}
