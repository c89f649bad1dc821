package log

import (
	"errors"
	"math"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// TimestampOffset is the answer of a time look-up.
type TimestampOffset struct {
	Offset    types.Offset
	Timestamp types.Millis
	Epoch     types.LeaderEpoch // -1 if the batch carries none
}

// OffsetForTimestamp (R) finds the first record at or above the log start and
// below `to` whose timestamp is at or after ts; false if there is none. It is
// exact: the one batch that can hold the record is decoded.
func (l *Log) OffsetForTimestamp(ts types.Millis, to types.Offset) (out TimestampOffset, ok bool, err error) {
	err = l.eachPinned(func(p *pin, from types.Offset) (done bool, err error) {
		if p.maxTs < ts || p.next <= from {
			return p.next >= to, nil
		}
		out, ok, err = p.firstAtOrAfter(ts, from, to)
		return ok || p.next >= to, err
	})
	return out, ok, err
}

// MaxTimestamp (R) finds the first record with the largest timestamp of the
// log (KIP-734), up to the log end; false in a log without records or timestamps.
func (l *Log) MaxTimestamp() (TimestampOffset, bool, error) {
	for range maxReadAttempts { // a cut between the two steps takes another round
		newest, start := l.newestKnown()
		if newest < 0 {
			break
		}
		out, ok, err := l.OffsetForTimestamp(newest, math.MaxInt64)
		if ok || err != nil {
			return out, ok, err
		}
		// The record lies below the log start within its segment, or compaction
		// took it: look for the newest of the rest by walking.
		if newest, err = l.newestFrom(start); err != nil || newest < 0 {
			return out, false, err
		}
		if out, ok, err = l.OffsetForTimestamp(newest, math.MaxInt64); ok || err != nil {
			return out, ok, err
		}
	}
	return TimestampOffset{}, false, nil
}

// newestKnown is the largest timestamp of the segments at or above the log start.
func (l *Log) newestKnown() (newest types.Millis, start types.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	newest = types.NoTimestamp
	for _, s := range l.segs {
		if s.next > l.marks.start {
			newest = max(newest, s.maxTs)
		}
	}
	return newest, l.marks.start
}

// newestFrom is the largest record timestamp at or above o, -1 if none.
func (l *Log) newestFrom(o types.Offset) (types.Millis, error) {
	newest := types.NoTimestamp
	err := l.eachPinned(func(p *pin, from types.Offset) (bool, error) {
		if p.next <= o || p.maxTs <= newest {
			return false, nil
		}
		return false, p.eachRecord(o, max(o, from), p.next, newest+1, func(r *batch.Record, _ *batch.Header) bool {
			newest = max(newest, r.Timestamp)
			return false
		})
	})
	return newest, err
}

// eachPinned calls visit for each segment in order, its files held, until done.
// It begins anew where a segment went meanwhile.
func (l *Log) eachPinned(visit func(p *pin, from types.Offset) (done bool, err error)) error {
	at := l.View().LogStart
	for attempt := 0; ; {
		p, _, err := l.pinFor(at)
		if errors.Is(err, ErrOutOfRange) || (err == nil && p.seg == nil) {
			if start := l.View().LogStart; at < start && attempt < maxReadAttempts {
				at = start
				attempt++
				continue
			}
			return nil
		}
		if err != nil {
			return err
		}
		done, err := visit(&p, at)
		err = l.settled(&p, err)
		p.seg.release()
		switch {
		case errors.Is(err, errRetired) && attempt < maxReadAttempts:
			attempt++
		case err != nil:
			return err
		case done:
			return nil
		default:
			at = max(p.next, at+1)
		}
	}
}

// firstAtOrAfter finds the first record at or after ts in [from, to).
func (p *pin) firstAtOrAfter(ts types.Millis, from, to types.Offset) (out TimestampOffset, ok bool, err error) {
	at, err := p.floorTime(ts)
	if err != nil {
		return out, false, err
	}
	err = p.eachRecord(at, from, to, ts, func(r *batch.Record, h *batch.Header) bool {
		if r.Timestamp < ts {
			return false
		}
		out, ok = TimestampOffset{r.Offset, r.Timestamp, h.PartitionLeaderEpoch}, true
		return true
	})
	return out, ok, err
}

// eachRecord decodes the batches from the one that holds start on that carry a
// timestamp at or after ts, and visits their records in [from, to) until visit
// says stop.
func (p *pin) eachRecord(start, from, to types.Offset, ts types.Millis, visit func(*batch.Record, *batch.Header) (stop bool)) error {
	f, err := p.file()
	if err != nil {
		return err
	}
	start = max(start, from) // whatever lies below from is not asked for
	pos, err := p.floor(start)
	if err != nil {
		return err
	}
	var raw []byte
	var scratch batch.Scratch
	w := walk(f, pos, p.size)
	defer w.done()
	for w.next() && w.h.BaseOffset < to {
		if w.h.MaxTimestamp < ts || w.h.LastOffset() < start {
			continue
		}
		if raw, err = w.raw(raw); err != nil {
			return err
		}
		it := batch.Records(raw, &scratch)
		for it.Next() {
			if it.Record.Offset >= from && it.Record.Offset < to && visit(&it.Record, &w.h) {
				return nil
			}
		}
		if err := it.Err(); err != nil {
			return &CorruptError{File: f.Name(), Pos: types.Position(w.at), Reason: "records can't be decoded", Err: err}
		}
	}
	return w.err
}
