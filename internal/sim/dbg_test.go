package sim

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

func TestStory(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	out, err := Make(Run{Seed: seed, Profile: os.Getenv("PROFILE"), Mutation: os.Getenv("MUT"), Story: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = out.WriteStory(os.Stdout)
}

func TestHunt(t *testing.T) {
	from, _ := strconv.Atoi(os.Getenv("FROM"))
	n, _ := strconv.Atoi(os.Getenv("N"))
	bad := map[string]int{}
	steps, virt := 0, 0.0
	probes := map[string]int{}
	for seed := from; seed < from+n; seed++ {
		out, err := Make(Run{Seed: uint64(seed), Profile: os.Getenv("PROFILE"), Mutation: os.Getenv("MUT")})
		if err != nil {
			t.Fatal(err)
		}
		steps += out.Steps
		virt += out.Virtual.Hours()
		for k, v := range out.Probes {
			probes[k] += v
		}
		if out.Failure != nil {
			if bad[out.Failure.Invariant]++; bad[out.Failure.Invariant] <= 3 {
				fmt.Println(seed, out.Failure)
			}
		}
	}
	fmt.Println(bad, steps, virt)
	if os.Getenv("PROBES") != "" {
		fmt.Print(ProbeTable(probes, nil))
	}
}
