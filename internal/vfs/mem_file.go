package vfs

import (
	"io"
	"io/fs"
	"sync/atomic"
	"syscall"
)

// BlockSize is the unit in bytes in which Mem loses unsynced data at a crash.
const BlockSize = 4096

// memContent is a file's bytes as read now, and as the last sync left them.
type memContent struct {
	now     []byte
	durable []byte
	dirty   map[int64]bool // blocks of now that may differ from durable
}

func (c *memContent) size() int64 { return int64(len(c.now)) }

// mark notes that bytes [from, to) changed since the last sync.
func (c *memContent) mark(from, to int64) {
	if c.dirty == nil {
		c.dirty = map[int64]bool{}
	}
	for b := from / BlockSize; b*BlockSize < to; b++ {
		c.dirty[b] = true
	}
}

// resize cuts or zero-extends the visible content.
func (c *memContent) resize(size int64) {
	old := c.size()
	c.mark(min(old, size), max(old, size))
	if size <= old {
		clear(c.now[size:])
		c.now = c.now[:size]
		return
	}
	if size > int64(cap(c.now)) {
		grown := make([]byte, old, max(size, 2*int64(cap(c.now))))
		copy(grown, c.now)
		c.now = grown
	}
	c.now = c.now[:size]
	clear(c.now[old:])
}

// sync makes the visible content durable; the cost follows the changed blocks.
func (c *memContent) sync() {
	if n := c.size(); n <= int64(cap(c.durable)) {
		c.durable = c.durable[:n]
	} else {
		grown := make([]byte, n, cap(c.now))
		copy(grown, c.durable)
		c.durable = grown
	}
	for b := range c.dirty {
		from := min(b*BlockSize, c.size())
		to := min((b+1)*BlockSize, c.size())
		copy(c.durable[from:to], c.now[from:to])
	}
	c.dirty = nil
}

// resize changes a file's length and the bytes in use.
func (m *Mem) resize(n *memNode, size int64) {
	if n.links > 0 {
		m.used += size - n.content.size()
	}
	n.content.resize(size)
	n.modTime = m.now()
}

// memFile is an open handle. It keeps working after the name is gone.
type memFile struct {
	fs       *Mem
	node     *memNode
	name     string
	writable bool
	closed   atomic.Bool
}

func (f *memFile) check(op string, write bool) error {
	switch {
	case f.closed.Load():
		return pathError(op, f.name, fs.ErrClosed)
	case write && !f.writable:
		return pathError(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, syscall.EINVAL)
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if off >= f.node.content.size() {
		if len(b) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(b, f.node.content.now[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("write", f.name, syscall.EINVAL)
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	end := off + int64(len(b))
	if grows := end - f.node.content.size(); grows > 0 {
		if f.fs.capacity > 0 && f.fs.used+grows > f.fs.capacity {
			return 0, pathError("write", f.name, syscall.ENOSPC)
		}
		f.fs.resize(f.node, end)
	}
	copy(f.node.content.now[off:], b)
	f.node.content.mark(off, end)
	f.node.modTime = f.fs.now()
	return len(b), nil
}

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, fs.ErrClosed)
	}
	return nil
}

func (f *memFile) Name() string { return f.name }

func (f *memFile) Size() (int64, error) {
	if err := f.check("stat", false); err != nil {
		return 0, err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.node.content.size(), nil
}

func (f *memFile) Truncate(size int64) error {
	if err := f.check("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return pathError("truncate", f.name, syscall.EINVAL)
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.resize(f.node, size)
	return nil
}

func (f *memFile) Sync() error {
	if err := f.check("sync", false); err != nil {
		return err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.node.content.sync()
	return nil
}

// SyncData is Sync: the model has no attributes that reading doesn't need.
func (f *memFile) SyncData() error { return f.Sync() }

// Preallocate reserves nothing: without KEEP_SIZE's blocks nothing changes.
func (f *memFile) Preallocate(off, n int64) error { return f.check("preallocate", true) }

func (f *memFile) Fd() (uintptr, bool) { return 0, false }
