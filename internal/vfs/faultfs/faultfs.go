// Package faultfs wraps a file system and makes chosen operations fail, tear,
// run out of room or wait, so that tests can walk every branch that a disk may take.
//
// It never fails by chance: rules name the operation, the file and the occasion.
// Operations without a matching rule pass through unchanged. Sweep repeats a test
// with the first, second, ... n-th operation failing until none is left.
package faultfs

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"syscall"

	"tidemark/internal/vfs"
)

// Kind is a set of operations.
type Kind uint32

// The operations. Sync stands for Sync and SyncData.
const (
	Create Kind = 1 << iota
	Open
	Remove
	Rename
	Link
	Mkdir
	List
	Stat
	SyncDir
	Lock
	Read
	Write
	Truncate
	Sync
	Preallocate
	Close
	FreeBytes

	// Mutating are the operations that change what a crash leaves.
	Mutating = Create | Remove | Rename | Link | Mkdir | SyncDir | Write | Truncate | Sync
	// Any is every operation.
	Any = 1<<iota - 1
)

// Rule makes operations fail.
type Rule struct {
	Kinds   Kind
	Pattern string // path.Match over the base name, or over the whole name if it has a slash; "" matches all
	Skip    int    // matching operations that pass before the rule applies: n-1 for the n-th
	Times   int    // how many operations it hits; 0 means all from then on
	Err     error  // nil means EIO
	// Short lets this many bytes of a Write reach the file before the error: a torn write.
	Short int
	// Late carries the operation out and then reports the error: an unknown outcome.
	Late bool
	// Gate, if not nil, holds the operation until released. With a Gate and no
	// Err the operation then succeeds.
	Gate *Gate
}

// Gate holds operations back until the test releases them.
type Gate struct {
	arrived, released         chan struct{}
	arrivedOnce, releasedOnce sync.Once
}

// NewGate makes a closed gate.
func NewGate() *Gate {
	return &Gate{arrived: make(chan struct{}), released: make(chan struct{})}
}

// Arrived is closed when the first operation waits at the gate.
func (g *Gate) Arrived() <-chan struct{} { return g.arrived }

// Release opens the gate for good.
func (g *Gate) Release() { g.releasedOnce.Do(func() { close(g.released) }) }

func (g *Gate) wait() {
	g.arrivedOnce.Do(func() { close(g.arrived) })
	<-g.released
}

// Injected is a rule in force.
type Injected struct {
	fs    *FS
	rule  Rule
	seen  int
	fired int
}

// Fired is how many operations the rule has hit.
func (i *Injected) Fired() int {
	i.fs.mu.Lock()
	defer i.fs.mu.Unlock()
	return i.fired
}

// Remove takes the rule out of force.
func (i *Injected) Remove() {
	i.fs.mu.Lock()
	defer i.fs.mu.Unlock()
	for k, r := range i.fs.rules {
		if r == i {
			i.fs.rules = append(i.fs.rules[:k:k], i.fs.rules[k+1:]...)
			return
		}
	}
}

// FS is the wrapped file system.
type FS struct {
	base vfs.FS

	mu    sync.Mutex // guards the following
	rules []*Injected
	count map[Kind]int
	space int64 // bytes that files may still grow; < 0: no bound
}

// New wraps base, without any rule.
func New(base vfs.FS) *FS {
	return &FS{base: base, count: map[Kind]int{}, space: -1}
}

// Inject puts a rule in force. Of several that match, the first injected applies.
func (f *FS) Inject(r Rule) *Injected {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := &Injected{fs: f, rule: r}
	f.rules = append(f.rules, i)
	return i
}

// SetSpace lets files grow by n more bytes; then writes that grow a file are cut
// short with ENOSPC. A negative n takes the bound away.
func (f *FS) SetSpace(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.space = n
}

// Count is how many operations of these kinds were tried so far.
func (f *FS) Count(kinds Kind) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	total := 0
	for k, n := range f.count {
		if k&kinds != 0 {
			total += n
		}
	}
	return total
}

// hit gives the rule that applies to an operation, nil if none does.
func (f *FS) hit(k Kind, name string) *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count[k]++
	for _, i := range f.rules {
		if i.rule.Kinds&k == 0 || !matches(i.rule.Pattern, name) {
			continue
		}
		i.seen++
		if i.seen <= i.rule.Skip || (i.rule.Times > 0 && i.fired >= i.rule.Times) {
			continue
		}
		i.fired++
		return &i.rule
	}
	return nil
}

func matches(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	if !strings.Contains(pattern, "/") {
		name = path.Base(name)
	}
	ok, err := path.Match(pattern, name)
	if err != nil {
		panic(err) // a bad pattern is a bug of the test
	}
	return ok
}

// err is the error that the rule reports, nil for a gate alone.
func (r *Rule) err(op, name string) error {
	switch {
	case r.Err == nil && r.Gate != nil:
		return nil
	case r.Err == nil:
		return &fs.PathError{Op: op, Path: name, Err: syscall.EIO}
	}
	return &fs.PathError{Op: op, Path: name, Err: r.Err}
}

// around carries an operation out under the rule that applies to it.
func (f *FS) around(k Kind, op, name string, do func() error) error {
	r := f.hit(k, name)
	if r == nil {
		return do()
	}
	if r.Gate != nil {
		r.Gate.wait()
	}
	injected := r.err(op, name)
	if injected == nil || r.Late {
		return errors.Join(do(), injected)
	}
	return injected
}

// file wraps what an open operation gives.
func (f *FS) file(k Kind, op, name string, do func() (vfs.File, error)) (vfs.File, error) {
	var out vfs.File
	err := f.around(k, op, name, func() (err error) {
		out, err = do()
		return err
	})
	if err != nil {
		if out != nil {
			err = errors.Join(err, out.Close())
		}
		return nil, err
	}
	return &file{File: out, fs: f}, nil
}

// Create implements vfs.FS.
func (f *FS) Create(name string) (vfs.File, error) {
	return f.file(Create, "create", name, func() (vfs.File, error) { return f.base.Create(name) })
}

// Open implements vfs.FS.
func (f *FS) Open(name string) (vfs.File, error) {
	return f.file(Open, "open", name, func() (vfs.File, error) { return f.base.Open(name) })
}

// OpenReadWrite implements vfs.FS; it counts as Open.
func (f *FS) OpenReadWrite(name string) (vfs.File, error) {
	return f.file(Open, "open", name, func() (vfs.File, error) { return f.base.OpenReadWrite(name) })
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	return f.around(Remove, "remove", name, func() error { return f.base.Remove(name) })
}

// RemoveAll implements vfs.FS; it counts as Remove.
func (f *FS) RemoveAll(name string) error {
	return f.around(Remove, "removeall", name, func() error { return f.base.RemoveAll(name) })
}

// Rename implements vfs.FS. Rules match the new name.
func (f *FS) Rename(from, to string) error {
	return f.around(Rename, "rename", to, func() error { return f.base.Rename(from, to) })
}

// Link implements vfs.FS. Rules match the new name.
func (f *FS) Link(from, to string) error {
	return f.around(Link, "link", to, func() error { return f.base.Link(from, to) })
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(dir string) error {
	return f.around(Mkdir, "mkdir", dir, func() error { return f.base.MkdirAll(dir) })
}

// List implements vfs.FS.
func (f *FS) List(dir string) (names []string, err error) {
	err = f.around(List, "list", dir, func() (err error) {
		names, err = f.base.List(dir)
		return err
	})
	return names, err
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (info vfs.Info, err error) {
	err = f.around(Stat, "stat", name, func() (err error) {
		info, err = f.base.Stat(name)
		return err
	})
	return info, err
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(dir string) error {
	return f.around(SyncDir, "syncdir", dir, func() error { return f.base.SyncDir(dir) })
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (c io.Closer, err error) {
	err = f.around(Lock, "lock", name, func() (err error) {
		c, err = f.base.Lock(name)
		return err
	})
	return c, err
}

// FreeBytes implements vfs.FS: the smaller of the base's room and SetSpace's.
func (f *FS) FreeBytes(dir string) (free int64, err error) {
	err = f.around(FreeBytes, "statfs", dir, func() (err error) {
		free, err = f.base.FreeBytes(dir)
		return err
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.space >= 0 {
		free = min(free, f.space)
	}
	return free, err
}

// take uses up to n bytes of the room left and tells how many there were.
func (f *FS) take(n int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.space < 0 {
		return n
	}
	n = min(n, f.space)
	f.space -= n
	return n
}
