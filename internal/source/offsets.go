package source

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
)

// The special timestamps of ListOffsets.
const (
	// Latest asks for the high watermark: what a fetch of this client can reach.
	Latest types.Millis = -1
	// Earliest asks for the log start offset.
	Earliest types.Millis = -2
)

// OffsetQuery asks a leader for one offset of a partition.
type OffsetQuery struct {
	types.TopicPartition
	// CurrentEpoch fences the query by leader epoch (KIP-320), types.NoLeaderEpoch for no fence.
	CurrentEpoch types.LeaderEpoch
	// Timestamp is Latest, Earliest, or a time: then the first record at or after it is asked for.
	Timestamp types.Millis
}

// OffsetAnswer is the leader's answer to one OffsetQuery.
type OffsetAnswer struct {
	Code   Code
	Offset types.Offset
	// Epoch is the leader epoch at that offset, types.NoLeaderEpoch if the source doesn't say.
	Epoch types.LeaderEpoch
}

// grouped collects partitions by topic, in order of first appearance.
func grouped[Q any](queries []Q, key func(Q) types.TopicPartition, topic func(name string), partition func(q Q)) {
	byTopic := map[string][]Q{}
	var names []string
	for _, q := range queries {
		name := key(q).Topic
		if _, ok := byTopic[name]; !ok {
			names = append(names, name)
		}
		byTopic[name] = append(byTopic[name], q)
	}
	for _, name := range names {
		topic(name)
		for _, q := range byTopic[name] {
			partition(q)
		}
	}
}

// askLeader sends a request about the partitions of queries to their leader. take keeps the
// answers that a response has, and says what can't be right about them, "" if nothing.
// Each query must have one.
func askLeader[Q, A any](ctx context.Context, c *Client, broker types.BrokerID, req kmsg.Request, queries []Q, key func(Q) types.TopicPartition,
	take func(kr kmsg.Response, answers map[types.TopicPartition]A) (wrong string),
) (map[types.TopicPartition]A, error) {
	kr, address, err := c.askAt(ctx, broker, req)
	if err != nil {
		return nil, err
	}
	answers := make(map[types.TopicPartition]A, len(queries))
	wrong := take(kr, answers)
	for _, q := range queries {
		if _, ok := answers[key(q)]; !ok && wrong == "" {
			wrong = "no answer for " + key(q).String()
		}
	}
	if wrong != "" {
		return nil, protocolError(address, kmsg.NameForKey(req.Key()), "%s", wrong)
	}
	return answers, nil
}

// ListOffsets asks the leader broker; each partition may be named once, all with
// special timestamps or all with times. Every
// query has an answer; errors of single partitions are in OffsetAnswer.Code.
func (c *Client) ListOffsets(ctx context.Context, broker types.BrokerID, queries []OffsetQuery) (map[types.TopicPartition]OffsetAnswer, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	key := func(q OffsetQuery) types.TopicPartition { return q.TopicPartition }
	grouped(queries, key,
		func(name string) { req.Topics = append(req.Topics, kmsg.ListOffsetsRequestTopic{Topic: name}) },
		func(q OffsetQuery) {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch, p.Timestamp = q.Partition, int32(q.CurrentEpoch), int64(q.Timestamp)
			t := &req.Topics[len(req.Topics)-1]
			t.Partitions = append(t.Partitions, p)
		})
	special := len(queries) == 0 || queries[0].Timestamp < 0 // a time beyond all records has no offset
	return askLeader(ctx, c, broker, req, queries, key, func(kr kmsg.Response, answers map[types.TopicPartition]OffsetAnswer) (wrong string) {
		for _, t := range kr.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				tp := types.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				a := OffsetAnswer{Code: Code(p.ErrorCode), Offset: types.Offset(p.Offset), Epoch: types.LeaderEpoch(p.LeaderEpoch)}
				if a.Code == 0 && a.Offset < 0 && special {
					return fmt.Sprintf("%s has offset %d", tp, a.Offset)
				}
				answers[tp] = a
			}
		}
		return ""
	})
}

// EpochQuery asks a leader where an epoch ends (OffsetForLeaderEpoch).
type EpochQuery struct {
	types.TopicPartition
	CurrentEpoch, Epoch types.LeaderEpoch
}

// EpochAnswer is the leader's answer: the largest epoch not above the asked one
// and its end; Epoch is types.NoLeaderEpoch and End types.NoOffset if it knows none.
type EpochAnswer struct {
	Code  Code
	Epoch types.LeaderEpoch
	End   types.Offset
}

// EpochEnds asks the leader broker; each partition may be named once.
func (c *Client) EpochEnds(ctx context.Context, broker types.BrokerID, queries []EpochQuery) (map[types.TopicPartition]EpochAnswer, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	key := func(q EpochQuery) types.TopicPartition { return q.TopicPartition }
	grouped(queries, key,
		func(name string) { req.Topics = append(req.Topics, kmsg.OffsetForLeaderEpochRequestTopic{Topic: name}) },
		func(q EpochQuery) {
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = q.Partition, int32(q.CurrentEpoch), int32(q.Epoch)
			t := &req.Topics[len(req.Topics)-1]
			t.Partitions = append(t.Partitions, p)
		})
	return askLeader(ctx, c, broker, req, queries, key, func(kr kmsg.Response, answers map[types.TopicPartition]EpochAnswer) (wrong string) {
		for _, t := range kr.(*kmsg.OffsetForLeaderEpochResponse).Topics {
			for _, p := range t.Partitions {
				a := EpochAnswer{Code: Code(p.ErrorCode), Epoch: types.LeaderEpoch(p.LeaderEpoch), End: types.Offset(p.EndOffset)}
				if a.Epoch < 0 || a.End < 0 {
					a.Epoch, a.End = types.NoLeaderEpoch, types.NoOffset
				}
				answers[types.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = a
			}
		}
		return ""
	})
}
