package coordinator

import (
	"errors"
	"fmt"
	"log/slog"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/clock"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
	"tidemark/internal/wire"
)

// errNotYet is a load that found the partition not served by this node (yet).
var errNotYet = errors.New("offsets partition not served")

var (
	probeLoadWaits   = probe.New("coordinator: a load waits for the high watermark")
	probeLoadNotYet  = probe.New("coordinator: elected before the partition serves")
	probeSuperseded  = probe.New("coordinator: elected again before it resigned")
	probeWriteFailed = probe.New("coordinator: a write failed")
	probeResigned    = probe.New("coordinator: resigned with requests waiting")
	probeLateLook    = probe.New("coordinator: an answer made by a coordinator that leads no more")
)

const defaultLoadBufferBytes = 5 << 20

// load reads the partition from its start to where its log ends now, and
// replays it into the table. It waits for the high watermark to get there:
// records beyond it may still go. All of it is read as it is served in the loop's
// own leader epoch: a partition that was led before, followed and is led again may
// still show its log as it was.
func (l *loop) load() error {
	topic, ok := l.c.o.Image().TopicByName(OffsetsTopic)
	if !ok {
		return fmt.Errorf("%w: no topic %s", errNotYet, OffsetsTopic)
	}
	p, err := l.c.o.Partitions.Get(topic.Record.ID, l.partition)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotYet, err)
	}
	l.log = p
	end, err := p.ListOffset(api.OffsetQuery{
		Timestamp: api.TimestampLatest, CurrentLeaderEpoch: l.epoch, Replica: l.c.o.NodeID,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errNotYet, err)
	}
	start, err := p.ListOffset(api.OffsetQuery{
		Timestamp: api.TimestampEarliest, CurrentLeaderEpoch: l.epoch, Replica: types.NoBroker,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errNotYet, err)
	}
	moved := make(chan struct{}, 1)
	cancel := p.OnProgress(func() {
		select {
		case moved <- struct{}{}:
		default:
		}
	})
	defer cancel()
	r := loader{loop: l, from: start.Offset, open: map[types.ProducerID][]group.Record{}}
	for r.from < end.Offset {
		before := r.from
		if err := r.read(); err != nil {
			return err
		}
		if r.from > before {
			continue
		}
		probeLoadWaits.Reached()
		if _, err := clock.Wait(l.ctx, clock.Forever, moved); err != nil {
			return err
		}
	}
	level := slog.LevelInfo
	if r.records == 0 {
		level = slog.LevelDebug // fifty of these are nothing to tell at a first start
	}
	l.logger.Log(l.ctx, level, "group coordinator loaded its groups",
		"groups", l.table.Groups(), "records", r.records, "skipped", r.skipped, "from", start.Offset, "to", r.from)
	return nil
}

// loader replays batches into the loop's table.
type loader struct {
	loop    *loop
	from    types.Offset
	out     api.ReadResult
	buffer  []byte
	scratch batch.Scratch
	records int
	skipped int
	// open holds what transactions have written, until their marker.
	open map[types.ProducerID][]group.Record
}

func (r *loader) read() error {
	size := r.loop.c.o.Config.LoadBufferBytes
	if size <= 0 {
		size = defaultLoadBufferBytes
	}
	err := r.loop.log.Read(r.from, api.ReadRequest{
		CurrentLeaderEpoch: r.loop.epoch, LastFetchedEpoch: types.NoLeaderEpoch,
		MaxBytes: size, MinOne: true, Replica: types.NoBroker, ReplicaEpoch: types.NoBrokerEpoch,
	}, &r.out)
	if wire.CodeOf(err) == wire.ErrOffsetOutOfRange {
		return fmt.Errorf("%w: log start moved past %d while loading", errNotYet, r.from)
	}
	if err != nil {
		return fmt.Errorf("%w: read at %d: %w", errNotYet, r.from, err)
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
		if err := r.replay(&it.Header, it.Raw); err != nil {
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

// replay takes one batch. Records of a transaction count when its COMMIT
// marker comes.
func (r *loader) replay(h *batch.Header, raw []byte) error {
	if h.IsControl() {
		m, err := batch.ParseMarker(raw)
		if err != nil {
			return nil // another kind of control record: nothing of groups
		}
		if m.Kind == batch.Commit {
			for _, rec := range r.open[h.ProducerID] {
				r.loop.table.Replay(rec)
			}
		}
		delete(r.open, h.ProducerID)
		return nil
	}
	it := batch.Records(raw, &r.scratch)
	for it.Next() {
		r.records++
		// Decoded records outlive the buffer they are read from.
		rec, err := decodeRecord(it.Record.Key, cloneKeepNil(it.Record.Value))
		if err != nil {
			r.skipped++
			if !errors.Is(err, errOtherRecord) {
				r.loop.logger.Warn("unreadable record in the offsets topic is passed over", "offset", it.Record.Offset, "err", err)
			}
			continue
		}
		if h.IsTransactional() {
			r.open[h.ProducerID] = append(r.open[h.ProducerID], rec)
			continue
		}
		r.loop.table.Replay(rec)
	}
	return it.Err()
}

func cloneKeepNil(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}
