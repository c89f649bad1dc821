package broker

import (
	"context"
	"io/fs"
	"strings"
	"testing"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
	"tidemark/internal/wire"
)

func TestAnUnreadableLogDir(t *testing.T) {
	w := newWorld(t, "log.dirs=/data,/other")
	b := w.open()
	createTopic(t, b, "a", 2)
	lost := mustPartition(t, b, "a", 0)
	kept := mustPartition(t, b, "a", 1)
	mustAppend(t, lost, "x")
	mustAppend(t, kept, "x")
	closeNode(t, b)

	faults := faultfs.New(w.fs)
	faults.Inject(faultfs.Rule{Kinds: faultfs.List, Pattern: lost.dir.path})
	damaged := w.with()
	damaged.fs = faults
	b = damaged.open()
	if got := logEnd(t, mustPartition(t, b, "a", 1)); got != 1 {
		t.Errorf("the partition in the other dir ends at %d", got)
	}
	_, err := appendTo(t, mustPartition(t, b, "a", 0), 1, "y")
	wantCode(t, "append to the partition in the unreadable dir", err, wire.ErrKafkaStorageError)
	createTopic(t, b, "new", 1)
	mustAppend(t, mustPartition(t, b, "new", 0), "x")
	for _, d := range (*served)(b).LogDirs() {
		if (d.Err != nil) != (d.Path == lost.dir.path) {
			t.Errorf("log dir %s: %v", d.Path, d.Err)
		}
	}
	closeNode(t, b)

	healed := w.open()
	if got := logEnd(t, mustPartition(t, healed, "a", 0)); got != 1 {
		t.Errorf("with the dir back the partition ends at %d", got)
	}
	closeNode(t, healed)

	alone := w.with("log.dirs=" + lost.dir.path)
	alone.fs = faults
	if b, err := alone.try(); err == nil || !strings.Contains(err.Error(), lost.dir.path) || !strings.Contains(err.Error(), "can't be read") {
		if err == nil {
			_ = b.Close(context.Background())
		}
		t.Errorf("a node whose only dir can't be read: %v", err)
	}
}

// startOnTwoDirs is a node with a log dir for each of the two partitions of a, on disks that can be harmed.
func startOnTwoDirs(t *testing.T, settings ...string) (faults *faultfs.FS, b *Broker) {
	t.Helper()
	w := newWorld(t, append([]string{"log.dirs=/data,/other"}, settings...)...)
	faults = faultfs.New(w.fs)
	w.fs = faults
	b = w.open()
	createTopic(t, b, "a", 2)
	if mustPartition(t, b, "a", 0).dir == mustPartition(t, b, "a", 1).dir {
		t.Fatal("both partitions are in one dir")
	}
	return faults, b
}

// TestAFailedWriteWhileOpening takes the whole log dir offline, not the partition alone (DESIGN §3).
func TestAFailedWriteWhileOpening(t *testing.T) {
	for _, kind := range []faultfs.Kind{faultfs.Write, faultfs.Sync, faultfs.Rename, faultfs.SyncDir} {
		faults, b := startOnTwoDirs(t)
		hit, kept := mustPartition(t, b, "a", 0), mustPartition(t, b, "a", 1)
		pattern := hit.dir.path + "/late-*/*"
		if kind == faultfs.SyncDir {
			pattern = hit.dir.path + "/late-*"
		}
		faults.Inject(faultfs.Rule{Kinds: kind, Pattern: pattern, Times: 1})
		_, _ = b.Topics().Create(testContext(t), api.CreateTopic{Name: "late", Partitions: 2, ReplicationFactor: 1}) // one of them in each dir
		eventually(t, "the dir is offline", func() bool { return hit.dir.failure() != nil })
		eventually(t, "its partitions are", func() bool { _, err := appendTo(t, hit, 1, "x"); return api.CodeOf(err) == wire.ErrKafkaStorageError })
		mustAppend(t, kept, "x")
		if err := kept.dir.failure(); err != nil {
			t.Errorf("kind %b: the other dir: %v", kind, err)
		}
	}
}

// TestADamagedPartitionIsOfflineAlone: what can't be read by its content says nothing about the disk.
func TestADamagedPartitionIsOfflineAlone(t *testing.T) {
	w := newWorld(t)
	b := w.open()
	createTopic(t, b, "a", 2)
	mustAppend(t, mustPartition(t, b, "a", 1), "x")
	closeNode(t, b)
	if err := vfs.WriteAtomic(w.fs, "/data/a-0/partition.metadata", []byte("version: none\n")); err != nil {
		t.Fatal(err)
	}
	b = w.open()
	damaged, whole := mustPartition(t, b, "a", 0), mustPartition(t, b, "a", 1)
	_, err := appendTo(t, damaged, 1, "y")
	wantCode(t, "append to the damaged partition", err, wire.ErrKafkaStorageError)
	if !strings.Contains(err.Error(), "partition.metadata") {
		t.Errorf("%v doesn't name the file", err)
	}
	if o := mustAppend(t, whole, "y"); o != 1 {
		t.Errorf("the other partition of the dir appends at %d", o)
	}
	if err := whole.dir.failure(); err != nil {
		t.Errorf("the dir: %v", err)
	}
}

// TestCheckpointsOnAFullDisk: they wait for room; the dir stays.
func TestCheckpointsOnAFullDisk(t *testing.T) {
	w := newWorld(t)
	faults := faultfs.New(w.fs)
	w.fs = faults
	b := w.open()
	createTopic(t, b, "a", 1)
	p := mustPartition(t, b, "a", 0)
	mustAppend(t, p, "x")
	faults.SetSpace(0)
	b.writeCheckpoints()
	if err := p.dir.failure(); err != nil {
		t.Fatalf("the dir is offline: %v", err)
	}
	faults.SetSpace(-1)
	mustAppend(t, p, "y")
	b.writeCheckpoints()
	if text, err := vfs.ReadFile(w.fs, "/data/replication-offset-checkpoint", 1<<10); err != nil || !strings.Contains(string(text), "a 0 2\n") {
		t.Errorf("high watermarks with room again: %q, %v", text, err)
	}
	mustAppend(t, p, "z")
	faults.Inject(faultfs.Rule{Kinds: faultfs.Sync, Pattern: "replication-offset-checkpoint*"})
	b.writeCheckpoints()
	if p.dir.failure() == nil {
		t.Error("a failed sync leaves the dir online")
	}
}

func TestADirThatCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	faults := faultfs.New(w.fs)
	faults.Inject(faultfs.Rule{Kinds: faultfs.Lock, Err: fs.ErrPermission})
	w.fs = faults
	h := w.hear()
	b, err := w.try()
	if err == nil {
		closeNode(t, b)
	}
	if err == nil || !strings.Contains(err.Error(), "check its owner and permissions") || strings.Contains(err.Error(), "another process") {
		t.Errorf("a dir without permission to write: %v", err)
	}
	if h.says("partitions are offline") {
		t.Error("a node that doesn't start says so twice")
	}
}

func TestADamagedMetaPropertiesIsNamed(t *testing.T) {
	w := newWorld(t)
	closeNode(t, w.open())
	if err := vfs.WriteAtomic(w.fs, "/data/meta.properties", []byte("version=1\nnode.id=one\n")); err != nil {
		t.Fatal(err)
	}
	b, err := w.try()
	if err == nil {
		_ = b.Close(context.Background())
	}
	if err == nil || !strings.Contains(err.Error(), "meta.properties") {
		t.Errorf("%v", err)
	}
}

// TestALostMetaPropertiesIsWrittenAnew: each start with a wrong line names the right one.
func TestALostMetaPropertiesIsWrittenAnew(t *testing.T) {
	w := newWorld(t)
	b := w.open()
	createTopic(t, b, "a", 1)
	mustAppend(t, mustPartition(t, b, "a", 0), "x")
	cluster, dir := b.clusterID, b.directoryID()
	closeNode(t, b)
	f := func(clusterID, directoryID, want string) {
		t.Helper()
		text := log.FormatMetaProperties(log.MetaProperties{ClusterID: clusterID, NodeID: 1, DirectoryID: directoryID})
		if err := vfs.WriteAtomic(w.fs, "/data/meta.properties", text); err != nil {
			t.Fatal(err)
		}
		b, err := w.try()
		if err == nil {
			_ = b.Close(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	other := types.TopicID{9}.String()
	f(other, other, "the metadata store holds cluster "+cluster)
	f(cluster, other, "it belongs to data folder "+dir)
	if err := vfs.WriteAtomic(w.fs, "/data/meta.properties", log.FormatMetaProperties(log.MetaProperties{ClusterID: cluster, NodeID: 1, DirectoryID: dir})); err != nil {
		t.Fatal(err)
	}
	if end := logEnd(t, mustPartition(t, w.open(), "a", 0)); end != 1 {
		t.Errorf("log end %d", end)
	}
}

func TestFolderPartition(t *testing.T) {
	f := func(name, topic string, partition int32, ok bool) {
		t.Helper()
		tp, got := folderPartition(name)
		if got != ok || ok && tp != (types.TopicPartition{Topic: topic, Partition: partition}) {
			t.Errorf("%s: %v, %v", name, tp, got)
		}
	}
	f("a-0", "a", 0, true)
	f("a-b-12", "a-b", 12, true)
	f("a", "", 0, false)
	f("-1", "", 0, false)
	f("a-01", "", 0, false)
	f("a-x", "", 0, false)
	f("a-0.0123-delete", "", 0, false)
	f("a-0.0123-stray", "", 0, false)
	f("a-4294967296", "", 0, false)
}
