package api

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
	"tidemark/internal/wire"
)

// ListClusterMirrors (key 98, KIP-1279, with mirror.kip1279.enable): the mirrors of this cluster.
//
// Behaviour
//   - A topic counts as a mirror's from its first copy until its deletion, also
//     after its promotion.
//   - Any broker answers, from its image.
//
// Versions
//   - 0: all of it, as the proposal's prototype has it.
func (c *Call) listClusterMirrors(in *wire.ListClusterMirrorsRequest) (kmsg.Response, error) {
	out := &wire.ListClusterMirrorsResponse{}
	for m := range c.Image.Mirrors() {
		if len(out.Mirrors) == wire.ClusterMirrorsMax {
			break
		}
		to := wire.ListedClusterMirror{Name: m.Record.Name, SourceBootstrap: strings.Join(m.Record.Bootstrap, ","), SourceClusterID: m.Record.SourceClusterID}
		topics := mirroredTopics(c.Image, m.Record.Name)
		to.TopicCount = int32(len(topics))
		if in.TopicNames {
			to.TopicNames = make([]string, len(topics))
			for i, t := range topics {
				to.TopicNames[i] = t.Record.Name
			}
		}
		out.Mirrors = append(out.Mirrors, to)
	}
	return out, nil
}

// mirroredTopics lists a mirror's topics by name, as many as an answer takes.
func mirroredTopics(image *meta.Image, mirror string) []*meta.Topic {
	var list []*meta.Topic
	for t := range image.TopicsByName() {
		if len(list) < wire.ClusterMirrorsMax && slices.ContainsFunc(slices.Collect(image.PartitionsOf(t.ID)), func(p *meta.Partition) bool { return mirrors(p.Record, mirror) }) {
			list = append(list, t)
		}
	}
	return list
}

// mirrors reports whether a partition is, or was until its promotion, of a mirror.
func mirrors(rec *meta.PartitionRecord, mirror string) bool {
	return rec != nil && rec.Mirror != nil && rec.Mirror.Name == mirror
}
