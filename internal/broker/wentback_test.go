package broker

import (
	"fmt"
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/backup"
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

// TestALogKnowsTheStoresPast: a node that was killed before it could note how far it had
// followed the metadata. Its log knows of an election since.
func TestALogKnowsTheStoresPast(t *testing.T) {
	w := newWorld(t)
	b := w.open()
	id := createTopic(t, b, "a", 1)
	closeNode(t, b)
	old, noted := w.store.Backup(), readFile(t, w, seenRevisionFile)
	b = w.open()
	mustAppend(t, mustPartition(t, b, "a", 0), "x")
	closeNode(t, b)
	w.store.Restore(old)
	if err := vfs.WriteAtomic(w.fs, "/data/"+seenRevisionFile, noted); err != nil {
		t.Fatal(err)
	}
	_, err := w.try()
	if err == nil || !strings.Contains(err.Error(), "METADATA_WENT_BACK: the log of a-0 knows leader epoch") {
		t.Fatalf("a start: %v", err)
	}
	// Another topic's folder, and a file that can't be read, say nothing.
	d := &logDir{fs: w.fs, path: "/data"}
	if e, ok := d.lastEpoch("a-0", id); !ok || e < 1 {
		t.Errorf("epoch %d, %v", e, ok)
	}
	if _, ok := d.lastEpoch("a-0", types.TopicID{1}); ok {
		t.Error("another topic's history is taken for this one's")
	}
	if err := vfs.WriteAtomic(w.fs, "/data/a-0/leader-epoch-checkpoint", []byte("nonsense")); err != nil {
		t.Fatal(err)
	}
	if _, ok := d.lastEpoch("a-0", id); ok {
		t.Error("nonsense is taken for a history")
	}
}

// TestARestoreIsNotedAtOnce: a node that is killed each time before it could note, the usual
// way, how far it has followed metadata that came from a backup.
func TestARestoreIsNotedAtOnce(t *testing.T) {
	w := newWorld(t)
	b := w.open()
	id := b.ClusterID()
	closeNode(t, b)
	never, noted := w.store.Backup(), readFile(t, w, seenRevisionFile)
	live := func() {
		t.Helper()
		closeNode(t, w.open())
		if err := vfs.WriteAtomic(w.fs, "/data/"+seenRevisionFile, noted); err != nil {
			t.Fatal(err)
		}
	}
	recoverAs := func(restore string) {
		t.Helper()
		if _, err := backup.Recover(testContext(t), w.store, id, restore, 1); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(why string) {
		t.Helper()
		if _, err := w.try(); err == nil || !strings.Contains(err.Error(), "METADATA_WENT_BACK") || !strings.Contains(err.Error(), why) {
			t.Fatalf("a start: %v, want a refusal: %s", err, why)
		}
	}
	recoverAs("restore-1")
	first := w.store.Backup()
	for range 3 {
		live() // its own past is no other
	}
	w.store.Restore(first)
	refused("it was put back to an earlier state")
	other := w.with("node.id=2")
	other.fs = vfs.NewMem()
	b = other.open()
	for i := range 8 {
		createTopic(t, b, fmt.Sprint("other-", i), 1)
	}
	closeNode(t, b)
	refused("another past than this folder")
	w.store.Restore(never)
	refused("came from no backup")

	w.store.Restore(first)
	recoverAs("restore-2")
	closeNode(t, w.open()) // this one noted it
	noted = readFile(t, w, seenRevisionFile)
	second := w.store.Backup()
	recoverAs("restore-3")
	live()
	w.store.Restore(second)
	refused("came from restore restore-2, and this folder has followed a later one (restore-3)")
	recoverAs("restore-4")
	live()
}

// TestAnEarlierRestoresNoteGoes: a full disk kept the later one from replacing it.
func TestAnEarlierRestoresNoteGoes(t *testing.T) {
	d := &logDir{fs: vfs.NewMem(), path: "/data"}
	if err := d.fs.MkdirAll("/data"); err != nil {
		t.Fatal(err)
	}
	if err := d.writeEntered(seenMark{restore: "restore-1", revision: 5}); err != nil {
		t.Fatal(err)
	}
	d.swept.Store(true)
	now := seenMark{restore: "restore-2", revision: 9}
	if err := d.writeSeen(now); err != nil {
		t.Fatal(err)
	}
	again := &logDir{fs: d.fs, path: "/data"}
	if err := again.readSeen(); err != nil || again.entered.restore != "" || again.hasLeft(now) {
		t.Errorf("%v; the note of a restore before: %+v", err, again.entered)
	}
}

func readFile(t *testing.T, w *world, name string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(w.fs, "/data/"+name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
