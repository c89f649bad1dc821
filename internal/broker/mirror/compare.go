package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/source"
)

// batchReader gives one side's batches in order.
type batchReader interface {
	// next gives the next batch that begins below to, or nil when there is none. The
	// bytes stay valid until the next call.
	next(ctx context.Context, to types.Offset) ([]byte, error)
}

// verifyBytes is how much of a side is read at a time.
const verifyBytes = 2 << 20

// logReader reads the own log.
type logReader struct {
	l   *log.Log
	at  types.Offset
	to  types.Offset
	buf []byte
}

func (r *logReader) next(_ context.Context, to types.Offset) ([]byte, error) {
	for r.at < to {
		if raw, h, ok := takeBatch(&r.buf, r.at); ok {
			r.at = h.NextOffset()
			return raw, nil
		}
		data, err := readLog(r.l, r.at, r.to, verifyBytes)
		if errors.Is(err, log.ErrOutOfRange) && r.at < r.l.View().LogStart {
			r.at = r.l.View().LogStart // retention went on meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(data) == 0 {
			return nil, nil
		}
		r.buf = data
	}
	return nil, nil
}

// sourceReader fetches from the source's leader.
type sourceReader struct {
	v     *verification
	p     *verified
	at    types.Offset
	buf   []byte
	empty int
}

// emptyFetchesMax bounds how often in a row the source may show no batch below its own end.
const emptyFetchesMax = 20

func (r *sourceReader) next(ctx context.Context, to types.Offset) ([]byte, error) {
	for r.at < to {
		if raw, h, ok := takeBatch(&r.buf, r.at); ok {
			r.at, r.empty = h.NextOffset(), 0
			return raw, nil
		}
		if r.empty++; r.empty > emptyFetchesMax {
			return nil, fmt.Errorf("the source shows no whole batch at offset %d, below its end %d", r.at, to)
		}
		if err := r.fetch(ctx); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (r *sourceReader) fetch(ctx context.Context) error {
	if t := r.v.throttle; t != nil && !t.wait(ctx) {
		return ctx.Err()
	}
	ask := source.FetchPartition{
		TopicPartition: r.p.tp, TopicID: r.p.topic, Offset: r.at, CurrentEpoch: r.p.leader.LeaderEpoch,
		LastEpoch: types.NoLeaderEpoch, MaxBytes: verifyBytes,
	}
	p, a, err := r.v.client.FetchAt(ctx, r.p.leader.Leader, ask)
	if err != nil {
		return err
	}
	defer a.Release()
	switch {
	case p.Err != nil:
		return p.Err
	case p.Code == source.CodeOffsetOutOfRange:
		start, err := r.v.bound(ctx, r.p, source.Earliest)
		if err != nil {
			return err
		}
		if start <= r.at {
			return fmt.Errorf("offset %d is out of the source's range, which begins at %d", r.at, start)
		}
		r.at = start // retention went on meanwhile
		return nil
	case p.Code != 0:
		return fmt.Errorf("%w: %s", errLookAgain, p.Code)
	}
	r.buf = bytes.Clone(p.Records)
	if t := r.v.throttle; t != nil {
		t.take(int64(len(r.buf)))
	}
	return nil
}

// takeBatch takes the first whole batch from buf that doesn't end below at.
func takeBatch(buf *[]byte, at types.Offset) ([]byte, batch.Header, bool) {
	for len(*buf) >= batch.HeaderSize {
		h, err := batch.ParseHeader(*buf)
		if err != nil || h.Size() > len(*buf) {
			break
		}
		raw := (*buf)[:h.Size()]
		*buf = (*buf)[h.Size():]
		if h.LastOffset() >= at {
			return raw, h, true
		}
	}
	*buf = nil
	return nil, batch.Header{}, false
}

// mustHeader reads the header of a batch that takeBatch gave.
func mustHeader(raw []byte) batch.Header {
	h, err := batch.ParseHeader(raw)
	if err != nil {
		panic("header of a batch that was read before: " + err.Error())
	}
	return h
}

// describeDifference says in words how the standby's batch and the source's differ, or "".
func describeDifference(ours, theirs []byte) string {
	switch {
	case ours == nil:
		return fmt.Sprintf("the source has a batch at offset %d that is not here", mustHeader(theirs).BaseOffset)
	case theirs == nil:
		return fmt.Sprintf("here is a batch at offset %d that the source doesn't have", mustHeader(ours).BaseOffset)
	case bytes.Equal(ours, theirs):
		return ""
	}
	a, b := mustHeader(ours), mustHeader(theirs)
	say := func(what string, here, there any) string {
		return fmt.Sprintf("batch at offset %d: %s is %v here and %v at the source", a.BaseOffset, what, here, there)
	}
	switch {
	case a.BaseOffset != b.BaseOffset:
		return say("base offset", a.BaseOffset, b.BaseOffset)
	case a.PartitionLeaderEpoch != b.PartitionLeaderEpoch:
		return say("leader epoch", a.PartitionLeaderEpoch, b.PartitionLeaderEpoch)
	case a.Size() != b.Size():
		return say("size", a.Size(), b.Size())
	case a.CRC != b.CRC:
		return say("CRC", a.CRC, b.CRC)
	}
	return say("content", "one", "another")
}

// recordReader gives one side's records in order of offsets.
type recordReader struct {
	side    batchReader
	records map[types.Offset]batch.Record
	order   []types.Offset
	raw     []byte
	bytes   int64
}

// next gives the next record below to, or nil when there is none.
func (r *recordReader) next(ctx context.Context, to types.Offset) (*batch.Record, error) {
	for len(r.order) == 0 {
		raw, err := r.side.next(ctx, to)
		if err != nil || raw == nil {
			return nil, err
		}
		r.raw = bytes.Clone(raw) // records point into it
		r.bytes += int64(len(raw))
		r.records = map[types.Offset]batch.Record{}
		if err := recordsOf(r.raw, r.records); err != nil {
			return nil, err
		}
		for o := range r.records {
			if o < to {
				r.order = append(r.order, o)
			}
		}
		slices.Sort(r.order)
	}
	rec := r.records[r.order[0]]
	r.order = r.order[1:]
	return &rec, nil
}

// walkRecords compares record by record: one that either side lacks was compacted away there.
func (v *verification) walkRecords(ctx context.Context, p *verified, out *VerifyPartition, from *types.Offset, ours, theirs batchReader) error {
	a, b := &recordReader{side: ours}, &recordReader{side: theirs}
	x, err := a.next(ctx, p.to)
	if err != nil {
		return err
	}
	y, err := b.next(ctx, p.to)
	for x != nil && y != nil && err == nil {
		switch {
		case x.Offset < y.Offset:
			x, err = a.next(ctx, p.to)
			continue
		case y.Offset < x.Offset:
			y, err = b.next(ctx, p.to)
			continue
		case !sameRecord(x, y):
			out.Difference = fmt.Sprintf("record at offset %d differs", x.Offset)
			return nil
		}
		*from, out.VerifiedTo = x.Offset+1, x.Offset+1
		v.result.Bytes += a.bytes
		out.Bytes += a.bytes
		a.bytes = 0
		v.progress(false)
		if x, err = a.next(ctx, p.to); err == nil {
			y, err = b.next(ctx, p.to)
		}
	}
	if err == nil {
		*from, out.VerifiedTo = p.to, p.to
	}
	return err
}
