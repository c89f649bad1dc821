package log

import (
	"tidemark/internal/vfs"
)

// A file of a log may have another name: in a fork (fork.go), or in the vault. Its
// bytes are then those of both, and whoever changed them in place would change what
// the other one holds. So a file that has another name is never written: its own
// name is taken off it first, and given to a new file.

// keptPart is what stays of a segment that a cut shortens although its file has
// another name: a file of its own, synced under a temporary name.
type keptPart struct{ placed bool }

// isShared reports whether a segment's data has, or may have, another name. A fork
// that is just being made is known before its links are there.
func (l *Log) isShared(s *segment) (bool, error) {
	switch {
	case l.o.Rules.CutSharedInPlace:
		return false, nil
	case s.shared:
		return true, nil
	}
	info, err := l.fs.Stat(s.path(logSuffix))
	return err == nil && info.Links > 1, err
}

// keepPart readies the first size bytes of a segment as a file of its own, if the
// segment's has another name; nil if it hasn't. Nothing of the log has changed then:
// where there is no room for it the cut is refused as a whole.
func (l *Log) keepPart(s *segment, size int64) (*keptPart, error) {
	shared, err := l.isShared(s)
	if err != nil || !shared {
		return nil, err
	}
	f, err := s.data.get(s, logSuffix)
	if err != nil {
		return nil, err
	}
	temp := s.path(logSuffix) + vfs.TempSuffix
	if err := vfs.CopySynced(l.fs, temp, f, 0, size); err != nil {
		_ = l.fs.Remove(temp) // an open does it too
		return nil, err
	}
	return &keptPart{}, nil
}

// dropPart removes a kept part that isn't needed: the cut was refused.
func (l *Log) dropPart(s *segment, k *keptPart) {
	if k != nil {
		_ = l.fs.Remove(s.path(logSuffix) + vfs.TempSuffix) // an open does it too
	}
}

// place gives the kept part the segment's name, which it takes off the shared
// file. The folder is the caller's to sync. It can be repeated.
func (l *Log) place(s *segment, k *keptPart) error {
	if k.placed {
		return nil
	}
	name := s.path(logSuffix)
	if err := l.fs.Rename(name+vfs.TempSuffix, name); err != nil {
		return err
	}
	k.placed, s.shared = true, false
	return nil
}

// shorten cuts a segment's file to size bytes while the log opens, and syncs it;
// a file that has another name is replaced by its beginning. f is the segment's file
// as it was opened; the one to go on with is given.
func (l *Log) shorten(s *segment, f vfs.File, size int64) (vfs.File, error) {
	shared, err := l.isShared(s)
	if err != nil {
		return f, err
	}
	if !shared {
		if err := f.Truncate(size); err != nil {
			return f, err
		}
		return f, f.Sync()
	}
	return l.replaceByOwn(s, f, size)
}

// replaceByOwn puts a file with the first size bytes in a segment's place.
func (l *Log) replaceByOwn(s *segment, f vfs.File, size int64) (vfs.File, error) {
	name := s.path(logSuffix)
	if err := vfs.CopySynced(l.fs, name+vfs.TempSuffix, f, 0, size); err != nil {
		return f, err
	}
	if err := l.place(s, &keptPart{}); err != nil {
		return f, err
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return f, err
	}
	own, err := l.fs.OpenReadWrite(name)
	if err != nil {
		return f, err
	}
	_ = f.Close() // only read so far
	return own, nil
}

// ownActive makes sure that the segment which the opened log goes on writing has
// files of its own: what came behind it in the folder may be gone since it was linked.
func (p *opening) ownActive() error {
	l, s := p.l, p.l.active()
	shared, err := l.isShared(s)
	if err != nil {
		return err
	}
	if shared {
		f, err := s.data.get(s, logSuffix)
		if err != nil {
			return err
		}
		if f, err = l.replaceByOwn(s, f, s.size); err != nil {
			return err
		}
		s.data.set(f)
	}
	info, err := l.fs.Stat(s.path(txnSuffix))
	if err == nil && info.Links > 1 { // appended to in place
		return l.writeAborted(s)
	}
	return ignoreAbsent(err)
}

// unlinkShared takes a name off a file that has another one, so that writing the
// name anew leaves the file as it is.
func unlinkShared(fsys vfs.FS, name string) error {
	info, err := fsys.Stat(name)
	if err != nil {
		return ignoreAbsent(err)
	}
	if info.Links < 2 {
		return nil
	}
	return fsys.Remove(name)
}
