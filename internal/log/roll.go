package log

import (
	"tidemark/internal/assert"
	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// rollNeeded says whether a new segment must begin before bytes that start
// with the batch: the active one is full, old, or out of index entries or offsets.
func (l *Log) rollNeeded(h *batch.Header, bytes int) bool {
	s := l.active()
	if s.size == 0 {
		_, fits := relative(h.LastOffset(), s.base)
		return !fits
	}
	if s.size+int64(bytes) > int64(l.cfg.SegmentBytes) {
		return true
	}
	if _, fits := relative(h.LastOffset(), s.base); !fits {
		return true
	}
	if (len(s.entries)+1)*indexEntrySize > l.cfg.SegmentIndexBytes || (len(s.stamps)+2)*timeEntrySize > l.cfg.SegmentIndexBytes {
		return true
	}
	oldest := l.cfg.SegmentMs
	if l.cfg.Compact && l.cfg.MaxCompactionLagMs > 0 { // the active segment is never compacted
		oldest = min(oldest, l.cfg.MaxCompactionLagMs)
	}
	return l.age(s, h.MaxTimestamp) > oldest
}

// age is how old a segment is for segment.ms: in record time from its first
// batch on, where both have one, else by the clock. Kafka parity.
func (l *Log) age(s *segment, newest types.Millis) types.Millis {
	if s.firstTs >= 0 && newest >= 0 {
		return newest - s.firstTs
	}
	return l.now() - s.created
}

// rollBase is the base offset of the segment that a roll before the batch
// begins: the log end, so that segments border each other, unless the batch
// lies too far above it.
func (l *Log) rollBase(h *batch.Header) types.Offset {
	if _, fits := relative(h.LastOffset(), l.marks.end); !fits {
		return h.BaseOffset
	}
	return l.marks.end
}

// Roll (W) closes the active segment and begins a new one at the log end; it
// does nothing if the active one is empty.
func (l *Log) Roll() error {
	if err := l.usable(); err != nil {
		return err
	}
	if l.active().size == 0 {
		return nil
	}
	return l.roll(l.marks.end)
}

// roll seals the active segment and begins one at base. Each step can be
// repeated: when the disk is full the active segment stays active.
//
// Where base lies above the log end, in a gap, the log end moves there and the
// recovery point with it, on disk too: recovery takes any other gap between two
// segments for lost data.
func (l *Log) roll(base types.Offset) error {
	l.untouched = false
	old, gap := l.active(), base > l.marks.end
	if err := l.rollTo(old, base); err != nil || !gap {
		return err
	}
	l.mu.Lock()
	l.marks.end = base
	l.mu.Unlock()
	if err := l.syncAll(); err != nil {
		return err
	}
	return l.owe(l.writeCheckpoints)
}

// writeCheckpoints puts the log's marks on disk. On a full disk those that stood there stay.
func (l *Log) writeCheckpoints() error {
	if l.o.Checkpoints == nil {
		return nil
	}
	if err := l.o.Checkpoints.Lower(l); err != nil {
		return l.refuse("write checkpoints", err)
	}
	l.startSynced = l.marks.start
	return nil
}

func (l *Log) rollTo(old *segment, base types.Offset) error {
	if old.size == 0 { // only its base is wrong: no batch has fitted yet
		return l.replaceEmpty(old, base)
	}
	assert.That(base >= old.next, "I-25: segment %d begins below the end %d of segment %d", base, old.next, old.base)
	if err := l.finishIndexes(old); err != nil {
		return err
	}
	if err := l.takeSnapshot(); err != nil {
		return l.refuse("write producer snapshot", err)
	}
	s, err := l.createSegment(base)
	if err != nil {
		return l.refuse("create segment", err)
	}
	l.mu.Lock()
	old.seal()
	l.segs = append(l.segs, s)
	l.mu.Unlock()
	return nil
}

// replaceEmpty puts an empty segment of another base in the place of an empty one.
func (l *Log) replaceEmpty(old *segment, base types.Offset) error {
	s, err := l.createSegment(base)
	if err != nil {
		return l.refuse("create segment", err)
	}
	l.mu.Lock()
	l.segs[len(l.segs)-1] = s
	if len(l.segs) == 1 { // an empty log begins where its file says, after an open too
		l.marks.start = max(l.marks.start, base)
		l.marks.end = max(l.marks.end, base)
		l.settle()
	}
	l.mu.Unlock()
	if err := l.removeSegmentFiles([]*segment{old}); err != nil {
		return l.fail("remove empty segment", err)
	}
	return nil
}

// finishIndexes writes the index files of the active segment.
func (l *Log) finishIndexes(s *segment) error {
	l.mu.Lock()
	s.stamp()
	l.mu.Unlock()
	if err := s.writeIndexes(); err != nil {
		return l.refuse("write indexes", err)
	}
	return nil
}
