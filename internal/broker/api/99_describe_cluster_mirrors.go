package api

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// DescribeClusterMirrors (key 99, KIP-1279, with mirror.kip1279.enable): the state
// of mirrors' partitions, and for a cluster that was the source the last
// epoch that was mirrored of it (LMLE).
//
// Behaviour
//   - All of it is from partition records, so that any broker answers, in the
//     words of the records' states.
//   - The last mirrored epoch and offset are those of the last promotion whose
//     source is the mirror's, or the cluster that asks (ClusterID): -1 before one. The offset
//     is min(log end, high watermark) at the promotion (R23).
//   - Lookups by topic id answer for these partitions alone, mirrors without any of
//     them are left out.
//   - The source's offset is the last that was written down; the own log end isn't in
//     the records, so it is -1 before a promotion and the promotion's afterwards.
//   - An unknown name is UNKNOWN_CLUSTER_MIRROR in the prototype, whose number (137)
//     may change: such a mirror is left out.
//
// Versions
//   - 0: all of it, as the proposal's prototype has it.
func (c *Call) describeClusterMirrors(in *wire.DescribeClusterMirrorsRequest) (kmsg.Response, error) {
	out := &wire.DescribeClusterMirrorsResponse{}
	asked := map[types.TopicID][]int32{}
	for _, l := range in.Lookups {
		asked[l.TopicID] = append(asked[l.TopicID], l.Partitions...)
	}
	room := wire.MirrorLookupsMax
	for m := range c.Image.Mirrors() {
		rec := m.Record
		if in.Names != nil && !slices.Contains(in.Names, rec.Name) || in.ClusterID != nil && rec.SourceClusterID != *in.ClusterID {
			continue
		}
		to := wire.DescribedClusterMirror{Name: rec.Name, SourceBootstrap: strings.Join(rec.Bootstrap, ","), SourceClusterID: rec.SourceClusterID,
			AuthorizedOperations: wire.AuthorizedOperationsUnknown}
		for _, t := range mirroredTopics(c.Image, rec.Name) {
			if topic := c.mirroredTopic(t, rec, asked, len(in.Lookups) > 0, &room); len(topic.Partitions) > 0 {
				to.Topics = append(to.Topics, topic)
			}
		}
		if len(in.Lookups) == 0 || len(to.Topics) > 0 {
			out.Mirrors = append(out.Mirrors, to)
		}
		if len(out.Mirrors) == wire.ClusterMirrorsMax {
			break
		}
	}
	return out, nil
}

// mirroredTopic describes a topic's partitions, of a look-up only those asked for; room bounds the answer.
func (c *Call) mirroredTopic(t *meta.Topic, m *meta.MirrorRecord, asked map[types.TopicID][]int32, only bool, room *int) wire.DescribedMirrorTopic {
	out := wire.DescribedMirrorTopic{Name: t.Record.Name}
	for p := range c.Image.PartitionsOf(t.ID) {
		if !mirrors(p.Record, m.Name) || only && !slices.Contains(asked[t.ID], p.ID.Number) || *room == 0 {
			continue
		}
		*room--
		out.Partitions = append(out.Partitions, mirroredPartition(p, m.SourceClusterID))
	}
	return out
}

func mirroredPartition(p *meta.Partition, source string) wire.DescribedMirrorPartition {
	state := p.Record.Mirror
	out := wire.DescribedMirrorPartition{Partition: p.ID.Number, State: state.State, SourceOffset: state.SourceEnd, DestinationOffset: types.NoOffset,
		LastMirrorEpoch: types.NoLeaderEpoch, LastMirrorOffset: types.NoOffset}
	if state.Reason != "" {
		out.ErrorMessage = &state.Reason
	}
	for _, made := range slices.Backward(p.Record.Promotions) {
		if made.SourceClusterID == source {
			out.LastMirrorEpoch, out.LastMirrorOffset, out.DestinationOffset = made.LastMirroredEpoch, core.LastMirroredOffset(made), made.LogEnd
			break
		}
	}
	return out
}
