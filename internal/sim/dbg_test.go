package sim

import (
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
