package sim

import (
	"fmt"
	"time"

	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	src "tidemark/internal/source"
)

// kafkaFar is a cluster that is no Tidemark (source.go), as mirrors meet it: real
// epochs, unclean elections of its own, no timelines.
type kafkaFar struct {
	w *mirrors
	s *source
}

var _ farCluster = kafkaFar{}

func (f kafkaFar) clusterID() string { return f.s.id }

func (f kafkaFar) brokers() []types.BrokerID {
	ids := make([]types.BrokerID, srcReplicas)
	for i := range ids {
		ids[i] = types.BrokerID(i)
	}
	return ids
}

func (f kafkaFar) nameOf(id types.BrokerID) string { return fmt.Sprintf("source broker %d", id) }

func (f kafkaFar) at(id types.BrokerID, serve func()) {
	if !f.s.down[int(id)] {
		serve()
	}
}

// metadata may be that of a broker that doesn't know yet that it was deposed.
func (f kafkaFar) metadata(_ types.BrokerID, topics []string) *src.Metadata {
	out := &src.Metadata{ClusterID: f.s.id}
	if !f.s.exist {
		return out
	}
	for _, name := range topics {
		if name != clusterTopic {
			out.Topics = append(out.Topics, src.Topic{Name: name, Code: src.CodeUnknownTopicOrPartition})
		}
	}
	t := src.Topic{Name: clusterTopic, ID: f.s.topic}
	d := f.w.k.dice("source metadata")
	for n := range f.s.parts {
		one := src.Partition{Partition: int32(n), Leader: types.NoBroker, LeaderEpoch: types.NoLeaderEpoch, Code: src.CodeLeaderNotAvailable}
		if s, b, why := f.s.lookUp(int32(n), d); why == "" {
			one.Leader, one.LeaderEpoch, one.Code = types.BrokerID(b), s.LeaderEpoch, 0
		}
		t.Partitions = append(t.Partitions, one)
	}
	out.Topics = append(out.Topics, t)
	return out
}

// led gives a broker's replica if it believes to lead in the epoch that the asker knows.
func (f kafkaFar) led(id types.BrokerID, tp types.TopicPartition, epoch types.LeaderEpoch) (*srcReplica, src.Code) {
	if !f.s.exist || tp.Topic != clusterTopic || int(tp.Partition) >= len(f.s.parts) {
		return nil, src.CodeUnknownTopicOrPartition
	}
	r := f.s.parts[tp.Partition].replicas[id]
	switch {
	case r.leads < 0:
		return nil, src.CodeNotLeaderOrFollower
	case epoch >= 0 && epoch < r.leads:
		return nil, src.CodeFencedLeaderEpoch
	case epoch > r.leads:
		return nil, src.CodeUnknownLeaderEpoch
	}
	return r, 0
}

func (f kafkaFar) listOffset(id types.BrokerID, q src.OffsetQuery) src.OffsetAnswer {
	r, code := f.led(id, q.TopicPartition, q.CurrentEpoch)
	switch {
	case code != 0:
		return src.OffsetAnswer{Code: code}
	case q.Timestamp == src.Earliest:
		return src.OffsetAnswer{Offset: r.start}
	case q.Timestamp == src.Latest:
		return src.OffsetAnswer{Offset: max(r.start, r.hw)}
	}
	return src.OffsetAnswer{Offset: types.NoOffset}
}

func (f kafkaFar) epochEnd(id types.BrokerID, q src.EpochQuery) src.EpochAnswer {
	r, code := f.led(id, q.TopicPartition, q.CurrentEpoch)
	if code != 0 {
		return src.EpochAnswer{Code: code}
	}
	e, end, ok := r.epochEnd(q.Epoch)
	if !ok {
		return src.EpochAnswer{Epoch: types.NoLeaderEpoch, End: types.NoOffset}
	}
	return src.EpochAnswer{Epoch: e, End: end}
}

func (f kafkaFar) lineage(types.BrokerID, []src.LineageQuery) map[types.TopicPartition]src.Lineage {
	return nil
}

func (f kafkaFar) fetch(id types.BrokerID, asked []src.FetchPartition, wait time.Duration, done func([]src.FetchedPartition)) {
	list, empty := f.read(id, asked)
	if !empty || wait <= 0 {
		done(list)
		return
	}
	over := false
	var again func()
	again = func() {
		if over {
			return
		}
		list, empty := f.read(id, asked)
		if !empty {
			over = true
			done(list)
			return
		}
		for _, a := range asked {
			if int(a.Partition) < len(f.s.parts) {
				f.s.parts[a.Partition].waiting = append(f.s.parts[a.Partition].waiting, again)
			}
		}
	}
	again()
	f.w.k.after(wait, "fetch waited", func() {
		if !over {
			over = true
			list, _ := f.read(id, asked)
			done(list)
		}
	})
}

func (f kafkaFar) read(id types.BrokerID, asked []src.FetchPartition) (list []src.FetchedPartition, empty bool) {
	empty = true
	for _, p := range asked {
		one := src.FetchedPartition{TopicPartition: p.TopicPartition, Asked: p, HighWatermark: types.NoOffset, LastStable: types.NoOffset, LogStart: types.NoOffset}
		switch {
		case !f.s.exist || p.TopicID != f.s.topic || int(p.Partition) >= len(f.s.parts):
			one.Code = src.CodeUnknownTopicID
		default:
			f.s.parts[p.Partition].answerTo(int(id), p, &one)
		}
		empty = empty && one.Code == 0 && one.Diverging == nil && len(one.Records) == 0
		list = append(list, one)
	}
	return list, empty
}

// answerTo puts what the model answers into the client's form.
func (p *srcPartition) answerTo(broker int, q src.FetchPartition, out *src.FetchedPartition) {
	a := p.fetch(broker, q.TopicID, replica.Request{Offset: q.Offset, LastEpoch: q.LastEpoch, LeaderEpoch: q.CurrentEpoch}, int(q.MaxBytes))
	switch {
	case a.failed != "":
		out.Code = src.CodeNotLeaderOrFollower
		return
	case a.kind == replica.AnswerFenced:
		out.Code = src.CodeFencedLeaderEpoch
		return
	case a.kind == replica.AnswerUnknownEpoch:
		out.Code = src.CodeUnknownLeaderEpoch
		return
	case a.kind == replica.AnswerOutOfRange:
		out.Code = src.CodeOffsetOutOfRange
		return
	case a.kind == replica.AnswerDiverging:
		out.Diverging = &src.EpochEnd{Epoch: a.diverging.epoch, End: a.diverging.start}
	}
	out.HighWatermark, out.LastStable, out.LogStart, out.Records = a.hw, a.hw, a.start, a.records
}

func (f kafkaFar) topicConfigs(_ types.BrokerID, topics []string) map[string]src.TopicConfigs {
	out := map[string]src.TopicConfigs{}
	for _, name := range topics {
		if name == clusterTopic && f.s.exist {
			out[name] = src.TopicConfigs{Set: f.w.o.topicConfigs()}
		} else {
			out[name] = src.TopicConfigs{Code: src.CodeUnknownTopicOrPartition}
		}
	}
	return out
}

// groups: nobody consumes there.
func (f kafkaFar) groups(_ types.BrokerID, done func([]src.GroupListing, error)) { done(nil, nil) }

func (f kafkaFar) offsets(_ types.BrokerID, _ string, done func(src.GroupOffsets, error)) {
	done(src.GroupOffsets{}, nil)
}

func (f kafkaFar) verb(_ types.BrokerID, _ string, _ []byte, done func([]byte, error)) {
	done(nil, errNoTidemark)
}

var errNoTidemark = &src.Error{Kind: src.ErrAnswer, Code: src.CodeUnsupportedVersion, Sentence: "it is no Tidemark"}
