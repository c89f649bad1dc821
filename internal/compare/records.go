package compare

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// flatRecord is one record with what its batch says of it.
type flatRecord struct {
	offset    types.Offset
	epoch     types.LeaderEpoch
	timestamp types.Millis
	control   bool
	key       []byte
	value     []byte
	headers   []batch.RecordHeader
}

// last is the newest record of a key on one side.
type last struct {
	offset    types.Offset
	tombstone bool
}

// compareRecords walks two logs of which either may have been compacted:
// records that both hold must be equal, and so must the newest of each key.
func compareRecords(ctx context.Context, ra, rb *reader, r Result) (Result, error) {
	sa, sb := newRecordStream(ra), newRecordStream(rb)
	x, err := sa.next(ctx, r.To)
	if err != nil {
		return r, err
	}
	y, err := sb.next(ctx, r.To)
	if err != nil {
		return r, err
	}
	for x != nil || y != nil {
		takeX := y == nil || (x != nil && x.offset <= y.offset)
		takeY := x == nil || (y != nil && y.offset <= x.offset)
		if takeX && takeY {
			if what := recordDifference(x, y); what != "" {
				r.Difference = fmt.Sprintf("record at offset %d differs between %s and %s: %s", x.offset, ra.side.Name, rb.side.Name, what)
				return r, nil
			}
			r.Batches++
			r.Bytes += int64(len(x.key) + len(x.value))
		}
		if takeX {
			if x, err = sa.next(ctx, r.To); err != nil {
				return r, err
			}
		}
		if takeY {
			if y, err = sb.next(ctx, r.To); err != nil {
				return r, err
			}
		}
	}
	r.Difference = newestDifference(sa, sb)
	return r, nil
}

// newestDifference names a key whose newest record differs. A tombstone that one side has removed already says nothing.
func newestDifference(sa, sb *recordStream) string {
	all := maps.Clone(sa.newest)
	maps.Copy(all, sb.newest)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		x, hasX := sa.newest[key]
		y, hasY := sb.newest[key]
		if x == y || (!hasX && y.tombstone) || (!hasY && x.tombstone) {
			continue
		}
		return fmt.Sprintf("the newest record of key %q is at offset %d on %s (there: %v) and %d on %s (there: %v)",
			key, x.offset, sa.r.side.Name, hasX, y.offset, sb.r.side.Name, hasY)
	}
	return ""
}

// recordDifference names the first field in which two records differ, or "".
func recordDifference(x, y *flatRecord) string {
	switch {
	case x.epoch != y.epoch:
		return fmt.Sprintf("leader epoch %d and %d", x.epoch, y.epoch)
	case x.timestamp != y.timestamp:
		return fmt.Sprintf("timestamp %d and %d", x.timestamp, y.timestamp)
	case x.control != y.control:
		return "one is a control record"
	case !sameBytes(x.key, y.key):
		return "key"
	case !sameBytes(x.value, y.value):
		return "value"
	case len(x.headers) != len(y.headers):
		return fmt.Sprintf("%d and %d headers", len(x.headers), len(y.headers))
	}
	for i := range x.headers {
		if x.headers[i].Key != y.headers[i].Key || !sameBytes(x.headers[i].Value, y.headers[i].Value) {
			return fmt.Sprintf("header %d", i)
		}
	}
	return ""
}

// sameBytes compares contents and keeps null and empty apart.
func sameBytes(x, y []byte) bool { return bytes.Equal(x, y) && (x == nil) == (y == nil) }

// recordStream gives a reader's records one at a time and remembers the newest of each key.
type recordStream struct {
	r       *reader
	scratch batch.Scratch
	pending []*flatRecord
	newest  map[string]last
}

func newRecordStream(r *reader) *recordStream {
	return &recordStream{r: r, newest: map[string]last{}}
}

// next gives the next record below to, or nil at the end.
func (s *recordStream) next(ctx context.Context, to types.Offset) (*flatRecord, error) {
	for len(s.pending) == 0 {
		raw, err := s.r.next(ctx, to)
		if err != nil || raw == nil {
			return nil, err
		}
		if err := s.decode(raw); err != nil {
			return nil, fmt.Errorf("%s: %w", s.r.side.Name, err)
		}
	}
	rec := s.pending[0]
	s.pending = s.pending[1:]
	return rec, nil
}

func (s *recordStream) decode(raw []byte) error {
	h, err := batch.ParseHeader(raw)
	if err != nil {
		return err
	}
	it := batch.Records(raw, &s.scratch)
	for it.Next() {
		rec := &flatRecord{offset: it.Record.Offset, epoch: h.PartitionLeaderEpoch, timestamp: it.Record.Timestamp, control: h.IsControl(),
			key: bytes.Clone(it.Record.Key), value: bytes.Clone(it.Record.Value), headers: it.Record.Headers()}
		s.pending = append(s.pending, rec)
		if !rec.control && rec.key != nil {
			s.newest[string(rec.key)] = last{offset: rec.offset, tombstone: rec.value == nil}
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
	}
	return nil
}
