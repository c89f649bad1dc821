package sim

import (
	"slices"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	src "tidemark/internal/source"
	"tidemark/internal/wire"
)

// tideFar is a Tidemark cluster as other clusters' mirrors meet it. The answers
// are made from what the handlers of the Kafka protocol ask of the node.
type tideFar struct{ c *cluster }

var _ farCluster = tideFar{}

func (f tideFar) clusterID() string { return f.c.id }

func (f tideFar) brokers() []types.BrokerID {
	ids := make([]types.BrokerID, len(f.c.machines))
	for i, m := range f.c.machines {
		ids[i] = m.id
	}
	return ids
}

func (f tideFar) nameOf(id types.BrokerID) string { return f.c.machine(id).name }

func (f tideFar) at(id types.BrokerID, serve func()) {
	if m := f.c.machine(id); m.serves() {
		m.p.do(serve)
	}
}

func (f tideFar) metadata(id types.BrokerID, topics []string) *src.Metadata {
	image := f.c.machine(id).node.Image()
	out := &src.Metadata{ClusterID: f.c.id}
	for t := range image.TopicsByName() {
		if topics != nil && !slices.Contains(topics, t.Record.Name) {
			continue
		}
		st := src.Topic{Name: t.Record.Name, ID: t.ID, Internal: t.Record.Internal}
		for p := range image.PartitionsOf(t.ID) {
			one := src.Partition{Partition: p.ID.Number, Leader: types.NoBroker, LeaderEpoch: types.NoLeaderEpoch, Code: src.CodeLeaderNotAvailable}
			if p.Record != nil && p.Record.Leader != types.NoBroker {
				one.Leader, one.LeaderEpoch, one.Code = p.Record.Leader, p.Record.LeaderEpoch, 0
			}
			st.Partitions = append(st.Partitions, one)
		}
		out.Topics = append(out.Topics, st)
	}
	return out
}

// part finds a partition by its topic's name, as requests without topic ids do.
func (f tideFar) part(id types.BrokerID, tp types.TopicPartition) (api.Partition, error) {
	m := f.c.machine(id)
	t, ok := m.node.Image().TopicByName(tp.Topic)
	if !ok {
		return nil, wire.ErrUnknownTopicOrPartition
	}
	return m.node.Partitions().Get(t.ID, tp.Partition)
}

func (f tideFar) listOffset(id types.BrokerID, q src.OffsetQuery) src.OffsetAnswer {
	part, err := f.part(id, q.TopicPartition)
	if err != nil {
		return src.OffsetAnswer{Code: codeOf(err)}
	}
	a, err := part.ListOffset(api.OffsetQuery{Timestamp: q.Timestamp, CurrentLeaderEpoch: q.CurrentEpoch, Replica: types.NoBroker})
	if err != nil {
		return src.OffsetAnswer{Code: codeOf(err)}
	}
	return src.OffsetAnswer{Offset: a.Offset, Epoch: a.LeaderEpoch}
}

func (f tideFar) epochEnd(id types.BrokerID, q src.EpochQuery) src.EpochAnswer {
	part, err := f.part(id, q.TopicPartition)
	if err != nil {
		return src.EpochAnswer{Code: codeOf(err)}
	}
	e, end, err := part.EpochEnd(q.CurrentEpoch, q.Epoch)
	if err != nil {
		return src.EpochAnswer{Code: codeOf(err)}
	}
	return src.EpochAnswer{Epoch: e, End: end}
}

// lineage is what DescribeLineage answers (broker/api/32000_describe_lineage.go).
func (f tideFar) lineage(id types.BrokerID, list []src.LineageQuery) map[types.TopicPartition]src.Lineage {
	if f.c.world.o.KIP1279 {
		return nil
	}
	out := map[types.TopicPartition]src.Lineage{}
	m := f.c.machine(id)
	image := m.node.Image()
	for _, q := range list {
		part, err := m.node.Partitions().Get(q.TopicID, q.Partition)
		rec, _ := image.Partition(q.TopicID, q.Partition)
		if err == nil && rec == nil {
			err = wire.ErrUnknownTopicOrPartition
		}
		last := types.NoLeaderEpoch
		if err == nil {
			last, err = part.LastEpoch(rec.LeaderEpoch)
		}
		if err != nil {
			out[q.TopicPartition] = src.Lineage{Code: codeOf(err)}
			continue
		}
		a := src.Lineage{LeaderEpoch: rec.LeaderEpoch, LastEpoch: last, Writable: rec.Writable, Path: api.MirrorPath(image, rec), IsMirror: api.IsMirror(rec)}
		for _, e := range rec.Timelines {
			a.Timelines = append(a.Timelines, wire.Timeline{ID: e.ID, FirstEpoch: e.FirstEpoch, FirstOffset: e.FirstOffset})
		}
		out[q.TopicPartition] = a
	}
	return out
}

// fetch reads as a consumer's fetch does; with wait it answers at the next progress.
func (f tideFar) fetch(id types.BrokerID, asked []src.FetchPartition, wait time.Duration, done func([]src.FetchedPartition)) {
	m := f.c.machine(id)
	p := m.p
	var cancels []func()
	over := false
	finish := func(list []src.FetchedPartition) {
		if over {
			return
		}
		over = true
		for _, cancel := range cancels {
			cancel()
		}
		done(list)
	}
	list, empty := m.readFor(asked)
	if !empty || wait <= 0 {
		finish(list)
		return
	}
	again := func() {
		m.k.after(0, "fetch goes on", func() { // a subscriber is told on the owner's turn and works on its own
			if !over {
				p.do(func() {
					if list, empty := m.readFor(asked); !empty {
						finish(list)
					}
				})
			}
		})
	}
	for _, a := range asked {
		if part, err := m.node.Partitions().Get(a.TopicID, a.Partition); err == nil {
			cancels = append(cancels, part.OnProgress(again))
		}
	}
	p.later(wait, "fetch waited", func() {
		if !over {
			list, _ := m.readFor(asked)
			finish(list)
		}
	})
}

// readFor answers a consumer's fetch now; empty means that nothing is worth an answer.
func (m *machine) readFor(asked []src.FetchPartition) (list []src.FetchedPartition, empty bool) {
	empty = true
	for _, p := range asked {
		one := src.FetchedPartition{TopicPartition: p.TopicPartition, Asked: p, HighWatermark: types.NoOffset, LastStable: types.NoOffset, LogStart: types.NoOffset}
		var out api.ReadResult
		part, err := m.node.Partitions().Get(p.TopicID, p.Partition)
		if err == nil {
			err = part.Read(p.Offset, api.ReadRequest{
				CurrentLeaderEpoch: p.CurrentEpoch, LastFetchedEpoch: p.LastEpoch, MaxBytes: int(p.MaxBytes), MinOne: true,
				Replica: types.NoBroker, ReplicaEpoch: types.NoBrokerEpoch, ReplicaStart: types.NoOffset,
			}, &out)
		}
		if err != nil {
			one.Code = codeOf(err)
		} else {
			one.HighWatermark, one.LastStable, one.LogStart = out.HighWatermark, out.LastStable, out.LogStart
			if out.HasDiverging {
				one.Diverging = &src.EpochEnd{Epoch: out.Diverging.Epoch, End: out.Diverging.End}
			}
			if one.Records, err = bytesOf(&out); err != nil {
				one.Code, one.Records = codeOf(wire.ErrKafkaStorageError), nil
			}
		}
		empty = empty && one.Code == src.CodeNone && one.Diverging == nil && len(one.Records) == 0
		list = append(list, one)
	}
	return list, empty
}

func (f tideFar) topicConfigs(id types.BrokerID, topics []string) map[string]src.TopicConfigs {
	out := map[string]src.TopicConfigs{}
	image := f.c.machine(id).node.Image()
	for _, name := range topics {
		if t, ok := image.TopicByName(name); ok {
			out[name] = src.TopicConfigs{Set: t.Record.Configs}
		} else {
			out[name] = src.TopicConfigs{Code: src.CodeUnknownTopicOrPartition}
		}
	}
	return out
}

func (f tideFar) groups(id types.BrokerID, done func([]src.GroupListing, error)) {
	m := f.c.machine(id)
	m.task(func() {
		list, code := m.node.Groups().List(m.node.Context(), nil, nil)
		if code != errcode.None {
			done(nil, &src.Error{Kind: src.ErrAnswer, Code: src.Code(code), Sentence: "groups"})
			return
		}
		var out []src.GroupListing
		for _, g := range list {
			out = append(out, src.GroupListing{ID: g.Group, ProtocolType: g.ProtocolType, Type: "classic"})
		}
		done(out, nil)
	})
}

func (f tideFar) offsets(id types.BrokerID, name string, done func(src.GroupOffsets, error)) {
	m := f.c.machine(id)
	m.task(func() {
		list, code := m.node.Groups().Offsets(m.node.Context(), name)
		if code != errcode.None {
			done(src.GroupOffsets{}, &src.Error{Kind: src.ErrAnswer, Code: src.Code(code), Sentence: "offsets"})
			return
		}
		out := src.GroupOffsets{Offsets: map[types.TopicPartition]src.CommittedOffset{}}
		for _, o := range list {
			out.Offsets[o.TopicPartition] = src.CommittedOffset{Offset: o.Offset, Epoch: o.LeaderEpoch, Metadata: o.Metadata}
		}
		done(out, nil)
	})
}

func (f tideFar) verb(id types.BrokerID, verb string, body []byte, done func([]byte, error)) {
	if f.c.world.o.KIP1279 {
		done(nil, errNoTidemark)
		return
	}
	m := f.c.machine(id)
	m.task(func() {
		v := m.node.Mirrors()
		if v == nil {
			return
		}
		done(v.Verb(m.node.Context(), verb, body))
	})
}

// record gives the record of a partition as the store has it, nil for none.
func (c *cluster) record(id meta.PartitionID) *meta.PartitionRecord {
	if s, ok := c.judged.(*siteJudge); ok {
		return s.records[id]
	}
	return nil
}
