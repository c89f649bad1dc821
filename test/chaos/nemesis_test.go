//go:build chaos && linux

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"tidemark/test/chaos/harm"
	"tidemark/test/chaos/nodes"
)

// lane is a sequence of faults; the lanes run side by side.
type lane int

const (
	processes lane = iota
	surroundings
	administration
	lanes
)

// fault is a way to harm the cluster.
type fault struct {
	name        string
	lane        lane
	least, most time.Duration // how long it holds
	do          func(n *nemesis, ctx context.Context, s step)
	// alone: no other lane does anything meanwhile, and all replicas are in sync before.
	alone bool
	// needs says whether this run can have it; nil: every run.
	needs func(n *nemesis) bool
}

// step is one line of the schedule.
type step struct {
	gap     time.Duration // quiet time before it
	fault   *fault
	hold    time.Duration
	victims []int  // all node ids in an order: a fault takes as many as it needs
	x       uint64 // what else it needs to draw
	patient bool   // whether the lane goes on only when the cluster is whole again
}

// schedule draws a lane's steps: rounds of its deck, each shuffled.
func schedule(seed uint64, l lane, deck []*fault, nodes, steps int) []step {
	r := rand.New(rand.NewPCG(seed, 0x7469646d+uint64(l)))
	var out []step
	for len(out) < steps {
		for _, i := range r.Perm(len(deck)) {
			f := deck[i]
			s := step{gap: time.Duration(500+r.IntN(1500)) * time.Millisecond, fault: f, x: r.Uint64(), patient: r.IntN(3) > 0}
			s.hold = f.least + time.Duration(r.Int64N(int64(f.most-f.least)+1)).Round(time.Millisecond)
			for _, v := range r.Perm(nodes) {
				s.victims = append(s.victims, v+1)
			}
			out = append(out, s)
		}
	}
	return out[:steps]
}

// nemesis carries the schedule out.
type nemesis struct {
	*harm.Nemesis
	w     *world
	nodes []*nodes.Node
	small *nodes.Node // the one that has a disk of its own; nil: none can have one
}

func (n *nemesis) node(id int) *nodes.Node { return n.nodes[id-1] }

// these are the nodes with the ids.
func (n *nemesis) these(ids ...int) (list []*nodes.Node) {
	for _, id := range ids {
		list = append(list, n.node(id))
	}
	return list
}

// run harms the cluster until ctx ends; a step that has begun is brought to its end.
func (n *nemesis) run(ctx context.Context, seed uint64, only string) {
	var all sync.WaitGroup
	for l := range lanes {
		var deck []*fault
		for i := range faults {
			f := &faults[i]
			if f.lane == l && (f.needs == nil || f.needs(n)) && (only == "" || slices.Contains(strings.Split(only, ","), f.name)) {
				deck = append(deck, f)
			}
		}
		if len(deck) > 0 {
			steps := schedule(seed, l, deck, len(n.nodes), 100+int(n.w.chosen.faultsFor/time.Second))
			all.Go(func() { n.runLane(ctx, steps) })
		}
	}
	all.Wait()
}

func (n *nemesis) runLane(ctx context.Context, steps []step) {
	for _, s := range steps {
		harm.Pause(ctx, s.gap)
		if ctx.Err() != nil || n.T.Failed() {
			return
		}
		switch {
		case s.fault.alone:
			n.Alone(func() {
				n.whole("before " + s.fault.name)
				n.carryOut(ctx, s)
				n.whole("after " + s.fault.name)
			})
		case s.fault.lane == processes:
			n.carryOut(ctx, s)
			if s.patient {
				n.Alone(func() { n.whole("after " + s.fault.name) })
			}
		default:
			n.Beside(func() { n.carryOut(ctx, s) })
		}
	}
}

func (n *nemesis) carryOut(ctx context.Context, s step) {
	n.Injects(s.fault.name)
	n.Log("%s: nodes %v, hold %v", s.fault.name, s.victims, s.hold)
	s.fault.do(n, ctx, s)
}

// whole waits until every node is ready and every replica in sync, once an
// operator has done what the design leaves to one. The caller is Alone.
func (n *nemesis) whole(when string) {
	from := time.Now()
	for _, b := range n.nodes {
		eventually(n.T, healLimit, fmt.Sprintf("node %d is ready %s", b.ID, when), func() error {
			b.Start() // as a supervisor does with one that ended by itself
			return b.Ready()
		})
	}
	ready := time.Since(from)
	eventually(n.T, healLimit, "all replicas are in sync "+when, n.w.whole)
	n.Log("  all nodes ready after %.1fs, all replicas in sync after %.1fs", ready.Seconds(), time.Since(from).Seconds())
}

// heal ends every fault.
func (n *nemesis) heal() {
	n.Heal(n.nodes...)
	n.whole("after the last fault")
}

// table says what was injected and what was met.
func (n *nemesis) table() string {
	var b strings.Builder
	for l, name := range []string{"processes", "surroundings", "administration"} {
		var names []string
		for i := range faults {
			if faults[i].lane == lane(l) {
				names = append(names, faults[i].name)
			}
		}
		b.WriteString("\ninjected, " + name + ":" + n.Injected(names...))
	}
	return b.String() + n.Met()
}
