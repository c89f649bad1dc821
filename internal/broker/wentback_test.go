package broker

import (
	"fmt"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/vfs"
)

// wentOnWithout has a node follow the metadata, puts the store back in silence by what that
// node did, and has another node take it past there. When that one has gone nobody is registered.
func wentOnWithout(t *testing.T, w *world) (followed meta.Revision) {
	t.Helper()
	closeNode(t, w.open())
	old := w.store.Backup()
	b := w.open()
	createTopic(t, b, "since", 1)
	followed = b.Image().Revision()
	closeNode(t, b)
	w.store.Restore(old)
	other := w.with("node.id=2")
	other.fs = vfs.NewMem()
	b = other.open()
	for i := 0; b.Image().Revision() <= followed+4; i++ {
		createTopic(t, b, fmt.Sprint("other-", i), 1)
	}
	closeNode(t, b)
	return followed
}

// TestAnotherPastIsNoticedWhileTheStoreHoldsIt: nothing that is in the store now tells the two
// histories apart. A store that has dropped its past can't tell, and isn't refused for that.
func TestAnotherPastIsNoticedWhileTheStoreHoldsIt(t *testing.T) {
	f := func(compact meta.Revision, starts bool) {
		t.Helper()
		w := newWorld(t)
		followed := wentOnWithout(t, w)
		w.store.Compact(followed + compact)
		_, err := w.try()
		if (err == nil) != starts {
			t.Errorf("history from %d above what it followed: %v, want a start: %v", compact, err, starts)
		}
	}
	f(0, false)
	f(1, true)
}

// TestTheSamePastIsTakenForIt: restarts, in any order, with topics made and deleted meanwhile.
func TestTheSamePastIsTakenForIt(t *testing.T) {
	w := newWorld(t)
	other := w.with("node.id=2")
	other.fs = vfs.NewMem()
	for i := range 4 {
		b := w.open()
		id := createTopic(t, b, fmt.Sprint("a-", i), 2)
		closeNode(t, b)
		closeNode(t, w.open()) // nothing happened but its own life
		b = other.open()
		createTopic(t, b, fmt.Sprint("b-", i), 1)
		if err := b.Topics().Delete(testContext(t), id); err != nil {
			t.Fatal(err)
		}
		closeNode(t, b)
	}
}

// A digest tells each partition's key, and both of its revisions.
func TestDigestTellsPartitions(t *testing.T) {
	w := newWorld(t)
	b := w.open()
	empty := b.Image().Digest()
	createTopic(t, b, "a", 2)
	made := b.Image()
	kvs, rev, err := w.store.Range(testContext(t), made.Keys().Root())
	if err != nil {
		t.Fatal(err)
	}
	again, _ := meta.Load(b.ClusterID(), kvs, rev)
	if made.Digest() == empty || again.Digest() != made.Digest() {
		t.Errorf("digests %x, %x, read again %x", empty, made.Digest(), again.Digest())
	}
	for i := range kvs {
		kvs[i].ModRevision++
	}
	moved, _ := meta.Load(b.ClusterID(), kvs, rev+1)
	if moved.Digest() == made.Digest() {
		t.Error("other revisions have the same digest")
	}
}
