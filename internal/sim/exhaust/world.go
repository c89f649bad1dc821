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

// bounds makes budgets.
func bounds(of map[budget]uint8) (b budgets) {
	for k, n := range of {
		b[k] = n
	}
	return b
}

// clean is how a mirror comes to have everything its source has.
var copied = []action{act(doCopy, 1, 0), act(doReplicate, 1, 1), act(doCopy, 1, 0)}

// written is one record on A, on both replicas.
var written = []action{act(doProduce, 0, 0), act(doReplicate, 0, 1)}

// worlds are where searches may begin.
func worlds() []*world {
	mirrored := slices.Concat(written, copied)
	promoted := slices.Concat(mirrored, []action{act(doFailover, 1, 0), act(doReplicate, 1, 1), act(doProduce, 1, 0), act(doReplicate, 1, 1)})
	alone := slices.Concat(written, []action{act(doCrash, 0, 1), act(doSettle, 0, 0)})
	return []*world{
		{name: "whole", about: "B mirrors A; everything may happen on both", prefix: mirrored, left: bounds(map[budget]uint8{
			forWritesA: 2, forWritesB: 2, forParts: 1, forElections: 2, forUnclean: 2, forCrashes: 2, forStops: 1, forShrinks: 1, forStarts: 3,
			forFailovers: 2, forRetries: 1, forAbandons: 1, forTrims: 1, forLate: 1, forLags: 1})},
		{name: "cluster", about: "one cluster", only: true, prefix: written, left: bounds(map[budget]uint8{
			forWritesA: 3, forParts: 2, forElections: 2, forUnclean: 1, forCrashes: 2, forStops: 1, forShrinks: 1, forLate: 1, forLags: 1})},
		{name: "mirrored", about: "B mirrors A", prefix: mirrored, left: bounds(map[budget]uint8{
			forWritesA: 2, forWritesB: 1, forParts: 1, forElections: 2, forUnclean: 1, forCrashes: 1, forFailovers: 1, forRetries: 1, forTrims: 2, forStarts: 2, forLate: 1})},
		{name: "promoted", about: "B was failed over and wrote a record", prefix: promoted, left: bounds(map[budget]uint8{
			forWritesA: 1, forWritesB: 1, forElections: 2, forUnclean: 1, forCrashes: 2, forStarts: 3, forFailovers: 1, forRetries: 1, forAbandons: 1, forLate: 1})},
		{name: "compacted", about: "one cluster whose second replica is away", only: true, prefix: alone, left: bounds(map[budget]uint8{
			forWritesA: 3, forElections: 1, forCrashes: 1, forCompactions: 1})},
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
	s.left = w.left
	return s, nil
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
