package log

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"tidemark/internal/core/types"
)

// Read (R) gives whole batches from the one that holds offset `from` on, as
// ranges of files. An offset between the log end and lim.To, or in a gap that
// reaches to the end, gives an empty chunk; below the log start or above the
// log end it is ErrOutOfRange (KAFKA-9838). One chunk spans one segment.
//
// No lock is held while files are read. Release the chunk when its bytes are sent.
func (l *Log) Read(from types.Offset, lim ReadLimit) (Chunk, error) {
	for attempt := 0; ; attempt++ {
		c, err := l.readOnce(from, lim)
		if err == nil || !errors.Is(err, errRetired) || attempt == maxReadAttempts {
			return c, err
		}
	}
}

// maxReadAttempts bounds how often a read begins anew because the segment it
// had found was cut, compacted or deleted meanwhile. Each attempt needs another
// such event, so more than a few never happen.
const maxReadAttempts = 100

// errRetired says that the segment a reader had found is no longer the log's.
var errRetired = errors.New("segment was replaced")

// settled turns the outcome of work on a pinned segment into errRetired where
// the segment went meanwhile, or was cut while the work failed: then the error
// says nothing about the log.
func (l *Log) settled(p *pin, err error) error {
	if p.seg.retired.Load() {
		return errRetired
	}
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cuts != p.cuts || l.closed {
		return errRetired
	}
	return err
}

// readOnce is one attempt of Read.
func (l *Log) readOnce(from types.Offset, lim ReadLimit) (Chunk, error) {
	at := from
	for {
		p, end, err := l.pinFor(at)
		if err != nil {
			if at != from { // the segments behind a gap went meanwhile
				return Chunk{FirstOffset: from}, nil
			}
			return Chunk{FirstOffset: from}, err
		}
		if p.seg == nil {
			return Chunk{FirstOffset: from}, nil
		}
		c, err := p.read(from, min(lim.To, end), lim)
		err = l.settled(&p, err)
		if err != nil || len(c.Slices) == 0 {
			p.seg.release()
		} else {
			c.held = p.seg
		}
		if err != nil || len(c.Slices) > 0 || p.next >= lim.To || c.stop {
			return c, err
		}
		at = max(p.next, at+1) // nothing at or above `from` in this segment: a gap
	}
}

// pinFor finds the segment that holds o, or the first one behind it, and holds
// its files. A nil segment means that nothing lies at or above o.
func (l *Log) pinFor(o types.Offset) (pin, types.Offset, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return pin{}, 0, ErrClosed
	}
	if o < l.marks.start || o > l.marks.end {
		return pin{}, 0, fmt.Errorf("%w: %d, log is %d to %d", ErrOutOfRange, o, l.marks.start, l.marks.end)
	}
	i := l.segmentAt(o)
	for i < len(l.segs) && l.segs[i].next <= o {
		i++
	}
	if i == len(l.segs) {
		return pin{}, l.marks.end, nil
	}
	p := l.segs[i].look()
	p.cuts = l.cuts
	p.seg.acquire()
	return p, l.marks.end, nil
}

// read finds the bytes of the batches in [from, to) within the limits.
func (p *pin) read(from, to types.Offset, lim ReadLimit) (Chunk, error) {
	c := Chunk{FirstOffset: from}
	if p.size == 0 || to <= from {
		return c, nil
	}
	f, err := p.file()
	if err != nil {
		return c, err
	}
	pos, err := p.floor(from)
	if err != nil {
		return c, err
	}
	first, begin, ok, err := find(f, pos, p.size, from)
	if err != nil || !ok {
		return c, err
	}
	end := p.size
	if to < p.next {
		if end, err = p.endBelow(to, begin); err != nil {
			return c, err
		}
	}
	if end <= begin {
		c.stop = true // the batch that holds `from` reaches beyond the limit
		return c, nil
	}
	if end-begin > int64(lim.MaxBytes) {
		if end, err = p.boundedEnd(begin, end, lim, int64(first.Size())); err != nil {
			return c, err
		}
	}
	if end == begin {
		c.stop = true
		return c, nil
	}
	c.FirstOffset, c.Bytes = first.BaseOffset, int(end-begin)
	c.Slices = []Slice{{File: f, Pos: begin, Len: end - begin}}
	return c, nil
}

// endBelow is where the first batch begins that reaches to or above to; begin
// is a batch known to lie at or before it.
func (p *pin) endBelow(to types.Offset, begin int64) (int64, error) {
	f, err := p.file()
	if err != nil {
		return 0, err
	}
	pos, err := p.floor(to)
	if err != nil {
		return 0, err
	}
	_, end, _, err := find(f, max(pos, begin), p.size, to)
	return end, err
}

// boundedEnd cuts [begin, end) to lim.MaxBytes at a batch boundary.
func (p *pin) boundedEnd(begin, end int64, lim ReadLimit, first int64) (int64, error) {
	limit := begin + int64(max(lim.MaxBytes, 0))
	if begin+first > limit {
		if lim.MinOne {
			return begin + first, nil
		}
		return begin, nil
	}
	f, err := p.file()
	if err != nil {
		return 0, err
	}
	pos, err := p.floorByPos(limit)
	if err != nil {
		return 0, err
	}
	return boundary(f, max(pos, begin), limit, end)
}

// Release gives the chunk's files back; it may be called on an empty chunk and
// more than once on the same variable.
func (c *Chunk) Release() {
	if c.held != nil {
		c.held.release()
		c.held = nil
	}
	c.Slices = nil
}

// ReadInto copies the chunk's bytes into dst, grown as needed: for TLS
// connections and tests. A short file is io.ErrUnexpectedEOF: the log was cut.
func (c *Chunk) ReadInto(dst []byte) ([]byte, error) {
	if cap(dst) < c.Bytes {
		dst = make([]byte, c.Bytes)
	}
	dst = dst[:c.Bytes]
	at := 0
	for _, s := range c.Slices {
		if err := readFull(s.File, dst[at:at+int(s.Len)], s.Pos); err != nil {
			return dst[:at], err
		}
		at += int(s.Len)
	}
	return dst, nil
}

// AbortedTxns (R) lists the aborted transactions that a read_committed reader
// of [from, to) needs to skip their records, by first offset.
func (l *Log) AbortedTxns(from, to types.Offset) []AbortedTxn {
	l.mu.Lock()
	out := l.abortedLocked(from, to)
	l.mu.Unlock()
	slices.SortFunc(out, func(a, b AbortedTxn) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	return out
}

func (l *Log) abortedLocked(from, to types.Offset) (out []AbortedTxn) {
	for _, s := range l.segs[l.segmentAt(from):] {
		for _, a := range s.aborted {
			if a.LastOffset >= from && a.FirstOffset < to {
				out = append(out, AbortedTxn{a.ProducerID, a.FirstOffset})
			}
			if a.LastStable >= to {
				return out
			}
		}
	}
	return out
}
