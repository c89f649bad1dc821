package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// lineages asks a leader of the look what Kafka doesn't say of the partitions;
// nil for a source that isn't Tidemark.
func lineages(ctx context.Context, client Source, broker types.BrokerID, list []*looked) (map[types.TopicPartition]source.Lineage, error) {
	queries := make([]source.LineageQuery, len(list))
	for i, k := range list {
		queries[i] = source.LineageQuery{TopicPartition: k.c.tp, TopicID: k.leader.topic}
	}
	return client.Lineage(ctx, broker, queries)
}

// takeLineage completes a look with the source's own word, or says what is in the
// way. A leader epoch other than the look's means that the source has changed in
// between, its list perhaps too: then the look isn't one, and another follows (R18).
//
// Invariant I-232 (R18): a look with a source's list has the leader epoch that the list came with.
func (k *looked) takeLineage(a source.Lineage) core.SourceFailed {
	switch {
	case a.Code != 0:
		return core.SourceFailed{Reason: reasonOfCode(a.Code), Detail: "the source answers " + a.Code.String() + " for its timelines"}
	case a.LeaderEpoch != k.source.LeaderEpoch:
		return core.SourceFailed{Reason: core.SourceLeaderMoved,
			Detail: fmt.Sprintf("the source's timelines are of leader epoch %d, its metadata of %d", a.LeaderEpoch, k.source.LeaderEpoch)}
	}
	k.source.Timelines = make(timeline.List, len(a.Timelines))
	for i, t := range a.Timelines {
		k.source.Timelines[i] = timeline.Entry{ID: t.ID, FirstEpoch: t.FirstEpoch, FirstOffset: t.FirstOffset}
	}
	k.source.IsMirror, k.source.LastEpoch, k.source.Path = a.IsMirror, a.LastEpoch, a.Path
	k.leader.isMirror = a.IsMirror
	return core.SourceFailed{}
}

// loops says of topics that aren't here yet which of them the source copies from
// this cluster: they aren't made, so that the refusal leaves nothing behind (R25).
// A topic of which the source says nothing now is made; its partitions ask again before
// they copy.
func (r *run) loops(ctx context.Context, topics []*source.Topic) map[string]error {
	client, err := r.source()
	if err != nil {
		return nil
	}
	byLeader := map[types.BrokerID][]source.LineageQuery{}
	for _, t := range topics {
		if p := t.Partitions[0]; p.Leader != types.NoBroker && !t.ID.IsZero() {
			byLeader[p.Leader] = append(byLeader[p.Leader], source.LineageQuery{TopicPartition: types.TopicPartition{Topic: t.Name}, TopicID: t.ID})
		}
	}
	out := map[string]error{}
	for _, broker := range slices.Sorted(maps.Keys(byLeader)) {
		queries := byLeader[broker]
		told, _ := client.Lineage(ctx, broker, queries) // without an answer nothing is known
		mirrored := r.asksMirrored().loops(ctx, client, broker, queries, told)
		for _, q := range queries {
			rec := meta.PartitionRecord{Mirror: core.NewMirrored(r.name, "")}
			s := core.Source{TopicID: q.TopicID, LeaderEpoch: types.NoLeaderEpoch, Path: told[q.TopicPartition].Path, Mirrored: mirrored[q.TopicPartition]}
			if refusal := core.Identify(&rec, core.Policy{ClusterID: r.m.o.Node.ClusterID(), TopicID: q.TopicID}, s); refusal.Reason != "" {
				out[q.Topic] = &refusal
			}
		}
	}
	return out
}
