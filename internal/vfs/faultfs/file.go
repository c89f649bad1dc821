package faultfs

import (
	"io/fs"
	"syscall"

	"tidemark/internal/vfs"
)

// file is an open file under the rules of its FS.
type file struct {
	vfs.File
	fs *FS
}

func (f *file) ReadAt(b []byte, off int64) (n int, err error) {
	err = f.fs.around(Read, "read", f.Name(), func() (err error) {
		n, err = f.File.ReadAt(b, off)
		return err
	})
	return n, unjoin(err)
}

// WriteAt writes whole, short by a rule, or as far as the room goes.
func (f *file) WriteAt(b []byte, off int64) (int, error) {
	r := f.fs.hit(Write, f.Name())
	if r == nil {
		return f.writeWithin(b, off)
	}
	if r.Gate != nil {
		r.Gate.wait()
	}
	err := r.err("write", f.Name())
	switch {
	case err == nil:
		return f.writeWithin(b, off)
	case r.Late:
		n, werr := f.writeWithin(b, off)
		if werr != nil {
			return n, werr
		}
		return n, err
	}
	n, werr := f.writeWithin(b[:min(len(b), r.Short)], off)
	if werr != nil {
		return n, werr
	}
	return n, err
}

// writeWithin writes what the room allows, as a file system that fills up does.
func (f *file) writeWithin(b []byte, off int64) (int, error) {
	size, err := f.File.Size()
	if err != nil {
		return 0, err
	}
	grows := max(0, off+int64(len(b))-size)
	granted := f.fs.take(grows)
	if granted == grows {
		return f.File.WriteAt(b, off)
	}
	n, err := f.File.WriteAt(b[:max(0, int64(len(b))-(grows-granted))], off)
	if err != nil {
		return n, err
	}
	return n, &fs.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
}

func (f *file) Truncate(size int64) error {
	return f.fs.around(Truncate, "truncate", f.Name(), func() error { return f.File.Truncate(size) })
}

func (f *file) Sync() error {
	return f.fs.around(Sync, "sync", f.Name(), f.File.Sync)
}

func (f *file) SyncData() error {
	return f.fs.around(Sync, "syncdata", f.Name(), f.File.SyncData)
}

func (f *file) Preallocate(off, n int64) error {
	return f.fs.around(Preallocate, "preallocate", f.Name(), func() error { return f.File.Preallocate(off, n) })
}

func (f *file) Close() error {
	return f.fs.around(Close, "close", f.Name(), f.File.Close)
}

// Fd hides the descriptor, so that reads go through ReadAt and its rules.
func (f *file) Fd() (uintptr, bool) { return 0, false }

// unjoin gives a lone error of a join back as itself: readers compare io.EOF by value.
func unjoin(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) == 1 {
		return joined.Unwrap()[0]
	}
	return err
}
