package sim

import (
	"os"
	"strconv"

	"testing"
	"tidemark/internal/vfs"
)

func TestStory(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	out, err := Make(Run{Seed: seed, Profile: os.Getenv("PROFILE"), Mutation: os.Getenv("MUT"), Story: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = out.WriteStory(os.Stdout)
}

func TestDump(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	o, _ := Swarm(seed, "swarm")
	m, _ := MutationNamed("")
	w := newWorld(seed, &o, m, &story{})
	w.schedule(makePlan(seed, &o), func(int) bool { return true })
	w.live(0)
	t.Log(w.k.failure)
	t.Log(w.node.mem.Dump())
	b, _ := vfs.ReadFile(w.node.mem, "/data/recovery-point-offset-checkpoint", 1000)
	t.Log(string(b))
}
