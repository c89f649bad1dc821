package statelog

import (
	"errors"
	"fmt"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/clock"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
	"tidemark/internal/wire"
)

// ErrNotYet is a load that found the partition not served by this node (yet).
var ErrNotYet = errors.New("the coordinator's partition isn't served here")

var probeLoadWaits = probe.New("coordinator: a load waits for the high watermark")

const defaultBufferBytes = 5 << 20

// Loaded is a partition that was read from Start to End, exclusive.
type Loaded struct {
	Log        api.Partition
	Start, End types.Offset
}

// Load gives f every batch from the partition's start to where its log ends now, as it
// is served in the term's epoch: one that was led before, followed and is led again may
// still show its log as it was. It waits for the high watermark to get to that end:
// records beyond it may still go. raw is f's during the call. ErrNotYet: try again.
func (t *Term) Load(f func(h *batch.Header, raw []byte) error) (Loaded, error) {
	topic, ok := t.o.Image().TopicByName(t.o.Topic)
	if !ok {
		return Loaded{}, fmt.Errorf("%w: no topic %s", ErrNotYet, t.o.Topic)
	}
	p, err := t.o.Partitions.Get(topic.Record.ID, t.Partition)
	if err != nil {
		return Loaded{}, fmt.Errorf("%w: %w", ErrNotYet, err)
	}
	end, err := p.ListOffset(api.OffsetQuery{Timestamp: api.TimestampLatest, CurrentLeaderEpoch: t.Epoch, Replica: t.o.NodeID})
	if err != nil {
		return Loaded{}, fmt.Errorf("%w: %w", ErrNotYet, err)
	}
	start, err := p.ListOffset(api.OffsetQuery{Timestamp: api.TimestampEarliest, CurrentLeaderEpoch: t.Epoch, Replica: types.NoBroker})
	if err != nil {
		return Loaded{}, fmt.Errorf("%w: %w", ErrNotYet, err)
	}
	moved := make(chan struct{}, 1)
	cancel := p.OnProgress(func() {
		select {
		case moved <- struct{}{}:
		default:
		}
	})
	defer cancel()
	r := reader{Term: t, log: p, from: start.Offset, f: f}
	for r.from < end.Offset {
		before := r.from
		if err := r.read(); err != nil {
			return Loaded{}, err
		}
		if r.from > before {
			continue
		}
		probeLoadWaits.Reached()
		if _, err := clock.Wait(t.Context, clock.Forever, moved); err != nil {
			return Loaded{}, err
		}
	}
	return Loaded{Log: p, Start: start.Offset, End: r.from}, nil
}

type reader struct {
	*Term
	log    api.Partition
	from   types.Offset
	f      func(h *batch.Header, raw []byte) error
	out    api.ReadResult
	buffer []byte
}

// read takes what one fetch brings.
func (r *reader) read() error {
	size := r.o.BufferBytes
	if size <= 0 {
		size = defaultBufferBytes
	}
	err := r.log.Read(r.from, api.ReadRequest{
		CurrentLeaderEpoch: r.Epoch, LastFetchedEpoch: types.NoLeaderEpoch,
		MaxBytes: size, MinOne: true, Replica: types.NoBroker, ReplicaEpoch: types.NoBrokerEpoch,
	}, &r.out)
	if wire.CodeOf(err) == wire.ErrOffsetOutOfRange {
		return fmt.Errorf("%w: log start moved past %d while loading", ErrNotYet, r.from)
	}
	if err != nil {
		return fmt.Errorf("%w: read at %d: %w", ErrNotYet, r.from, err)
	}
	if r.out.Release != nil {
		defer r.out.Release()
		r.out.Release = nil
	}
	r.buffer = r.buffer[:0]
	for _, piece := range r.out.Records {
		if r.buffer, err = appendPiece(r.buffer, piece); err != nil {
			return fmt.Errorf("read at %d: %w", r.from, err)
		}
	}
	r.out.Records = r.out.Records[:0]
	it := batch.Iterate(r.buffer)
	for it.Next() {
		if err := r.f(&it.Header, it.Raw); err != nil {
			return fmt.Errorf("batch at %d: %w", it.Header.BaseOffset, err)
		}
		r.from = it.Header.NextOffset()
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read at %d: %w", r.from, err)
	}
	return nil
}

func appendPiece(dst []byte, p wire.Piece) ([]byte, error) {
	if p.File == nil {
		return append(dst, p.Mem...), nil
	}
	at := len(dst)
	dst = append(dst, make([]byte, p.Len)...)
	_, err := p.File.ReadAt(dst[at:], p.Off)
	return dst, err
}
