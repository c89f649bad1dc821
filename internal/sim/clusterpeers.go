package sim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/broker/follow"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	src "tidemark/internal/source"
	"tidemark/internal/wire"
)

// peerLinks are a process's connections to the other brokers.
type peerLinks struct{ m *machine }

var _ follow.Client = (*peerLinks)(nil)

var errLost = errors.New("no answer in time")

// SetBroker implements follow.Client: nobody moves here.
func (l *peerLinks) SetBroker(src.Broker) {}

// Close implements follow.Client.
func (l *peerLinks) Close() {}

// NewSession implements follow.Client.
func (l *peerLinks) NewSession(leader types.BrokerID, o src.SessionOptions) follow.Session {
	if l.m.c.o.Wire && !l.m.c.mutation.lateAnswers {
		return src.NewSessionOver(l.frames(leader), leader, o)
	}
	return &fetchLink{m: l.m, p: l.m.p, leader: leader, replica: o.Replica, wanted: map[types.TopicPartition]src.FetchPartition{}}
}

const peerTimeout = 1500 * time.Millisecond

// ask sends a request to another broker and waits for its answer. serve runs
// there once the broker answers requests, and may keep reply.
func (m *machine) ask(ctx context.Context, p *process, to types.BrokerID, what string, serve func(leader *machine, reply func(arrived func()))) error {
	return m.askWithin(ctx, p, to, what, peerTimeout, serve)
}

// askWithin is ask for who waits for another time.
func (m *machine) askWithin(ctx context.Context, p *process, to types.BrokerID, what string, patience time.Duration, serve func(leader *machine, reply func(arrived func()))) error {
	settled, lost := false, false
	once := func(f func()) {
		if !settled && !p.dead {
			p.do(func() { settled = true; f() })
		}
	}
	m.c.net.call(m.name, m.c.machine(to).name, what, patience, func(reply func(func())) {
		leader := m.c.machine(to)
		if !leader.serves() {
			return
		}
		leader.p.do(func() { serve(leader, func(f func()) { reply(func() { once(f) }) }) })
	}, func() { once(func() { lost = true }) })
	if err := p.until(ctx, func() bool { return settled }); err != nil {
		settled = true
		return err
	}
	if lost {
		return errLost
	}
	return nil
}

// ListOffsets implements follow.Client.
func (l *peerLinks) ListOffsets(ctx context.Context, leader types.BrokerID, queries []src.OffsetQuery) (map[types.TopicPartition]src.OffsetAnswer, error) {
	m := l.m
	out := map[types.TopicPartition]src.OffsetAnswer{}
	err := m.ask(ctx, m.p, leader, "list offsets", func(at *machine, reply func(func())) {
		answers := map[types.TopicPartition]src.OffsetAnswer{}
		for _, q := range queries {
			answers[q.TopicPartition] = at.listOffset(q)
		}
		reply(func() { out = answers })
	})
	return out, err
}

func (m *machine) listOffset(q src.OffsetQuery) src.OffsetAnswer {
	t, ok := m.node.Image().TopicByName(q.Topic)
	if !ok {
		return src.OffsetAnswer{Code: codeOf(wire.ErrUnknownTopicOrPartition)}
	}
	part, err := m.node.Partitions().Get(t.ID, q.Partition)
	if err != nil {
		return src.OffsetAnswer{Code: codeOf(err)}
	}
	a, err := part.ListOffset(api.OffsetQuery{Timestamp: api.TimestampEarliest, CurrentLeaderEpoch: q.CurrentEpoch, Replica: types.NoBroker})
	if err != nil {
		return src.OffsetAnswer{Code: codeOf(err)}
	}
	return src.OffsetAnswer{Offset: a.Offset}
}

// codeOf is what an error is on the wire.
func codeOf(err error) src.Code { return src.Code(api.CodeOf(err)) }

// fetchLink is a fetch session with one broker.
type fetchLink struct {
	m       *machine
	p       *process
	leader  types.BrokerID
	replica *src.Replica
	wanted  map[types.TopicPartition]src.FetchPartition
	last    *src.FetchAnswer // the last one that told of a divergence
}

// Set implements follow.Session.
func (f *fetchLink) Set(p src.FetchPartition) { f.wanted[p.TopicPartition] = p }

// Remove implements follow.Session.
func (f *fetchLink) Remove(tp types.TopicPartition) { delete(f.wanted, tp) }

// Fetch implements follow.Session.
func (f *fetchLink) Fetch(ctx context.Context, _ src.FetchLimits) (*src.FetchAnswer, error) {
	asked := make([]src.FetchPartition, 0, len(f.wanted))
	for _, p := range f.wanted {
		asked = append(asked, p)
	}
	slices.SortFunc(asked, func(a, b src.FetchPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	if f.m.c.mutation.lateAnswers && f.last != nil && f.m.k.dice("late answers").chance(0.05) {
		return f.last, nil
	}
	epoch := f.replica.Epoch()
	var answer *src.FetchAnswer
	err := f.m.ask(ctx, f.p, f.leader, "fetch", func(at *machine, reply func(func())) {
		s := &serving{m: at, p: at.p, from: f.m.id, epoch: epoch, asked: asked}
		s.done = func(a *src.FetchAnswer) { reply(func() { answer = a }) }
		s.serve()
	})
	if err == nil && slices.ContainsFunc(answer.Partitions, func(p src.FetchedPartition) bool { return p.Diverging != nil }) {
		f.last = answer
	}
	return answer, err
}

// serving is a follower's fetch on its way through the leader.
type serving struct {
	m       *machine
	p       *process
	from    types.BrokerID
	epoch   types.BrokerEpoch
	asked   []src.FetchPartition
	done    func(*src.FetchAnswer)
	over    bool
	cancels []func()
}

// fetchWait is how long a leader holds a fetch that has nothing to answer.
const fetchWait = 500 * time.Millisecond

// serve answers at once if there is anything to say, else at the next progress or after a while.
func (s *serving) serve() {
	if a, empty := s.read(); !empty {
		s.finish(a)
		return
	}
	again := func() {
		if s.over {
			return
		}
		// A subscriber is told on the owner's turn and works on its own.
		s.m.k.after(0, "fetch goes on", func() {
			if !s.over {
				s.p.do(func() {
					if a, empty := s.read(); !empty {
						s.finish(a)
					}
				})
			}
		})
	}
	for _, p := range s.asked {
		if part, err := s.m.node.Partitions().Get(p.TopicID, p.Partition); err == nil {
			s.cancels = append(s.cancels, part.OnProgress(again))
		}
	}
	s.p.later(fetchWait, "fetch waited", func() {
		if !s.over {
			a, _ := s.read()
			s.finish(a)
		}
	})
}

func (s *serving) finish(a *src.FetchAnswer) {
	if s.over {
		return
	}
	s.over = true
	for _, cancel := range s.cancels {
		cancel()
	}
	s.done(a)
}

// read asks every partition; empty means that nothing is worth an answer.
func (s *serving) read() (a *src.FetchAnswer, empty bool) {
	a, empty = &src.FetchAnswer{}, true
	for _, p := range s.asked {
		one := src.FetchedPartition{TopicPartition: p.TopicPartition, Asked: p, HighWatermark: -1, LastStable: -1, LogStart: -1}
		var out api.ReadResult
		part, err := s.m.node.Partitions().Get(p.TopicID, p.Partition)
		if err == nil {
			err = part.Read(p.Offset, api.ReadRequest{
				CurrentLeaderEpoch: p.CurrentEpoch, LastFetchedEpoch: p.LastEpoch, MaxBytes: s.m.c.o.FetchBytes, MinOne: true,
				Replica: s.from, ReplicaEpoch: s.epoch, ReplicaStart: p.LogStart, ReplicaTail: p.Tail,
			}, &out)
		}
		if err != nil {
			one.Code = codeOf(err)
		} else {
			one.HighWatermark, one.LastStable, one.LogStart = out.HighWatermark, out.LastStable, out.LogStart
			if out.HasDiverging {
				one.Diverging = &src.EpochEnd{Epoch: out.Diverging.Epoch, End: out.Diverging.End}
				s.m.k.probe("follower: divergence")
			}
			if one.Records, err = bytesOf(&out); err != nil {
				one.Code, one.Records = codeOf(wire.ErrKafkaStorageError), nil
			}
		}
		empty = empty && one.Code == src.CodeNone && one.Diverging == nil && len(one.Records) == 0 && !s.isNews(p, out.HighWatermark)
		a.Partitions = append(a.Partitions, one)
	}
	return a, empty
}

// isNews reports whether a follower lacks the high watermark: sessions answer then (KIP-227).
func (s *serving) isNews(p src.FetchPartition, hw types.Offset) bool {
	h := s.m.held(meta.PartitionID{Topic: p.TopicID, Number: p.Partition})
	if h == nil {
		return false
	}
	if h.toldHW == nil {
		h.toldHW = map[types.BrokerID]types.Offset{}
	}
	news := h.toldHW[s.from] != hw
	h.toldHW[s.from] = hw
	return news
}

// bytesOf reads the records of an answer, as a connection does after the read.
func bytesOf(out *api.ReadResult) ([]byte, error) {
	var b []byte
	var fault error
	for _, p := range out.Records {
		if p.File == nil {
			b = append(b, p.Mem...)
			continue
		}
		at := len(b)
		b = append(b, make([]byte, p.Len)...)
		if _, err := p.File.ReadAt(b[at:], p.Off); err != nil {
			fault = err
		}
	}
	if out.Release != nil {
		out.Release()
	}
	return b, fault
}
