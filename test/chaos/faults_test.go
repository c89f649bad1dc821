//go:build chaos && linux

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"tidemark/internal/vfs/switchboard"
	"tidemark/test/chaos/links"
	"tidemark/test/chaos/nodes"
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
	{name: "cut: one from the metadata", lane: surroundings, least: 500 * ms, most: 2 * leaseTime, do: cutMetadata, needs: func(n *nemesis) bool { return n.net.CanCutOther() }},
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
	n.kill(s.victims[0])
	pause(ctx, s.hold)
	n.start(s.victims[0])
}

func killTwo(n *nemesis, ctx context.Context, s step) {
	n.kill(s.victims[0])
	pause(ctx, s.hold)
	n.kill(s.victims[1])
	n.start(s.victims[0])
	pause(ctx, s.hold)
	n.start(s.victims[1])
}

func killAll(n *nemesis, ctx context.Context, s step) {
	n.kill(s.victims...)
	pause(ctx, s.hold)
	n.start(s.victims...)
}

// freeze stops at most so many processes at once, and lets them go on.
func freeze(most int) func(*nemesis, context.Context, step) {
	return func(n *nemesis, ctx context.Context, s step) {
		victims := s.victims[:min(most, len(s.victims))]
		for _, id := range victims {
			n.node(id).Signal(syscall.SIGSTOP)
		}
		pause(ctx, s.hold)
		for _, id := range victims {
			n.node(id).Signal(syscall.SIGCONT)
		}
	}
}

func freezeAndKill(n *nemesis, ctx context.Context, s step) {
	n.node(s.victims[0]).Signal(syscall.SIGSTOP)
	pause(ctx, s.hold/2)
	n.kill(s.victims[1])
	n.start(s.victims[1])
	pause(ctx, s.hold/2)
	n.node(s.victims[0]).Signal(syscall.SIGCONT)
}

func rollingRestart(n *nemesis, _ context.Context, s step) {
	for _, id := range s.victims {
		from := time.Now()
		n.node(id).End(syscall.SIGTERM)
		n.log("  node %d stopped in %.1fs", id, time.Since(from).Seconds())
		n.start(id)
		n.whole("during a rolling restart")
	}
}

// powerLossOfSome leaves one replica of each partition untouched: with three
// replicas, two nodes may lose what they had not synced.
func powerLossOfSome(count int) func(*nemesis, context.Context, step) {
	return func(n *nemesis, ctx context.Context, s step) {
		n.powerLoss(s.victims[:count]...)
		pause(ctx, s.hold)
		n.start(s.victims[:count]...)
	}
}

// powerLossOfAll may lose what was acknowledged, unless log.flush.acks had it
// synced before: then the leader of each partition has all of it.
func powerLossOfAll(n *nemesis, ctx context.Context, s step) {
	n.powerLoss(s.victims...)
	pause(context.WithoutCancel(ctx), s.hold) // until clients have written down all that they were told before
	if !n.w.chosen.flushAcks {
		n.w.c.rec.lost()
	}
	n.start(s.victims...)
}

// failingSyncs breaks a disk. The node must not go on with it; what it had not
// synced is lost, and the disk is as good as new when it is started again.
func failingSyncs(n *nemesis, ctx context.Context, s step) {
	b := n.node(s.victims[0])
	before := b.Board.Get(switchboard.SyncHits)
	b.Board.Set(switchboard.SyncFails, 1)
	pause(ctx, s.hold)
	n.saw("syncs that failed", int(b.Board.Get(switchboard.SyncHits)-before))
	n.harmed(b, before != b.Board.Get(switchboard.SyncHits))
	n.powerLoss(b.ID)
	b.Board.Set(switchboard.SyncFails, 0)
	b.Start()
}

// failingWrites breaks a disk that loses nothing.
func failingWrites(n *nemesis, ctx context.Context, s step) {
	b := n.node(s.victims[0])
	before := b.Board.Get(switchboard.WriteHits)
	b.Board.Set(switchboard.WriteFails, 1)
	pause(ctx, s.hold)
	n.saw("writes that failed", int(b.Board.Get(switchboard.WriteHits)-before))
	n.harmed(b, before != b.Board.Get(switchboard.WriteHits))
	n.kill(b.ID)
	b.Board.Set(switchboard.WriteFails, 0)
	b.Start()
}

// harmed demands that a node whose only log dir failed ends.
func (n *nemesis) harmed(b *nodes.Node, hit bool) {
	if !hit {
		n.saw("broken disks that nobody touched", 1)
		return
	}
	eventually(n.t, healLimit, fmt.Sprintf("node %d ends after its disk failed", b.ID), func() error {
		if b.Running() {
			return errors.New("it goes on")
		}
		return nil
	})
	n.saw("nodes that ended with a broken disk", 1)
}

// isolate cuts one node off from the others, and from the clients too.
func isolate(fromClients bool) func(*nemesis, context.Context, step) {
	return func(n *nemesis, ctx context.Context, s step) {
		one := s.victims[0]
		n.around(one, links.Cut, fromClients)
		pause(ctx, s.hold)
		n.around(one, links.Way{}, true)
	}
}

// around sets both ways between a node and all others.
func (n *nemesis) around(one int, w links.Way, clients bool) {
	for id := range len(n.nodes) + 1 {
		if id != one && (id != links.Clients || clients) {
			n.net.Set(one, id, w)
			n.net.Set(id, one, w)
		}
	}
}

func cutPair(both bool, w links.Way) func(*nemesis, context.Context, step) {
	return func(n *nemesis, ctx context.Context, s step) {
		from, to := s.victims[0], s.victims[1]
		n.net.Set(from, to, w)
		if both {
			n.net.Set(to, from, w)
		}
		pause(ctx, s.hold)
		n.net.Set(from, to, links.Way{})
		n.net.Set(to, from, links.Way{})
	}
}

func cutMetadata(n *nemesis, ctx context.Context, s step) {
	n.around(s.victims[0], links.Way{CutOther: true}, false)
	pause(ctx, s.hold)
	n.around(s.victims[0], links.Way{}, false)
}

func delayOne(n *nemesis, ctx context.Context, s step) {
	n.around(s.victims[0], links.Way{Delay: time.Duration(10+s.x%190) * ms}, true)
	pause(ctx, s.hold)
	n.around(s.victims[0], links.Way{}, true)
}

func delayAll(n *nemesis, ctx context.Context, s step) {
	for _, id := range s.victims {
		n.around(id, links.Way{Delay: time.Duration(5+s.x%45) * ms}, true)
	}
	pause(ctx, s.hold)
	n.net.Heal() // this lane alone harms the network
}

func fullDisk(n *nemesis, ctx context.Context, s step) {
	b := n.node(s.victims[0])
	before := b.Board.Get(switchboard.RefusedHits)
	b.Board.Set(switchboard.DiskFull, 1)
	pause(ctx, s.hold)
	b.Board.Set(switchboard.DiskFull, 0)
	n.saw("operations that a full disk refused", int(b.Board.Get(switchboard.RefusedHits)-before))
}

// fillDisk leaves little room on the disk of the node that has one of its own, lets
// the load fill it, and gives the room back. The kernel refuses whatever it likes:
// writes in part, folders, renames, and the metadata store's files as well.
func fillDisk(n *nemesis, ctx context.Context, s step) {
	b := n.small
	left := int64(64<<10 + s.x%(1<<20))
	eventually(n.t, healLimit, "the disk is made small", func() error {
		used, _, err := b.Disk.Usage(b.Folder())
		if err != nil {
			return err
		}
		return b.Disk.Resize(b.ID, b.Dir, used+left) // refused if more is used by now
	})
	n.log("  node %d has room for %d bytes", b.ID, left)
	full, look := false, time.NewTicker(100*time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(s.hold); time.Now().Before(end) && ctx.Err() == nil; {
		<-look.C
		if _, free, err := b.Disk.Usage(b.Folder()); err != nil {
			n.t.Error(err)
		} else if free < 4096 && !full {
			full = true
			n.saw("disks that were full for real", 1)
		}
	}
	if err := b.Disk.Resize(b.ID, b.Dir, diskBytes); err != nil {
		n.t.Error(err)
	}
}

func slowDisk(n *nemesis, ctx context.Context, s step) {
	b := n.node(s.victims[0])
	b.Board.Set(switchboard.SyncDelayMs, int64(20+s.x%400))
	pause(ctx, s.hold)
	b.Board.Set(switchboard.SyncDelayMs, 0)
}

// clockJump sets a node's wall clock wrong by up to twenty days, and back.
func clockJump(n *nemesis, ctx context.Context, s step) {
	b := n.node(s.victims[0])
	by := time.Duration(s.x % uint64(20*24*time.Hour))
	if s.x>>63 == 0 {
		by = -by
	}
	n.log("  the clock of node %d jumps by %v", b.ID, by.Round(time.Second))
	b.Board.Set(switchboard.ClockShiftMs, by.Milliseconds())
	pause(ctx, s.hold)
	b.Board.Set(switchboard.ClockShiftMs, 0)
}
