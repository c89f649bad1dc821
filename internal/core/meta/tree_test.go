package meta

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkTree compares a tree with a map, and its shape with what edits rely on.
func checkTree(t interface{ Fatalf(string, ...any) }, tr tree[int, int], want map[int]int) {
	if tr.len() != len(want) {
		t.Fatalf("%d entries, want %d", tr.len(), len(want))
	}
	var keys []int
	for k, v := range tr.all() {
		if want[k] != v {
			t.Fatalf("%d holds %d, want %d", k, v, want[k])
		}
		keys = append(keys, k)
	}
	if !slices.Equal(keys, slices.Sorted(maps.Keys(want))) {
		t.Fatalf("keys %v", keys)
	}
	var depthOf func(n *node[int, int]) int
	depthOf = func(n *node[int, int]) int {
		if len(n.keys) == 0 || len(n.keys) > nodeMax || !slices.IsSorted(n.keys) {
			t.Fatalf("a node holds keys %v", n.keys)
		}
		if n.leaf() {
			return 1
		}
		depth := depthOf(n.children[0])
		for i, c := range n.children {
			if depthOf(c) != depth || c.keys[0] != n.keys[i] {
				t.Fatalf("child %d of %v begins with %v", i, n.keys, c.keys)
			}
		}
		return depth + 1
	}
	if tr.root != nil {
		depthOf(tr.root)
	}
}

// TestTreeAgainstMap edits a tree in sessions and keeps every earlier version:
// none of them may change.
func TestTreeAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			tree tree[int, int]
			want map[int]int
		}
		versions := []version{{newTree[int, int](cmp.Compare), map[int]int{}}}
		span := rapid.SampledFrom([]int{20, 500, 5000}).Draw(t, "span")
		for range rapid.IntRange(1, 8).Draw(t, "sessions") {
			base := versions[rapid.IntRange(0, len(versions)-1).Draw(t, "base")]
			e, want := base.tree.edit(), maps.Clone(base.want)
			for range rapid.IntRange(0, 200).Draw(t, "edits") {
				key := rapid.IntRange(0, span).Draw(t, "key")
				if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
					e.remove(key)
					delete(want, key)
				} else {
					value := rapid.Int().Draw(t, "value")
					e.set(key, value)
					want[key] = value
				}
			}
			versions = append(versions, version{e.done(), want})
		}
		for _, v := range versions {
			checkTree(t, v.tree, v.want)
			start := rapid.IntRange(-1, span+1).Draw(t, "start")
			var got []int
			for k := range v.tree.from(start) {
				got = append(got, k)
			}
			wantKeys := slices.DeleteFunc(slices.Sorted(maps.Keys(v.want)), func(k int) bool { return k < start })
			if !slices.Equal(got, wantKeys) {
				t.Fatalf("from %d: %v, want %v", start, got, wantKeys)
			}
			if value, ok := v.tree.get(start); ok != (slices.Contains(wantKeys, start)) || value != v.want[start] {
				t.Fatalf("get %d: %d, %v", start, value, ok)
			}
		}
	})
}

func TestTreeGrowsAndEmpties(t *testing.T) {
	const n = 20_000
	tr := newTree[int, int](cmp.Compare)
	e := tr.edit()
	want := make(map[int]int, n)
	for i := range n {
		key := i * 7919 % n
		e.set(key, i)
		want[key] = i
	}
	full := e.done()
	checkTree(t, full, want)
	e = full.edit()
	for i := range n {
		e.remove(i * 104729 % n)
	}
	if empty := e.done(); empty.len() != 0 || empty.root != nil {
		t.Fatalf("%d entries left", empty.len())
	}
	checkTree(t, full, want)
	for k := range full.all() {
		if k == 100 {
			break // a walk can be left
		}
	}
}
