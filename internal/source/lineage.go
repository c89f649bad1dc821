package source

import (
	"context"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// LineageQuery asks a leader for a partition's lineage, by topic id.
type LineageQuery struct {
	types.TopicPartition
	TopicID types.TopicID
}

// Lineage is what a Tidemark leader says of a partition beyond Kafka
// (docs/format/lineage-api.md). LeaderEpoch and Timelines belong together (R18).
type Lineage struct {
	Code        Code
	LeaderEpoch types.LeaderEpoch
	// Timelines is empty on a mirror that has not adopted its own source's list yet.
	Timelines          []wire.Timeline
	Writable, IsMirror bool
	// LastEpoch is the epoch of the last record, types.NoLeaderEpoch if there is none.
	LastEpoch types.LeaderEpoch
	// Path are the clusters that a mirror copies from, the nearest first.
	Path []string
}

// codeTooLarge is said of the partitions that an answer had no room for.
const codeTooLarge = Code(wire.ErrMessageTooLarge)

// Lineage asks the leader broker; each partition may be named once. A broker that
// isn't Tidemark, or doesn't know the API, isn't asked: then the answer is nil.
// Otherwise every query has an answer; errors of single partitions are in Lineage.Code.
func (c *Client) Lineage(ctx context.Context, broker types.BrokerID, queries []LineageQuery) (map[types.TopicPartition]Lineage, error) {
	cn, err := c.brokerConn(ctx, broker, purposeRequests)
	if err != nil {
		return nil, err
	}
	if _, offered := cn.versions[int16(wire.KeyDescribeLineage)]; !offered {
		return nil, nil
	}
	answers := make(map[types.TopicPartition]Lineage, len(queries))
	for left := queries; len(left) > 0; {
		if err := cn.lineage(ctx, left[:min(len(left), wire.LineagePartitionsMax)], answers); err != nil {
			return nil, err
		}
		var rest []LineageQuery
		for _, q := range left {
			if a, ok := answers[q.TopicPartition]; !ok || a.Code == codeTooLarge {
				delete(answers, q.TopicPartition)
				rest = append(rest, q)
			}
		}
		if len(rest) == len(left) {
			return nil, protocolError(cn.address, "DescribeLineage", "no room in the answer for %s", left[0].TopicPartition)
		}
		left = rest
	}
	return answers, nil
}

// lineage sends one request and adds its answers.
func (c *conn) lineage(ctx context.Context, queries []LineageQuery, answers map[types.TopicPartition]Lineage) error {
	req := &wire.LineageRequest{}
	type place struct {
		id        types.TopicID
		partition int32
	}
	asked := make(map[place]types.TopicPartition, len(queries))
	grouped(queries, func(q LineageQuery) types.TopicPartition { return q.TopicPartition },
		func(string) { req.Topics = append(req.Topics, wire.LineageRequestTopic{}) },
		func(q LineageQuery) {
			t := &req.Topics[len(req.Topics)-1]
			t.ID, t.Partitions = q.TopicID, append(t.Partitions, q.Partition)
			asked[place{q.TopicID, q.Partition}] = q.TopicPartition
		})
	kr, err := c.ask(ctx, req)
	if err != nil {
		return err
	}
	resp := kr.(*wire.LineageResponse)
	if resp.ErrorCode != 0 {
		return answerError(c.address, "DescribeLineage", Code(resp.ErrorCode), "")
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			tp, ok := asked[place{t.ID, p.Partition}]
			if !ok {
				return protocolError(c.address, "DescribeLineage", "an answer for partition %d of topic %s, which was not asked for or came twice", p.Partition, t.ID)
			}
			delete(asked, place{t.ID, p.Partition})
			a := Lineage{Code: Code(p.ErrorCode), LeaderEpoch: p.LeaderEpoch, Timelines: p.Timelines,
				Writable: p.Writable, IsMirror: p.IsMirror, LastEpoch: max(p.LastEpoch, types.NoLeaderEpoch), Path: p.Path}
			if a.Code == 0 && a.LeaderEpoch < 0 {
				return protocolError(c.address, "DescribeLineage", "%s has leader epoch %d", tp, a.LeaderEpoch)
			}
			answers[tp] = a
		}
	}
	for _, tp := range asked {
		return protocolError(c.address, "DescribeLineage", "no answer for %s", tp)
	}
	return nil
}
