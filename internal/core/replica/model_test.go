package replica

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidemark/internal/core/modellog"
	"tidemark/internal/core/types"
)

// plan is a random life of one partition: each number is an operation with its
// argument. The same plan runs with all rules on, and with one rule off.
type plan []uint16

var plans = rapid.Custom(func(t *rapid.T) plan {
	return rapid.SliceOfN(rapid.Uint16(), 20, 150).Draw(t, "operations")
})

// ops is the number of kinds of operations.
const ops = 16

// run plays the plan on three replicas and gives the first broken check.
func (p plan) run(rules clusterRules) error {
	c := newCluster(3, rules)
	c.elect(c.nodes[0], 1)
	for _, x := range p {
		c.operate(int(x%ops), int(x/ops))
		if c.problem != nil {
			return c.problem
		}
	}
	return c.checkEnd()
}

func (c *cluster) operate(op, arg int) {
	n := c.nodes[arg%len(c.nodes)]
	switch op {
	case 0, 1, 2:
		if c.leader != nil {
			c.tags++
			c.produce(arg%3+1, fmt.Sprintf("t%d", c.tags))
			c.leader.HighWatermark = c.leader.End
		}
	case 3:
		if n.up {
			c.elect(n, c.epoch+1)
		}
	case 4:
		if n.up {
			c.crash(n, arg/3%3)
		}
	case 5:
		if !n.up {
			c.start(n)
		}
	case 6:
		if c.leader != nil {
			c.leader.RaiseStart(c.leader.Start+types.Offset(arg%(int(c.leader.End-c.leader.Start)+1)), true)
		}
	case 7:
		if len(n.Records) > 2 {
			n.compact(arg / 3 % (len(n.Records) - 1))
		}
	case 8, 9, 10:
		c.ask(n)
	default:
		for range arg%3 + 1 {
			c.deliverAny(arg)
		}
	}
}

// deliverAny hands over one answer, old ones as readily as new ones.
func (c *cluster) deliverAny(arg int) {
	if len(c.flight) == 0 {
		return
	}
	i := arg % len(c.flight)
	a := c.flight[i]
	if arg%5 > 0 { // else it arrives once more later
		c.flight = slices.Delete(c.flight, i, i+1)
	}
	if !a.to.up {
		return
	}
	if v := c.deliver(a); v.Kind == VerdictAccept && c.problem == nil {
		c.problem = check(a.to, &a.leader, a.ghosts)
	}
}

// check is LogMatching and EpochHistory for a follower that has just had a
// fetch accepted: leader is the log that answered it, as it was then.
func check(f *node, leader *modellog.Log, ghosts map[types.Offset]modellog.Record) error {
	for _, r := range f.Records {
		if g, ok := ghosts[r.Offset]; ok && r.Offset >= leader.Start && g != r {
			return fmt.Errorf("LogMatching: r%d holds %v, its leader's log had %v before compaction", f.id, r, g)
		}
	}

	if diff := modellog.Difference(&f.Log, leader, true); diff != "" {
		return fmt.Errorf("LogMatching: r%d and its leader: %s", f.id, diff)
	}
	if f.End > leader.End {
		return fmt.Errorf("LogMatching: r%d ends at %d, its leader at %d", f.id, f.End, leader.End)
	}
	for _, r := range f.Records {
		if e, ok := f.History.EpochForOffset(r.Offset); !ok || e != r.Epoch {
			return fmt.Errorf("EpochHistory: r%d holds %v, its history %s", f.id, r, &f.History)
		}
	}
	return nil
}

// checkEnd stops the faults: with everyone up and a leader elected, all
// replicas come to hold the same where both hold an offset, and to rest.
func (c *cluster) checkEnd() error {
	c.flight = nil
	for _, n := range c.nodes {
		if !n.up {
			c.start(n)
		}
	}
	c.elect(c.nodes[int(c.epoch)%len(c.nodes)], c.epoch+1)
	for _, n := range c.nodes {
		if n == c.leader {
			continue
		}
		if !c.replicate(n) {
			return fmt.Errorf("Convergence: r%d does not come to rest", n.id)
		}
		if c.problem != nil {
			return c.problem
		}
		if missing := c.leader.Records[c.leader.Index(n.End):]; len(missing) > 0 {
			return fmt.Errorf("Convergence: r%d ends at %d, its leader at %d", n.id, n.End, c.leader.End)
		}
		if err := check(n, &c.leader.Log, c.leader.ghosts); err != nil {
			return err
		}
	}
	return nil
}

// TestFollowerModel: random lives with all rules on.
func TestFollowerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := plans.Draw(t, "plan").run(clusterRules{}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFollowerModelFindsMutations: each rule, switched off, breaks a check in some life.
func TestFollowerModelFindsMutations(t *testing.T) {
	f := func(name string, rules clusterRules) {
		t.Helper()
		for seed := range 20_000 {
			if err := plans.Example(seed).run(rules); err != nil {
				t.Logf("%s: seed %d: %v", name, seed, err)
				return
			}
		}
		t.Errorf("%s: not found", name)
	}
	f("R13: a late answer is taken", clusterRules{Rules: Rules{TakeLate: true}})
	f("R13: cut to the high watermark", clusterRules{Rules: Rules{CutToHighWatermark: true}})
	f("R13: no epoch comparison", clusterRules{Rules: Rules{IgnoreDivergence: true}})
	f("R3: becoming follower keeps a trailing entry", clusterRules{KeepTrailing: true})
	f("R3, R5: no entry for an election, and Kafka's answer above the last", clusterRules{NoElection: true, KafkaAnswer: true})
	f("R4: entries start at the base offset", clusterRules{AtBase: true})
}

// TestEpochStartsAtTheOldLogEnd: compaction takes the first record of epoch 2
// before r3 copies it; r3 leads, and r1 returns with another record at that
// offset. Only if epoch 2 is taken to begin at the old log end does r1 learn that
// its record is foreign (R4).
func TestEpochStartsAtTheOldLogEnd(t *testing.T) {
	f := func(rules clusterRules) error {
		c := newCluster(3, rules)
		r1, r2, r3 := c.nodes[0], c.nodes[1], c.nodes[2]
		c.elect(r1, 1)
		c.produce(3, "a")
		c.replicate(r2)
		c.replicate(r3)
		c.produce(1, "u")
		c.crash(r1, 0)
		c.elect(r2, 2)
		c.produce(2, "b")
		r2.compact(3)
		c.replicate(r3)
		c.crash(r2, 0)
		c.elect(r3, 3)
		c.start(r1)
		c.replicate(r1)
		return check(r1, &r3.Log, r3.ghosts)
	}
	if err := f(clusterRules{}); err != nil {
		t.Error(err)
	}
	if f(clusterRules{AtBase: true}) == nil {
		t.Error("an entry at the base offset was not found")
	}
}
