package log

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"tidemark/internal/batch"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// SegmentReport is what VerifyDir found in one segment.
type SegmentReport struct {
	Base, Next   types.Offset // Next is the offset after the last whole batch
	Bytes        int64        // of whole batches with good checksums
	Batches      int
	Records      int64 // as the headers count them
	MaxTimestamp types.Millis
	IndexEntries int
	TimeEntries  int
	Aborted      int
}

// Report is what VerifyDir found in a partition's folder.
type Report struct {
	Dir      string
	TopicID  types.TopicID // zero if partition.metadata is absent
	Segments []SegmentReport
	LogEnd   types.Offset
	Epochs   []epoch.Entry // leader-epoch-checkpoint
	Implied  []epoch.Entry // the history that the batches imply (R4)
	Problems []error       // damage, contradictions; *CorruptError where a place can be named
}

// verifier collects what one VerifyDir finds.
type verifier struct {
	fs    vfs.FS
	dir   string
	r     Report
	hist  epoch.History
	prev  batch.Header // the last batch seen
	any   bool
	marks []batchMark // of the present segment
	runs  []epochRun
}

// epochRun is a run of batches of one epoch: its first and its last offset.
type epochRun struct {
	epoch       types.LeaderEpoch
	first, last types.Offset
}

// batchMark is what index entries are checked against.
type batchMark struct {
	pos  int64
	last types.Offset
	ts   types.Millis
}

// VerifyDir reads a partition's folder, every byte of it, and reports what
// contradicts the formats or each other. It changes nothing and may run while
// the log is in use: the indexes of the last segment may then lag, which is no
// problem. The error is for a folder that can't be read at all.
func VerifyDir(fsys vfs.FS, dir string) (Report, error) {
	v := verifier{fs: fsys, dir: dir, r: Report{Dir: dir}}
	names, err := fsys.List(dir)
	if err != nil {
		return v.r, err
	}
	var bases []types.Offset
	for _, name := range names {
		if base, suffix, ok := parseFileName(name); ok && suffix == logSuffix {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	for i, base := range bases {
		if err := v.segment(base, i == len(bases)-1); err != nil {
			return v.r, err
		}
	}
	v.snapshots(names)
	v.epochs(names)
	if slices.Contains(names, PartitionMetadataFile) {
		v.r.TopicID, err = readTopicID(fsys, dir)
		v.problem(err)
	}
	return v.r, nil
}

func readTopicID(fsys vfs.FS, dir string) (types.TopicID, error) {
	b, err := vfs.ReadFile(fsys, join(dir, PartitionMetadataFile), 1<<16)
	if err != nil {
		return types.TopicID{}, err
	}
	return ParsePartitionMetadata(b)
}

func (v *verifier) problem(err error) {
	if err != nil {
		v.r.Problems = append(v.r.Problems, err)
	}
}

func (v *verifier) corrupt(name string, pos int64, format string, args ...any) {
	v.problem(&CorruptError{File: join(v.dir, name), Pos: types.Position(pos), Reason: fmt.Sprintf(format, args...)})
}

// segment walks one segment's data and then its indexes.
func (v *verifier) segment(base types.Offset, last bool) error {
	name := FileName(base, logSuffix)
	f, err := v.fs.Open(join(v.dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	s := SegmentReport{Base: base, Next: base, MaxTimestamp: types.NoTimestamp}
	v.marks = v.marks[:0]
	if v.any && v.prev.NextOffset() > base {
		v.corrupt(name, 0, "segment begins at %d, the one before ends at %d", base, v.prev.NextOffset())
	}
	if err := v.batches(name, f, size, &s); err != nil {
		return err
	}
	v.indexes(&s, last)
	v.r.Segments = append(v.r.Segments, s)
	v.r.LogEnd = max(s.Next, base)
	return nil
}

func (v *verifier) batches(name string, f vfs.File, size int64, s *SegmentReport) error {
	var raw []byte
	w := walk(f, 0, size)
	defer w.done()
	for w.next() {
		var err error
		if raw, err = w.raw(raw); err != nil {
			return err
		}
		if err := batch.VerifyCRC(raw); err != nil {
			v.corrupt(name, w.at, "batch at offset %d: %v", w.h.BaseOffset, err)
			continue
		}
		v.batch(name, &w, s)
	}
	if isReadError(w.err) {
		return w.err
	}
	if w.err != nil {
		v.corrupt(name, w.pos, "%d bytes that are no batch: %v", size-w.pos, w.err)
	}
	return nil
}

// batch checks one batch in its place (I-26) and takes note of it.
func (v *verifier) batch(name string, w *walker, s *SegmentReport) {
	h := w.h
	switch {
	case h.BaseOffset < s.Next:
		v.corrupt(name, w.at, "%v: %d after %d", ErrOffsetFell, h.BaseOffset, s.Next)
	case v.any && h.PartitionLeaderEpoch < v.prev.PartitionLeaderEpoch:
		v.corrupt(name, w.at, "%v: %d after %d", ErrEpochFell, h.PartitionLeaderEpoch, v.prev.PartitionLeaderEpoch)
	}
	if h.PartitionLeaderEpoch >= 0 {
		end := s.Next
		if v.any {
			end = max(v.prev.NextOffset(), 0)
		}
		if _, err := v.hist.AppendedBatch(h.PartitionLeaderEpoch, end); err != nil && !errors.Is(err, epoch.ErrEpochFalls) {
			v.corrupt(name, w.at, "%v", err)
		}
	}
	if n := len(v.runs); n == 0 || v.runs[n-1].epoch != h.PartitionLeaderEpoch {
		v.runs = append(v.runs, epochRun{epoch: h.PartitionLeaderEpoch, first: h.BaseOffset})
	}
	v.runs[len(v.runs)-1].last = h.LastOffset()
	v.prev, v.any = h, true
	v.marks = append(v.marks, batchMark{w.at, h.LastOffset(), h.MaxTimestamp})
	s.Next, s.Bytes = h.NextOffset(), w.pos
	s.Batches++
	s.Records += int64(h.RecordsCount)
	s.MaxTimestamp = max(s.MaxTimestamp, h.MaxTimestamp)
}

// indexes checks that every entry of a segment's index files points at what it says.
func (v *verifier) indexes(s *SegmentReport, last bool) {
	name := FileName(s.Base, indexSuffix)
	entries, whole, err := DumpIndex(v.fs, join(v.dir, name))
	if v.absent(err, name, last || s.Bytes == 0) {
		return
	}
	if !whole {
		v.corrupt(name, int64(len(entries)*indexEntrySize), "bytes that are no rising entries")
	}
	s.IndexEntries = len(entries)
	for i, e := range entries {
		m, ok := v.markAt(e.Offset)
		if !ok || m.last != e.Offset || m.pos != int64(e.Position) {
			v.corrupt(name, int64(i*indexEntrySize), "entry %d says a batch that ends at offset %d lies at byte %d", i, e.Offset, e.Position)
		}
	}
	v.timeIndex(s, last)
	aborted, err := DumpTxnIndex(v.fs, join(v.dir, FileName(s.Base, txnSuffix)))
	if !errors.Is(err, fs.ErrNotExist) {
		v.problem(err)
	}
	s.Aborted = len(aborted)
	v.aborted(s, aborted)
}

func (v *verifier) aborted(s *SegmentReport, aborted []txn.Aborted) {
	for i, a := range aborted {
		if _, ok := v.markAt(a.LastOffset); !ok {
			v.corrupt(FileName(s.Base, txnSuffix), int64(i*txnEntrySize), "entry %d names a marker at %d, which is not there", i, a.LastOffset)
		}
	}
}

func (v *verifier) timeIndex(s *SegmentReport, last bool) {
	name := FileName(s.Base, timeSuffix)
	entries, whole, err := DumpTimeIndex(v.fs, join(v.dir, name))
	if v.absent(err, name, last || s.Bytes == 0) {
		return
	}
	if !whole {
		v.corrupt(name, int64(len(entries)*timeEntrySize), "bytes that are no rising entries")
	}
	s.TimeEntries = len(entries)
	newest, at := types.NoTimestamp, 0
	for i, e := range entries {
		for ; at < len(v.marks) && (at == 0 || v.marks[at-1].last < e.Offset); at++ {
			newest = max(newest, v.marks[at].ts)
		}
		if newest != e.Timestamp {
			v.corrupt(name, int64(i*timeEntrySize), "entry %d says the newest timestamp up to offset %d is %d, it is %d", i, e.Offset, e.Timestamp, newest)
		}
	}
	if !last && s.MaxTimestamp > 0 && (len(entries) == 0 || entries[len(entries)-1].Timestamp != s.MaxTimestamp) {
		v.corrupt(name, -1, "the last entry is not the segment's newest timestamp %d", s.MaxTimestamp)
	}
}

// markAt finds the batch that holds o.
func (v *verifier) markAt(o types.Offset) (batchMark, bool) {
	i, _ := slices.BinarySearchFunc(v.marks, o, func(m batchMark, o types.Offset) int { return cmpInt(int64(m.last), int64(o)) })
	if i == len(v.marks) {
		return batchMark{}, false
	}
	return v.marks[i], true
}

// absent handles the error of reading an index file; it may be missing where
// the segment is the one being written.
func (v *verifier) absent(err error, name string, allowed bool) bool {
	if err == nil {
		return false
	}
	if !errors.Is(err, fs.ErrNotExist) || !allowed {
		v.problem(fmt.Errorf("%s: %w", name, err))
	}
	return true
}

func (v *verifier) snapshots(names []string) {
	for _, name := range names {
		at, suffix, ok := parseFileName(name)
		if !ok || suffix != snapshotSuffix {
			continue
		}
		_, err := DumpSnapshot(v.fs, join(v.dir, name))
		v.problem(err)
		if at > v.r.LogEnd {
			v.corrupt(name, -1, "snapshot lies beyond the log end %d", v.r.LogEnd)
		}
	}
}

// epochs compares the checkpoint with what the batches imply: every batch at or
// above the first entry must have the epoch that the history gives its offset.
func (v *verifier) epochs(names []string) {
	v.r.Implied = v.hist.Entries()
	if !slices.Contains(names, epoch.CheckpointFile) {
		if v.hist.Len() > 0 {
			v.corrupt(epoch.CheckpointFile, -1, "absent, the batches imply %v", &v.hist)
		}
		return
	}
	b, err := vfs.ReadFile(v.fs, join(v.dir, epoch.CheckpointFile), 64<<20)
	if err != nil {
		v.problem(err)
		return
	}
	if v.r.Epochs, err = epoch.ParseCheckpoint(b); err != nil {
		v.problem(&CorruptError{File: join(v.dir, epoch.CheckpointFile), Pos: -1, Reason: "unreadable", Err: err})
		return
	}
	h, err := epoch.FromEntries(v.r.Epochs)
	v.problem(err)
	for _, run := range v.runs {
		for _, o := range []types.Offset{run.first, run.last} {
			if got, ok := h.EpochForOffset(o); ok && got != run.epoch {
				v.corrupt(epoch.CheckpointFile, -1, "the batch at offset %d has epoch %d, the checkpoint says %d", o, run.epoch, got)
			}
		}
	}
}
