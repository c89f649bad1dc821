// Package compare proves two clusters equal from the outside: it fetches both
// sides itself, as a client, and compares what they serve byte for byte.
//
// It shares no code with the mirror (neither its fetcher nor its verify), so
// that a fault there can't hide itself here. It reads raw record batches; it
// decodes records only where one side has been compacted. The demo and the
// tests against Apache Kafka judge the standby with it; its own tests feed it
// logs with one planted difference of each kind.
package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// Side is one cluster to read from.
type Side struct {
	// Name stands for the cluster in findings, such as "source".
	Name string
	// Client is connected to the cluster; the comparison only sends it requests.
	Client *kgo.Client
}

// Options choose what is compared.
type Options struct {
	// Compacted names topics on which either side may lack records that the other has: they are compared record by record.
	Compacted func(topic string) bool
	// To, if not nil, gives the offset (exclusive) up to which a partition of the first side is compared; else its end.
	To map[types.TopicPartition]types.Offset
}

// Result is what one partition's comparison found.
type Result struct {
	TopicPartition types.TopicPartition
	From, To       types.Offset
	Batches        int64
	Bytes          int64
	// Difference is empty when the sides are equal; else the first difference in words.
	Difference string
}

// Partitions compares every partition of the topics that are on a. The first
// difference of a partition ends that partition's comparison only. An error
// means that a side couldn't be read, not that the sides differ.
func Partitions(ctx context.Context, a, b Side, topics []string, o Options) ([]Result, error) {
	layout, err := layoutOf(ctx, a, topics)
	if err != nil {
		return nil, err
	}
	other, err := layoutOf(ctx, b, topics)
	if err != nil {
		return nil, err
	}
	var results []Result
	for _, tp := range slices.SortedFunc(keys(layout), byName) {
		pa := layout[tp]
		pb, ok := other[tp]
		if !ok {
			results = append(results, Result{TopicPartition: tp, Difference: b.Name + " does not have the partition"})
			continue
		}
		r, err := comparePartition(ctx, a, b, pa, pb, o)
		if err != nil {
			return results, fmt.Errorf("%s: %w", tp, err)
		}
		results = append(results, r)
	}
	return results, nil
}

func keys(m map[types.TopicPartition]place) func(func(types.TopicPartition) bool) {
	return func(yield func(types.TopicPartition) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func byName(x, y types.TopicPartition) int {
	if x.Topic != y.Topic {
		if x.Topic < y.Topic {
			return -1
		}
		return 1
	}
	return int(x.Partition - y.Partition)
}

// place is where a partition is led and the id of its topic.
type place struct {
	tp     types.TopicPartition
	id     [16]byte
	leader int32
}

func layoutOf(ctx context.Context, s Side, topics []string) (map[types.TopicPartition]place, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, s.Client)
	if err != nil {
		return nil, fmt.Errorf("metadata of %s: %w", s.Name, err)
	}
	layout := map[types.TopicPartition]place{}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return nil, fmt.Errorf("metadata of %s, topic %s: %w", s.Name, *t.Topic, err)
		}
		for _, p := range t.Partitions {
			tp := types.TopicPartition{Topic: *t.Topic, Partition: p.Partition}
			layout[tp] = place{tp: tp, id: t.TopicID, leader: p.Leader}
		}
	}
	return layout, nil
}

func comparePartition(ctx context.Context, a, b Side, pa, pb place, o Options) (Result, error) {
	startA, endA, err := bounds(ctx, a, pa)
	if err != nil {
		return Result{}, err
	}
	startB, endB, err := bounds(ctx, b, pb)
	if err != nil {
		return Result{}, err
	}
	r := Result{TopicPartition: pa.tp, From: max(startA, startB), To: endA}
	if to, ok := o.To[pa.tp]; ok {
		r.To = to
	} else if endA != endB {
		r.Difference = fmt.Sprintf("%s ends at %d, %s at %d", a.Name, endA, b.Name, endB)
		return r, nil
	}
	ra, rb := newReader(a, pa, r.From), newReader(b, pb, r.From)
	if o.Compacted != nil && o.Compacted(pa.tp.Topic) {
		return compareRecords(ctx, ra, rb, r)
	}
	return compareBatches(ctx, ra, rb, r)
}

// compareBatches walks both logs batch by batch: every byte must be equal.
func compareBatches(ctx context.Context, ra, rb *reader, r Result) (Result, error) {
	for {
		x, err := ra.next(ctx, r.To)
		if err != nil {
			return r, err
		}
		y, err := rb.next(ctx, r.To)
		if err != nil {
			return r, err
		}
		if x == nil && y == nil {
			return r, nil
		}
		if diff := describe(ra.side.Name, rb.side.Name, x, y); diff != "" {
			r.Difference = diff
			return r, nil
		}
		r.Batches++
		r.Bytes += int64(len(x))
	}
}

// describe says in words how two raw batches differ, or "" if they don't.
func describe(nameX, nameY string, x, y []byte) string {
	if x == nil || y == nil {
		have, lack, raw := nameX, nameY, x
		if x == nil {
			have, lack, raw = nameY, nameX, y
		}
		h, _ := batch.ParseHeader(raw)
		return fmt.Sprintf("%s has a batch at offset %d that %s lacks", have, h.BaseOffset, lack)
	}
	if bytes.Equal(x, y) {
		return ""
	}
	hx, errX := batch.ParseHeader(x)
	hy, errY := batch.ParseHeader(y)
	if errX != nil || errY != nil {
		return fmt.Sprintf("a batch can't be read: %s: %v, %s: %v", nameX, errX, nameY, errY)
	}
	say := func(what string, vx, vy any) string {
		return fmt.Sprintf("batch at offset %d: %s is %v on %s and %v on %s", hx.BaseOffset, what, vx, nameX, vy, nameY)
	}
	switch {
	case hx.BaseOffset != hy.BaseOffset:
		return say("base offset", hx.BaseOffset, hy.BaseOffset)
	case hx.PartitionLeaderEpoch != hy.PartitionLeaderEpoch:
		return say("leader epoch", hx.PartitionLeaderEpoch, hy.PartitionLeaderEpoch)
	case len(x) != len(y):
		return say("size", len(x), len(y))
	case hx.CRC != hy.CRC:
		return say("CRC", hx.CRC, hy.CRC)
	}
	for i := range x {
		if x[i] != y[i] {
			return say(fmt.Sprintf("byte %d", i), x[i], y[i])
		}
	}
	return ""
}

// leaderTries and leaderWait bound how long a partition may be without a leader that answers.
const (
	leaderTries = 100
	leaderWait  = 100 * time.Millisecond
)

// withLeader calls ask until its error is none that a new leader heals, and looks for the leader in between, as clients do.
func withLeader(ctx context.Context, s Side, p *place, ask func(leader int32) error) error {
	for try := 1; ; try++ {
		err := ask(p.leader)
		if err == nil || !kerr.IsRetriable(err) || try == leaderTries {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(leaderWait):
		}
		layout, lookErr := layoutOf(ctx, s, []string{p.tp.Topic})
		if lookErr != nil {
			return errors.Join(err, lookErr)
		}
		if now, ok := layout[p.tp]; ok && now.leader >= 0 {
			p.leader = now.leader
		}
	}
}

// bounds gives a partition's first offset and its end as a consumer sees them.
func bounds(ctx context.Context, s Side, p place) (start, end types.Offset, err error) {
	err = withLeader(ctx, s, &p, func(leader int32) (err error) {
		start, end, err = boundsAt(ctx, s, p, leader)
		return err
	})
	return start, end, err
}

func boundsAt(ctx context.Context, s Side, p place, leader int32) (start, end types.Offset, err error) {
	for _, q := range []struct {
		at  int64
		out *types.Offset
	}{{-2, &start}, {-1, &end}} {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = p.tp.Topic
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p.tp.Partition, q.at, -1
		t.Partitions = append(t.Partitions, rp)
		req.Topics = append(req.Topics, t)
		raw, err := s.Client.Broker(int(leader)).RetriableRequest(ctx, req)
		if err != nil {
			return 0, 0, fmt.Errorf("offsets of %s: %w", s.Name, err)
		}
		resp := raw.(*kmsg.ListOffsetsResponse)
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return 0, 0, fmt.Errorf("offsets of %s: the answer lacks the partition", s.Name)
		}
		rsp := resp.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(rsp.ErrorCode); err != nil {
			return 0, 0, fmt.Errorf("offsets of %s: %w", s.Name, err)
		}
		*q.out = types.Offset(rsp.Offset)
	}
	return start, end, nil
}
