package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// OS is the real file system of this machine.
func OS() FS { return osFS{} }

type osFS struct{}

const (
	fileMode = 0o644
	dirMode  = 0o755
)

func (osFS) open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, fileMode)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f}, nil
}

func (o osFS) Create(name string) (File, error) {
	return o.open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}
func (o osFS) Open(name string) (File, error)          { return o.open(name, os.O_RDONLY) }
func (o osFS) OpenReadWrite(name string) (File, error) { return o.open(name, os.O_RDWR|os.O_CREATE) }
func (osFS) Remove(name string) error                  { return os.Remove(name) }
func (osFS) RemoveAll(name string) error               { return os.RemoveAll(name) }
func (osFS) Rename(from, to string) error              { return os.Rename(from, to) }
func (osFS) Link(from, to string) error                { return os.Link(from, to) }
func (osFS) MkdirAll(dir string) error                 { return os.MkdirAll(dir, dirMode) }

func (osFS) List(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

func (osFS) Stat(name string) (Info, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	info := Info{Size: st.Size(), ModTime: st.ModTime(), IsDir: st.IsDir(), Links: 1}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		info.Links = int(sys.Nlink)
	}
	return info, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	if err := syncTogether(d, d.Sync); err != nil {
		return errors.Join(&fs.PathError{Op: "syncdir", Path: dir, Err: err}, d.Close())
	}
	return d.Close()
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "lock", Path: name, Err: err}, f.Close())
	}
	return f, nil
}

func (osFS) FreeBytes(dir string) (int64, error) { return freeBytes(dir) }

// TotalBytes implements Sized.
func (osFS) TotalBytes(dir string) (int64, error) { return totalBytes(dir) }

type osFile struct{ f *os.File }

func (o *osFile) ReadAt(b []byte, off int64) (int, error)  { return o.f.ReadAt(b, off) }
func (o *osFile) WriteAt(b []byte, off int64) (int, error) { return o.f.WriteAt(b, off) }
func (o *osFile) Close() error                             { return o.f.Close() }
func (o *osFile) Name() string                             { return o.f.Name() }
func (o *osFile) Truncate(size int64) error                { return o.f.Truncate(size) }
func (o *osFile) Sync() error                              { return syncTogether(o.f, o.f.Sync) }
func (o *osFile) SyncData() error                          { return syncTogether(o.f, func() error { return syncData(o.f) }) }
func (o *osFile) Preallocate(off, n int64) error           { return preallocate(o.f, off, n) }
func (o *osFile) Fd() (uintptr, bool)                      { return o.f.Fd(), true }

func (o *osFile) Size() (int64, error) {
	st, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// syncTogether makes f durable by own, or with others that wait on the same file system.
func syncTogether(f *os.File, own func() error) error {
	if g := groupOf(f); g != nil {
		return g.sync(own)
	}
	return own()
}
