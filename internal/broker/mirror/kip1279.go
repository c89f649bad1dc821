package mirror

import (
	"context"

	"tidemark/internal/config"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// mirroredAsker asks sources that tell no timelines, by KIP-1279, what they
// mirrored of this cluster. The zero value asks nobody.
type mirroredAsker struct {
	on   bool // mirror.kip1279.enable
	ours string
}

func (m *Mirrors) asksMirrored(s *config.Mirror) mirroredAsker {
	return mirroredAsker{on: s.KIP1279, ours: m.o.Node.ClusterID()}
}

func (r *run) asksMirrored() mirroredAsker { return r.m.asksMirrored(r.settings.Load()) }

// ask completes looks at partitions of one leader with what the source mirrored of
// them; they stay as they are for a source that doesn't speak KIP-1279.
func (a mirroredAsker) ask(ctx context.Context, client Source, broker types.BrokerID, list []*looked) error {
	if !a.on {
		return nil
	}
	var queries []source.MirroredQuery
	for _, k := range list {
		if !k.leader.topic.IsZero() { // look-ups go by topic id
			queries = append(queries, source.MirroredQuery{TopicPartition: k.c.tp, TopicID: k.leader.topic})
		}
	}
	if len(queries) == 0 {
		return nil
	}
	told, err := client.Mirrored(ctx, broker, a.ours, queries)
	if err != nil {
		return err
	}
	for _, k := range list {
		if m, ok := told[k.c.tp]; ok {
			k.source.Mirrored = mirroredOf(m)
		}
	}
	return nil
}

// loops asks for topics that aren't here yet; without an answer nothing is known.
func (a mirroredAsker) loops(ctx context.Context, client Source, broker types.BrokerID, list []source.LineageQuery, told map[types.TopicPartition]source.Lineage) map[types.TopicPartition]*core.Mirrored {
	out := map[types.TopicPartition]*core.Mirrored{}
	if !a.on || told != nil || len(list) == 0 {
		return out
	}
	queries := make([]source.MirroredQuery, len(list))
	for i, q := range list {
		queries[i] = source.MirroredQuery{TopicPartition: q.TopicPartition, TopicID: q.TopicID}
	}
	answers, _ := client.Mirrored(ctx, broker, a.ours, queries)
	for tp, m := range answers {
		out[tp] = mirroredOf(m)
		out[tp].LastEpoch, out[tp].LastOffset = types.NoLeaderEpoch, types.NoOffset // of a topic that isn't here nothing can be shared
	}
	return out
}

func mirroredOf(m source.Mirrored) *core.Mirrored {
	return &core.Mirrored{Mirror: m.Mirror, State: m.State, LastEpoch: m.LastEpoch, LastOffset: m.LastOffset}
}
