//go:build chaos && linux

package chaos_test

import (
	"context"
	"syscall"
	"time"

	"tidemark/test/chaos/harm"
	"tidemark/test/chaos/links"
)

const ms = time.Millisecond

// faults is everything that a run may do. Those of a lane come in turns.
var faults = []fault{
	{name: "kill -9 of one", lane: processes, least: 0, most: 2000 * ms, do: killOne},
	{name: "kill -9 of two, one after the other", lane: processes, least: 100 * ms, most: 2000 * ms, do: killTwo},
	{name: "kill -9 of all at once", lane: processes, least: 0, most: 1000 * ms, do: killAll},
	{name: "freeze shorter than a lease", lane: processes, least: 500 * ms, most: leaseTime - 1000*ms, do: freeze(1)},
	{name: "freeze longer than a lease", lane: processes, least: leaseTime + 500*ms, most: leaseTime + 2500*ms, do: freeze(1)},
	{name: "freeze of all, longer than a lease", lane: processes, least: leaseTime + 500*ms, most: leaseTime + 1500*ms, do: freeze(5)},
	{name: "freeze of one, kill -9 of another", lane: processes, least: leaseTime + 500*ms, most: leaseTime + 1500*ms, do: freezeAndKill},
	{name: "rolling restart", lane: processes, do: rollingRestart, alone: true},
	{name: "power loss of one", lane: processes, least: 0, most: 1500 * ms, do: powerLossOfSome(1), alone: true},
	{name: "power loss of two of each three", lane: processes, least: 0, most: 1500 * ms, do: powerLossOfSome(2), alone: true},
	{name: "power loss of all at once", lane: processes, least: 1000 * ms, most: 1500 * ms, do: powerLossOfAll, alone: true},
	{name: "failing syncs", lane: processes, least: 3000 * ms, most: 6000 * ms, do: failingSyncs, alone: true},
	{name: "failing writes", lane: processes, least: 1000 * ms, most: 3000 * ms, do: failingWrites, alone: true},

	{name: "cut: one from all", lane: surroundings, least: 500 * ms, most: 2 * leaseTime, do: isolate(true)},
	{name: "cut: one from the other nodes", lane: surroundings, least: 500 * ms, most: 2 * leaseTime, do: isolate(false)},
	{name: "cut: two nodes from each other", lane: surroundings, least: 500 * ms, most: 2 * leaseTime, do: cutPair(true, links.Cut)},
	{name: "cut: one way between two nodes", lane: surroundings, least: 500 * ms, most: 2 * leaseTime, do: cutPair(false, links.Cut)},
	{name: "cut: Kafka's connections between two nodes", lane: surroundings, least: 500 * ms, most: 2 * leaseTime, do: cutPair(true, links.Way{CutKafka: true})},
	{name: "cut: one from the metadata", lane: surroundings, least: 500 * ms, most: 2 * leaseTime, do: cutMetadata, needs: func(n *nemesis) bool { return n.Net.CanCutOther() }},
	{name: "delay around one", lane: surroundings, least: 1000 * ms, most: 5000 * ms, do: delayOne},
	{name: "delay everywhere", lane: surroundings, least: 1000 * ms, most: 5000 * ms, do: delayAll},
	{name: "full disk", lane: surroundings, least: 1000 * ms, most: 6000 * ms, do: fullDisk},
	{name: "slow disk", lane: surroundings, least: 1000 * ms, most: 5000 * ms, do: slowDisk},
	{name: "clock jump", lane: surroundings, least: 500 * ms, most: 4000 * ms, do: clockJump},
	{name: "disk full for real", lane: surroundings, least: 3000 * ms, most: 8000 * ms, do: fillDisk, needs: func(n *nemesis) bool { return n.small != nil }},

	{name: "reassignment", lane: administration, least: 500 * ms, most: 3000 * ms, do: reassign},
	{name: "preferred leaders", lane: administration, least: 0, most: 500 * ms, do: electPreferred},
	{name: "min ISR", lane: administration, least: 500 * ms, most: 3000 * ms, do: changeMinISR},
	{name: "topic deleted and made anew", lane: administration, least: 500 * ms, most: 3000 * ms, do: replaceTopic},
}

func killOne(n *nemesis, ctx context.Context, s step) {
	b := n.node(s.victims[0])
	harm.Kill(b)
	harm.Pause(ctx, s.hold)
	b.Start()
}

func killTwo(n *nemesis, ctx context.Context, s step) {
	first, second := n.node(s.victims[0]), n.node(s.victims[1])
	harm.Kill(first)
	harm.Pause(ctx, s.hold)
	harm.Kill(second)
	first.Start()
	harm.Pause(ctx, s.hold)
	second.Start()
}

func killAll(n *nemesis, ctx context.Context, s step) {
	harm.Kill(n.these(s.victims...)...)
	harm.Pause(ctx, s.hold)
	harm.Start(n.these(s.victims...)...)
}

// freeze stops at most so many processes at once, and lets them go on.
func freeze(most int) func(*nemesis, context.Context, step) {
	return func(n *nemesis, ctx context.Context, s step) {
		harm.Freeze(ctx, s.hold, n.these(s.victims[:min(most, len(s.victims))]...)...)
	}
}

func freezeAndKill(n *nemesis, ctx context.Context, s step) {
	frozen, killed := n.node(s.victims[0]), n.node(s.victims[1])
	frozen.Signal(syscall.SIGSTOP)
	harm.Pause(ctx, s.hold/2)
	harm.Kill(killed)
	killed.Start()
	harm.Pause(ctx, s.hold/2)
	frozen.Signal(syscall.SIGCONT)
}

func rollingRestart(n *nemesis, _ context.Context, s step) {
	for _, b := range n.these(s.victims...) {
		from := time.Now()
		b.End(syscall.SIGTERM)
		n.Log("  node %d stopped in %.1fs", b.ID, time.Since(from).Seconds())
		b.Start()
		n.whole("during a rolling restart")
	}
}

// powerLossOfSome leaves one replica of each partition untouched: with three
// replicas, two nodes may lose what they had not synced.
func powerLossOfSome(count int) func(*nemesis, context.Context, step) {
	return func(n *nemesis, ctx context.Context, s step) {
		victims := n.these(s.victims[:count]...)
		n.PowerLoss(victims...)
		harm.Pause(ctx, s.hold)
		harm.Start(victims...)
	}
}

// powerLossOfAll may lose what was acknowledged, unless log.flush.acks had it
// synced before: then the leader of each partition has all of it.
func powerLossOfAll(n *nemesis, ctx context.Context, s step) {
	n.PowerLoss(n.these(s.victims...)...)
	harm.Pause(context.WithoutCancel(ctx), s.hold) // until clients have written down all that they were told before
	if !n.w.chosen.flushAcks {
		n.w.c.rec.lost()
	}
	harm.Start(n.these(s.victims...)...)
}

func failingSyncs(n *nemesis, ctx context.Context, s step) {
	b := n.node(s.victims[0])
	n.FailSyncs(ctx, s.hold, b, true)
	b.Start()
}

func failingWrites(n *nemesis, ctx context.Context, s step) {
	b := n.node(s.victims[0])
	n.FailWrites(ctx, s.hold, b)
	b.Start()
}

// isolate cuts one node off from the others, and from the clients too.
func isolate(fromClients bool) func(*nemesis, context.Context, step) {
	return func(n *nemesis, ctx context.Context, s step) {
		one := s.victims[0]
		n.around(one, links.Cut, fromClients)
		harm.Pause(ctx, s.hold)
		n.around(one, links.Way{}, true)
	}
}

// around sets both ways between a node and all others.
func (n *nemesis) around(one int, w links.Way, clients bool) {
	var others []int
	for id := range len(n.nodes) + 1 {
		if id != links.Clients || clients {
			others = append(others, id)
		}
	}
	n.Around(one, others, w)
}

func cutPair(both bool, w links.Way) func(*nemesis, context.Context, step) {
	return func(n *nemesis, ctx context.Context, s step) {
		from, to := s.victims[0], s.victims[1]
		n.Net.Set(from, to, w)
		if both {
			n.Net.Set(to, from, w)
		}
		harm.Pause(ctx, s.hold)
		n.Net.Set(from, to, links.Way{})
		n.Net.Set(to, from, links.Way{})
	}
}

func cutMetadata(n *nemesis, ctx context.Context, s step) {
	n.around(s.victims[0], links.Way{CutOther: true}, false)
	harm.Pause(ctx, s.hold)
	n.around(s.victims[0], links.Way{}, false)
}

func delayOne(n *nemesis, ctx context.Context, s step) {
	n.around(s.victims[0], links.Way{Delay: time.Duration(10+s.x%190) * ms}, true)
	harm.Pause(ctx, s.hold)
	n.around(s.victims[0], links.Way{}, true)
}

func delayAll(n *nemesis, ctx context.Context, s step) {
	for _, id := range s.victims {
		n.around(id, links.Way{Delay: time.Duration(5+s.x%45) * ms}, true)
	}
	harm.Pause(ctx, s.hold)
	n.Net.Heal() // this lane alone harms the network
}

func fullDisk(n *nemesis, ctx context.Context, s step) {
	n.FillDisks(ctx, s.hold, n.node(s.victims[0]))
}

func fillDisk(n *nemesis, ctx context.Context, s step) {
	n.FillForReal(ctx, s.hold, n.small, int64(64<<10+s.x%(1<<20)), diskBytes)
}

func slowDisk(n *nemesis, ctx context.Context, s step) {
	harm.SlowDisk(ctx, s.hold, time.Duration(20+s.x%400)*ms, n.node(s.victims[0]))
}

// clockJump sets a node's wall clock wrong by up to twenty days, and back.
func clockJump(n *nemesis, ctx context.Context, s step) {
	by := time.Duration(s.x % uint64(20*24*time.Hour))
	if s.x>>63 == 0 {
		by = -by
	}
	n.ShiftClock(ctx, s.hold, by, n.node(s.victims[0]))
}
