package vault

import (
	"fmt"
	"sync/atomic"

	"tidemark/internal/vfs"
)

// disk is the vault's file system. The first write or sync that fails is final: what
// a failed sync left in the page cache counts as clean there, so that a second sync
// of the same file succeeds and proves nothing. A cut that relied on it could take
// records that are nowhere.
type disk struct {
	vfs.Watched
	cause   atomic.Pointer[error]
	onFault atomic.Pointer[func(error)] // nil while the vault opens
}

func newDisk(base vfs.FS) *disk {
	d := &disk{}
	d.Watched = vfs.Watched{FS: base, Note: d.note}
	return d
}

func (d *disk) note(err error) error {
	if !vfs.IsDiskFault(err) {
		return err
	}
	off := fmt.Errorf("%w: %w", ErrOffline, err)
	if !d.cause.CompareAndSwap(nil, &off) {
		return err
	}
	if f := d.onFault.Load(); f != nil && *f != nil {
		(*f)(off)
	}
	return err
}

// failure is ErrOffline with its cause, nil while every write and sync has succeeded.
func (d *disk) failure() error {
	if cause := d.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// Link implements vfs.FS. A file that can't be linked is copied: what a file system
// says to a link that it doesn't know differs, and a link writes no records.
func (d *disk) Link(from, to string) error { return d.FS.Link(from, to) }
