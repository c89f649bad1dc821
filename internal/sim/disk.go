package sim

import (
	"errors"
	"io"
	"io/fs"
	"syscall"

	"tidemark/internal/vfs"
)

// errDead is what a process that has crashed would see, if it could see anything.
var errDead = errors.New("the process has crashed")

// diskOp is a kind of operation that changes what a crash leaves.
type diskOp uint16

const (
	opCreate diskOp = 1 << iota
	opRemove
	opRename
	opLink
	opMkdir
	opSyncDir
	opWrite
	opTruncate
	opSync
)

var diskOpNames = map[diskOp]string{
	opCreate: "create", opRemove: "remove", opRename: "rename", opLink: "link", opMkdir: "mkdir", opSyncDir: "sync folder",
	opWrite: "write", opTruncate: "truncate", opSync: "sync",
}

// disk is what one process of a node sees of its disk. It can stop the process
// before any operation that changes the disk: from then on nothing it does has an effect.
type disk struct {
	mem  *vfs.Mem
	dead bool
	ops  int
	// crashIn is how many changing operations are let through before the
	// process stops, -1: it isn't to stop.
	crashIn int
	crashed func(op diskOp, name string)
	// failIn is how many operations of failKinds are let through before one
	// fails, -1: none is to. failLate: it is carried out all the same.
	failIn    int
	failKinds diskOp
	failLate  bool
	failed    func(op diskOp, name string)
	locks     []io.Closer // what the process holds; its end frees them
}

func newDisk(mem *vfs.Mem) *disk { return &disk{mem: mem, crashIn: -1, failIn: -1} }

// around runs one changing operation, or what becomes of it.
func (d *disk) around(op diskOp, name string, do func() error) error {
	if d.dead {
		return errDead
	}
	d.ops++
	if d.crashIn == 0 {
		d.crashIn, d.dead = -1, true
		d.crashed(op, name)
		return errDead
	}
	if d.crashIn > 0 {
		d.crashIn--
	}
	if d.failIn >= 0 && op&d.failKinds != 0 {
		if d.failIn == 0 {
			d.failIn = -1
			d.failed(op, name)
			// As the operating system's: it names the file, by which an error of the disk is told from others.
			err := error(&fs.PathError{Op: diskOpNames[op], Path: name, Err: syscall.EIO})
			if d.failLate {
				err = errors.Join(err, do())
			}
			return err
		}
		d.failIn--
	}
	return do()
}

func (d *disk) open(op diskOp, name string, do func() (vfs.File, error)) (vfs.File, error) {
	var f vfs.File
	var err error
	if op == 0 {
		if d.dead {
			return nil, errDead
		}
		f, err = do()
	} else {
		err = d.around(op, name, func() (err error) { f, err = do(); return err })
	}
	if err != nil {
		return nil, err
	}
	return &diskFile{d: d, f: f}, nil
}

// Create implements vfs.FS.
func (d *disk) Create(name string) (vfs.File, error) {
	return d.open(opCreate, name, func() (vfs.File, error) { return d.mem.Create(name) })
}

// Open implements vfs.FS.
func (d *disk) Open(name string) (vfs.File, error) {
	return d.open(0, name, func() (vfs.File, error) { return d.mem.Open(name) })
}

// OpenReadWrite implements vfs.FS.
func (d *disk) OpenReadWrite(name string) (vfs.File, error) {
	return d.open(opCreate, name, func() (vfs.File, error) { return d.mem.OpenReadWrite(name) })
}

// Remove implements vfs.FS.
func (d *disk) Remove(name string) error {
	return d.around(opRemove, name, func() error { return d.mem.Remove(name) })
}

// RemoveAll implements vfs.FS.
func (d *disk) RemoveAll(name string) error {
	return d.around(opRemove, name, func() error { return d.mem.RemoveAll(name) })
}

// Rename implements vfs.FS.
func (d *disk) Rename(from, to string) error {
	return d.around(opRename, to, func() error { return d.mem.Rename(from, to) })
}

// Link implements vfs.FS.
func (d *disk) Link(from, to string) error {
	return d.around(opLink, to, func() error { return d.mem.Link(from, to) })
}

// MkdirAll implements vfs.FS.
func (d *disk) MkdirAll(dir string) error {
	return d.around(opMkdir, dir, func() error { return d.mem.MkdirAll(dir) })
}

// List implements vfs.FS.
func (d *disk) List(dir string) ([]string, error) {
	if d.dead {
		return nil, errDead
	}
	return d.mem.List(dir)
}

// Stat implements vfs.FS.
func (d *disk) Stat(name string) (vfs.Info, error) {
	if d.dead {
		return vfs.Info{}, errDead
	}
	return d.mem.Stat(name)
}

// SyncDir implements vfs.FS.
func (d *disk) SyncDir(dir string) error {
	return d.around(opSyncDir, dir, func() error { return d.mem.SyncDir(dir) })
}

// Lock implements vfs.FS.
func (d *disk) Lock(name string) (io.Closer, error) {
	l, err := d.mem.Lock(name)
	if err == nil {
		d.locks = append(d.locks, l)
	}
	return l, err
}

// unlock frees what the process held.
func (d *disk) unlock() {
	for _, l := range d.locks {
		_ = l.Close() // it may be free already
	}
}

// FreeBytes implements vfs.FS.
func (d *disk) FreeBytes(dir string) (int64, error) { return d.mem.FreeBytes(dir) }

// diskFile is an open file of a process.
type diskFile struct {
	d *disk
	f vfs.File
}

// ReadAt implements vfs.File.
func (f *diskFile) ReadAt(b []byte, off int64) (int, error) {
	if f.d.dead {
		return 0, errDead
	}
	return f.f.ReadAt(b, off)
}

// WriteAt implements vfs.File.
func (f *diskFile) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.d.around(opWrite, f.f.Name(), func() (err error) { n, err = f.f.WriteAt(b, off); return err })
	if err != nil {
		n = 0
	}
	return n, err
}

// Close implements vfs.File.
func (f *diskFile) Close() error { return f.f.Close() }

// Name implements vfs.File.
func (f *diskFile) Name() string { return f.f.Name() }

// Size implements vfs.File.
func (f *diskFile) Size() (int64, error) { return f.f.Size() }

// Truncate implements vfs.File.
func (f *diskFile) Truncate(size int64) error {
	return f.d.around(opTruncate, f.f.Name(), func() error { return f.f.Truncate(size) })
}

// Sync implements vfs.File.
func (f *diskFile) Sync() error { return f.d.around(opSync, f.f.Name(), f.f.Sync) }

// SyncData implements vfs.File.
func (f *diskFile) SyncData() error { return f.d.around(opSync, f.f.Name(), f.f.SyncData) }

// Preallocate implements vfs.File.
func (f *diskFile) Preallocate(off, n int64) error { return f.f.Preallocate(off, n) }

// Fd implements vfs.File.
func (f *diskFile) Fd() (uintptr, bool) { return 0, false }

var _ vfs.FS = (*disk)(nil)
