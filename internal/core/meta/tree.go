package meta

import (
	"iter"
	"slices"
)

// tree is a sorted map that never changes: a B-tree whose edits copy the nodes
// on their path and share the rest. The zero value is not usable; newTree is.
//
// An edit session (edit … done) copies each node at most once, so that loading
// n keys costs n insertions into plain arrays. Deleting leaves nodes small but never empty.
type tree[K, V any] struct {
	root    *node[K, V]
	size    int
	compare func(a, b K) int
}

// nodeMax bounds the keys of a leaf and the children of an inner node: an edit
// copies about two such arrays per level, a lookup halves three of them for 10,000 keys.
const nodeMax = 32

// session marks the nodes that an edit made itself and may change in place.
type session struct{ _ byte }

// node is a leaf (keys and values) or inner (keys[i] is the least key below children[i]).
type node[K, V any] struct {
	owner    *session
	keys     []K
	values   []V
	children []*node[K, V]
}

func (n *node[K, V]) leaf() bool { return n.children == nil }

func newTree[K, V any](compare func(a, b K) int) tree[K, V] {
	return tree[K, V]{compare: compare}
}

func (t tree[K, V]) len() int { return t.size }

// child gives the index of the child of n that covers key.
func (t tree[K, V]) child(n *node[K, V], key K) int {
	i, found := slices.BinarySearchFunc(n.keys, key, t.compare)
	if found || i == 0 {
		return i
	}
	return i - 1
}

func (t tree[K, V]) get(key K) (v V, ok bool) {
	n := t.root
	if n == nil {
		return v, false
	}
	for !n.leaf() {
		n = n.children[t.child(n, key)]
	}
	i, found := slices.BinarySearchFunc(n.keys, key, t.compare)
	if !found {
		return v, false
	}
	return n.values[i], true
}

// from walks the entries in order, beginning with the first key that is not below start.
func (t tree[K, V]) from(start K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if t.root != nil {
			t.walk(t.root, &start, yield)
		}
	}
}

// all walks the entries in order.
func (t tree[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if t.root != nil {
			t.walk(t.root, nil, yield)
		}
	}
}

func (t tree[K, V]) walk(n *node[K, V], start *K, yield func(K, V) bool) bool {
	i := 0
	if n.leaf() {
		if start != nil {
			i, _ = slices.BinarySearchFunc(n.keys, *start, t.compare)
		}
		for ; i < len(n.keys); i++ {
			if !yield(n.keys[i], n.values[i]) {
				return false
			}
		}
		return true
	}
	if start != nil {
		i = t.child(n, *start)
	}
	for ; i < len(n.children); i++ {
		if !t.walk(n.children[i], start, yield) {
			return false
		}
		start = nil
	}
	return true
}

// edit is a private copy of a tree under change.
type edit[K, V any] struct {
	tree[K, V]
	session *session
}

func (t tree[K, V]) edit() *edit[K, V] { return &edit[K, V]{tree: t, session: &session{}} }

// done gives the changed tree. The edit must not be used afterwards.
func (e *edit[K, V]) done() tree[K, V] {
	e.session = nil
	return e.tree
}

// own gives a node that this edit may change: n itself or a copy.
func (e *edit[K, V]) own(n *node[K, V]) *node[K, V] {
	if n.owner == e.session {
		return n
	}
	return &node[K, V]{owner: e.session, keys: slices.Clone(n.keys), values: slices.Clone(n.values), children: slices.Clone(n.children)}
}

func (e *edit[K, V]) set(key K, value V) {
	if e.root == nil {
		e.root = &node[K, V]{owner: e.session, keys: []K{key}, values: []V{value}}
		e.size = 1
		return
	}
	root, right := e.insert(e.root, key, value)
	if right != nil {
		root = &node[K, V]{owner: e.session, keys: []K{root.keys[0], right.keys[0]}, children: []*node[K, V]{root, right}}
	}
	e.root = root
}

// insert puts the entry below n and gives n's successor, and its new right
// neighbour if it had to be split.
func (e *edit[K, V]) insert(n *node[K, V], key K, value V) (*node[K, V], *node[K, V]) {
	n = e.own(n)
	if n.leaf() {
		i, found := slices.BinarySearchFunc(n.keys, key, e.compare)
		if found {
			n.values[i] = value
			return n, nil
		}
		n.keys = slices.Insert(n.keys, i, key)
		n.values = slices.Insert(n.values, i, value)
		e.size++
		return n, e.split(n)
	}
	i := e.child(n, key)
	left, right := e.insert(n.children[i], key, value)
	n.children[i], n.keys[i] = left, left.keys[0]
	if right != nil {
		n.children = slices.Insert(n.children, i+1, right)
		n.keys = slices.Insert(n.keys, i+1, right.keys[0])
	}
	return n, e.split(n)
}

// split halves a node that has grown beyond nodeMax and gives the right half.

func (e *edit[K, V]) split(n *node[K, V]) *node[K, V] {
	if len(n.keys) <= nodeMax {
		return nil
	}
	half := len(n.keys) / 2
	right := &node[K, V]{owner: e.session, keys: slices.Clone(n.keys[half:])}
	n.keys = slices.Delete(n.keys, half, len(n.keys))
	if n.leaf() {
		right.values = slices.Clone(n.values[half:])
		n.values = slices.Delete(n.values, half, len(n.values))
		return right
	}
	right.children = slices.Clone(n.children[half:])
	n.children = slices.Delete(n.children, half, len(n.children))
	return right
}

func (e *edit[K, V]) remove(key K) {
	if _, ok := e.get(key); !ok {
		return
	}
	e.root = e.drop(e.root, key)
	e.size--
	for e.root != nil && !e.root.leaf() && len(e.root.children) == 1 {
		e.root = e.root.children[0]
	}
}

// drop takes the entry from below n and gives n's successor, nil if nothing is left.
func (e *edit[K, V]) drop(n *node[K, V], key K) *node[K, V] {
	n = e.own(n)
	if n.leaf() {
		i, _ := slices.BinarySearchFunc(n.keys, key, e.compare)
		n.keys = slices.Delete(n.keys, i, i+1)
		n.values = slices.Delete(n.values, i, i+1)
	} else {
		i := e.child(n, key)
		if below := e.drop(n.children[i], key); below != nil {
			n.children[i], n.keys[i] = below, below.keys[0]
		} else {
			n.children = slices.Delete(n.children, i, i+1)
			n.keys = slices.Delete(n.keys, i, i+1)
		}
	}
	if len(n.keys) == 0 {
		return nil
	}
	return n
}
