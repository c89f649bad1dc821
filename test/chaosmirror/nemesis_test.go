//go:build chaos && linux

package chaosmirror_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/test/chaos/harm"
	"tidemark/test/chaos/links"
	"tidemark/test/chaos/nodes"
)

const ms = time.Millisecond

// fault is a way to harm the clusters.
type fault struct {
	name        string
	least, most time.Duration // how long it holds
	do          func(n *nemesis, ctx context.Context, s step)
	// alone: nobody is ordered to change sides meanwhile, and everything is in order before.
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

// faults is everything that a run may do to processes, links and disks.
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
	{name: "failing syncs of one, nothing is lost", least: 1000 * ms, most: 3000 * ms, do: failingSyncs},
	{name: "failing writes of one", least: 1000 * ms, most: 3000 * ms, do: failingWrites},
	{name: "full disk of one", least: 1000 * ms, most: 5000 * ms, do: fullDisks(1)},
	{name: "full disks of a whole cluster", least: 1000 * ms, most: 4000 * ms, do: fullDisks(3)},
	{name: "slow disk of one", least: 1000 * ms, most: 5000 * ms, do: slowDisk},
	{name: "failing syncs of a node of A and of B, with a power loss", least: 2000 * ms, most: 4000 * ms, do: failingSyncsLose, alone: true},
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
	*harm.Nemesis
	w *world
}

// run harms the clusters until ctx ends; a step that has begun is brought to its end.
func (n *nemesis) run(ctx context.Context) {
	if n.w.chosen.calm {
		return
	}
	for _, s := range schedule(n.w.chosen.seed, n.w.clusters(), 100+int(n.w.chosen.runFor/time.Second)) {
		harm.Pause(ctx, s.gap)
		if ctx.Err() != nil || n.T.Failed() {
			return
		}
		if s.fault.alone {
			n.Alone(func() { n.carryOut(ctx, s) })
		} else {
			n.Beside(func() { n.carryOut(ctx, s) })
		}
	}
}

func (n *nemesis) carryOut(ctx context.Context, s step) {
	n.Injects(s.fault.name)
	n.Log("! %s: %s (%s), hold %v", s.fault.name, s.on.name, s.other.name, s.hold)
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

// restart starts nodes unless they were put to sleep meanwhile.
func (c *cluster) restart(list ...*nodes.Node) {
	for _, b := range list {
		if !c.sleeping(b.ID) {
			b.Start()
		}
	}
}

// places are those of the cluster's nodes.
func (c *cluster) places() (list []int) {
	for _, b := range c.nodes {
		list = append(list, b.ID)
	}
	return list
}

func killSome(most int) func(*nemesis, context.Context, step) {
	return func(_ *nemesis, ctx context.Context, s step) {
		victims := s.victims(most)
		harm.Kill(victims...)
		harm.Pause(ctx, s.hold)
		s.on.restart(victims...)
	}
}

func killInTurn(_ *nemesis, ctx context.Context, s step) {
	victims := s.victims(2)
	for i, b := range victims {
		harm.Kill(b)
		if i > 0 {
			s.on.restart(victims[i-1])
		}
		harm.Pause(ctx, s.hold)
	}
	s.on.restart(victims...)
}

func freeze(most int) func(*nemesis, context.Context, step) {
	return func(_ *nemesis, ctx context.Context, s step) { harm.Freeze(ctx, s.hold, s.victims(most)...) }
}

// join sets the ways from the nodes of one cluster to those of another.
func (n *nemesis) join(from, to *cluster, way links.Way) { n.Join(from.places(), to.places(), way) }

func between(way links.Way) func(*nemesis, context.Context, step) {
	return func(n *nemesis, ctx context.Context, s step) {
		n.join(s.on, s.other, way)
		n.join(s.other, s.on, way)
		harm.Pause(ctx, s.hold)
		n.join(s.on, s.other, links.Way{})
		n.join(s.other, s.on, links.Way{})
	}
}

func oneWay(n *nemesis, ctx context.Context, s step) {
	n.join(s.on, s.other, links.Cut)
	harm.Pause(ctx, s.hold)
	n.join(s.on, s.other, links.Way{})
}

func slow(n *nemesis, ctx context.Context, s step) {
	between(links.Way{Delay: time.Duration(10+s.x%190) * ms})(n, ctx, s)
}

func isolate(n *nemesis, ctx context.Context, s step) {
	everybody := []int{links.Clients}
	for id := range places {
		everybody = append(everybody, id+1)
	}
	for _, b := range s.victims(1) {
		n.Around(b.ID, everybody, links.Cut)
		harm.Pause(ctx, s.hold)
		n.Around(b.ID, everybody, links.Way{})
	}
}

// failingSyncs and failingWrites break a disk that keeps what was written to it. The
// node must not go on with it.
func failingSyncs(n *nemesis, ctx context.Context, s step) {
	for _, b := range s.victims(1) {
		n.FailSyncs(ctx, s.hold, b, false)
		s.on.restart(b)
	}
}

func failingWrites(n *nemesis, ctx context.Context, s step) {
	for _, b := range s.victims(1) {
		n.FailWrites(ctx, s.hold, b)
		s.on.restart(b)
	}
}

func fullDisks(most int) func(*nemesis, context.Context, step) {
	return func(n *nemesis, ctx context.Context, s step) { n.FillDisks(ctx, s.hold, s.victims(most)...) }
}

func slowDisk(_ *nemesis, ctx context.Context, s step) {
	for _, b := range s.victims(1) {
		harm.SlowDisk(ctx, s.hold, time.Duration(20+s.x%400)*ms, b)
	}
}

// onAlignedNodes does something to one node of A and one of B that takes what they
// had not synced. The others have all that was acknowledged. C has no others.
func onAlignedNodes(n *nemesis, ctx context.Context, s step, what func(victims []*nodes.Node)) {
	w := n.w
	w.whole("before a power loss", w.clusters()...)
	var victims []*nodes.Node
	for i, c := range []*cluster{w.a, w.b} {
		victim := c.nodes[(s.x>>i)%uint64(len(c.nodes))]
		if c.sleeping(victim.ID) || !c.aligned(ctx) {
			n.Saw("power losses that had to be left out", 1)
			continue
		}
		victims = append(victims, victim)
		defer c.restart(victim)
	}
	what(victims)
}

func powerLoss(n *nemesis, ctx context.Context, s step) {
	onAlignedNodes(n, ctx, s, func(victims []*nodes.Node) {
		n.PowerLoss(victims...)
		harm.Pause(ctx, s.hold)
	})
}

// failingSyncsLose breaks disks that lose what was not synced.
func failingSyncsLose(n *nemesis, ctx context.Context, s step) {
	onAlignedNodes(n, ctx, s, func(victims []*nodes.Node) {
		var all sync.WaitGroup
		for _, b := range victims { // at once: both clusters are in order only now
			all.Go(func() { n.FailSyncs(ctx, s.hold, b, true) })
		}
		all.Wait()
	})
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

// heal ends every fault.
func (n *nemesis) heal() {
	var all []*nodes.Node
	for _, c := range n.w.clusters() {
		for _, b := range c.nodes {
			c.wake(b)
			all = append(all, b)
		}
	}
	n.Heal(all...)
}

// sleep kills a node, which then stays down until wake.
func (c *cluster) sleep(b *nodes.Node) {
	c.mu.Lock()
	c.asleep[b.ID] = true
	c.mu.Unlock()
	harm.Kill(b)
}

func (c *cluster) wake(b *nodes.Node) {
	c.mu.Lock()
	delete(c.asleep, b.ID)
	c.mu.Unlock()
	b.Start()
}

// table says what was injected and what was met.
func (n *nemesis) table() string {
	var names []string
	for i := range faults {
		names = append(names, faults[i].name)
	}
	return "\ninjected:" + n.Injected(names...) + n.Met()
}
