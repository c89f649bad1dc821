package log

import (
	"sync/atomic"

	"tidemark/internal/assert"
	"tidemark/internal/batch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// segment is one .log file with its indexes. The last segment of a log is
// active: it is written, and its indexes are in memory. All others are sealed:
// their indexes are files, opened when first needed.
//
// Everything below the handles is changed by the owner under Log.mu, and read
// by others under it.
type segment struct {
	fs   vfs.FS
	dir  string
	base types.Offset
	temp string // extra suffix of the names while a compaction writes the segment

	// refs counts the log itself and every reader that holds the files; the
	// last one to let go closes them.
	refs atomic.Int32
	// retired is set before the segment's files are renamed or removed: whoever
	// opened a file by name afterwards may have got another one and asks again.
	retired atomic.Bool
	data    lazyFile // .log; opened for writing while active
	index   lazyFile // .index, sealed segments only
	times   lazyFile // .timeindex, sealed segments only

	size      int64        // bytes of whole batches
	next      types.Offset // offset after the last batch; base if there is none
	maxTs     types.Millis // largest timestamp, -1 if none
	maxTsLast types.Offset // last offset of the batch that carries it
	firstTs   types.Millis // max timestamp of the first batch, -1 if none: the age for segment.ms
	created   types.Millis
	aborted   []txn.Aborted

	sealed     bool
	indexCount int64        // entries in the .index file, if sealed
	timeCount  int64        // entries in the .timeindex file, if sealed
	entries    []indexEntry // active only
	stamps     []timeEntry  // active only
	unindexed  int          // bytes of data since the last index entry
	// unsynced says that index files were written but not synced.
	unsynced bool
	stale    []vfs.File // data handles replaced while readers may have used them
	// shared: a fork has linked the data file, or is about to (own.go).
	shared bool
}

func newSegment(fsys vfs.FS, dir string, base types.Offset) *segment {
	s := &segment{fs: fsys, dir: dir, base: base, next: base, maxTs: types.NoTimestamp, maxTsLast: base, firstTs: types.NoTimestamp}
	s.refs.Store(1)
	return s
}

func (s *segment) path(suffix string) string { return join(s.dir, FileName(s.base, suffix)+s.temp) }

// acquire takes a hold on the files. The caller holds Log.mu, under which the
// log's own hold can't end.
func (s *segment) acquire() {
	if n := s.refs.Add(1); n <= 1 {
		assert.That(false, "I-23: segment %d was held after its last release", s.base)
	}
}

// release ends a hold; the last one closes the files.
func (s *segment) release() {
	switch n := s.refs.Add(-1); {
	case n == 0:
		s.closeFiles()
	case n < 0:
		assert.That(false, "I-23: segment %d was released %d times too often", s.base, -n)
	}
}

// closeFiles closes what is open. Errors say nothing about written bytes:
// whoever needs those on disk has synced before.
func (s *segment) closeFiles() {
	_ = s.data.drop()
	_ = s.index.drop()
	_ = s.times.drop()
	for _, f := range s.stale {
		_ = f.Close()
	}
	s.stale = nil
}

// noteBatch takes note of a batch that begins at pos, in the order of the log:
// sizes, timestamps, and every interval bytes an index entry.
func (s *segment) noteBatch(h *batch.Header, pos int64, interval int) {
	if h.MaxTimestamp > s.maxTs {
		s.maxTs, s.maxTsLast = h.MaxTimestamp, h.LastOffset()
	}
	if s.firstTs < 0 {
		s.firstTs = h.MaxTimestamp
	}
	if s.unindexed > interval {
		rel, ok := relative(h.LastOffset(), s.base)
		if !ok {
			assert.That(false, "I-24: offset %d doesn't fit segment %d", h.LastOffset(), s.base)
		}
		s.entries = append(s.entries, indexEntry{rel, int32(pos)})
		s.stamp()
		s.unindexed = 0
	}
	s.unindexed += h.Size()
	s.size = pos + int64(h.Size())
	s.next = h.NextOffset()
}

// stamp adds the largest timestamp so far to the time index unless it's there.
func (s *segment) stamp() {
	if s.maxTs < 0 || (len(s.stamps) > 0 && s.stamps[len(s.stamps)-1].ts >= s.maxTs) {
		return
	}
	rel, ok := relative(s.maxTsLast, s.base)
	assert.That(ok, "I-24: offset %d doesn't fit segment %d", s.maxTsLast, s.base)
	s.stamps = append(s.stamps, timeEntry{s.maxTs, rel})
}

// forget empties what noteBatch built, before a rebuild.
func (s *segment) forget() {
	s.size, s.next, s.maxTs, s.maxTsLast, s.firstTs = 0, s.base, types.NoTimestamp, s.base, types.NoTimestamp
	s.entries, s.stamps, s.unindexed = nil, nil, 0
}

// keepBelow drops index entries at or above a position and an offset. The
// slices' capacity is cut too: readers hold the old ones.
func (s *segment) keepBelow(pos int64, o types.Offset) {
	n := len(s.entries)
	for n > 0 && int64(s.entries[n-1].pos) >= pos {
		n--
	}
	s.entries = s.entries[:n:n]
	n = len(s.stamps)
	for n > 0 && s.base+types.Offset(s.stamps[n-1].rel) >= o {
		n--
	}
	s.stamps = s.stamps[:n:n]
	s.maxTs, s.maxTsLast = types.NoTimestamp, s.base
	if n > 0 {
		s.maxTs, s.maxTsLast = s.stamps[n-1].ts, s.base+types.Offset(s.stamps[n-1].rel)
	}
}

// writeIndexes writes both index files whole from memory, not synced. The
// segment's largest timestamp must have been stamped.
func (s *segment) writeIndexes() error {
	if err := writeFile(s.fs, s.path(indexSuffix), encodeIndex(make([]byte, 0, len(s.entries)*indexEntrySize), s.entries)); err != nil {
		return err
	}
	return writeFile(s.fs, s.path(timeSuffix), encodeTimes(make([]byte, 0, len(s.stamps)*timeEntrySize), s.stamps))
}

// writeFile replaces a file's content without a sync. On failure nothing
// useful may be left; the content can be made again from the data. A file that has
// another name, in a fork, keeps its content there.
func writeFile(fsys vfs.FS, name string, b []byte) error {
	if err := unlinkShared(fsys, name); err != nil {
		return err
	}
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	if len(b) > 0 {
		if _, err := f.WriteAt(b, 0); err != nil {
			_ = f.Close()
			_ = fsys.Remove(name) // make room again; a half index is worth nothing
			return err
		}
	}
	return f.Close()
}

// syncFile opens, syncs and closes a file, which must exist.
func syncFile(fsys vfs.FS, name string) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// seal makes the segment read-only in memory: its indexes are files now. The
// caller has written them and holds Log.mu.
func (s *segment) seal() {
	s.indexCount, s.timeCount = int64(len(s.entries)), int64(len(s.stamps))
	s.entries, s.stamps, s.sealed, s.unsynced = nil, nil, true, true
}

// pin is what a reader needs of a segment, copied under Log.mu with a hold on
// the files.
type pin struct {
	seg        *segment
	size       int64
	next       types.Offset
	sealed     bool
	indexCount int64
	timeCount  int64
	entries    []indexEntry
	stamps     []timeEntry
	maxTs      types.Millis
	maxTsLast  types.Offset
	cuts       int // Log.cuts when the pin was taken
}

// look is a pin without a hold, for the owner.
func (s *segment) look() pin {
	return pin{s, s.size, s.next, s.sealed, s.indexCount, s.timeCount, s.entries, s.stamps, s.maxTs, s.maxTsLast, 0}
}

func (p *pin) file() (vfs.File, error) { return p.seg.data.get(p.seg, logSuffix) }

// floor gives a position at or before the batch that holds o.
func (p *pin) floor(o types.Offset) (int64, error) {
	rel := int64(o - p.seg.base)
	if !p.sealed {
		return floorIndex(p.entries, rel), nil
	}
	if p.indexCount == 0 {
		return 0, nil
	}
	f, err := p.seg.index.get(p.seg, indexSuffix)
	if err != nil {
		return 0, err
	}
	return floorIndexFile(f, p.indexCount, rel)
}

// floorByPos gives the beginning of a batch at or before the position.
func (p *pin) floorByPos(pos int64) (int64, error) {
	if !p.sealed {
		return floorIndexByPos(p.entries, pos), nil
	}
	if p.indexCount == 0 {
		return 0, nil
	}
	f, err := p.seg.index.get(p.seg, indexSuffix)
	if err != nil {
		return 0, err
	}
	return floorIndexFileByPos(f, p.indexCount, pos)
}

// floorTime gives an offset at or before the first record at or after ts.
func (p *pin) floorTime(ts types.Millis) (types.Offset, error) {
	if !p.sealed {
		return p.seg.base + types.Offset(floorTimes(p.stamps, ts)), nil
	}
	if p.timeCount == 0 {
		return p.seg.base, nil
	}
	f, err := p.seg.times.get(p.seg, timeSuffix)
	if err != nil {
		return 0, err
	}
	rel, err := floorTimesFile(f, p.timeCount, ts)
	return p.seg.base + types.Offset(rel), err
}
