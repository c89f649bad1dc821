package log

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"tidemark/internal/batch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// recoverSegments brings every segment to the state that its bytes allow.
//
// After a clean shutdown only the tail of the last segment is walked, because
// a trimmed length may not have reached the disk (KAFKA-21000). Otherwise every
// segment from the one that holds the recovery point on is walked whole and
// each batch above the recovery point is checked; the first bad one ends the log.
func (p *opening) recoverSegments() error {
	l := p.l
	last := len(l.segs) - 1
	first := last
	if !l.o.CleanShutdown {
		// A segment that ends at the recovery point may have been sealed, its
		// indexes written, after the flush that made it so.
		for first > 0 && l.segs[first].base >= l.o.RecoveryPoint {
			first--
		}
	}
	p.checkFrom = l.segs[first].base
	for i, s := range l.segs[:first] {
		if err := p.loadSealed(s, l.segs[i+1].base); err != nil {
			return err
		}
	}
	if l.o.CleanShutdown {
		ok, err := p.loadActive(l.segs[last])
		if ok || err != nil {
			return err
		}
		p.r.Clean = false
	}
	for i := first; i < len(l.segs); i++ {
		if err := p.check(i); err != nil {
			return err
		}
	}
	return p.settleSegments(first)
}

// errGap ends the log at a segment that begins above the end of the one before.
var errGap = errors.New("records between two segments are missing")

// check walks segment i, whose indexes it builds anew in memory. At the first bad
// batch the log ends: the segments above go, and then the file's tail, so that a
// loss of power leaves no hole.
func (p *opening) check(i int) error {
	l := p.l
	s := l.segs[i]
	f, err := l.fs.OpenReadWrite(s.path(logSuffix))
	if err != nil {
		return err
	}
	s.data.set(f)
	size, err := f.Size()
	if err != nil {
		return err
	}
	reason, err := p.scan(s, f, size)
	if err != nil {
		return err
	}
	if reason == nil && i+1 < len(l.segs) {
		next := l.segs[i+1].base
		// This product begins a segment at the log end, and compacts only what
		// the checkpointed recovery point covers: a gap here is lost data
		// (KAFKA-3968). Kafka begins one at the next batch.
		if s.next < next && next > l.o.RecoveryPoint && !(l.o.ForeignFolder && l.cfg.Compact) {
			reason = fmt.Errorf("%w: %d to %d", errGap, s.next, next)
		} else if s.next > next {
			reason = fmt.Errorf("%w: segment %d begins below %d", ErrOffsetFell, next, s.next)
		}
		if reason != nil {
			p.cutBecause(s, reason, 0)
			return p.dropFrom(i + 1)
		}
	}
	if reason == nil {
		return nil
	}
	p.cutBecause(s, reason, size-s.size)
	if err := p.dropFrom(i + 1); err != nil {
		return err
	}
	f, err = l.shorten(s, f, s.size)
	s.data.set(f)
	return err
}

// cutBecause notes where and why the log ends early.
func (p *opening) cutBecause(s *segment, reason error, bytes int64) {
	p.r.TruncatedBytes += bytes
	p.r.TruncatedAt = s.next
	p.r.TruncatedBecause = fmt.Sprintf("%s at byte %d: %v", FileName(s.base, logSuffix), s.size, reason)
	p.l.log.Warn("log is cut by recovery", "partition", p.l.o.TopicPartition.String(), "log_end", int64(s.next), "why", p.r.TruncatedBecause, "bytes", bytes)
}

// scan walks one segment's bytes from the start and takes note of each batch.
// reason says why the batch at s.size is none; nil at the end of the file.
func (p *opening) scan(s *segment, f vfs.File, size int64) (reason, err error) {
	s.forget()
	var raw []byte
	w := walk(f, 0, size)
	defer w.done()
	for w.next() {
		p.leaveDeleted(s, &w.h)
		if err := p.plausible(s, &w.h); err != nil {
			return err, nil
		}
		if w.h.LastOffset() >= p.l.o.RecoveryPoint {
			if raw, err = w.raw(raw); err != nil {
				return nil, err
			}
			if err := batch.VerifyCRC(raw); err != nil {
				return err, nil
			}
			p.r.BatchesChecked++
			p.r.BytesChecked += int64(w.h.Size())
		}
		p.imply(&w.h, s.next)
		s.noteBatch(&w.h, w.at, p.l.cfg.IndexIntervalBytes)
	}
	if isReadError(w.err) {
		return nil, w.err
	}
	return w.err, nil
}

// imply takes note of where an epoch begins (R4), seen from the batches.
func (p *opening) imply(h *batch.Header, logEnd types.Offset) {
	if n := len(p.implied); n == 0 || p.implied[n-1].epoch != h.PartitionLeaderEpoch {
		p.implied = append(p.implied, epochStep{h.PartitionLeaderEpoch, logEnd})
	}
}

// leaveDeleted forgets the epochs of batches that lie wholly below the log start, at
// the first batch above them that is of an older epoch. This product doesn't write such
// a log (Log.leaveDeleted, cutAll). Kafka does: cut down to its log start, a log keeps
// deleted records in their segment, and what is written then may come from an unclean
// election's leader.
func (p *opening) leaveDeleted(s *segment, h *batch.Header) {
	start, n := p.l.o.LogStart, len(p.implied)
	if n > 0 && s.next <= start && start <= h.BaseOffset && h.PartitionLeaderEpoch < p.implied[n-1].epoch {
		p.implied = p.implied[:0]
	}
}

// plausible checks what R2 asks of a batch in its place.
//
// Invariant I-26: in the log, offsets rise from batch to batch and epochs never fall.
func (p *opening) plausible(s *segment, h *batch.Header) error {
	if h.BaseOffset < s.next {
		return fmt.Errorf("%w: %d after %d", ErrOffsetFell, h.BaseOffset, s.next)
	}
	if _, ok := relative(h.LastOffset(), s.base); !ok {
		return fmt.Errorf("%w: %d in segment %d", ErrSegmentRange, h.LastOffset(), s.base)
	}
	if n := len(p.implied); n > 0 && h.PartitionLeaderEpoch < p.implied[n-1].epoch {
		return fmt.Errorf("%w: %d after %d", ErrEpochFell, h.PartitionLeaderEpoch, p.implied[n-1].epoch)
	}
	return nil
}

// dropFrom removes the segments from number i on, the last one first and each on
// the disk before the next, so that a crash in between leaves no hole.
func (p *opening) dropFrom(i int) error {
	l := p.l
	gone := l.segs[i:]
	if len(gone) == 0 {
		return nil
	}
	for _, s := range gone {
		if info, err := l.fs.Stat(s.path(logSuffix)); err == nil {
			p.r.TruncatedBytes += info.Size
		}
	}
	p.r.SegmentsRemoved += len(gone)
	for n := len(gone) - 1; n >= 0; n-- {
		if err := errors.Join(l.removeSegmentFiles(gone[n:n+1]), l.fs.SyncDir(l.dir)); err != nil {
			return err
		}
	}
	l.segs = l.segs[:i]
	return nil
}

// removeSegmentFiles removes segments, the last one first, and of each the data last.
func (l *Log) removeSegmentFiles(gone []*segment) error {
	for i := len(gone) - 1; i >= 0; i-- {
		gone[i].retired.Store(true)
		if err := removeFiles(l.fs, l.dir, gone[i].base); err != nil {
			return err
		}
		gone[i].release()
	}
	l.folderChanged = true
	return nil
}

func removeFiles(fsys vfs.FS, dir string, base types.Offset) error {
	for _, suffix := range segmentSuffixes {
		if err := removeIfThere(fsys, join(dir, FileName(base, suffix))); err != nil {
			return err
		}
	}
	return nil
}

func removeIfThere(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// settleSegments seals the checked segments but the last: their indexes go to
// disk as the walk built them. Aborted indexes are made anew with the producers.
func (p *opening) settleSegments(first int) error {
	l := p.l
	for _, s := range l.segs[first : len(l.segs)-1] {
		s.stamp()
		if err := s.writeIndexes(); err != nil {
			return err
		}
		s.seal()
		_ = s.data.drop() // reopened for reading when needed
		p.r.IndexesRebuilt++
		l.folderChanged = true
	}
	a := l.active() // its indexes are in memory: what the crash left of the files says nothing
	a.created = l.now()
	for _, suffix := range []string{indexSuffix, timeSuffix} {
		if err := removeIfThere(l.fs, a.path(suffix)); err != nil {
			return err
		}
	}
	return nil
}

// loadSealed takes a segment that was synced: its data is trusted, its indexes
// are if they look whole, and are rebuilt if not.
func (p *opening) loadSealed(s *segment, next types.Offset) error {
	info, err := p.l.fs.Stat(s.path(logSuffix))
	if err != nil {
		return err
	}
	s.size, s.next = info.Size, next
	if s.size == 0 {
		p.miss(s.base, next)
	}
	ok, err := s.attachIndexes()
	ok = ok && !slices.Contains(p.suspects, s.base)
	if err != nil {
		return err
	}
	if ok {
		s.aborted, err = loadAborted(p.l.fs, s.path(txnSuffix), next)
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			return err
		}
	}
	return p.rebuildSealed(s, next)
}

// miss tells of offsets inside the log that no batch has: files were damaged or
// removed behind the log's back. Nothing else would: readers go on behind them.
func (p *opening) miss(from, to types.Offset) {
	l := p.l
	from = max(from, l.o.LogStart)
	if from >= to || l.cfg.Compact || l.o.ForeignFolder {
		return
	}
	p.r.Missing = append(p.r.Missing, OffsetRange{from, to})
	l.log.Error("records are missing inside the log, whose files were damaged or removed", "partition", l.o.TopicPartition.String(), "from", int64(from), "to", int64(to))
}

// rebuildSealed makes a sealed segment's indexes anew. Zeros behind the data,
// from a preallocated file, are cut off.
func (p *opening) rebuildSealed(s *segment, next types.Offset) error {
	l := p.l
	f, err := l.fs.OpenReadWrite(s.path(logSuffix))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return err
	}
	s.forget()
	w := walk(f, 0, size)
	defer w.done()
	for w.next() {
		s.noteBatch(&w.h, w.at, l.cfg.IndexIntervalBytes)
	}
	if isReadError(w.err) {
		return w.err
	}
	if w.err != nil {
		if zeros, err := onlyZeros(f, s.size, size); err != nil {
			return err
		} else if !zeros {
			return &CorruptError{File: s.path(logSuffix), Pos: types.Position(s.size), Reason: "no batch in a segment that was synced", Err: w.err}
		}
		if f, err = l.shorten(s, f, s.size); err != nil {
			return err
		}
	}
	if s.size > 0 {
		p.miss(s.next, next)
	}
	s.next = next
	if s.aborted, err = l.rebuildAborted(s, f); err != nil {
		return err
	}
	s.stamp()
	if err := s.writeIndexes(); err != nil {
		return err
	}
	s.seal()
	p.r.IndexesRebuilt++
	p.l.log.Warn("indexes rebuilt", "partition", l.o.TopicPartition.String(), "segment", int64(s.base))
	return l.writeAborted(s)
}

// onlyZeros reports whether [from, to) of f is zeros.
func onlyZeros(f vfs.File, from, to int64) (bool, error) {
	buf := make([]byte, 64<<10)
	for from < to {
		b := buf[:min(int64(len(buf)), to-from)]
		if err := readFull(f, b, from); err != nil {
			return false, &readError{f.Name(), from, err}
		}
		for _, x := range b {
			if x != 0 {
				return false, nil
			}
		}
		from += int64(len(b))
	}
	return true, nil
}

// attachIndexes looks at the index files of a sealed segment: sizes, first and
// last entries. ok is false if they must be rebuilt.
func (s *segment) attachIndexes() (ok bool, err error) {
	if s.size == 0 {
		s.sealed = true
		return true, nil
	}
	last, n, ok, err := lastEntry(s.fs, s.path(indexSuffix), indexEntrySize)
	if !ok || err != nil {
		return false, err
	}
	if n > 0 {
		e := decodeIndexEntry(last)
		if e.rel <= 0 || e.pos <= 0 || int64(e.pos) >= s.size || int64(e.rel) >= int64(s.next-s.base) {
			return false, nil
		}
	}
	s.indexCount = n
	last, n, ok, err = lastEntry(s.fs, s.path(timeSuffix), timeEntrySize)
	if !ok || err != nil || n == 0 {
		return false, err
	}
	e := decodeTimeEntry(last)
	if e.ts <= 0 || e.rel < 0 || int64(e.rel) >= int64(s.next-s.base) {
		return false, nil
	}
	s.maxTs, s.maxTsLast = e.ts, s.base+types.Offset(e.rel)
	s.timeCount, s.sealed = n, true
	return s.maxTsHolds()
}

// maxTsHolds reports whether the batch that the last time index entry names has
// the timestamp it says (KAFKA-10207: a stale one misleads retention).
func (s *segment) maxTsHolds() (bool, error) {
	if s.maxTs < 0 {
		return true, nil
	}
	p := s.look()
	f, err := p.file()
	if err != nil {
		return false, err
	}
	size := s.size
	if s.sealed {
		defer s.closeFiles() // most sealed segments are never read again
	} else if size, err = f.Size(); err != nil {
		return false, err
	}
	pos, err := p.floor(s.maxTsLast)
	if err != nil {
		return false, err
	}
	h, _, ok, err := find(f, pos, size, s.maxTsLast)
	if err == nil {
		err = noteFirst(s, f, size)
	}
	if isReadError(err) {
		return false, err
	}
	return ok && err == nil && h.BaseOffset <= s.maxTsLast && h.MaxTimestamp == s.maxTs, nil
}

// lastEntry reads the last entry of an index file. ok is false if the file is
// absent or no whole number of entries.
func lastEntry(fsys vfs.FS, name string, size int) (last []byte, n int64, ok bool, err error) {
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, false, nil
	}
	if err != nil {
		return nil, 0, false, err
	}
	defer f.Close()
	length, err := f.Size()
	if err != nil || length%int64(size) != 0 {
		return nil, 0, false, err
	}
	if length == 0 {
		return nil, 0, true, nil
	}
	last = make([]byte, size)
	return last, length / int64(size), true, readFull(f, last, length-int64(size))
}

// loadActive takes the last segment after a clean shutdown: index entries are
// read into memory, and the batches behind the last one are walked to find the
// log end. ok is false if something doesn't add up and the segment must be checked.
func (p *opening) loadActive(s *segment) (ok bool, err error) {
	l := p.l
	f, err := l.fs.OpenReadWrite(s.path(logSuffix))
	if err != nil {
		return false, err
	}
	s.data.set(f)
	size, err := f.Size()
	if err != nil {
		return false, err
	}
	if ok, err = s.loadIndexes(size); !ok || err != nil {
		return false, err
	}
	pos := int64(0)
	if n := len(s.entries); n > 0 {
		pos = int64(s.entries[n-1].pos)
	}
	if ok, err = s.maxTsHolds(); !ok || err != nil {
		return false, err
	}
	stamps, interval := s.stamps, 1<<31-1 // nothing new is indexed on this walk
	newest := types.NoLeaderEpoch
	w := walk(f, pos, size)
	defer w.done()
	for w.next() {
		if w.h.BaseOffset < s.next || w.h.BaseOffset < s.base || w.h.PartitionLeaderEpoch < newest {
			return false, nil
		}
		newest = w.h.PartitionLeaderEpoch
		if n := len(s.entries); n > 0 && w.at == pos && w.h.LastOffset() != s.base+types.Offset(s.entries[n-1].rel) {
			return false, nil
		}
		s.noteBatch(&w.h, w.at, interval)
	}
	if w.err != nil {
		if isReadError(w.err) {
			return false, w.err
		}
		return false, nil
	}
	if n := len(stamps); n > 0 && s.base+types.Offset(stamps[n-1].rel) >= s.next {
		return false, nil
	}
	s.aborted, err = loadAborted(l.fs, s.path(txnSuffix), s.next)
	s.created = l.now()
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		return false, nil
	}
	return err == nil, err
}

// loadIndexes reads a segment's index files into memory; ok is false if they
// are absent or damaged.
func (s *segment) loadIndexes(size int64) (ok bool, err error) {
	s.forget()
	if size == 0 {
		return true, nil
	}
	b, err := vfs.ReadFile(s.fs, s.path(indexSuffix), 1<<31-1)
	if err != nil {
		return false, ignoreAbsent(err)
	}
	if s.entries, ok = decodeIndex(b, size); !ok {
		return false, nil
	}
	if b, err = vfs.ReadFile(s.fs, s.path(timeSuffix), 1<<31-1); err != nil {
		return false, ignoreAbsent(err)
	}
	if s.stamps, ok = decodeTimes(b, 1<<31-1); !ok || len(b) == 0 {
		return false, nil
	}
	last := s.stamps[len(s.stamps)-1]
	s.maxTs, s.maxTsLast = last.ts, s.base+types.Offset(last.rel)
	return true, nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// noteFirst reads the first batch's timestamp, on which segment.ms rests.
func noteFirst(s *segment, f vfs.File, size int64) error {
	w := seek(f, 0, size)
	defer w.done()
	if w.next() {
		s.firstTs = w.h.MaxTimestamp
	}
	return w.err
}

// rebuildAborted makes a segment's aborted index anew by replaying producers
// over it, from the snapshot at or below its base.
func (l *Log) rebuildAborted(s *segment, f vfs.File) ([]txn.Aborted, error) {
	state, err := l.producersBelow(s.base)
	if err != nil {
		return nil, err
	}
	var out []txn.Aborted
	_, err = replay(f, 0, s.size, state, func(a txn.Aborted) { out = append(out, a) })
	return out, err
}

// writeAborted writes a segment's aborted index whole; without entries the file goes.
func (l *Log) writeAborted(s *segment) error {
	l.folderChanged = true
	s.unsynced = true
	if len(s.aborted) == 0 {
		return removeIfThere(l.fs, s.path(txnSuffix))
	}
	return writeFile(l.fs, s.path(txnSuffix), encodeAborted(nil, s.aborted))
}
