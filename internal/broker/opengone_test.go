package broker

import (
	"bytes"
	"context"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// TestAFolderThatIsGoneIsTold: a node whose partition's folder was lost while it
// was stopped begins it empty, and says so.
func TestAFolderThatIsGoneIsTold(t *testing.T) {
	w := newWorld(t)
	h := w.hear()
	b := w.open()
	createTopic(t, b, "a", 1)
	mustAppend(t, mustPartition(t, b, "a", 0), "x", "y")
	createTopic(t, b, "empty", 1)
	createTopic(t, b, "kept", 1)
	mustAppend(t, mustPartition(t, b, "kept", 0), "z")
	closeNode(t, b)
	if h.says("folder is gone") {
		t.Error("a new topic's folder is called gone")
	}
	for _, folder := range []string{"/data/a-0", "/data/empty-0"} {
		if err := w.fs.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
	}
	b = w.open()
	if end := logEnd(t, mustPartition(t, b, "a", 0)); end != 0 {
		t.Errorf("log end %d", end)
	}
	if b.cleanShutdownEpoch() != types.NoBrokerEpoch {
		t.Error("a node that lost a folder registers as one that closed cleanly")
	}
	kept := mustPartition(t, b, "kept", 0)
	eventually(t, "the other partitions are served", func() bool { _, err := kept.LeaderEpoch(); return err == nil && logEnd(t, kept) == 1 })
	if !h.says("partition=a-0 dir=/data highWatermark=2") {
		t.Error("nobody is told that two records are gone")
	}
	if h.says("partition=empty-0 dir=/data highWatermark") {
		t.Error("an empty partition's records are called gone")
	}
}

// closedWithRecords is a node that has stopped, with records in partition a-0, and the
// bytes of one of the partition's files.
func closedWithRecords(t *testing.T, name string, settings ...string) (w *world, h *heard, good []byte) {
	t.Helper()
	w = newWorld(t, settings...)
	h = w.hear()
	b := w.open()
	createTopic(t, b, "a", 1)
	mustAppend(t, mustPartition(t, b, "a", 0), "x", "y")
	closeNode(t, b)
	good, err := vfs.ReadFile(w.fs, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return w, h, good
}

// TestADamagedTopicIDKeepsTheFolder: one flipped bit in partition.metadata makes another
// topic's id of it, and the folder isn't one of a deleted topic for that.
func TestADamagedTopicIDKeepsTheFolder(t *testing.T) {
	const name = "/data/a-0/partition.metadata"
	w, h, good := closedWithRecords(t, name, "log.segment.delete.delay.ms=0")
	bad := bytes.Clone(good)
	at := bytes.Index(bad, []byte("topic_id: ")) + len("topic_id: ") + 3
	if bad[at] == 'A' {
		bad[at] = 'B'
	} else {
		bad[at] = 'A'
	}
	if err := vfs.WriteAtomic(w.fs, name, bad); err != nil {
		t.Fatal(err)
	}
	b := w.open()
	if _, open := mustPartition(t, b, "a", 0).View(); open {
		t.Fatal("a partition with another topic's id was opened")
	}
	if err := b.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !h.says("write topic_id: ") {
		t.Error("nobody is told how to put the file right")
	}
	if err := vfs.WriteAtomic(w.fs, name, good); err != nil {
		t.Fatal(err)
	}
	if end := logEnd(t, mustPartition(t, w.open(), "a", 0)); end != 2 {
		t.Errorf("log end %d with the right file again", end)
	}
}

// TestADamagedTimelineCheckpointIsNamed: the only replica of a partition serves
// nothing without it (R19), and says what the way out is.
func TestADamagedTimelineCheckpointIsNamed(t *testing.T) {
	const name = "/data/a-0/timeline-checkpoint"
	w, h, good := closedWithRecords(t, name)
	if err := vfs.WriteAtomic(w.fs, name, []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	b := w.open()
	if _, err := mustPartition(t, b, "a", 0).LeaderEpoch(); err == nil {
		t.Error("a partition is served whose history nobody knows")
	}
	eventually(t, "the file and the way out are told", func() bool {
		return h.says("timeline checkpoint can't be read") && h.says("put "+name+" back") && h.says("move /data/a-0 away")
	})
	closeNode(t, b)
	if err := vfs.WriteAtomic(w.fs, name, good); err != nil {
		t.Fatal(err)
	}
	p := mustPartition(t, w.open(), "a", 0)
	eventually(t, "the partition is served again", func() bool { _, err := p.LeaderEpoch(); return err == nil })
}

// TestATopicMadeAgainIsNotCalledGone: the folder of a deleted topic is set aside for one
// of its name, and what the checkpoint files say was the deleted one's.
func TestATopicMadeAgainIsNotCalledGone(t *testing.T) {
	for _, clean := range []bool{true, false} {
		w := newWorld(t, "node.id=1", "log.dirs=/first")
		first := w.open()
		second := w.with("node.id=2", "log.dirs=/second")
		h := second.hear()
		b := second.open()
		eventually(t, "the first node knows the second", func() bool { _, ok := first.Image().Broker(2); return ok })
		old := createAssigned(t, first, "a", 2)
		eventually(t, "the second leads it", func() bool {
			p, ok := b.PartitionByName("a", 0)
			if !ok {
				return false
			}
			_, err := p.LeaderEpoch()
			return err == nil
		})
		mustAppend(t, mustPartition(t, b, "a", 0), "x", "y")
		closeNode(t, b)
		if !clean {
			if err := second.fs.Remove("/second/.kafka_cleanshutdown"); err != nil {
				t.Fatal(err)
			}
		}
		if err := first.Topics().Delete(testContext(t), old); err != nil {
			t.Fatal(err)
		}
		id := createAssigned(t, first, "a", 1)
		mustAppend(t, mustPartition(t, first, "a", 0), "z")
		changeRecord(t, first, id, func(r *meta.PartitionRecord) { r.Replicas, r.LeaderEpoch = []types.BrokerID{1, 2}, 7 })
		b = second.open()
		eventually(t, "the second node has copied it", func() bool {
			p, ok := b.PartitionByName("a", 0)
			if !ok {
				return false
			}
			v, open := p.View()
			return open && p.id == id && v.LogEnd == 1
		})
		if h.says("folder is gone") {
			t.Errorf("clean %v: records of a deleted topic are called gone", clean)
		}
		closeNode(t, b)
		closeNode(t, first)
	}
}
