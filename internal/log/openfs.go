package log

import (
	"fmt"

	"tidemark/internal/vfs"
)

// openFS is the file system while a log opens: it keeps the first failure of an
// operation that changes the disk. A folder whose content can't be used is one
// log's trouble; a write or sync that fails is the log dir's (DESIGN §3).
type openFS struct {
	vfs.FS
	fault error
}

// note keeps the first fault that leaves unknown what the disk holds.
func (o *openFS) note(err error) error {
	if o.fault == nil && vfs.IsDiskFault(err) {
		o.fault = err
	}
	return err
}

// final gives an error of opening the mark of one that is final for the log dir.
func (o *openFS) final(err error) error {
	if o.fault == nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrOffline, err)
}

// file has what is done to an opened file noted, too.
func (o *openFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &openFile{File: f, o: o}, nil
}

// Create implements vfs.FS.
func (o *openFS) Create(name string) (vfs.File, error) {
	f, err := o.FS.Create(name)
	return o.file(f, o.note(err))
}

// OpenReadWrite implements vfs.FS. A file that can't be opened has not been written.
func (o *openFS) OpenReadWrite(name string) (vfs.File, error) {
	return o.file(o.FS.OpenReadWrite(name))
}

// The rest of vfs.FS that changes the disk.

func (o *openFS) Remove(name string) error     { return o.note(o.FS.Remove(name)) }
func (o *openFS) RemoveAll(name string) error  { return o.note(o.FS.RemoveAll(name)) }
func (o *openFS) Rename(from, to string) error { return o.note(o.FS.Rename(from, to)) }
func (o *openFS) Link(from, to string) error   { return o.note(o.FS.Link(from, to)) }
func (o *openFS) MkdirAll(dir string) error    { return o.note(o.FS.MkdirAll(dir)) }
func (o *openFS) SyncDir(dir string) error     { return o.note(o.FS.SyncDir(dir)) }

// done gives a log that is open the file system itself.
func (o *openFS) done(l *Log) {
	l.fs = o.FS
	for _, s := range l.segs {
		s.fs = o.FS
		if f := s.data.p.Load(); f != nil {
			if noted, ok := (*f).(*openFile); ok {
				s.data.set(noted.File)
			}
		}
	}
}

// openFile is a file that may be written while the log opens.
type openFile struct {
	vfs.File
	o *openFS
}

func (f *openFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(b, off)
	return n, f.o.note(err)
}
func (f *openFile) Truncate(size int64) error { return f.o.note(f.File.Truncate(size)) }
func (f *openFile) Sync() error               { return f.o.note(f.File.Sync()) }
func (f *openFile) SyncData() error           { return f.o.note(f.File.SyncData()) }

func (f *openFile) Preallocate(off, n int64) error { return f.o.note(f.File.Preallocate(off, n)) }
