package broker

import (
	"testing"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// TestDeletedPartitionsAreNotLost: a topic is deleted while a node is down. The checkpoint
// files of its folder named the topic for ever, and each later clean start took it for a
// folder that was lost, and counted as an unclean one (R11).
func TestDeletedPartitionsAreNotLost(t *testing.T) {
	f := func(name string, crashed func(fs *vfs.Mem) error) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h := w.hear()
			b := w.open()
			id := createTopic(t, b, "a", 1)
			mustAppend(t, mustPartition(t, b, "a", 0), "x", "y")
			createTopic(t, b, "kept", 1)
			mustAppend(t, mustPartition(t, b, "kept", 0), "z")
			closeNode(t, b)

			down := w.fs.(*vfs.Mem).CrashClone(vfs.CrashConfig{})
			b = w.open()
			if err := b.Topics().Delete(testContext(t), id); err != nil {
				t.Fatal(err)
			}
			closeNode(t, b)

			if err := crashed(down); err != nil {
				t.Fatal(err)
			}
			w.fs = down
			closeNode(t, w.open())
			b = w.open()
			if h.says("are gone since the clean stop") || b.cleanShutdownEpoch() == types.NoBrokerEpoch {
				t.Error("a clean start counts as an unclean one because of a deleted topic")
			}
			closeNode(t, b)

			// What is still here and is lost is told as before.
			if err := down.RemoveAll("/data/kept-0"); err != nil {
				t.Fatal(err)
			}
			b = w.open()
			if !h.says("are gone since the clean stop") || b.cleanShutdownEpoch() != types.NoBrokerEpoch {
				t.Error("a folder that was lost is passed over")
			}
		})
	}
	f("its folder is still there", func(*vfs.Mem) error { return nil })
	f("its folder went before a crash, and the files didn't follow", func(fs *vfs.Mem) error {
		if err := fs.Remove("/data/.kafka_cleanshutdown"); err != nil {
			return err
		}
		return fs.RemoveAll("/data/a-0")
	})
}
