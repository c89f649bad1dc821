package vfs

import "errors"

// Watched is a file system that tells of every operation that changes the disk and
// fails. Note gets its error, which may be nil, and what it gives is passed on. Any
// goroutine may call it.
type Watched struct {
	FS
	Note func(error) error
}

// WatchedFile is a file that Watched has opened for writing, or for reading: syncing
// needs no more.
type WatchedFile struct {
	File
	note func(error) error
}

func (w Watched) file(f File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return &WatchedFile{File: f, note: w.Note}, nil
}

// Create implements FS.
func (w Watched) Create(name string) (File, error) {
	f, err := w.FS.Create(name)
	return w.file(f, w.Note(err))
}

// Open implements FS. A file that can't be opened has not been written.
func (w Watched) Open(name string) (File, error) { return w.file(w.FS.Open(name)) }

// OpenReadWrite implements FS. A file that can't be opened has not been written.
func (w Watched) OpenReadWrite(name string) (File, error) { return w.file(w.FS.OpenReadWrite(name)) }

// The rest of FS that changes the disk.

func (w Watched) Remove(name string) error     { return w.Note(w.FS.Remove(name)) }
func (w Watched) RemoveAll(name string) error  { return w.Note(w.FS.RemoveAll(name)) }
func (w Watched) Rename(from, to string) error { return w.Note(w.FS.Rename(from, to)) }
func (w Watched) Link(from, to string) error   { return w.Note(w.FS.Link(from, to)) }
func (w Watched) MkdirAll(dir string) error    { return w.Note(w.FS.MkdirAll(dir)) }
func (w Watched) SyncDir(dir string) error     { return w.Note(w.FS.SyncDir(dir)) }

// WriteAt implements File.
func (f *WatchedFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(b, off)
	return n, f.note(err)
}

// The rest of File that changes the disk.

func (f *WatchedFile) Truncate(size int64) error      { return f.note(f.File.Truncate(size)) }
func (f *WatchedFile) Sync() error                    { return f.note(failedSync(f.File.Sync())) }
func (f *WatchedFile) SyncData() error                { return f.note(failedSync(f.File.SyncData())) }
func (f *WatchedFile) Preallocate(off, n int64) error { return f.note(f.File.Preallocate(off, n)) }

// SyncError is a sync that failed. What was written before may be gone for good,
// whatever the cause: also where the disk, or a quota, was found full only then, a
// second sync that succeeds proves nothing. So it is a disk fault, and no lack of room.
type SyncError struct{ Err error }

// Error implements error.
func (e *SyncError) Error() string { return "sync: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *SyncError) Unwrap() error { return e.Err }

func failedSync(err error) error {
	if err == nil {
		return nil
	}
	return &SyncError{Err: err}
}

func isFailedSync(err error) bool {
	var failed *SyncError
	return errors.As(err, &failed)
}
