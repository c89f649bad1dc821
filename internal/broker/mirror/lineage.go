package mirror

import (
	"context"
	"fmt"

	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// lineages asks a leader of the look what Kafka doesn't say of the partitions;
// nil for a source that isn't Tidemark.
func lineages(ctx context.Context, client *source.Client, broker types.BrokerID, list []*looked) (map[types.TopicPartition]source.Lineage, error) {
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
	return core.SourceFailed{}
}
