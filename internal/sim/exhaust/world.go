package exhaust

import (
	"fmt"
	"slices"
	"strings"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// world is where a search begins and what may happen in it.
type world struct {
	name, about string
	// only bounds the steps to the first cluster.
	only          bool
	minISR        int
	promotionStep int32 // 1: the other cluster's next election reaches the promoted epoch
	headroom      int32
	prefix        []action // from two fresh clusters, B a mirror of A that has copied nothing
	left          budgets

	rules rules
	mute  map[string]bool
}

// The beginnings of worlds.
var (
	// written is one record on A, on both replicas.
	written = steps("write a1", "replicate a2")
	// mirrored: B has copied it, on both of its replicas.
	mirrored = slices.Concat(written, steps("copy b1", "replicate b2", "copy b1", "replicate b2"))
	// promoted: B is failed over, and has written a record of its own.
	promoted = slices.Concat(mirrored, steps("fail over B", "replicate b2", "write b1", "replicate b2"))
	// forked: so has A, in the same leader epoch.
	forked = slices.Concat(promoted, steps("elect a2", "replicate a1", "elect a1", "replicate a2", "write a1", "replicate a2"))
	// alone: one cluster whose second replica is away.
	alone = slices.Concat(written, steps("kill a2", "settle ISR A"))
)

// worlds are where searches may begin.
func worlds() []*world {
	return []*world{
		{name: "whole", about: "B mirrors A, both hold a record; everything may happen on both", prefix: mirrored, left: budgets{
			forWritesA: 2, forWritesB: 2, forParts: 1, forElections: 2, forUnclean: 2, forCrashes: 2, forStops: 1, forShrinks: 1, forStarts: 4,
			forFailovers: 2, forRetries: 1, forAbandons: 1, forTrims: 1, forLate: 1, forLags: 1}},
		{name: "cluster", about: "one cluster with a record", only: true, prefix: written, left: budgets{
			forWritesA: 3, forParts: 2, forElections: 2, forUnclean: 1, forCrashes: 2, forStops: 1, forShrinks: 1, forLate: 1, forLags: 1}},
		{name: "mirrored", about: "B mirrors A, both hold a record", prefix: mirrored, left: budgets{
			forWritesA: 2, forWritesB: 1, forParts: 1, forElections: 2, forUnclean: 1, forCrashes: 1, forFailovers: 1, forRetries: 1, forTrims: 2, forStarts: 2, forLate: 1}},
		{name: "promoted", about: "B was failed over and wrote a record", prefix: promoted, left: budgets{
			forWritesA: 1, forWritesB: 1, forElections: 2, forUnclean: 1, forCrashes: 2, forStarts: 4, forFailovers: 1, forRetries: 1, forAbandons: 1, forLate: 1}},
		{name: "forked", about: "B was failed over, and both wrote a record in one leader epoch", prefix: forked, left: budgets{
			forWritesA: 1, forWritesB: 1, forElections: 1, forUnclean: 1, forCrashes: 2, forStarts: 4, forFailovers: 2, forRetries: 1, forAbandons: 1, forLate: 1, forLags: 1}},
	}
}

// worldNamed finds one.
func worldNamed(name string) (*world, error) {
	var names []string
	for _, w := range worlds() {
		if w.name == name {
			return w, nil
		}
		names = append(names, w.name)
	}
	return nil, fmt.Errorf("no world %q; there are %s", name, strings.Join(names, ", "))
}

// first is the state in which the world's searches begin.
func (w *world) first() (*state, error) {
	if w.minISR == 0 {
		w.minISR = 1
	}
	if w.promotionStep == 0 {
		w.promotionStep = 1
	}
	s := &state{}
	for c := range clusters {
		s.c[c] = w.fresh(c)
	}
	for i := range s.left {
		s.left[i] = 100
	}
	off := w.rules
	w.rules = rules{} // the beginning keeps to them
	x := &step{w: w, s: s}
	for c := range clusters {
		for i := range replicas {
			x.shown(c, i)
		}
	}
	for _, a := range w.prefix {
		x := &step{w: w, s: s.clone()}
		if !x.carryOut(a) || x.problem != nil {
			return nil, fmt.Errorf("the world %s doesn't begin: %s: %v", w.name, a, x.problem)
		}
		s = x.s
	}
	s.left, w.rules = w.left, off
	w.tellRules(s)
	return s, nil
}

// tellRules tells those who work already which rules hold.
func (w *world) tellRules(s *state) {
	x := &step{w: w, s: s}
	for c := range clusters {
		for i := range replicas {
			n := x.node(c, i)
			n.follower.Rules = w.rules.follower
			if n.leader != nil {
				x.leaderOf(c, i).Rules = w.rules.leader
			}
			if n.machine != nil {
				x.machineOf(c, i).Step(now, nil, mirror.PolicyChanged{Policy: x.policy(c, i)}, &mirror.Effects{})
			}
		}
	}
}

// fresh is a cluster whose first replica leads an empty partition: A's a client made, B's is a mirror.
func (w *world) fresh(c int) cluster {
	k := cluster{branched: types.NoOffset, revision: replicas}
	rec := meta.PartitionRecord{Leader: 1, LeaderBrokerEpoch: 1, LeaderEpoch: 1, MinISR: w.minISR}
	if c == 0 {
		rec.Writable, rec.Timelines = true, timeline.FreshRoot(clusterIDs[c])
	} else {
		rec.Mirror = mirror.NewMirrored(mirrorName, clusterIDs[c]+"-start-0")
	}
	for i := range replicas {
		id := types.BrokerID(i + 1)
		rec.Replicas = append(rec.Replicas, id)
		rec.ISR = append(rec.ISR, meta.ISRMember{ID: id, BrokerEpoch: types.BrokerEpoch(i + 1)})
		k.nodes[i] = &node{id: id, up: true, epoch: types.BrokerEpoch(i + 1), clean: types.NoBrokerEpoch, mark: types.NoBrokerEpoch, assigned: types.NoLeaderEpoch}
	}
	k.revision++
	k.rec, k.rev = &rec, k.revision
	return k
}

// carryOut does an action; an assertion of the core that breaks is a problem, too.
func (x *step) carryOut(a action) (done bool) {
	defer func() {
		if p := recover(); p != nil {
			done = true
			x.problemf("PANIC", "%v", p)
		}
	}()
	done = x.do(a)
	if done && x.problem == nil {
		x.check()
	}
	return done || x.problem != nil
}
