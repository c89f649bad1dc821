package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// A cut takes committed offsets back (DESIGN §6.3). Until every coordinator has done
// so, the partition answers nobody (Owned.CutOwed): who was given an offset by one of
// them can't use it before.

// lowerAgainMax bounds the wait between two tries to have offsets follow cuts, since
// partitions answer nobody meanwhile: where a coordinator was away, they do again at
// most this after it has loaded its groups, and what asking it takes.
const lowerAgainMax = time.Second

// cutsPerAsk bounds the cuts that coordinators are asked about at a time.
const cutsPerAsk = 2000

// owedCuts are the cuts of logs led here that committed offsets are yet to follow. One
// worker takes all that are due at a time: after a start these are all partitions.
type owedCuts struct {
	mu sync.Mutex
	// guards the following
	due  map[*copier]owedCut
	busy bool
}

// owe has committed offsets follow a cut; then the copier lets clients read.
func (g *groupSync) owe(c *copier, cut owedCut) {
	g.owed.mu.Lock()
	if g.owed.due == nil {
		g.owed.due = map[*copier]owedCut{}
	}
	g.owed.due[c] = cut
	begin := !g.owed.busy
	g.owed.busy = true
	g.owed.mu.Unlock()
	if begin {
		g.run.spawn(g.followCuts)
	}
}

// take gives cuts that are due, of copiers still at work, in order; none: the worker ends.
func (o *owedCuts) take() map[*copier]owedCut {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]*copier, 0, len(o.due))
	for c := range o.due {
		if !c.halted.Load() { // else its successor, or a promotion, does it
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *copier) int { return comparePartitions(a.tp, b.tp) })
	taken := map[*copier]owedCut{}
	for _, c := range all[:min(len(all), cutsPerAsk)] {
		taken[c] = o.due[c]
		delete(o.due, c)
	}
	if len(taken) == 0 {
		clear(o.due)
		o.busy = false
	}
	return taken
}

// putBack makes cuts due again but for those that a later one has replaced.
func (o *owedCuts) putBack(taken map[*copier]owedCut) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c, cut := range taken {
		if _, later := o.due[c]; !later {
			o.due[c] = cut
		}
	}
}

// followCuts has committed offsets follow what is due, again and again until they
// have, or the run ends: its successor finds what is owed at the partitions.
func (g *groupSync) followCuts() {
	ctx := g.run.ctx
	fails := 0
	for {
		taken := g.owed.take()
		if len(taken) == 0 {
			return
		}
		list := inOrder(taken, func(c *copier) types.TopicPartition { return c.tp })
		cuts := make([]coordinator.Cut, len(list))
		for i, c := range list {
			cuts[i] = coordinator.Cut{TopicPartition: c.tp, Offset: taken[c].end}
		}
		err := g.run.m.lowerEverywhere(ctx, g.run.name, cuts)
		if err == nil {
			fails = 0
			for _, c := range list {
				c.cutFollowed(taken[c].made)
			}
			continue
		}
		fails++
		g.owed.putBack(taken)
		g.run.noteFault(syncGroups, fmt.Errorf("committed offsets can't follow the cut of %s and %d others yet: %w", list[0].tp, len(list)-1, err))
		if !pause(ctx, min(g.run.backoff(fails), lowerAgainMax)) {
			return
		}
	}
}

// errCoordinatorsMove says that a partition of the groups' topic has no leader, or changed hands meanwhile.
var errCoordinatorsMove = errors.New("group coordinators move at the moment")

// lowerEverywhere has every coordinator of this cluster set committed offsets above
// the cuts to them. It has happened only if each partition of the groups' topic has a
// coordinator, which has loaded its groups, and did so.
func (m *Mirrors) lowerEverywhere(ctx context.Context, name string, cuts []coordinator.Cut) error {
	return m.atCoordinators(ctx, partGroupsCut, part{Mirror: name, Cuts: cuts}, askPatience)
}

// atCoordinators has every coordinator do a part. During a rolling upgrade, until the
// cluster's level says that all brokers know these parts, only this broker does it, as
// the program before did.
//
// Who coordinates a partition of the groups' topic is asked by its leader epoch: a
// broker that has not heard of its election yet would find no group to do it for, and
// load them as they were before (I-250).
func (m *Mirrors) atCoordinators(ctx context.Context, what string, p part, patience time.Duration) error {
	image := m.o.Node.Image()
	if image.FeatureLevel(meta.FeatureMetadata) < meta.LevelCuts {
		_, err := m.doPart(ctx, what, p)
		return err
	}
	offices, settled := officesOf(image)
	p.Offices = offices
	var brokers []types.BrokerID
	for _, o := range offices {
		if !slices.Contains(brokers, o.Broker) {
			brokers = append(brokers, o.Broker)
		}
	}
	slices.Sort(brokers)
	if m.o.Rules.CutsAnywhere {
		p.Offices = nil
		_, err := m.ask(ctx, brokers, what, p, patience)
		return err
	}
	if _, err := m.ask(ctx, brokers, what, p, patience); err != nil {
		return err
	}
	if after, _ := officesOf(m.o.Node.Image()); !settled || !slices.Equal(offices, after) {
		return errCoordinatorsMove
	}
	return nil
}

// officesOf lists who coordinates groups; settled: each partition of their topic has a leader.
func officesOf(image *meta.Image) (list []coordinator.Office, settled bool) {
	t, ok := image.TopicByName(coordinator.OffsetsTopic)
	if !ok {
		return nil, true
	}
	settled = true
	for p := range image.PartitionsOf(t.ID) {
		if p.Record == nil || p.Record.Leader == types.NoBroker {
			settled = false
			continue
		}
		list = append(list, coordinator.Office{Partition: p.ID.Number, Broker: p.Record.Leader, Epoch: p.Record.LeaderEpoch})
	}
	return list, settled
}

// groupsCutHere lowers what is committed above cuts in the groups coordinated here.
func (m *Mirrors) groupsCutHere(ctx context.Context, p part) error {
	lowered, err := m.o.Groups.ClampAt(ctx, p.Cuts, p.Offices)
	m.tellLowered(p.Mirror, lowered)
	return err
}

// takenTries bounds how often a failover asks coordinators that move at the moment:
// two seconds in all. Partitions are served meanwhile.
const takenTries = 10

// atFailover brings committed offsets in line with the promoted logs, wherever the
// groups are coordinated: none is beyond them, and what waited for data is written as
// far as the data goes.
func (g *groupSync) atFailover(ctx context.Context, ends map[types.TopicPartition]types.Offset) error {
	cuts := make([]coordinator.Cut, 0, len(ends))
	for _, tp := range inOrder(ends, itself) {
		cuts = append(cuts, coordinator.Cut{TopicPartition: tp, Offset: ends[tp]})
	}
	for n := 1; ; n++ {
		err := g.run.m.atCoordinators(ctx, partGroupsTaken, part{Mirror: g.run.name, Cuts: cuts}, peerPatience)
		if err == nil || n == takenTries || !pause(ctx, 200*time.Millisecond) {
			return err
		}
	}
}
