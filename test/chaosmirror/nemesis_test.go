//go:build chaos && linux

package chaosmirror_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
	"tidemark/test/chaos/links"
	"tidemark/test/chaos/nodes"
)

const ms = time.Millisecond

// fault is a way to harm the clusters.
type fault struct {
	name        string
	least, most time.Duration // how long it holds
	do          func(n *nemesis, ctx context.Context, s step)
	// alone: the operator does nothing meanwhile, and everything is in order before.
	alone bool
}

// step is one line of the schedule.
type step struct {
	gap   time.Duration // quiet time before it
	fault *fault
	hold  time.Duration
	on    *cluster // of which the victims are
	other *cluster // for what lies between two
	order []int    // of on's nodes: a fault takes as many as it needs
	x     uint64   // what else it needs to draw
}

// faults is everything that a run may do to processes and links.
var faults = []fault{
	{name: "kill -9 of one", least: 0, most: 2000 * ms, do: killSome(1)},
	{name: "kill -9 of two, one after the other", least: 100 * ms, most: 2000 * ms, do: killInTurn},
	{name: "kill -9 of a whole cluster", least: 0, most: 1000 * ms, do: killSome(3)},
	{name: "freeze shorter than a lease", least: 500 * ms, most: leaseTime - 1500*ms, do: freeze(1)},
	{name: "freeze longer than a lease", least: leaseTime + 500*ms, most: leaseTime + 2000*ms, do: freeze(1)},
	{name: "freeze of a whole cluster", least: 1000 * ms, most: leaseTime + 1500*ms, do: freeze(3)},
	{name: "cut between two clusters", least: 500 * ms, most: 5000 * ms, do: between(links.Cut)},
	{name: "cut between two clusters, Kafka's connections alone", least: 500 * ms, most: 5000 * ms, do: between(links.Way{CutKafka: true})},
	{name: "cut of one way between two clusters", least: 500 * ms, most: 5000 * ms, do: oneWay},
	{name: "cut of one node from all", least: 500 * ms, most: 2 * leaseTime, do: isolate},
	{name: "delay between two clusters", least: 1000 * ms, most: 5000 * ms, do: slow},
	{name: "power loss of a node of A and of B", least: 0, most: 1500 * ms, do: powerLoss, alone: true},
}

// schedule draws the steps: rounds of the deck, each shuffled.
func schedule(seed uint64, all []*cluster, steps int) []step {
	r := rand.New(rand.NewPCG(seed, 0x7469646d))
	var out []step
	for len(out) < steps {
		for _, i := range r.Perm(len(faults)) {
			f := &faults[i]
			s := step{gap: time.Duration(300+r.IntN(1500)) * ms, fault: f, x: r.Uint64()}
			s.hold = f.least + time.Duration(r.Int64N(int64(f.most-f.least)+1)).Round(ms)
			pair := r.Perm(len(all))
			s.on, s.other = all[pair[0]], all[pair[1]]
			s.order = r.Perm(len(s.on.nodes))
			out = append(out, s)
		}
	}
	return out[:steps]
}

// nemesis carries the schedule out.
type nemesis struct {
	w   *world
	net links.Network
	r   *rand.Rand // of power losses

	// quiet is held for writing while it must rest.
	quiet sync.RWMutex

	mu       sync.Mutex // guards the following
	injected map[string]int
	ends     map[string]int // processes that ended by themselves, by their last words
}

func newNemesis(w *world, net links.Network) *nemesis {
	return &nemesis{w: w, net: net, r: rand.New(rand.NewPCG(w.chosen.seed, 0x706f776572)), injected: map[string]int{}, ends: map[string]int{}}
}

// pause is a part of a plan: it ends early with ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// run harms the clusters until ctx ends; a step that has begun is brought to its end.
func (n *nemesis) run(ctx context.Context) {
	if n.w.chosen.calm {
		return
	}
	for _, s := range schedule(n.w.chosen.seed, n.w.clusters(), 100+int(n.w.chosen.runFor/time.Second)) {
		pause(ctx, s.gap)
		if ctx.Err() != nil || n.w.t.Failed() {
			return
		}
		if s.fault.alone {
			n.rest(func() { n.carryOut(ctx, s) })
		} else {
			n.quiet.RLock()
			n.carryOut(ctx, s)
			n.quiet.RUnlock()
		}
	}
}

// rest runs f while nothing is harmed.
func (n *nemesis) rest(f func()) {
	n.quiet.Lock()
	defer n.quiet.Unlock()
	f()
}

func (n *nemesis) carryOut(ctx context.Context, s step) {
	n.mu.Lock()
	n.injected[s.fault.name]++
	n.mu.Unlock()
	n.w.log("! %s: %s (%s), hold %v", s.fault.name, s.on.name, s.other.name, s.hold)
	s.fault.do(n, ctx, s)
}

// victims are so many of the step's nodes that aren't asleep already.
func (s step) victims(most int) (list []*nodes.Node) {
	for _, i := range s.order {
		if b := s.on.nodes[i]; len(list) < most && !s.on.sleeping(b.ID) {
			list = append(list, b)
		}
	}
	return list
}

// restart starts a node unless it was put to sleep meanwhile.
func (c *cluster) restart(b *nodes.Node) {
	if !c.sleeping(b.ID) {
		b.Start()
	}
}

func kill(list ...*nodes.Node) {
	for _, b := range list {
		b.Signal(syscall.SIGKILL) // all at once: none sees another's end
	}
	for _, b := range list {
		b.End(syscall.SIGKILL)
	}
}

func killSome(most int) func(*nemesis, context.Context, step) {
	return func(_ *nemesis, ctx context.Context, s step) {
		victims := s.victims(most)
		kill(victims...)
		pause(ctx, s.hold)
		for _, b := range victims {
			s.on.restart(b)
		}
	}
}

func killInTurn(_ *nemesis, ctx context.Context, s step) {
	victims := s.victims(2)
	for i, b := range victims {
		kill(b)
		if i > 0 {
			s.on.restart(victims[i-1])
		}
		pause(ctx, s.hold)
	}
	for _, b := range victims {
		s.on.restart(b)
	}
}

func freeze(most int) func(*nemesis, context.Context, step) {
	return func(_ *nemesis, ctx context.Context, s step) {
		victims := s.victims(most)
		for _, b := range victims {
			b.Signal(syscall.SIGSTOP)
		}
		pause(ctx, s.hold)
		for _, b := range victims {
			b.Signal(syscall.SIGCONT)
		}
	}
}

// join sets the ways from the nodes of one cluster to those of another.
func (n *nemesis) join(from, to *cluster, way links.Way) {
	for _, x := range from.nodes {
		for _, y := range to.nodes {
			n.net.Set(x.ID, y.ID, way)
		}
	}
}

func between(way links.Way) func(*nemesis, context.Context, step) {
	return func(n *nemesis, ctx context.Context, s step) {
		n.join(s.on, s.other, way)
		n.join(s.other, s.on, way)
		pause(ctx, s.hold)
		n.join(s.on, s.other, links.Way{})
		n.join(s.other, s.on, links.Way{})
	}
}

func oneWay(n *nemesis, ctx context.Context, s step) {
	n.join(s.on, s.other, links.Cut)
	pause(ctx, s.hold)
	n.join(s.on, s.other, links.Way{})
}

func slow(n *nemesis, ctx context.Context, s step) {
	between(links.Way{Delay: time.Duration(10+s.x%190) * ms})(n, ctx, s)
}

func isolate(n *nemesis, ctx context.Context, s step) {
	victims := s.victims(1)
	for _, way := range []links.Way{links.Cut, {}} {
		for _, b := range victims {
			for id := range places + 1 {
				if id != b.ID {
					n.net.Set(b.ID, id, way)
					n.net.Set(id, b.ID, way)
				}
			}
		}
		if way == links.Cut {
			pause(ctx, s.hold)
		}
	}
}

// powerLoss takes what one node of A and one of B had not synced. The others
// have all that was acknowledged. C has no others.
func powerLoss(n *nemesis, ctx context.Context, s step) {
	w := n.w
	w.whole("before a power loss", w.clusters()...)
	for i, c := range []*cluster{w.a, w.b} {
		victim := c.nodes[(s.x>>i)%uint64(len(c.nodes))]
		if c.sleeping(victim.ID) || !c.aligned(ctx) {
			w.saw("power losses that had to be left out", 1)
			continue
		}
		kill(victim)
		losses, err := victim.Board.PowerLoss(n.r)
		if err != nil {
			w.t.Error(err)
		}
		bytes := int64(0)
		for _, l := range losses {
			bytes += l.Size - l.KeptUpTo
		}
		w.saw("files cut by power losses", len(losses))
		w.log("  node %d lost %d bytes of %d files", victim.ID, bytes, len(losses))
		defer c.restart(victim)
	}
	pause(ctx, s.hold)
}

// aligned reports whether every replica in sync has made what cuts its list
// demands: until then a replica may be one of two that hold what is to be kept.
func (c *cluster) aligned(ctx context.Context) bool {
	r, err := c.look(ctx)
	for _, rec := range r.partitions {
		if !rec.Writable && (rec.Mirror == nil || rec.Mirror.State != meta.MirrorMirroring) {
			return false
		}
	}
	return err == nil
}

// mayEnd are the words by which a node may end by itself: it starts and can't reach the metadata. A supervisor starts it again.
var mayEnd = []string{metastore.ErrUnavailable.Error()}

// endedByItself is told of each process that ended unasked.
func (w *world) endedByItself(b *nodes.Node, err error) {
	words := b.LastWords()
	w.log("  node %d ended by itself: %v: %s", b.ID, err, words)
	i := slices.IndexFunc(mayEnd, func(reason string) bool { return strings.Contains(words, reason) })
	if i < 0 {
		w.t.Errorf("node %d ended by itself without a reason that is accepted: %v: %s", b.ID, err, words)
		return
	}
	w.n.mu.Lock()
	defer w.n.mu.Unlock()
	w.n.ends[fmt.Sprintf("node %d, %v: %s", b.ID, err, mayEnd[i])]++
}

// heal ends every fault.
func (n *nemesis) heal() {
	n.w.log("heal")
	n.net.Heal()
	for _, c := range n.w.clusters() {
		for _, b := range c.nodes {
			c.wake(b)
			b.Board.Reset()
			b.Signal(syscall.SIGCONT)
			b.Start()
		}
	}
}

// sleep kills a node, which then stays down until wake.
func (c *cluster) sleep(b *nodes.Node) {
	c.mu.Lock()
	c.asleep[b.ID] = true
	c.mu.Unlock()
	kill(b)
}

func (c *cluster) wake(b *nodes.Node) {
	c.mu.Lock()
	delete(c.asleep, b.ID)
	c.mu.Unlock()
	b.Start()
}

// table says what was injected and what was met.
func (n *nemesis) table() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	var b strings.Builder
	b.WriteString("\ninjected:")
	for i := range faults {
		fmt.Fprintf(&b, "\n  %5d × %s", n.injected[faults[i].name], faults[i].name)
	}
	b.WriteString("\nmet:")
	fmt.Fprintf(&b, "\n  %7d packets dropped by cuts", n.net.Dropped())
	for _, what := range slices.Sorted(maps.Keys(n.w.seen)) {
		fmt.Fprintf(&b, "\n  %7d %s", n.w.seen[what], what)
	}
	for _, words := range slices.Sorted(maps.Keys(n.ends)) {
		fmt.Fprintf(&b, "\n  %7d × a process ended by itself: %s", n.ends[words], words)
	}
	return b.String()
}
