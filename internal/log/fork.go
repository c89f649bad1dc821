package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// ErrForkMoved says that the log was cut, or segments of it were compacted or
// removed, while it was forked: the fork is worth nothing, another try may succeed.
var ErrForkMoved = errors.New("the log changed below the fork")

// ForkJob is a fork of a log under way: a second log in a folder of its own that
// begins with this one's records, by hard links of the segments' files. Nothing that
// either of them does later changes the other (I-310): see own.go. The owner starts
// it, Make may run on any goroutine, the owner ends it; appends go on meanwhile.
type ForkJob struct {
	l         *Log
	to        types.Offset
	start     types.Offset
	cleaned   types.Offset
	evidence  types.Offset
	cuts      int // Log.cuts at the start
	parts     []forkPart
	snapshots []forkSnapshot
	history   epoch.History
}

type forkSnapshot struct {
	at       types.Offset
	unsynced bool
}

// forkPart is a segment, or the beginning of the last one.
type forkPart struct {
	seg  *segment
	base types.Offset
	size int64
	// whole: sealed, and all of it below the fork's end: linked. Else it is copied.
	whole bool
	// unsynced: its files may not be on the disk yet.
	unsynced bool
}

// Fork says what becomes of the fork.
type Fork struct {
	Dir     string // its folder, which must not exist; its parent must
	TopicID types.TopicID
	// Timelines is the content of its timeline checkpoint (R19).
	Timelines []byte
	// Start is where it begins, at or above this log's own start.
	Start types.Offset
}

// StartFork (W) captures what a fork that ends at `to` consists of. `to` lies
// between two batches, or at the log end. Roll first: what lies in the active segment
// is copied, and all else linked.
func (l *Log) StartFork(to types.Offset) (*ForkJob, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	if to < l.marks.start || to > l.marks.end {
		return nil, fmt.Errorf("%w: fork at %d, the log has %d to %d", ErrOutOfRange, to, l.marks.start, l.marks.end)
	}
	j := &ForkJob{l: l, to: to, start: l.marks.start, cleaned: min(l.cleaned, to), evidence: min(l.evidence, to), cuts: l.cuts, history: l.history.Clone()}
	j.history.TruncateFromEnd(to)
	for _, s := range l.segs {
		if s.base >= to || s.size == 0 {
			continue
		}
		p, err := l.forkPart(s, to)
		if err != nil {
			return nil, err
		}
		j.parts = append(j.parts, p)
	}
	snaps, err := l.snapshots()
	if err != nil {
		return nil, l.fail("list snapshots", err)
	}
	for _, o := range snaps {
		if o <= to && len(j.parts) > 0 && o >= j.parts[0].base {
			unsynced := o >= l.marks.recovery || slices.Contains(l.unsyncedSnapshots, FileName(o, snapshotSuffix))
			j.snapshots = append(j.snapshots, forkSnapshot{at: o, unsynced: unsynced})
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range j.parts {
		p.seg.acquire()
		// From now on a cut leaves the file as it is, whether the link is there yet or not.
		p.seg.shared = p.seg.shared || p.whole
	}
	return j, nil
}

func (l *Log) forkPart(s *segment, to types.Offset) (forkPart, error) {
	p := forkPart{seg: s, base: s.base, size: s.size, whole: s.sealed && s.next <= to, unsynced: s.unsynced || s.next > l.marks.recovery}
	if p.whole || s.next <= to {
		return p, nil
	}
	look := s.look()
	f, err := look.file()
	if err != nil {
		return p, err
	}
	pos, err := look.floor(to)
	if err != nil {
		return p, err
	}
	h, at, ok, err := find(f, pos, s.size, to)
	if err != nil {
		return p, err
	}
	if ok && h.BaseOffset < to {
		return p, fmt.Errorf("%w: fork at %d, inside the batch at %d", ErrOutOfRange, to, h.BaseOffset)
	}
	if ok {
		p.size = at
	}
	return p, nil
}

// Make makes the fork's folder, synced but for its own name: its parent's folder is
// the caller's to sync. After an error the folder may be there in part.
func (j *ForkJob) Make(o Fork) error {
	fsys := j.l.fs
	if err := fsys.MkdirAll(o.Dir); err != nil {
		return err
	}
	for i := range j.parts {
		if err := j.parts[i].into(fsys, o.Dir); err != nil {
			return fmt.Errorf("fork segment %d: %w", j.parts[i].base, err)
		}
	}
	for _, s := range j.snapshots {
		name := FileName(s.at, snapshotSuffix)
		if err := linkSynced(fsys, join(j.l.dir, name), join(o.Dir, name), s.unsynced); ignoreAbsent(err) != nil {
			return err
		}
	}
	for _, file := range []struct {
		name string
		data []byte
	}{
		{FileName(j.to, logSuffix), nil}, // the segment that the fork goes on in
		{epoch.CheckpointFile, epoch.FormatCheckpoint(j.history.Entries())},
		{TimelineFile, o.Timelines},
		{PartitionMetadataFile, FormatPartitionMetadata(o.TopicID)},
	} {
		name := join(o.Dir, file.name)
		if err := writeFile(fsys, name, file.data); err != nil {
			return err
		}
		if err := syncFile(fsys, name); err != nil {
			return err
		}
	}
	return fsys.SyncDir(o.Dir)
}

// into links or copies one segment.
func (p *forkPart) into(fsys vfs.FS, dir string) error {
	f, err := p.seg.data.get(p.seg, logSuffix)
	switch {
	case p.seg.retired.Load():
		return ErrForkMoved
	case err != nil:
		return err
	}
	to := join(dir, FileName(p.base, logSuffix))
	info, err := fsys.Stat(p.seg.path(logSuffix))
	if err != nil {
		return p.moved(err)
	}
	if p.whole && info.Size < p.size {
		return ErrForkMoved
	}
	if !p.whole || info.Size != p.size { // more than batches: preallocated
		if err := vfs.CopySynced(fsys, to, f, 0, p.size); errors.Is(err, io.EOF) {
			return ErrForkMoved
		} else if err != nil {
			return err
		}
		return p.moved(nil)
	}
	if err := linkSynced(fsys, p.seg.path(logSuffix), to, p.unsynced); err != nil {
		return p.moved(err)
	}
	for _, suffix := range []string{indexSuffix, timeSuffix, txnSuffix} {
		err := linkSynced(fsys, p.seg.path(suffix), join(dir, FileName(p.base, suffix)), p.unsynced)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return p.moved(err)
		}
	}
	return p.moved(nil)
}

// moved is the outcome of a step that went by the segment's names: they may have
// become another segment's meanwhile.
func (p *forkPart) moved(err error) error {
	if p.seg.retired.Load() {
		return ErrForkMoved
	}
	return err
}

// linkSynced gives a file another name, and syncs its bytes if need be.
func linkSynced(fsys vfs.FS, from, to string, unsynced bool) error {
	if err := fsys.Link(from, to); err != nil {
		return err
	}
	if !unsynced {
		return nil
	}
	return syncFile(fsys, to)
}

// Marks are what the checkpoint files of the log directory are to say of the fork.
func (j *ForkJob) Marks(o Fork) Marked {
	return Marked{RecoveryPoint: j.to, HighWatermark: j.to, LogStart: min(max(j.start, o.Start), j.to), Cleaned: j.cleaned, Evidence: j.evidence}
}

// Size is how many bytes of records were linked, and how many copied.
func (j *ForkJob) Size() (linked, copied int64) {
	for _, p := range j.parts {
		if p.whole {
			linked += p.size
		} else {
			copied += p.size
		}
	}
	return linked, copied
}

// EndFork (W) takes the outcome of Make: ErrForkMoved if the log was cut meanwhile.
// A failed write or sync is the log's own failure: the fork's files are its files.
func (l *Log) EndFork(j *ForkJob, err error) error {
	switch {
	case l.offline != nil:
		return l.offline
	case errors.Is(err, ErrForkMoved):
		return err
	case vfs.IsDiskFault(err):
		return l.fail("fork", err)
	case err != nil:
		return err
	case j.cuts != l.cuts:
		return ErrForkMoved
	}
	return nil
}

// Release lets the segments go; any goroutine, once Make has returned or won't run.
func (j *ForkJob) Release() {
	for _, p := range j.parts {
		p.seg.release()
	}
	j.parts = nil
}
