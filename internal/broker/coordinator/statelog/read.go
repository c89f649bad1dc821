package statelog

import (
	"context"
	"errors"
	"fmt"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
	"tidemark/internal/wire"
)

// ErrNotYet is a load that found the partition not served by this node (yet).
var ErrNotYet = errors.New("the coordinator's partition isn't served here")

var probeLoadWaits = probe.New("coordinator: a load waits for the high watermark")

const defaultBufferBytes = 5 << 20

// Load says what is to be read: a partition as it is served in one leader epoch. One
// that was led before, followed and is led again may still show its log as it was.
type Load struct {
	Image      func() *meta.Image
	Partitions api.Partitions
	Topic      string
	Partition  int32
	Epoch      types.LeaderEpoch
	NodeID     types.BrokerID
	// BufferBytes is how much is read at a time; 0 means 5 MiB.
	BufferBytes int
}

// Loaded is a partition that was read from Start to End, exclusive.
type Loaded struct {
	Log        api.Partition
	Start, End types.Offset
}

// Read gives f every batch from the partition's start to where its log ends now. It
// waits for the high watermark to get there: records beyond it may still go. raw is
// f's during the call. ErrNotYet: try again.
func (l Load) Read(ctx context.Context, f func(h *batch.Header, raw []byte) error) (Loaded, error) {
	topic, ok := l.Image().TopicByName(l.Topic)
	if !ok {
		return Loaded{}, fmt.Errorf("%w: no topic %s", ErrNotYet, l.Topic)
	}
	p, err := l.Partitions.Get(topic.Record.ID, l.Partition)
	if err != nil {
		return Loaded{}, fmt.Errorf("%w: %w", ErrNotYet, err)
	}
	end, err := p.ListOffset(api.OffsetQuery{Timestamp: api.TimestampLatest, CurrentLeaderEpoch: l.Epoch, Replica: l.NodeID})
	if err != nil {
		return Loaded{}, fmt.Errorf("%w: %w", ErrNotYet, err)
	}
	start, err := p.ListOffset(api.OffsetQuery{Timestamp: api.TimestampEarliest, CurrentLeaderEpoch: l.Epoch, Replica: types.NoBroker})
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
	r := reader{Load: l, log: p, from: start.Offset, f: f}
	for r.from < end.Offset {
		before := r.from
		if err := r.read(); err != nil {
			return Loaded{}, err
		}
		if r.from > before {
			continue
		}
		probeLoadWaits.Reached()
		if _, err := clock.Wait(ctx, clock.Forever, moved); err != nil {
			return Loaded{}, err
		}
	}
	return Loaded{Log: p, Start: start.Offset, End: r.from}, nil
}

type reader struct {
	Load
	log    api.Partition
	from   types.Offset
	f      func(h *batch.Header, raw []byte) error
	out    api.ReadResult
	buffer []byte
}

// read takes what one fetch brings.
func (r *reader) read() error {
	size := r.BufferBytes
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
