package log

import (
	"fmt"

	"tidemark/internal/vfs"
)

// openFS is the file system while a log opens: it keeps the first failure of an
// operation that changes the disk. A folder whose content can't be used is one
// log's trouble; a write or sync that fails is the log dir's (DESIGN §3).
type openFS struct {
	vfs.Watched
	fault error
}

func newOpenFS(base vfs.FS) *openFS {
	o := &openFS{}
	o.Watched = vfs.Watched{FS: base, Note: o.note}
	return o
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

// done gives a log that is open the file system itself.
func (o *openFS) done(l *Log) {
	l.fs = o.FS
	for _, s := range l.segs {
		s.fs = o.FS
		if f := s.data.p.Load(); f != nil {
			if watched, ok := (*f).(*vfs.WatchedFile); ok {
				s.data.set(watched.File)
			}
		}
	}
}
