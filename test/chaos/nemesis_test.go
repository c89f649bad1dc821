//go:build chaos && linux

package chaos_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tidemark/internal/metastore"
	"tidemark/test/chaos/links"
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
	t     testing.TB
	w     *world
	net   links.Network
	nodes []*nodes.Node
	small *nodes.Node // the one that has a disk of its own; nil: none can have one
	began time.Time
	r     *rand.Rand // of power losses: drawn by the lane of processes only

	// quiet is held for writing while all lanes but one must rest.
	quiet sync.RWMutex

	mu       sync.Mutex // guards the following
	injected map[string]int
	seen     map[string]int
	ends     map[string]int // processes that ended by themselves, by their last words
}

func (n *nemesis) log(format string, args ...any) {
	n.t.Logf("%7.1fs "+format, append([]any{time.Since(n.began).Seconds()}, args...)...)
}

func (n *nemesis) node(id int) *nodes.Node { return n.nodes[id-1] }

// saw counts something that the run met.
func (n *nemesis) saw(what string, by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen[what] += by
}

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
		pause(ctx, s.gap)
		if ctx.Err() != nil || n.t.Failed() {
			return
		}
		switch {
		case s.fault.alone:
			n.alone(func() {
				n.whole("before " + s.fault.name)
				n.carryOut(ctx, s)
				n.whole("after " + s.fault.name)
			})
		case s.fault.lane == processes:
			n.carryOut(ctx, s)
			if s.patient {
				n.alone(func() { n.whole("after " + s.fault.name) })
			}
		default:
			n.quiet.RLock()
			n.carryOut(ctx, s)
			n.quiet.RUnlock()
		}
	}
}

// alone runs f while the other lanes rest.
func (n *nemesis) alone(f func()) {
	n.quiet.Lock()
	defer n.quiet.Unlock()
	f()
}

func (n *nemesis) carryOut(ctx context.Context, s step) {
	n.mu.Lock()
	n.injected[s.fault.name]++
	n.mu.Unlock()
	n.log("%s: nodes %v, hold %v", s.fault.name, s.victims, s.hold)
	s.fault.do(n, ctx, s)
}

// whole waits until every node is ready and every replica in sync, once an
// operator has done what the design leaves to one. The caller holds quiet.
func (n *nemesis) whole(when string) {
	from := time.Now()
	for _, b := range n.nodes {
		eventually(n.t, healLimit, fmt.Sprintf("node %d is ready %s", b.ID, when), func() error {
			b.Start() // as a supervisor does with one that ended by itself
			return b.Ready()
		})
	}
	ready := time.Since(from)
	eventually(n.t, healLimit, "all replicas are in sync "+when, n.w.whole)
	n.log("  all nodes ready after %.1fs, all replicas in sync after %.1fs", ready.Seconds(), time.Since(from).Seconds())
}

// mayEnd are the words by which a node may end by itself: its disk is broken or
// full, or it starts and can't reach the metadata. A supervisor starts it again.
var mayEnd = []string{syscall.EIO.Error(), syscall.ENOSPC.Error(), metastore.ErrUnavailable.Error()}

// endedByItself is told of each process that ended unasked.
func (n *nemesis) endedByItself(b *nodes.Node, err error) {
	words := b.LastWords()
	n.log("  node %d ended by itself: %v: %s", b.ID, err, words)
	i := slices.IndexFunc(mayEnd, func(reason string) bool { return strings.Contains(words, reason) })
	if i < 0 {
		n.t.Errorf("node %d ended by itself without a reason that is accepted: %v: %s", b.ID, err, words)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends[fmt.Sprintf("node %d, %v: %s", b.ID, err, mayEnd[i])]++
}

func (n *nemesis) kill(ids ...int) {
	for _, id := range ids {
		n.node(id).Signal(syscall.SIGKILL) // all at once: none sees another's end
	}
	for _, id := range ids {
		n.node(id).End(syscall.SIGKILL)
	}
}

func (n *nemesis) start(ids ...int) {
	for _, id := range ids {
		n.node(id).Start()
	}
}

// powerLoss kills nodes and takes what they had not synced.
func (n *nemesis) powerLoss(ids ...int) {
	n.kill(ids...)
	for _, id := range ids {
		losses, err := n.node(id).Board.PowerLoss(n.r)
		if err != nil {
			n.t.Error(err)
		}
		bytes := int64(0)
		for _, l := range losses {
			bytes += l.Size - l.KeptUpTo
		}
		n.saw("files cut by power losses", len(losses))
		n.saw("bytes lost to power losses", int(bytes))
		n.log("  node %d lost %d bytes of %d files", id, bytes, len(losses))
	}
}

// heal ends every fault.
func (n *nemesis) heal() {
	n.log("heal")
	n.net.Heal()
	for _, b := range n.nodes {
		b.Board.Reset()
		b.Signal(syscall.SIGCONT)
		b.Start()
	}
	n.whole("after the last fault")
}

// table says what was injected and what was met.
func (n *nemesis) table() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen["packets dropped by cuts"] = int(n.net.Dropped())
	var b strings.Builder
	for l, name := range []string{"processes", "surroundings", "administration"} {
		fmt.Fprintf(&b, "\ninjected, %s:", name)
		for i := range faults {
			if f := &faults[i]; f.lane == lane(l) {
				fmt.Fprintf(&b, "\n  %5d × %s", n.injected[f.name], f.name)
			}
		}
	}
	b.WriteString("\nmet:")
	for _, what := range slices.Sorted(maps.Keys(n.seen)) {
		fmt.Fprintf(&b, "\n  %7d %s", n.seen[what], what)
	}
	for _, words := range slices.Sorted(maps.Keys(n.ends)) {
		fmt.Fprintf(&b, "\n  %7d × a process ended by itself: %s", n.ends[words], words)
	}
	return b.String()
}
