// Package vfs is the file system as the log, the vault and the checkpoints see
// it: an interface that says when what is durable, and three implementations.
//
// OS is the real one. Mem keeps files in memory and can be crashed: CrashClone
// gives the disk as a power loss would leave it, with unsynced blocks and
// directory entries lost. Package faultfs wraps either and injects failures.
//
// Names are slash-separated paths; the package never interprets contents, never
// retries and never syncs on its own, except in WriteAtomic. Durability is strict
// POSIX: a file's Sync makes its bytes durable, only SyncDir of the folder that
// holds it makes its name durable. OS and Mem are held to the same behaviour by
// one conformance suite; the crash model has tests of its own.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"
)

// Sized is an FS that knows how large the file system of dir is.
type Sized interface {
	TotalBytes(dir string) (int64, error)
}

// FS is a file system. Missing files give errors for which errors.Is(err,
// fs.ErrNotExist) holds; a full disk gives one for which IsNoSpace holds. All
// methods may be called from any goroutine.
type FS interface {
	// Create makes a new file or empties an existing one, read-write. Neither
	// the name nor the emptying is durable before SyncDir of its folder and Sync.
	Create(name string) (File, error)
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// OpenReadWrite opens a file for reading and writing, its content kept;
	// it is created if absent.
	OpenReadWrite(name string) (File, error)
	// Remove removes a file or an empty folder. The file's bytes stay readable
	// through open handles.
	Remove(name string) error
	// RemoveAll removes a tree; a missing name is no error.
	RemoveAll(name string) error
	// Rename moves a file or folder and replaces a file (never a folder) of the
	// new name, in one step: after a crash either the old or the new state of the name is there.
	// Durable after SyncDir of the new name's folder; the old name is gone for
	// good after SyncDir of its folder.
	Rename(from, to string) error
	// Link gives a file a second name on the same bytes (hard link).
	Link(from, to string) error
	// MkdirAll makes a folder and its parents. Each new folder's name is durable
	// after SyncDir of its parent.
	MkdirAll(dir string) error
	// List gives the base names in a folder, sorted.
	List(dir string) ([]string, error)
	// Stat describes a file or folder.
	Stat(name string) (Info, error)
	// SyncDir makes the entries of a folder durable: creations, renames, removals.
	SyncDir(dir string) error
	// Lock takes an exclusive lock between processes on a file, created if
	// absent, until Close or the process ends; ErrLocked if another one holds it.
	Lock(name string) (io.Closer, error)
	// FreeBytes is the room left for an unprivileged writer on the file system of dir.
	FreeBytes(dir string) (int64, error)
}

// File is an open file. It has no position: all access names its offset.
// ReadAt and WriteAt may run in parallel; Close ends everything.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Name is the name the file was opened by.
	Name() string
	// Size is the present length in bytes.
	Size() (int64, error)
	// Truncate cuts the file, or extends it with zeros.
	Truncate(size int64) error
	// Sync makes bytes, length and attributes durable. After an error the
	// unsynced bytes may be gone for good: a second Sync that succeeds proves
	// nothing, the caller must treat the file as failed.
	Sync() error
	// SyncData is Sync without attributes that reading doesn't need (fdatasync).
	SyncData() error
	// Preallocate reserves blocks for [off, off+n) without changing Size, where
	// the file system can; where it can't it does nothing.
	Preallocate(off, n int64) error
	// Fd is the descriptor for sendfile, valid until Close; ok=false in memory.
	Fd() (fd uintptr, ok bool)
}

// Info describes a file or folder.
type Info struct {
	Size    int64 // bytes; 0 for folders in memory
	ModTime time.Time
	IsDir   bool
	Links   int // names that a file has (hard links)
}

// ErrLocked means that another process, or another handle, holds the lock.
var ErrLocked = errors.New("locked by another process")

// IsNoSpace reports whether err says that the disk, or a quota on it, is full, and
// took nothing: a SyncError never says so.
func IsNoSpace(err error) bool {
	return !isFailedSync(err) && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT))
}

// IsNoHandle reports whether err says that the process, or the system, has no file handle left.
func IsNoHandle(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// IsNoLink reports whether err says that a file can't have another name: it has as many
// as the file system allows, the name is on another one, or there are no hard links at all.
func IsNoLink(err error) bool {
	var link *os.LinkError
	if errors.As(err, &link) && (errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS)) {
		return true
	}
	return errors.Is(err, syscall.EMLINK) || errors.Is(err, syscall.EXDEV)
}

// IsDiskFault reports whether an operation that changes the disk failed so that
// nobody knows what is on it now. No room, no permission, no file handle or link
// left, and a name that is there or isn't, leave everything as it was.
func IsDiskFault(err error) bool {
	if isFailedSync(err) {
		return true
	}
	for _, known := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission} {
		if errors.Is(err, known) {
			return false
		}
	}
	return err != nil && !IsNoSpace(err) && !IsNoHandle(err) && !IsNoLink(err)
}

// TempSuffix ends the names of files that WriteAtomic has not renamed yet. Such
// a file is left by a crash and may be removed.
const TempSuffix = ".tmp"

// WriteAtomic replaces the content of name so that after a crash either the old
// or the new content is there, whole: temporary file, fsync, rename, fsync of
// the folder. When it returns nil the new content is durable.
func WriteAtomic(fsys FS, name string, data []byte) error {
	temp := name + TempSuffix
	if err := writeSynced(fsys, temp, data); err != nil {
		return err
	}
	if err := fsys.Rename(temp, name); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}

func writeSynced(fsys FS, name string, data []byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// ReadFile gives the whole content of a file of at most limit bytes.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%s: %d bytes, more than the %d allowed", name, size, limit)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && int64(n) == size) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// copyChunk is how many bytes CopySynced reads at once.
const copyChunk = 1 << 20

// CopySynced makes name a file with n bytes of from, beginning at pos, and syncs
// it; its folder is the caller's to sync. A file of that name is emptied first, in
// place: under its other names, too, if it has any. After an error the file may be
// there in part.
func CopySynced(fsys FS, name string, from io.ReaderAt, pos, n int64) error {
	out, err := fsys.Create(name)
	if err != nil {
		return err
	}
	err = copyBytes(out, from, pos, n)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

func copyBytes(out io.WriterAt, in io.ReaderAt, pos, n int64) error {
	buf := make([]byte, min(n, copyChunk))
	for done := int64(0); done < n; {
		chunk := buf[:min(n-done, copyChunk)]
		if got, err := in.ReadAt(chunk, pos+done); err != nil && !(errors.Is(err, io.EOF) && got == len(chunk)) {
			return err
		}
		if _, err := out.WriteAt(chunk, done); err != nil {
			return err
		}
		done += int64(len(chunk))
	}
	return nil
}
