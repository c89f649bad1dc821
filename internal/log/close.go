package log

import (
	"crypto/rand"
	"encoding/hex"
	"path"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// Close (W) makes the folder one that a clean open, also Apache Kafka's,
// accepts without recovery: indexes and a producer snapshot are written, all is
// synced, files are closed. An offline log is closed as a crash would leave it
// and gives its error.
func (l *Log) Close() error {
	if l.closed {
		return nil
	}
	err := l.offline
	if err == nil && !l.untouched {
		err = l.settleOnDisk()
	}
	l.CloseUnclean()
	return err
}

// settleOnDisk writes what lives in memory and syncs everything.
func (l *Log) settleOnDisk() error {
	a := l.active()
	if err := l.finishIndexes(a); err != nil {
		return err
	}
	a.unsynced, l.folderChanged = true, true
	if l.producers.Len() > 0 || len(l.segs) > 1 {
		if err := l.takeSnapshot(); err != nil {
			return l.refuse("write producer snapshot", err)
		}
	}
	return l.Flush()
}

// CloseUnclean (W) closes the files without writing anything: for a log that
// is offline, and for tests that want a crash.
func (l *Log) CloseUnclean() {
	if l.closed {
		return
	}
	l.mu.Lock()
	l.closed = true
	segs := l.segs
	l.mu.Unlock()
	for _, s := range segs {
		s.release()
	}
}

// deletedFolderSuffix ends the names of folders whose log was deleted.
const deletedFolderSuffix = "-delete"

// Delete (W) closes the log and renames its folder to
// <topic>-<partition>.<32 hex digits>-delete, as Kafka does, so that the name is
// free at once. RemoveDeleted removes it after file.delete.delay.ms.
func (l *Log) Delete() (renamed string, err error) {
	l.CloseUnclean()
	var id [16]byte
	if fill := l.o.Random; fill != nil {
		fill(id[:])
	} else {
		rand.Read(id[:]) // never fails
	}
	renamed = l.dir + "." + hex.EncodeToString(id[:]) + deletedFolderSuffix
	if err := l.fs.Rename(l.dir, renamed); err != nil {
		return "", err
	}
	return renamed, l.fs.SyncDir(path.Dir(l.dir))
}

// IsDeletedFolder reports whether a folder's base name says that its log was
// deleted and only waits for removal; such folders are never opened.
func IsDeletedFolder(base string) bool {
	return len(base) > len(deletedFolderSuffix) && base[len(base)-len(deletedFolderSuffix):] == deletedFolderSuffix
}

// RemoveDeleted removes a folder that Delete renamed.
func RemoveDeleted(fsys vfs.FS, dir string) error {
	if err := fsys.RemoveAll(dir); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(dir))
}

// lastModified is the newest change of a segment's file by the file system's
// clock, or the present time where it can't be told: retention's fallback for
// record times that no clock can vouch for (KAFKA-20609).
func (l *Log) lastModified(s *segment) types.Millis {
	info, err := l.fs.Stat(s.path(logSuffix))
	if err != nil {
		return l.now()
	}
	return types.Millis(info.ModTime.UnixMilli())
}
