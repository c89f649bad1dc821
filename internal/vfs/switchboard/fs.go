//go:build linux

package switchboard

import (
	"io/fs"
	"syscall"
	"time"

	"tidemark/internal/vfs"
)

// FS gives a file system under the board's switches, which writes the ledger.
func (b *Board) FS(base vfs.FS) (vfs.FS, error) {
	l, err := openLedger(b.dir)
	if err != nil {
		return nil, err
	}
	return &harmedFS{FS: base, b: b, ledger: l}, nil
}

// harmedFS leaves reads, locks and listings to the file system below.
type harmedFS struct {
	vfs.FS
	b      *Board
	ledger *ledger
}

func (f *harmedFS) noRoom(op, name string) error {
	f.b.hit(RefusedHits)
	return &fs.PathError{Op: op, Path: name, Err: syscall.ENOSPC}
}

// Create implements vfs.FS. An entry of a folder needs room too.
func (f *harmedFS) Create(name string) (vfs.File, error) {
	if f.b.Get(DiskFull) != 0 {
		return nil, f.noRoom("create", name)
	}
	file, err := f.FS.Create(name)
	if err != nil {
		return nil, err
	}
	f.ledger.write("synced", "0", name)
	return &harmedFile{File: file, fs: f}, nil
}

// Open implements vfs.FS: a handle for reading can sync as well.
func (f *harmedFS) Open(name string) (vfs.File, error) { return f.wrap(f.FS.Open(name)) }

// OpenReadWrite implements vfs.FS.
func (f *harmedFS) OpenReadWrite(name string) (vfs.File, error) {
	_, err := f.FS.Stat(name)
	file, err2 := f.wrap(f.FS.OpenReadWrite(name))
	if err != nil && err2 == nil {
		f.ledger.write("synced", "0", name) // it is new
	}
	return file, err2
}

func (f *harmedFS) wrap(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &harmedFile{File: file, fs: f}, nil
}

// Remove implements vfs.FS.
func (f *harmedFS) Remove(name string) error {
	f.ledger.write("removed", "", name)
	return f.FS.Remove(name)
}

// RemoveAll implements vfs.FS.
func (f *harmedFS) RemoveAll(name string) error {
	f.ledger.write("removed", "", name)
	return f.FS.RemoveAll(name)
}

// Rename implements vfs.FS. The ledger is told after it: a rename that failed
// leaves the old name's entry, a crash between the two leaves the new name without one.
func (f *harmedFS) Rename(from, to string) error {
	if err := f.FS.Rename(from, to); err != nil {
		return err
	}
	f.ledger.write("renamed", from, to)
	return nil
}

// Link implements vfs.FS.
func (f *harmedFS) Link(from, to string) error {
	if err := f.FS.Link(from, to); err != nil {
		return err
	}
	f.ledger.write("linked", from, to)
	return nil
}

// MkdirAll implements vfs.FS.
func (f *harmedFS) MkdirAll(dir string) error {
	if _, err := f.FS.Stat(dir); err != nil && f.b.Get(DiskFull) != 0 {
		return f.noRoom("mkdir", dir)
	}
	return f.FS.MkdirAll(dir)
}

// SyncDir implements vfs.FS.
func (f *harmedFS) SyncDir(dir string) error {
	if err := f.syncFault("syncdir", dir); err != nil {
		return err
	}
	return f.FS.SyncDir(dir)
}

// FreeBytes implements vfs.FS.
func (f *harmedFS) FreeBytes(dir string) (int64, error) {
	if f.b.Get(DiskFull) != 0 {
		return 0, nil
	}
	return f.FS.FreeBytes(dir)
}

// syncFault waits as long as a slow disk takes, and gives the error of a broken one.
func (f *harmedFS) syncFault(op, name string) error {
	if ms := f.b.Get(SyncDelayMs); ms > 0 {
		timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
		<-timer.C
	}
	if f.b.Get(SyncFails) != 0 {
		f.b.hit(SyncHits)
		return &fs.PathError{Op: op, Path: name, Err: syscall.EIO}
	}
	return nil
}

type harmedFile struct {
	vfs.File
	fs *harmedFS
}

// WriteAt implements vfs.File: on a full disk what lies within the file is written.
func (f *harmedFile) WriteAt(p []byte, off int64) (int, error) {
	b := f.fs.b
	if b.Get(WriteFails) != 0 {
		b.hit(WriteHits)
		return 0, &fs.PathError{Op: "write", Path: f.Name(), Err: syscall.EIO}
	}
	if b.Get(DiskFull) == 0 {
		return f.File.WriteAt(p, off)
	}
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	if off+int64(len(p)) <= size {
		return f.File.WriteAt(p, off)
	}
	n := 0
	if within := size - off; within > 0 {
		if n, err = f.File.WriteAt(p[:within], off); err != nil {
			return n, err
		}
	}
	return n, f.fs.noRoom("write", f.Name())
}

// Truncate implements vfs.File.
func (f *harmedFile) Truncate(size int64) error {
	if err := f.File.Truncate(size); err != nil {
		return err
	}
	f.fs.ledger.writeSize("truncated", size, f.Name())
	return nil
}

// Sync implements vfs.File.
func (f *harmedFile) Sync() error { return f.sync(f.File.Sync) }

// SyncData implements vfs.File.
func (f *harmedFile) SyncData() error { return f.sync(f.File.SyncData) }

// sync makes durable what was written before it began.
func (f *harmedFile) sync(do func() error) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	if err := f.fs.syncFault("sync", f.Name()); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	f.fs.ledger.writeSize("synced", size, f.Name())
	return nil
}

// Preallocate implements vfs.File.
func (f *harmedFile) Preallocate(off, n int64) error {
	if f.fs.b.Get(DiskFull) != 0 {
		return f.fs.noRoom("fallocate", f.Name())
	}
	return f.File.Preallocate(off, n)
}
