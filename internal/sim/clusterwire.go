package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	src "tidemark/internal/source"
	"tidemark/internal/wire"
)

// What speaks Kafka's protocol: followers and consumers with the product's own
// fetch sessions (KIP-227) on both sides, frame by frame. Frames are late, lost
// or twice like all messages here; sessions are evicted, and forgotten by crashes.

// sessionIdle is how long a session is idle before another one may take its slot.
const sessionIdle = 3 * time.Second

// frames has a broker answer frames of another one.
func (l *peerLinks) frames(leader types.BrokerID) src.Exchange {
	p := l.m.p
	return func(ctx context.Context, request []byte) ([]byte, error) {
		var answer []byte
		err := l.m.ask(ctx, p, leader, "frame", func(at *machine, reply func(func())) {
			at.task(func() {
				raw, err := at.node.Answer(at.node.Context(), append([]byte(nil), request...))
				if err == nil && raw != nil {
					reply(func() { answer = raw })
				}
			})
		})
		return answer, err
	}
}

// wireSession gives a consumer's session with a broker.
func (r *reader) wireSession(leader types.BrokerID) *src.Session {
	if s := r.sessions[leader]; s != nil {
		return s
	}
	if r.sessions == nil {
		r.sessions = map[types.BrokerID]*src.Session{}
	}
	m := r.c.machine(leader)
	s := src.NewSessionOver(func(ctx context.Context, request []byte) ([]byte, error) {
		return r.exchange(ctx, m, request)
	}, leader, src.SessionOptions{})
	r.sessions[leader] = s
	return s
}

// exchange carries one frame of a consumer to a broker and back.
func (r *reader) exchange(ctx context.Context, m *machine, request []byte) ([]byte, error) {
	p := r.c.clients
	var answer []byte
	settled, lost := false, false
	once := func(f func()) {
		if !settled {
			p.do(func() { settled = true; f() })
		}
	}
	r.c.net.call(r.who(), m.name, "consume", clientTimeout, func(reply func(func())) {
		if !m.serves() {
			return
		}
		m.task(func() {
			raw, err := m.node.Answer(m.node.Context(), append([]byte(nil), request...))
			if err == nil && raw != nil {
				reply(func() { once(func() { answer = raw }) })
			}
		})
		if end := endOf(request); end != nil && r.k.buggified("consumer: ends its session") {
			r.endSession(m, request, end)
		}
	}, func() { once(func() { lost = true }) })
	if err := p.until(ctx, func() bool { return settled }); err != nil {
		settled = true
		return nil, err
	}
	if lost {
		return nil, errLost
	}
	return answer, nil
}

// endSession has a consumer end its session while a fetch of it is at work and the same
// frame, which came twice, waits for its turn. The consumer finds its session gone.
func (r *reader) endSession(m *machine, request, end []byte) {
	for _, frame := range [][]byte{request, end} {
		frame = append([]byte(nil), frame...)
		m.task(func() { _, _ = m.node.Answer(m.node.Context(), frame) }) // nobody waits for these answers
	}
}

// endOf makes of a fetch within a session the one that ends the session (KIP-227): the
// session's epoch is -1. Nil for a fetch that belongs to no session yet.
func endOf(fetch []byte) []byte {
	const header, limits = 2 + 2 + 4 + 2, 4 + 4 + 4 + 1 // up to the client id; from the longest wait to the isolation level
	version, id := binary.BigEndian.Uint16(fetch[2:]), int16(binary.BigEndian.Uint16(fetch[8:]))
	at := header + int(max(id, 0)) + 1 + limits
	if version < 15 {
		at += 4 // the replica's id
	}
	session, epoch := binary.BigEndian.Uint32(fetch[at:]), binary.BigEndian.Uint32(fetch[at+4:])
	if session == 0 || epoch == 0 {
		return nil
	}
	end := append([]byte(nil), fetch...)
	binary.BigEndian.PutUint32(end[at+4:], math.MaxUint32)
	return end
}

// pollWire fetches once over the wire.
func (r *reader) pollWire(m *machine) {
	topic, at, last, epoch := r.topic, r.at, r.last, r.epoch
	r.c.clients.Go(&r.c.clientWork, func() {
		s := r.wireSession(m.id)
		tp := types.TopicPartition{Topic: clusterTopic, Partition: int32(r.partition)}
		s.Set(src.FetchPartition{TopicPartition: tp, TopicID: topic, Offset: at, CurrentEpoch: epoch, LastEpoch: last, MaxBytes: 4000})
		a, err := s.Fetch(r.c.clients.context(), src.FetchLimits{MaxWait: 200 * time.Millisecond, MinBytes: 1, MaxBytes: 4000})
		if err != nil {
			r.k.probe("consumer: fetch failed")
			r.busy = false
			return
		}
		defer a.Release()
		for i := range a.Partitions {
			if p := &a.Partitions[i]; p.TopicPartition == tp && p.Asked.TopicID == topic && p.Asked.Offset == at {
				r.answered(m, readOf(p), p.Records, codeError(p.Code))
				return
			}
		}
		r.busy = false
		r.since = r.k.now // nothing new
	})
}

// readOf is an answer as Partition.Read gives it.
func readOf(p *src.FetchedPartition) api.ReadResult {
	out := api.ReadResult{HighWatermark: p.HighWatermark, LogStart: p.LogStart}
	if p.Diverging != nil {
		out.HasDiverging, out.Diverging = true, api.EpochEnd{Epoch: p.Diverging.Epoch, End: p.Diverging.End}
	}
	return out
}

func codeError(c src.Code) error {
	if c == src.CodeNone {
		return nil
	}
	return wire.ErrCode(c)
}

func isOutOfRange(err error) bool { return errors.Is(err, wire.ErrOffsetOutOfRange) }

// nextOf is the offset behind some batches.
func nextOf(raw []byte) types.Offset {
	next := types.NoOffset
	for it := batch.Iterate(raw); it.Next(); {
		next = it.Header.NextOffset()
	}
	return next
}

// earliest is what ListOffsets would say: where a partition begins at a broker.
func (c *cluster) earliest(m *machine, id meta.PartitionID) types.Offset {
	if h := m.held(id); h != nil {
		return h.start
	}
	return 0
}
