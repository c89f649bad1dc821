package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory with a crash model: see CrashClone. It is
// deterministic: it reads no clock but the one given and no randomness but a
// crash's seed. Safe for use from any goroutine.
type Mem struct {
	mu sync.Mutex // guards the following, and everything reachable from root

	root     *memNode
	pending  []dirOp // directory changes not durable yet, oldest first
	locks    map[string]bool
	now      func() time.Time
	nodes    uint64 // nodes made so far: a node's place in the order of crash decisions
	used     int64  // bytes in files
	capacity int64  // 0: unlimited
}

// memNode is a file or a folder.
type memNode struct {
	id      uint64
	modTime time.Time

	entries map[string]*memNode // of a folder, nil for a file
	durable map[string]*memNode // the entries that survive any crash

	content memContent // of a file
	links   int        // names the file has now
}

// dirOp is one step of the directory tree that a crash keeps or loses whole.
type dirOp struct{ changes []dirChange }

// dirChange sets or, with a nil node, removes one name.
type dirChange struct {
	dir  *memNode
	name string
	node *memNode
}

// NewMem makes an empty file system whose clock stands at the Unix epoch.
func NewMem() *Mem {
	m := &Mem{locks: map[string]bool{}, now: func() time.Time { return time.Unix(0, 0).UTC() }}
	m.root = m.newNode(true)
	return m
}

// SetClock makes modification times come from now.
func (m *Mem) SetClock(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = now
}

// SetCapacity bounds the bytes in files; growing beyond fails with ENOSPC and
// writes nothing. 0 takes the bound away.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

func (m *Mem) newNode(dir bool) *memNode {
	m.nodes++
	n := &memNode{id: m.nodes, modTime: m.now()}
	if dir {
		n.entries, n.durable = map[string]*memNode{}, map[string]*memNode{}
	}
	return n
}

func (n *memNode) isDir() bool { return n.entries != nil }

// split gives the elements of a path; "", "." and "/" are the root.
func split(name string) []string {
	clean := strings.Trim(path.Clean("/"+name), "/")
	if clean == "" {
		return nil
	}
	return strings.Split(clean, "/")
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// find gives the node of a path.
func (m *Mem) find(op, name string) (*memNode, error) {
	n := m.root
	for _, word := range split(name) {
		if !n.isDir() {
			return nil, pathError(op, name, syscall.ENOTDIR)
		}
		next, ok := n.entries[word]
		if !ok {
			return nil, pathError(op, name, fs.ErrNotExist)
		}
		n = next
	}
	return n, nil
}

// findParent gives the folder that holds the last element of a path.
func (m *Mem) findParent(op, name string) (dir *memNode, base string, err error) {
	words := split(name)
	if len(words) == 0 {
		return nil, "", pathError(op, name, fs.ErrInvalid)
	}
	dir, err = m.find(op, strings.Join(words[:len(words)-1], "/"))
	if err != nil {
		return nil, "", pathError(op, name, unwrapPath(err))
	}
	if !dir.isDir() {
		return nil, "", pathError(op, name, syscall.ENOTDIR)
	}
	return dir, words[len(words)-1], nil
}

func unwrapPath(err error) error {
	if p, ok := err.(*fs.PathError); ok {
		return p.Err
	}
	return err
}

// change applies directory changes now and remembers them as one pending step.
func (m *Mem) change(changes ...dirChange) {
	for _, c := range changes {
		m.setEntry(c)
	}
	m.pending = append(m.pending, dirOp{changes: changes})
}

// setEntry applies one change to the visible tree and counts names and bytes.
func (m *Mem) setEntry(c dirChange) {
	if old := c.dir.entries[c.name]; old != nil && !old.isDir() {
		old.links--
		if old.links == 0 {
			m.used -= old.content.size()
		}
	}
	if c.node == nil {
		delete(c.dir.entries, c.name)
	} else {
		c.dir.entries[c.name] = c.node
		if !c.node.isDir() {
			c.node.links++
			if c.node.links == 1 {
				m.used += c.node.content.size()
			}
		}
	}
	c.dir.modTime = m.now()
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.openNode("create", name, true)
	if err != nil {
		return nil, err
	}
	m.resize(f.node, 0)
	return f, nil
}

// OpenReadWrite implements FS.
func (m *Mem) OpenReadWrite(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.openNode("open", name, true)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.openNode("open", name, false)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (m *Mem) openNode(op, name string, write bool) (*memFile, error) {
	dir, base, err := m.findParent(op, name)
	if err != nil {
		return nil, err
	}
	n, ok := dir.entries[base]
	switch {
	case ok && n.isDir():
		return nil, pathError(op, name, syscall.EISDIR)
	case !ok && !write:
		return nil, pathError(op, name, fs.ErrNotExist)
	case !ok:
		n = m.newNode(false)
		m.change(dirChange{dir, base, n})
	}
	return &memFile{fs: m, node: n, name: name, writable: write}, nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.findParent("remove", name)
	if err != nil {
		return err
	}
	n, ok := dir.entries[base]
	switch {
	case !ok:
		return pathError("remove", name, fs.ErrNotExist)
	case n.isDir() && len(n.entries) > 0:
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	m.change(dirChange{dir, base, nil})
	return nil
}

// RemoveAll implements FS. A crash in its middle leaves any part of the tree.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.findParent("removeall", name)
	if err != nil {
		if unwrapPath(err) == fs.ErrNotExist {
			return nil
		}
		return err
	}
	if n, ok := dir.entries[base]; ok {
		m.removeTree(n)
		m.change(dirChange{dir, base, nil})
	}
	return nil
}

func (m *Mem) removeTree(n *memNode) {
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		m.removeTree(n.entries[name])
		m.change(dirChange{n, name, nil})
	}
}

// Rename implements FS.
func (m *Mem) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	fromDir, fromBase, err := m.findParent("rename", from)
	if err != nil {
		return err
	}
	toDir, toBase, err := m.findParent("rename", to)
	if err != nil {
		return err
	}
	n, ok := fromDir.entries[fromBase]
	if !ok {
		return pathError("rename", from, fs.ErrNotExist)
	}
	if old, ok := toDir.entries[toBase]; ok {
		switch {
		case old.isDir():
			return pathError("rename", to, fs.ErrExist)
		case old == n:
			return nil
		case n.isDir() && !old.isDir():
			return pathError("rename", to, syscall.ENOTDIR)
		}
	}
	if strings.HasPrefix(path.Clean("/"+to), path.Clean("/"+from)+"/") {
		return pathError("rename", to, fs.ErrInvalid) // a folder can't move into itself
	}
	m.change(dirChange{toDir, toBase, n}, dirChange{fromDir, fromBase, nil})
	return nil
}

// Link implements FS.
func (m *Mem) Link(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("link", from)
	if err != nil {
		return err
	}
	dir, base, err := m.findParent("link", to)
	if err != nil {
		return err
	}
	if _, ok := dir.entries[base]; ok {
		return pathError("link", to, fs.ErrExist)
	}
	if n.isDir() {
		return pathError("link", from, fs.ErrPermission)
	}
	m.change(dirChange{dir, base, n})
	return nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, word := range split(dir) {
		next, ok := n.entries[word]
		if !ok {
			next = m.newNode(true)
			m.change(dirChange{n, word, next})
		}
		if !next.isDir() {
			return pathError("mkdir", dir, syscall.ENOTDIR)
		}
		n = next
	}
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("list", dir)
	if err != nil {
		return nil, err
	}
	if !n.isDir() {
		return nil, pathError("list", dir, syscall.ENOTDIR)
	}
	return slices.Sorted(maps.Keys(n.entries)), nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("stat", name)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: n.content.size(), ModTime: n.modTime, IsDir: n.isDir(), Links: n.links}, nil
}

// SyncDir implements FS: the pending changes of this folder become durable. A
// name that a rename took away is only durably gone once the name it moved to is
// durable as well.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("syncdir", dir)
	if err != nil {
		return err
	}
	if !n.isDir() {
		return pathError("syncdir", dir, syscall.ENOTDIR)
	}
	rest := m.pending[:0:0]
	for _, op := range m.pending {
		if left := op.syncIn(n); len(left.changes) > 0 {
			rest = append(rest, left)
		}
	}
	m.pending = rest
	return nil
}

// syncIn makes the op's changes in dir durable and returns those that are left.
// A folder moves whole: it never has two names.
func (op dirOp) syncIn(dir *memNode) dirOp {
	var left dirOp
	synced := op.changes[0].node != nil && op.changes[0].node.isDir() && op.touches(dir)
	for i := len(op.changes) - 1; i >= 0; i-- { // a rename's removal comes last
		c := op.changes[i]
		if c.dir != dir && !synced {
			left.changes = append([]dirChange{c}, left.changes...)
			continue
		}
		c.apply()
		synced = true
	}
	return left
}

func (op dirOp) touches(dir *memNode) bool {
	return slices.ContainsFunc(op.changes, func(c dirChange) bool { return c.dir == dir })
}

// apply makes one change durable.
func (c dirChange) apply() {
	if c.node == nil {
		delete(c.dir.durable, c.name)
		return
	}
	c.dir.durable[c.name] = c.node
}

// Lock implements FS. A crash clone starts without locks.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.openNode("lock", name, true); err != nil {
		return nil, err
	}
	key := path.Clean("/" + name)
	if m.locks[key] {
		return nil, pathError("lock", name, ErrLocked)
	}
	m.locks[key] = true
	return &memLock{fs: m, key: key}, nil
}

type memLock struct {
	fs   *Mem
	key  string
	once sync.Once
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.fs.mu.Lock()
		defer l.fs.mu.Unlock()
		delete(l.fs.locks, l.key)
	})
	return nil
}

// unlimited is what FreeBytes says without a capacity: 1 TiB.
const unlimited = 1 << 40

// FreeBytes implements FS.
func (m *Mem) FreeBytes(dir string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.find("statfs", dir); err != nil {
		return 0, err
	}
	if m.capacity == 0 {
		return unlimited, nil
	}
	return max(0, m.capacity-m.used), nil
}

// Dump lists the tree with sizes, one path a line, for failure messages.
func (m *Mem) Dump() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	dump(&b, m.root, "")
	return b.String()
}

func dump(b *strings.Builder, n *memNode, prefix string) {
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		child := n.entries[name]
		if child.isDir() {
			fmt.Fprintf(b, "%s%s/\n", prefix, name)
			dump(b, child, prefix+name+"/")
			continue
		}
		fmt.Fprintf(b, "%s%s %d\n", prefix, name, child.content.size())
	}
}
