package log

import (
	"fmt"
	"slices"

	"tidemark/internal/batch"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
	"tidemark/internal/vfs"
)

var (
	probeHistoryRebuilt = probe.New("log: the history is read off the batches")
	probeHistoryOwed    = probe.New("log: a history whose end covers no record is written later")
)

// epochStep is a place in the log where a batch's epoch differs from the one before.
type epochStep struct {
	epoch  types.LeaderEpoch
	logEnd types.Offset // log end before the batch
}

// recoverHistory makes the epoch history the one that the batches imply (R2).
//
// The checkpoint is taken where it is readable, for what was synced; what the
// walk over unsynced batches saw replaces its end. Then every entry is proved
// at the two batches that border it, which finds any missing or wrong entry
// without reading the log (KAFKA-7897): epochs never fall within a log, so if
// an entry's first and last batch have its epoch, all between them do. A history
// that fails is made anew from all batches.
func (p *opening) recoverHistory() error {
	l := p.l
	h, onDisk, why, err := p.readHistory()
	if err != nil {
		return err
	}
	if why == "" {
		if err := p.extendHistory(&h); err != nil {
			why = err.Error()
		}
	}
	if why == "" {
		if why, err = l.disproveHistory(&h); err != nil {
			return err
		}
	}
	if why == "" {
		if err := l.lowerHistory(&h); err != nil {
			return err
		}
	}
	if why != "" {
		fresh, err := l.impliedHistory()
		if err != nil {
			return err
		}
		h = fresh
		if h.Len() > 0 || onDisk != nil {
			probeHistoryRebuilt.Reached()
			p.r.HistoryRebuilt, p.r.HistoryBecause = true, why
			l.log.Warn("epoch history rebuilt from the batches", "partition", l.o.TopicPartition.String(), "why", why, "history", h.String())
		}
	} else if onDisk == nil || !h.Equal(onDisk) {
		p.r.HistoryRepaired = true
	}
	if onDisk == nil && h.Len() == 0 && why == "" {
		p.r.HistoryRepaired = false
	}
	switch {
	case p.r.HistoryRepaired && lacksOnlyEmptyEntries(&h, onDisk, l.marks.end):
		probeHistoryOwed.Reached()
		l.historyOwed = true // an election follows most opens and writes it anyway
	case p.r.HistoryRebuilt || p.r.HistoryRepaired:
		if err := l.writeHistory(&h); err != nil {
			return err
		}
	}
	l.history = &h
	return nil
}

// lacksOnlyEmptyEntries says whether h is what the checkpoint holds but for
// entries at its end that start at or after the log end.
func lacksOnlyEmptyEntries(h, onDisk *epoch.History, end types.Offset) bool {
	if onDisk == nil {
		return false
	}
	kept, found := h.Entries(), onDisk.Entries()
	return len(kept) < len(found) && slices.Equal(kept, found[:len(kept)]) && found[len(kept)].Start >= end
}

// readHistory reads the checkpoint. onDisk is nil if there is none; why says
// why its content can't be used.
func (p *opening) readHistory() (h epoch.History, onDisk *epoch.History, why string, err error) {
	b, err := vfs.ReadFile(p.l.fs, join(p.l.dir, epoch.CheckpointFile), 64<<20)
	if err != nil {
		return h, nil, "", ignoreAbsent(err)
	}
	entries, err := epoch.ParseCheckpoint(b)
	if err == nil {
		h, err = epoch.FromEntries(entries)
	}
	if err != nil {
		return h, &epoch.History{}, err.Error(), nil
	}
	c := h.Clone()
	return h, &c, "", nil
}

// extendHistory puts what the walked batches say in place of the checkpoint's
// end, and cuts it at the log's end and start.
func (p *opening) extendHistory(h *epoch.History) error {
	m := &p.l.marks
	if len(p.implied) > 0 {
		h.TruncateFromEnd(p.checkFrom)
	}
	for _, step := range p.implied {
		if step.epoch < 0 {
			continue
		}
		if _, err := h.AppendedBatch(step.epoch, step.logEnd); err != nil {
			return err
		}
	}
	h.Reconcile(m.start, m.end)
	h.TruncateFromEnd(m.end) // an entry that the log start pushed to the end covers nothing
	return nil
}

// disproveHistory looks for a batch that contradicts the history and says what
// it found; "" means that the history is the batches'.
func (l *Log) disproveHistory(h *epoch.History) (why string, err error) {
	entries := h.Entries()
	first, ok, err := l.batchAt(l.marks.start)
	if err != nil {
		return "", err
	}
	if ok && first.PartitionLeaderEpoch >= 0 && (len(entries) == 0 || entries[0].Start > first.LastOffset()) {
		return fmt.Sprintf("batch at %d has epoch %d, before the first entry", first.BaseOffset, first.PartitionLeaderEpoch), nil
	}
	for i, e := range entries {
		end := l.marks.end
		if i+1 < len(entries) {
			end = entries[i+1].Start
		}
		first, ok, err := l.batchAt(e.Start)
		if err != nil {
			return "", err
		}
		if !ok || first.BaseOffset >= end {
			continue // no record of this epoch, or compaction took them all
		}
		last, ok, err := l.batchBefore(end)
		if err != nil {
			return "", err
		}
		for _, h := range []*batch.Header{&first, &last} {
			if ok && h.PartitionLeaderEpoch != e.Epoch {
				return fmt.Sprintf("batch at %d has epoch %d, the history says %s", h.BaseOffset, h.PartitionLeaderEpoch, e), nil
			}
		}
	}
	return "", nil
}

// lowerHistory begins the first entry at the log start where that lies lower, in a
// batch of the same epoch: the entry rose with a log start that a crash took back.
// Left there, a follower that ends between the two in an older epoch would be told
// that its log agrees (R5), in the middle of a batch.
func (l *Log) lowerHistory(h *epoch.History) error {
	e, ok := h.Earliest()
	if !ok || e.Start <= l.marks.start {
		return nil
	}
	first, ok, err := l.batchAt(l.marks.start)
	if err != nil {
		return err
	}
	if ok && first.PartitionLeaderEpoch == e.Epoch && first.BaseOffset < e.Start {
		h.LowerFirst(l.marks.start)
	}
	return nil
}

// batchAt gives the batch that holds o, or the first one above.
func (l *Log) batchAt(o types.Offset) (h batch.Header, ok bool, err error) {
	for _, s := range l.segs[l.segmentAt(o):] {
		p := s.look()
		f, err := p.file()
		if err != nil {
			return h, false, err
		}
		pos, err := p.floor(o)
		if err != nil {
			return h, false, err
		}
		if h, _, ok, err = find(f, pos, s.size, o); ok || err != nil {
			return h, ok, err
		}
	}
	return h, false, nil
}

// batchBefore gives the last batch that begins below o.
func (l *Log) batchBefore(o types.Offset) (h batch.Header, ok bool, err error) {
	for i := l.segmentAt(o - 1); i >= 0 && !ok; i-- {
		p := l.segs[i].look()
		f, err := p.file()
		if err != nil {
			return h, false, err
		}
		pos, err := p.floor(o - 1)
		if err != nil {
			return h, false, err
		}
		w := seek(f, pos, l.segs[i].size)
		for w.next() && w.h.BaseOffset < o {
			h, ok = w.h, true
		}
		w.done()
		if w.err != nil {
			return h, false, w.err
		}
	}
	return h, ok, nil
}

// segmentAt is the index of the last segment whose base is at or below o, 0 if none.
func (l *Log) segmentAt(o types.Offset) int {
	lo, hi := 0, len(l.segs)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; l.segs[mid].base <= o {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// impliedHistory reads the history off all batches from the log start on.
func (l *Log) impliedHistory() (epoch.History, error) {
	var h epoch.History
	end := max(l.segs[0].base, l.marks.start)
	for _, s := range l.segs {
		p := s.look()
		f, err := p.file()
		if err != nil {
			return h, err
		}
		w := walk(f, 0, s.size)
		for w.next() {
			if w.h.LastOffset() < end || w.h.PartitionLeaderEpoch < 0 {
				continue
			}
			if _, err := h.AppendedBatch(w.h.PartitionLeaderEpoch, end); err != nil {
				w.done()
				return h, &CorruptError{File: s.path(logSuffix), Pos: types.Position(w.at), Reason: "leader epoch falls", Err: err}
			}
			end = w.h.NextOffset()
		}
		w.done()
		if w.err != nil {
			return h, &CorruptError{File: s.path(logSuffix), Pos: types.Position(w.pos), Reason: "no batch", Err: w.err}
		}
	}
	return h, nil
}
