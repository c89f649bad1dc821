package broker

import (
	"context"
	"io/fs"
	"strings"
	"testing"

	"tidemark/internal/core/types"
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

func TestADirThatCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	faults := faultfs.New(w.fs)
	faults.Inject(faultfs.Rule{Kinds: faultfs.Lock, Err: fs.ErrPermission})
	w.fs = faults
	b, err := w.try()
	if err == nil {
		closeNode(t, b)
	}
	if err == nil || !strings.Contains(err.Error(), "check its owner and permissions") || strings.Contains(err.Error(), "another process") {
		t.Errorf("a dir without permission to write: %v", err)
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
