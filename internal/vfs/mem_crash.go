package vfs

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

// CrashConfig says how much of what was not synced survives a power loss. The
// zero value loses all of it, which is what a strict POSIX system may do; rates
// between 0 and 1 decide each item by the seed, so that one seed always gives
// the same disk.
type CrashConfig struct {
	Seed uint64
	// KeepBlock is the probability that a changed 4 KiB block, or a change of a
	// file's length, had reached the disk. A length kept without its blocks reads
	// as zeros there.
	KeepBlock float64
	// KeepEntry is the probability that a directory change (a name made, moved
	// or removed) had reached the disk, each on its own and in any order.
	KeepEntry float64
}

// CrashClone gives the disk as a power loss at this moment would leave it, as a
// new file system without open handles and locks. m goes on undisturbed, as a
// process does that doesn't know yet.
func (m *Mem) CrashClone(c CrashConfig) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	crash := crash{cfg: c, rng: rand.New(rand.NewPCG(c.Seed, 0x7469646d61726b)), from: map[*memNode]*memNode{}}
	crash.dirs = crash.survivingDirs(m)
	out := &Mem{locks: map[string]bool{}, now: m.now, nodes: m.nodes, capacity: m.capacity}
	out.root = crash.clone(m.root)
	crash.fillFiles()
	out.count(out.root, map[*memNode]bool{})
	return out
}

// crash carries the decisions of one power loss.
type crash struct {
	cfg  CrashConfig
	rng  *rand.Rand
	dirs map[*memNode]map[string]*memNode // entries that survive, per folder
	from map[*memNode]*memNode            // node before → after
}

func (c *crash) keep(probability float64) bool {
	return probability > 0 && c.rng.Float64() < probability
}

// survivingDirs replays the pending directory changes that made it to the disk
// over the durable entries.
func (c *crash) survivingDirs(m *Mem) map[*memNode]map[string]*memNode {
	dirs := map[*memNode]map[string]*memNode{}
	of := func(n *memNode) map[string]*memNode {
		if dirs[n] == nil {
			dirs[n] = maps.Clone(n.durable)
		}
		return dirs[n]
	}
	of(m.root)
	for _, op := range m.pending {
		if !c.keep(c.cfg.KeepEntry) {
			continue
		}
		for _, change := range op.changes {
			if change.node == nil {
				delete(of(change.dir), change.name)
			} else {
				of(change.dir)[change.name] = change.node
			}
		}
	}
	return dirs
}

// clone copies the surviving tree below n; file contents come later.
func (c *crash) clone(n *memNode) *memNode {
	if done, ok := c.from[n]; ok {
		return done
	}
	out := &memNode{id: n.id, modTime: n.modTime}
	c.from[n] = out
	if !n.isDir() {
		return out
	}
	entries, ok := c.dirs[n]
	if !ok {
		entries = n.durable
	}
	out.entries = map[string]*memNode{}
	for name, child := range entries {
		out.entries[name] = c.clone(child)
	}
	out.durable = maps.Clone(out.entries)
	return out
}

// fillFiles decides the contents of the surviving files in the order in which
// they were made, so that map order plays no part.
func (c *crash) fillFiles() {
	before := slices.SortedFunc(maps.Keys(c.from), func(a, b *memNode) int { return cmp.Compare(a.id, b.id) })
	for _, n := range before {
		if n.isDir() {
			continue
		}
		content := c.survivingContent(&n.content)
		c.from[n].content = memContent{now: content, durable: slices.Clone(content)}
	}
}

// survivingContent mixes the durable bytes with those changed blocks that made it.
func (c *crash) survivingContent(f *memContent) []byte {
	out := make([]byte, c.survivingSize(f))
	copy(out, f.durable)
	for _, b := range slices.Sorted(maps.Keys(f.dirty)) {
		if !c.keep(c.cfg.KeepBlock) {
			continue
		}
		from := min(b*BlockSize, int64(len(out)))
		to := min((b+1)*BlockSize, int64(len(out)))
		clear(out[from:to])
		if from < f.size() {
			copy(out[from:to], f.now[from:])
		}
	}
	return out
}

// survivingSize is the new length, the durable one, or, of a file that grew, a
// block boundary between them.
func (c *crash) survivingSize(f *memContent) int64 {
	durable, now := int64(len(f.durable)), f.size()
	if now == durable || c.keep(c.cfg.KeepBlock) {
		return now
	}
	first := durable/BlockSize + 1
	if between := (now+BlockSize-1)/BlockSize - first; now > durable && between > 0 && c.keep(c.cfg.KeepBlock) {
		return (first + c.rng.Int64N(between)) * BlockSize
	}
	return durable
}

// count restores the number of names and the bytes in use.
func (m *Mem) count(n *memNode, seen map[*memNode]bool) {
	for _, child := range n.entries {
		if !child.isDir() {
			child.links++
			if !seen[child] {
				seen[child] = true
				m.used += child.content.size()
			}
			continue
		}
		m.count(child, seen)
	}
}
