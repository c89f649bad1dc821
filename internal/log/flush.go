package log

import (
	"tidemark/internal/assert"
	"tidemark/internal/core/types"
)

// FlushJob is one flush under way: the owner starts it, Sync may run on any
// goroutine, the owner ends it. Appends go on meanwhile; a roll, too.
type FlushJob struct {
	l         *Log
	to        types.Offset // everything below is on disk afterwards
	cuts      int          // Log.cuts at the start
	syncDir   bool
	files     []*segment // data to sync
	indexes   []*segment // sealed segments whose indexes were written since
	snapshots []string
}

// syncAll is Flush for the middle of another procedure: it also works while a
// job of the caller's is under way, whose outcome it does not wait for.
func (l *Log) syncAll() error {
	other := l.flush
	l.flush = nil
	j, err := l.StartFlush()
	if err != nil {
		l.flush = other
		return err
	}
	if other != nil { // what it has taken over to sync may not be synced yet
		j.syncDir = true
		j.snapshots = append(j.snapshots, other.snapshots...)
		for _, s := range other.indexes {
			s.acquire()
			j.indexes = append(j.indexes, s)
		}
	}
	err = l.EndFlush(j, j.Sync())
	l.flush = other
	return err
}

// StartFlush (W) captures what a flush up to the log end must sync. At most one
// job is under way at a time: end the one before first.
func (l *Log) StartFlush() (*FlushJob, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	assert.That(l.flush == nil, "I-27: a second flush began before the first ended")
	j := &FlushJob{l: l, to: l.marks.end, cuts: l.cuts, syncDir: l.folderChanged, snapshots: l.unsyncedSnapshots}
	l.flush = j
	l.unsyncedSnapshots, l.folderChanged = nil, false
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segs {
		if s.next > l.marks.recovery || s == l.active() {
			s.acquire()
			j.files = append(j.files, s)
		}
		if s.unsynced {
			s.acquire()
			s.unsynced = false
			j.indexes = append(j.indexes, s)
		}
	}
	return j, nil
}

// Offset is the log end that the job makes durable.
func (j *FlushJob) Offset() types.Offset { return j.to }

// Sync does the I/O of the flush, data before names. Any goroutine.
func (j *FlushJob) Sync() error {
	for _, s := range j.files {
		f, err := s.data.get(s, logSuffix)
		if s.retired.Load() {
			continue // cut or compacted meanwhile: whoever did that syncs what took its place
		}
		if err != nil {
			return err
		}
		if err := f.SyncData(); err != nil {
			return err
		}
	}
	for _, s := range j.indexes {
		for _, suffix := range segmentSuffixes[:3] {
			if err := syncFile(s.fs, s.path(suffix)); ignoreAbsent(err) != nil {
				return err
			}
		}
	}
	for _, name := range j.snapshots {
		if err := ignoreAbsent(syncFile(j.l.fs, join(j.l.dir, name))); err != nil {
			return err
		}
	}
	if !j.syncDir {
		return nil
	}
	return j.l.fs.SyncDir(j.l.dir)
}

// EndFlush (W) takes the outcome of Sync: the recovery point rises to the job's
// offset, or the log goes offline, because after a failed sync nobody knows
// what the disk holds.
func (l *Log) EndFlush(j *FlushJob, err error) error {
	l.flush = nil
	for _, s := range j.files {
		s.release()
	}
	for _, s := range j.indexes {
		s.release()
	}
	if l.offline != nil {
		return l.offline
	}
	if err != nil {
		return l.fail("flush", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if j.cuts == l.cuts { // else bytes below j.to may be newer than the sync
		l.marks.recovery = max(l.marks.recovery, j.to)
	}
	return nil
}

// Flush (W) syncs everything up to the log end; the recovery point follows.
func (l *Log) Flush() error {
	j, err := l.StartFlush()
	if err != nil {
		return err
	}
	return l.EndFlush(j, j.Sync())
}

// FlushDue (W) says whether flush.messages or flush.ms asks for a flush now.
// lastFlush is when the caller flushed last.
func (l *Log) FlushDue(now, lastFlush types.Millis) bool {
	behind := int64(l.marks.end - l.marks.recovery)
	if behind <= 0 {
		return false
	}
	return (l.cfg.FlushMessages > 0 && behind >= l.cfg.FlushMessages) || (l.cfg.FlushMs > 0 && now-lastFlush >= l.cfg.FlushMs)
}
