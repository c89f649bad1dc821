package broker

import (
	"fmt"
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/backup"
	"tidemark/internal/metastore/mem"
	"tidemark/internal/vfs"
)

// TestWhatANodeThatCantStartSays: each refusal names what is wrong and what to do.
// Those of the metadata members are in metastore/embed: a voter that waits for others, one that was
// removed, folders in use, of another node, damaged, cut or half restored, certificates.
func TestWhatANodeThatCantStartSays(t *testing.T) {
	f := func(name string, prepare func(w *world) *world, words ...string) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.open()
			createTopic(t, b, "a", 1)
			mustAppend(t, mustPartition(t, b, "a", 0), "x")
			closeNode(t, b)
			b, err := prepare(w).try()
			if err == nil {
				closeNode(t, b)
				t.Fatal("it started")
			}
			for _, word := range words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("it says %q and not %q", err, word)
				}
			}
		})
	}
	write := func(w *world, text string) {
		t.Helper()
		if err := vfs.WriteAtomic(w.fs, "/data/meta.properties", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	f("corrupt meta.properties", func(w *world) *world { write(w, "what=ever\n"); return w }, "meta.properties", "write the file anew", "/data")
	f("lost meta.properties", func(w *world) *world {
		if err := w.fs.Remove("/data/meta.properties"); err != nil {
			t.Fatal(err)
		}
		return w
	}, "meta.properties is missing", "put it back from a copy", "node.id=1", "/data")
	f("another node's folder", func(w *world) *world { return w.with("node.id=7") }, "it belongs to node 1", "start with --node-id 1")
	f("another cluster's folder", func(w *world) *world {
		other := w.with()
		other.store = mem.New()
		t.Cleanup(func() { _ = other.store.Close() })
		plan := meta.Plan{Why: "another cluster", Then: []meta.Op{meta.Put(meta.DefaultClusterKey, []byte("other"))}}
		if _, err := metastore.Commit(testContext(t), other.store, plan); err != nil {
			t.Fatal(err)
		}
		return other
	}, "the metadata store holds cluster other", "give the folder of a node of that cluster")
	f("lost metadata", func(w *world) *world {
		w.store = mem.New()
		t.Cleanup(func() { _ = w.store.Close() })
		return w
	}, "knows nothing of cluster", "restore the metadata")
	f("an empty folder in place of a full one", func(w *world) *world { w.fs = vfs.NewMem(); return w },
		"is the disk mounted?", "tidemark cluster replace 1")
	f("a node id in use", func(w *world) *world {
		lives := w.open()
		empty := w.with()
		empty.fs = vfs.NewMem()
		_ = lives // until the test ends
		return empty
	}, "the node id is in use by the broker at", "choose another node id")
	f("a program that is too old", func(w *world) *world {
		closeNode(t, w.with().open()) // a new cluster is at the newest level
		w.features = meta.SupportedFeatures()
		w.features[meta.FeatureMetadata] = meta.LevelRange{Min: 1, Max: meta.LevelDrills - 1}
		return w
	}, meta.FeatureMetadata, "too old for the cluster", "start a newer tidemark")
	f("a program that lacks a feature", func(w *world) *world {
		w.features = meta.SupportedFeatures()
		delete(w.features, meta.FeatureGroups)
		return w
	}, meta.FeatureGroups, "too old for the cluster", "start a newer tidemark")
	f("metadata that went back", func(w *world) *world {
		old := w.store.Backup()
		b := w.open()
		createTopic(t, b, "since", 1)
		closeNode(t, b)
		w.store.Restore(old)
		return w
	}, "METADATA_WENT_BACK", "tidemark cluster restore --in-place")
	f("metadata that went back and went on", func(w *world) *world {
		old := w.store.Backup()
		b := w.open()
		createTopic(t, b, "since", 1)
		followed := b.Image().Revision()
		closeNode(t, b)
		w.store.Restore(old)
		first := w.with("node.id=2")
		first.fs = vfs.NewMem()
		b = first.open() // until the test ends: it knew nothing newer
		for i := 0; b.Image().Revision() <= followed+4; i++ {
			createTopic(t, b, fmt.Sprint("other-", i), 1)
		}
		return w
	}, "METADATA_WENT_BACK", "a node registered in it at revision", "tidemark cluster restore --in-place")
	f("metadata that went back and went on, and whoever saw to that is gone", func(w *world) *world {
		wentOnWithout(t, w)
		return w
	}, "METADATA_WENT_BACK", "what it holds of revision", "tidemark cluster restore --in-place")
	f("metadata from before a restore", func(w *world) *world {
		id := clusterOf(t, w)
		before := w.store.Backup()
		if _, err := backup.Recover(testContext(t), w.store, id, "restore-1", 1); err != nil {
			t.Fatal(err)
		}
		closeNode(t, w.open())
		w.store.Restore(before)
		return w
	}, "METADATA_WENT_BACK", "came from no backup", "restore-1", "tidemark cluster restore --in-place")
	f("half-restored metadata", func(w *world) *world {
		id := types.TopicID{1}
		keys := meta.KeysOf(clusterOf(t, w))
		w.store = mem.New()
		t.Cleanup(func() { _ = w.store.Close() })
		plan := meta.Plan{Why: "half", Then: []meta.Op{meta.Put(keys.Name("a"), meta.NameRecord{ID: id}.Encode())}}
		if _, err := metastore.Commit(testContext(t), w.store, plan); err != nil {
			t.Fatal(err)
		}
		return w
	}, "a restore stopped half-way", "run tidemark cluster restore again")
}

// clusterOf reads the id of the cluster that a world's store holds.
func clusterOf(t *testing.T, w *world) string {
	t.Helper()
	kv, _, err := w.store.Get(testContext(t), meta.DefaultClusterKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(kv.Value)
}
