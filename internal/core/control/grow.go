package control

import (
	"fmt"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Growth is what makes a topic of the cluster's own as safe as its setting asks,
// once there are brokers enough.
type Growth struct {
	// To is the number of replicas that each partition is to have.
	To int
	// Plans add replicas, each to one partition.
	Plans []meta.Plan
	// Waiting counts the partitions that are to grow and can't yet: without a
	// leader, or while an operator's reassignment is under way.
	Waiting int
	// Done notes in the topic's record that all were asked to grow. It is to be
	// written when every plan is, and nothing waits.
	Done meta.Plan
}

// Grow plans how a topic's partitions get replicas, up to want or the number of
// brokers, in a cluster of the level that can note it. It asks once for each number: what an operator takes away afterwards
// stays away, until there are more brokers again than ever before. Replicas that
// a partition has stay where they are, in their order; so do leaders. ok is false
// if nothing is due.
func Grow(image *meta.Image, t *meta.Topic, want int, me Me) (g Growth, ok bool, err error) {
	sites := placeable(image)
	g.To = min(want, len(sites))
	if g.To <= max(t.Record.GrownTo, 1) || image.FeatureLevel(meta.FeatureMetadata) < meta.LevelCuts {
		return g, false, nil
	}
	if err := me.registered(image); err != nil {
		return g, false, err
	}
	load := make(map[types.BrokerID]int)
	for p := range image.PartitionsOf(t.Record.ID) {
		if p.Record != nil {
			for _, r := range p.Record.Replicas {
				load[r]++
			}
		}
	}
	for p := range image.PartitionsOf(t.Record.ID) {
		r := p.Record
		switch {
		case r == nil:
			return g, false, fmt.Errorf("partition %d of %s: %w: %w", p.ID.Number, t.Record.Name, ErrUnreadable, p.Fault)
		case len(r.Target()) >= g.To:
			continue
		case len(r.Adding)+len(r.Removing) > 0 || NeedsLeader(image, r):
			g.Waiting++
			continue
		}
		target := r.Target()
		for len(target) < g.To {
			next, free := replacement(sites, target, load)
			if !free {
				break // it has replicas on brokers that are leaving
			}
			load[next]++
			target = append(target, next)
		}
		checkGrowth(t.Record.Name, p.ID.Number, r.Target(), target)
		plan, differs, err := Reassign(image, p, target, me)
		if err != nil {
			return g, false, err
		}
		if differs {
			g.Plans = append(g.Plans, plan)
		}
	}
	record := *t.Record
	record.GrownTo = g.To
	key := image.Keys().Topic(record.ID)
	g.Done = checked(meta.Plan{
		Why:  fmt.Sprintf("note that %s has grown to %d replicas", record.Name, g.To),
		If:   append(me.compares(image), meta.ModRevisionIs(key, t.ModRevision)),
		Then: []meta.Op{meta.Put(key, record.Encode())},
	})
	return g, true, nil
}

// checkGrowth states that a partition's replicas are kept, and in their order.
func checkGrowth(topic string, partition int32, from, to []types.BrokerID) {
	// Invariant I-342: growth takes no replica away and moves none.
	assert.That(len(to) >= len(from) && slices.Equal(to[:len(from)], from), "I-342: %s-%d grows from %v to %v", topic, partition, from, to)
}
