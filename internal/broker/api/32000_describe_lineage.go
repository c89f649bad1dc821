package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/wire"
)

// DescribeLineage (key 32000, Tidemark's own): what a mirror must know of its
// source and Kafka doesn't say (docs/format/lineage-api.md).
//
// Behaviour
//   - List, leader epoch, writable, mirror and path come from one partition
//     record of one image (R18); the log's last epoch is read in that leader
//     epoch, else FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
//   - Only the leader answers, as for Fetch.
//   - An answer that grows too large says MESSAGE_TOO_LARGE for the partitions
//     that are left: the client asks for them again. The first is always answered.
//   - Listed in ApiVersions only for clients that name themselves Tidemark;
//     whoever asks is answered, as for Metadata.
//
// Versions
//   - 0: all of it. Later fields come as tagged fields.
func (c *Call) describeLineage(in *wire.LineageRequest) (kmsg.Response, error) {
	out := &wire.LineageResponse{}
	size := 0
	for _, t := range in.Topics {
		to := wire.LineageResponseTopic{ID: t.ID}
		for _, n := range t.Partitions {
			p := wire.LineagePartition{Partition: n, LeaderEpoch: -1, LastEpoch: -1, ErrorCode: wire.ErrMessageTooLarge}
			if size < wire.LineageAnswerBytes {
				p = c.lineage(topicRef{id: t.ID, useID: true}, n)
			}
			size += p.Size()
			to.Partitions = append(to.Partitions, p)
		}
		out.Topics = append(out.Topics, to)
	}
	return out, nil
}

func (c *Call) lineage(ref topicRef, n int32) wire.LineagePartition {
	out := wire.LineagePartition{Partition: n, LeaderEpoch: -1, LastEpoch: -1}
	part, err := c.partition(c.Image, ref, n)
	if err != nil {
		out.ErrorCode = c.failed(wire.KeyDescribeLineage, err)
		return out
	}
	rec, _ := c.Image.Partition(ref.id, n)
	if rec == nil {
		out.ErrorCode = c.failed(wire.KeyDescribeLineage, wire.ErrUnknownTopicOrPartition)
		return out
	}
	last, err := part.LastEpoch(rec.LeaderEpoch)
	if err != nil {
		out.ErrorCode = c.failed(wire.KeyDescribeLineage, err)
		return out
	}
	// Invariant I-231 (R18): the list and the leader epoch of an answer are one record's.
	newest, ok := rec.Timelines.Last()
	assert.That(!ok || newest.FirstEpoch <= rec.LeaderEpoch, "I-231: list ends at epoch %d above the leader epoch %d", newest.FirstEpoch, rec.LeaderEpoch)
	out.LeaderEpoch, out.LastEpoch, out.Writable = rec.LeaderEpoch, last, rec.Writable
	out.Timelines = make([]wire.Timeline, len(rec.Timelines))
	for i, e := range rec.Timelines {
		out.Timelines[i] = wire.Timeline{ID: e.ID, FirstEpoch: e.FirstEpoch, FirstOffset: e.FirstOffset}
	}
	out.Path = MirrorPath(c.Image, rec)
	out.IsMirror = IsMirror(rec)
	return out
}

// IsMirror reports whether the partition follows a source; one that is read-only
// without a source, or was stopped, is merely fenced (R27).
func IsMirror(rec *meta.PartitionRecord) bool {
	return rec.IsMirror() && rec.Mirror.State != meta.MirrorStopped
}

// MirrorPath lists the clusters that a mirror copies from, the nearest first
// (R25): its source, and what that said of its own. Before the list is adopted the
// source is known from the mirror's record alone.
func MirrorPath(image *meta.Image, rec *meta.PartitionRecord) []string {
	if !IsMirror(rec) {
		return nil
	}
	path := []string{rec.Mirror.SourceClusterID}
	if path[0] == "" {
		if m, ok := image.Mirror(rec.Mirror.Name); ok {
			path[0] = m.Record.SourceClusterID
		}
	}
	path = append(path, rec.Mirror.SourcePath...)
	path = slices.DeleteFunc(path, func(id string) bool { return id == "" || len(id) > wire.ClusterIDBytesMax })
	return path[:min(len(path), wire.LineagePathMax)]
}
