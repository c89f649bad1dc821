//go:build chaos

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fault is a way to harm the cluster.
type fault string

const (
	killOne    fault = "kill -9 of one"
	killAll    fault = "kill -9 of all at once"
	killTwo    fault = "kill -9 of two, one after the other"
	freezeOne  fault = "freeze of one for longer than its lease"
	freezeAll  fault = "freeze of all at once for longer than their leases"
	freezeKill fault = "freeze of one, kill -9 of another meanwhile"
	rolling    fault = "rolling restart"
)

// faults is the deck that each round of the plan shuffles.
var faults = []fault{killOne, killAll, freezeOne, rolling, killTwo, freezeKill, killOne, freezeAll}

// step is one line of the plan.
type step struct {
	gap     time.Duration // quiet time before it
	what    fault
	victims []int // node ids, in order
	hold    time.Duration
	patient bool // whether the next step waits until the nodes are ready again
}

func (s step) String() string {
	return fmt.Sprintf("after %v: %s, nodes %v, for %v, patient %v", s.gap, s.what, s.victims, s.hold, s.patient)
}

// plan draws a schedule: rounds of the deck, each shuffled, for ever longer than any run.
func plan(seed uint64, lease time.Duration, steps int) []step {
	r := rand.New(rand.NewPCG(seed, 0x7469646d))
	ms := func(least, most int) time.Duration {
		return time.Duration(least+r.IntN(most-least+1)) * time.Millisecond
	}
	var out []step
	for len(out) < steps {
		deck := make([]fault, 0, len(faults))
		for _, i := range r.Perm(len(faults)) {
			deck = append(deck, faults[i])
		}
		for _, f := range deck {
			s := step{gap: ms(1000, 3000), what: f, victims: make([]int, 0, 3), patient: r.IntN(3) > 0}
			for _, i := range r.Perm(3) {
				s.victims = append(s.victims, i+1)
			}
			switch f {
			case killOne:
				s.victims, s.hold = s.victims[:1], ms(0, 2000)
			case killTwo:
				s.victims, s.hold = s.victims[:2], ms(100, 2000)
			case killAll:
				s.hold, s.patient = ms(0, 1000), true
			case freezeOne:
				s.victims, s.hold = s.victims[:1], lease+ms(500, 2500)
			case freezeAll:
				s.hold, s.patient = lease+ms(500, 1500), true
			case freezeKill:
				s.victims, s.hold = s.victims[:2], lease+ms(500, 1500)
			case rolling:
				s.victims, s.patient = []int{1, 2, 3}, true
			}
			out = append(out, s)
		}
	}
	return out[:steps]
}

// nemesis carries a plan out.
type nemesis struct {
	t        testing.TB
	nodes    []*node
	began    time.Time
	injected map[fault]int
	// isWhole says whether every replica is in sync, once an operator has done what the design leaves to one.
	isWhole func() error
}

func (n *nemesis) log(format string, args ...any) {
	n.t.Logf("%7.1fs "+format, append([]any{time.Since(n.began).Seconds()}, args...)...)
}

func (n *nemesis) node(id int) *node { return n.nodes[id-1] }

// pause is a part of the schedule: it ends early with ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// run harms the cluster until ctx ends; a step that has begun is brought to its end.
func (n *nemesis) run(ctx context.Context, steps []step) {
	for _, s := range steps {
		pause(ctx, s.gap)
		if ctx.Err() != nil || n.t.Failed() {
			return
		}
		n.injected[s.what]++
		n.log("%s: nodes %v, hold %v", s.what, s.victims, s.hold)
		n.carryOut(ctx, s)
		if s.patient {
			n.awaitReady()
			if s.what == killAll || s.what == freezeAll {
				from := time.Now()
				eventually(n.t, healLimit, "all replicas are in sync after "+string(s.what), n.isWhole)
				n.log("  all replicas in sync after %.1fs", time.Since(from).Seconds())
			}
		}
	}
}

func (n *nemesis) carryOut(ctx context.Context, s step) {
	switch s.what {
	case killOne, killAll:
		for _, id := range s.victims {
			n.node(id).signal(syscall.SIGKILL) // all at once: none sees another's end
		}
		n.killed(s.victims...)
		pause(ctx, s.hold)
		n.startAll(s.victims...)
	case killTwo:
		n.killed(s.victims[0])
		pause(ctx, s.hold)
		n.killed(s.victims[1])
		n.startAll(s.victims[0])
		pause(ctx, s.hold)
		n.startAll(s.victims[1])
	case freezeOne, freezeAll:
		for _, id := range s.victims {
			n.node(id).signal(syscall.SIGSTOP)
		}
		pause(ctx, s.hold)
		for _, id := range s.victims {
			n.node(id).signal(syscall.SIGCONT)
		}
	case freezeKill:
		n.node(s.victims[0]).signal(syscall.SIGSTOP)
		pause(ctx, s.hold/2)
		n.killed(s.victims[1])
		n.startAll(s.victims[1])
		pause(ctx, s.hold/2)
		n.node(s.victims[0]).signal(syscall.SIGCONT)
	case rolling:
		for _, id := range s.victims {
			from := time.Now()
			n.node(id).end(syscall.SIGTERM)
			stopped := time.Since(from)
			n.startAll(id)
			eventually(n.t, healLimit, fmt.Sprintf("node %d is ready", id), n.node(id).ready)
			ready := time.Since(from)
			eventually(n.t, healLimit, fmt.Sprintf("all replicas are in sync after node %d", id), n.isWhole)
			n.log("  node %d stopped in %.1fs, ready at %.1fs, in sync at %.1fs", id, stopped.Seconds(), ready.Seconds(), time.Since(from).Seconds())
		}
	}
}

func (n *nemesis) killed(ids ...int) {
	for _, id := range ids {
		n.node(id).end(syscall.SIGKILL)
	}
}

func (n *nemesis) startAll(ids ...int) {
	for _, id := range ids {
		n.node(id).start()
	}
}

func (n *nemesis) awaitReady() {
	from := time.Now()
	for _, b := range n.nodes {
		eventually(n.t, healLimit, fmt.Sprintf("node %d is ready", b.id), b.ready)
	}
	n.log("  all nodes ready after %.1fs", time.Since(from).Seconds())
}

// heal ends every fault.
func (n *nemesis) heal() {
	n.log("heal")
	for _, b := range n.nodes {
		b.signal(syscall.SIGCONT)
		b.start()
	}
	n.awaitReady()
	from := time.Now()
	eventually(n.t, healLimit, "all replicas are in sync", n.isWhole)
	n.log("  all replicas in sync after %.1fs", time.Since(from).Seconds())
}

func (n *nemesis) report() string {
	var all []string
	for _, f := range []fault{killOne, killTwo, killAll, freezeOne, freezeAll, freezeKill, rolling} {
		all = append(all, fmt.Sprintf("%s: %d", f, n.injected[f]))
	}
	return strings.Join(all, "; ")
}
