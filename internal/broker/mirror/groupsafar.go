package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/core/types"
)

// The broker that coordinates a group may hold no replica of a partition that the group
// reads, and the leader of a partition seldom coordinates its groups. So a coordinator
// asks leaders where their logs end, and leaders have every coordinator take offsets
// back when they cut.

const (
	partGroupsCut   = "groups-cut"
	partGroupsTaken = "groups-taken"
)

// toldEnds is what leaders said of their logs in one round of the sync, and what was
// written because of it.
type toldEnds struct {
	asked   bool
	ends    map[types.TopicPartition]types.Offset
	doubted map[types.TopicPartition]types.Offset // the highest offset written, by the ends told
}

// offer has this broker's coordinator write a group's offsets. Those of partitions
// that this node doesn't hold wait until their leaders have said that they have the data.
func (g *groupSync) offer(ctx context.Context, name string, list []coordinator.OffsetAndMeta) (coordinator.SyncResult, error) {
	groups := g.run.m.o.Groups
	res, err := groups.SyncOffsets(ctx, name, list)
	if err != nil || res.HasMembers {
		return res, err
	}
	far := slices.DeleteFunc(slices.Clone(res.Pending), func(o coordinator.OffsetAndMeta) bool { return g.isHere(o.TopicPartition) })
	if len(far) == 0 {
		return res, nil
	}
	ends := g.endsTold(ctx, far)
	more, err := groups.SyncOffsetsWithin(ctx, name, far, ends)
	if err != nil || more.HasMembers {
		return more, err
	}
	g.mu.Lock()
	for _, o := range more.Applied {
		g.told.doubted[o.TopicPartition] = max(g.told.doubted[o.TopicPartition], o.Offset)
	}
	g.mu.Unlock()
	res.Applied = append(res.Applied, more.Applied...)
	res.Unchanged += more.Unchanged
	res.Pending = slices.DeleteFunc(res.Pending, func(o coordinator.OffsetAndMeta) bool { return !g.isHere(o.TopicPartition) })
	res.Pending = append(res.Pending, more.Pending...)
	return res, nil
}

// isHere reports whether this node holds a replica of a partition.
func (g *groupSync) isHere(tp types.TopicPartition) bool {
	t, ok := g.run.m.o.Node.Image().TopicByName(tp.Topic)
	if !ok {
		return false
	}
	_, held := g.run.m.o.Node.Partition(t.ID, tp.Partition)
	return held
}

// endsTold gives the ends of partitions that aren't held here, as their leaders say in this round.
func (g *groupSync) endsTold(ctx context.Context, list []coordinator.OffsetAndMeta) map[types.TopicPartition]types.Offset {
	g.mu.Lock()
	known := g.told.asked || !slices.ContainsFunc(list, func(o coordinator.OffsetAndMeta) bool { return g.told.ends[o.TopicPartition] < o.Offset })
	ends := maps.Clone(g.told.ends)
	g.mu.Unlock()
	if known {
		return ends
	}
	ends = g.askEnds(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told.asked, g.told.ends = true, ends
	return maps.Clone(ends)
}

// askEnds asks every broker for the high watermarks of the mirror's partitions that it leads.
func (g *groupSync) askEnds(ctx context.Context) map[types.TopicPartition]types.Offset {
	list, err := g.run.m.everywhere(ctx, partEnds, part{Mirror: g.run.name}, askPatience)
	if err != nil {
		g.run.m.log.Debug("not every leader says where its logs end", "mirror", g.run.name, "err", err)
	}
	ends := map[types.TopicPartition]types.Offset{}
	for _, o := range list {
		if o.Plan != nil {
			ends[o.TopicPartition] = o.Plan.LogEnd
		}
	}
	return ends
}

// beginRound forgets what leaders said in the round before.
func (g *groupSync) beginRound() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.told.doubted == nil {
		g.told.doubted = map[types.TopicPartition]types.Offset{}
	}
	g.told.asked, g.told.ends = false, map[types.TopicPartition]types.Offset{}
}

// settleDoubts looks once more at the partitions of which offsets were written by what
// their leaders had said: a leader that cut in between has had offsets taken back
// before these were there. What can't be looked at now is looked at in the next round.
func (g *groupSync) settleDoubts(ctx context.Context) error {
	g.mu.Lock()
	doubted := maps.Clone(g.told.doubted)
	g.mu.Unlock()
	if len(doubted) == 0 {
		return nil
	}
	ends := g.askEnds(ctx)
	var cuts []coordinator.Cut
	for _, tp := range inOrder(doubted, itself) {
		if end, ok := ends[tp]; ok && doubted[tp] > end {
			cuts = append(cuts, coordinator.Cut{TopicPartition: tp, Offset: end})
		}
	}
	if len(cuts) > 0 {
		lowered, err := g.run.m.o.Groups.ClampAll(ctx, cuts)
		g.tellLowered(lowered)
		if err != nil {
			return fmt.Errorf("committed offsets can't follow a cut yet: %w", err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for tp, at := range doubted {
		if _, ok := ends[tp]; ok && g.told.doubted[tp] == at {
			delete(g.told.doubted, tp)
		}
	}
	return nil
}

// groupsTakenHere brings the groups coordinated here in line with logs that a failover took.
func (m *Mirrors) groupsTakenHere(ctx context.Context, p part) error {
	if err := m.groupsCutHere(ctx, p); err != nil {
		return fmt.Errorf("committed offsets beyond the promoted logs can't be lowered yet: %w", err)
	}
	r := m.run(p.Mirror)
	if r == nil {
		return nil
	}
	ends := make(map[types.TopicPartition]types.Offset, len(p.Cuts))
	for _, c := range p.Cuts {
		ends[c.TopicPartition] = c.Offset
	}
	return r.groups.writeWaiting(ctx, ends)
}
