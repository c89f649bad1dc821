package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// OffsetFetch, versions 1 to 10.
//
//   - A partition without a commit answers offset -1, leader epoch -1, metadata
//     "" and no error, also in a group that never was: clients start from that. So does
//     one whose commit says the id of another topic than the one that has the name now.
//   - Null topics (v2+) ask for all. v8+ takes several groups, each with its own
//     error; v10 names topics by id, and leaves out of "all" what has no id any more.
//   - v7's "require stable": UNSTABLE_OFFSET_COMMIT for a partition whose offset may
//     change with a transaction that is open (KIP-447); clients ask again.
//   - v9's member id and epoch must be those of a member of a group of the new protocol
//     (KIP-848): UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH. They say nothing about a classic group.
func offsetFetch(c *Call, req *kmsg.OffsetFetchRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if req.Version < 8 {
		c.fetchOldOffsets(req, resp)
		return resp, nil
	}
	for i := range req.Groups {
		resp.Groups = append(resp.Groups, c.fetchGroupOffsets(&req.Groups[i], req.RequireStable))
	}
	return resp, nil
}

// fetchOldOffsets answers v1-v7, which ask for one group, by way of the newer form.
func (c *Call) fetchOldOffsets(req *kmsg.OffsetFetchRequest, resp *kmsg.OffsetFetchResponse) {
	in := kmsg.OffsetFetchRequestGroup{Group: req.Group, MemberEpoch: -1}
	if req.Topics != nil {
		in.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(req.Topics))
	} else if req.Version < 2 {
		in.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for i, t := range req.Topics {
		in.Topics[i] = kmsg.OffsetFetchRequestGroupTopic{Topic: t.Topic, Partitions: t.Partitions}
	}
	g := c.fetchGroupOffsets(&in, req.RequireStable)
	resp.ErrorCode = g.ErrorCode
	if g.ErrorCode != 0 && req.Version < 2 {
		g.Topics = failedOffsets(&in, g.ErrorCode) // v1 has no place for it but the partitions
	}
	for _, t := range g.Topics {
		out := kmsg.NewOffsetFetchResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, kmsg.OffsetFetchResponseTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
			})
		}
		resp.Topics = append(resp.Topics, out)
	}
}

func failedOffsets(in *kmsg.OffsetFetchRequestGroup, code int16) []kmsg.OffsetFetchResponseGroupTopic {
	var all []kmsg.OffsetFetchResponseGroupTopic
	for _, t := range in.Topics {
		out := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic, TopicID: t.TopicID}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, noOffset(p, wire.ErrCode(code)))
		}
		all = append(all, out)
	}
	return all
}

func (c *Call) fetchGroupOffsets(in *kmsg.OffsetFetchRequestGroup, stable bool) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = in.Group
	if c.Req.Version >= 9 && (in.MemberID != nil || in.MemberEpoch >= 0) {
		if code := c.Groups.CheckFetch(c.Ctx, in.Group, text(in.MemberID), in.MemberEpoch); code != errcode.None {
			out.ErrorCode = wireCode(code)
			return out
		}
	}
	if in.Topics == nil {
		entries, code := c.Groups.Offsets(c.Ctx, in.Group)
		out.ErrorCode = wireCode(code)
		out.Topics = c.allOffsets(entries, stable)
		return out
	}
	var tps []types.TopicPartition
	known := make([]bool, len(in.Topics))
	for i, t := range in.Topics {
		var name string
		if name, known[i] = c.fetchTopic(&t); !known[i] {
			continue
		}
		for _, p := range t.Partitions {
			tps = append(tps, types.TopicPartition{Topic: name, Partition: p})
		}
	}
	entries, code := c.Groups.Offset(c.Ctx, in.Group, tps)
	if code != errcode.None {
		out.ErrorCode = wireCode(code)
		return out
	}
	for i, t := range in.Topics {
		topic := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic, TopicID: t.TopicID}
		for _, p := range t.Partitions {
			if !known[i] {
				topic.Partitions = append(topic.Partitions, noOffset(p, wire.ErrUnknownTopicID))
				continue
			}
			if c.isOfAnotherTopic(entries[0]) {
				topic.Partitions = append(topic.Partitions, noOffset(p, wire.None))
			} else {
				topic.Partitions = append(topic.Partitions, fetchedOffset(entries[0], stable))
			}
			entries = entries[1:]
		}
		out.Topics = append(out.Topics, topic)
	}
	return out
}

// isOfAnotherTopic reports whether an offset was committed for a topic that had the
// name before: it was deleted, and its offsets are on their way out. Kafka parity: it is told as none.
func (c *Call) isOfAnotherTopic(e group.OffsetEntry) bool {
	t, err := topicRef{name: e.Topic}.find(c.Image)
	return err == nil && !e.TopicID.IsZero() && e.TopicID != t.ID
}

// fetchTopic gives the name that offsets are kept under: any name will do, an
// id must be a topic's.
func (c *Call) fetchTopic(t *kmsg.OffsetFetchRequestGroupTopic) (string, bool) {
	if c.Req.Version < 10 {
		return t.Topic, true
	}
	topic, err := topicRef{id: t.TopicID, useID: true}.find(c.Image)
	if err != nil {
		return "", false
	}
	return topic.Name, true
}

// allOffsets gathers entries, which come ordered by topic, into topics.
func (c *Call) allOffsets(entries []group.OffsetEntry, stable bool) []kmsg.OffsetFetchResponseGroupTopic {
	var all []kmsg.OffsetFetchResponseGroupTopic
	entries = slices.DeleteFunc(entries, c.isOfAnotherTopic)
	for i, e := range entries {
		if i == 0 || entries[i-1].Topic != e.Topic {
			all = append(all, kmsg.OffsetFetchResponseGroupTopic{Topic: e.Topic})
		}
		t := &all[len(all)-1]
		t.Partitions = append(t.Partitions, fetchedOffset(e, stable))
	}
	if c.Req.Version < 10 {
		return all
	}
	named := all[:0]
	for _, t := range all {
		if topic, err := (topicRef{name: t.Topic}).find(c.Image); err == nil {
			t.TopicID = topic.ID
			named = append(named, t)
		}
	}
	return named
}

func fetchedOffset(e group.OffsetEntry, stable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	if stable && e.Unstable {
		return noOffset(e.Partition, wire.ErrUnstableOffsetCommit)
	}
	metadata := e.Metadata
	return kmsg.OffsetFetchResponseGroupTopicPartition{
		Partition: e.Partition, Offset: int64(e.Offset), LeaderEpoch: int32(e.LeaderEpoch), Metadata: &metadata,
	}
}

func noOffset(partition int32, code wire.ErrCode) kmsg.OffsetFetchResponseGroupTopicPartition {
	return kmsg.OffsetFetchResponseGroupTopicPartition{
		Partition: partition, Offset: -1, LeaderEpoch: -1, Metadata: new(string), ErrorCode: int16(code),
	}
}
