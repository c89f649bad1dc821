package log

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
)

func line(topic string, partition int32, o types.Offset) CheckpointLine {
	return CheckpointLine{types.TopicPartition{Topic: topic, Partition: partition}, o}
}

// TestOffsetsGolden pins the bytes that Kafka writes.
func TestOffsetsGolden(t *testing.T) {
	lines := []CheckpointLine{line("b", 10, 7), line("a", 2, 1<<40), line("b", 9, 0)}
	want := "0\n3\na 2 1099511627776\nb 9 0\nb 10 7\n"
	if got := string(FormatOffsets(lines)); got != want {
		t.Fatalf("%q", got)
	}
	if got := string(FormatOffsets(nil)); got != "0\n0\n" {
		t.Fatalf("%q", got)
	}
	got, err := ParseOffsets([]byte(want))
	if d := cmp.Diff([]CheckpointLine{lines[1], lines[2], lines[0]}, got); d != "" || err != nil {
		t.Fatal(d, err)
	}
	if got, err := ParseOffsets([]byte("0\n1\na 0 1")); err != nil || len(got) != 1 { // the last newline may be missing
		t.Fatal(got, err)
	}
}

func TestParseOffsetsFailure(t *testing.T) {
	f := func(content, where string) {
		t.Helper()
		_, err := ParseOffsets([]byte(content))
		if !errors.Is(err, ErrCheckpoint) || !strings.Contains(err.Error(), where) {
			t.Errorf("%q: %v", content, err)
		}
	}
	f("", "line 1")
	f("\x00\x00\x00\x00", "line 1")
	f("1\n0\n", "line 1")
	f("0\n", "line 2")
	f("0\nx\n", "line 2")
	f("0\n2\na 0 1\n", "line 2")
	f("0\n1\na 0 1\nb 0 1\n", "line 2")
	f("0\n1\na 0\n", "line 3")
	f("0\n1\na -1 5\n", "line 3")
	f("0\n1\na 0 -5\n", "line 3")
	f("0\n1\na 0 99999999999999999999\n", "line 3")
}

func TestPartitionMetadata(t *testing.T) {
	id := types.TopicID{0xff, 1}
	if got, err := ParsePartitionMetadata(FormatPartitionMetadata(id)); err != nil || got != id {
		t.Fatal(got, err)
	}
	for _, bad := range []string{"", "version: 0", "version: 1\ntopic_id: " + id.String(), "version: 0\ntopic_id: short", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "\x00\x00"} {
		if _, err := ParsePartitionMetadata([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestMetaProperties(t *testing.T) {
	fsys := memFS(t)
	if _, ok, err := ReadMetaProperties(fsys, "d"); ok || err != nil {
		t.Fatal(ok, err)
	}
	m := MetaProperties{ClusterID: "a=b:c", NodeID: 7, DirectoryID: "dir"}
	if err := WriteMetaProperties(fsys, "d", m); err != nil {
		t.Fatal(err)
	}
	got, ok, err := ReadMetaProperties(fsys, "d")
	if err != nil || !ok || got.ClusterID != m.ClusterID || got.NodeID != 7 || got.DirectoryID != "dir" {
		t.Fatalf("%+v %t %v", got, ok, err)
	}
	kafka := "#\n#Sun Nov 29 19:50:11 UTC 2026\ncluster.id=MkU3OEVBNTcwNTJENDM2Qk\ndirectory.id=Sd-PUcuERJmVwUg5yeNRkg\nnode.id=1\nversion=1\n"
	if got, err := ParseMetaProperties([]byte(kafka)); err != nil || got.NodeID != 1 || got.DirectoryID != "Sd-PUcuERJmVwUg5yeNRkg" {
		t.Fatalf("%+v %v", got, err)
	}
	if got, err := ParseMetaProperties([]byte("version=0\nbroker.id=3\ncluster.id=x\n")); err != nil || got.NodeID != 3 {
		t.Fatalf("%+v %v", got, err)
	}
	for _, bad := range []string{"", "version=1", "version=9\nnode.id=1", "version=1\nnode.id=x", "nonsense"} {
		if _, err := ParseMetaProperties([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// TestCleanShutdownMark: found once, gone afterwards, also after a power loss.
func TestCleanShutdownMark(t *testing.T) {
	fsys := memFS(t)
	if err := WriteCleanShutdown(fsys, "d", 42); err != nil {
		t.Fatal(err)
	}
	fsys = fsys.CrashClone(vfs.CrashConfig{})
	if e, found, err := TakeCleanShutdown(fsys, "d"); e != 42 || !found || err != nil {
		t.Fatal(e, found, err)
	}
	fsys = fsys.CrashClone(vfs.CrashConfig{})
	if e, found, err := TakeCleanShutdown(fsys, "d"); e != types.NoBrokerEpoch || found || err != nil {
		t.Fatal(e, found, err)
	}
	f, err := fsys.Create("d/" + CleanShutdownFile) // as Kafka before 3.6 leaves it
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if e, found, err := TakeCleanShutdown(fsys, "d"); e != types.NoBrokerEpoch || !found || err != nil {
		t.Fatal(e, found, err)
	}
}

// TestUnreadableCheckpointsAreNamed: the others still count (KAFKA-16541).
func TestUnreadableCheckpointsAreNamed(t *testing.T) {
	fsys := memFS(t)
	l, dir := openWithCheckpoints(t, fsys, nil)
	follow(t, l, spec{epoch: 1, n: 5})
	l.SetHighWatermark(4)
	if err := errors.Join(l.Flush(), dir.Write()); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "\x00\x00\x00", "0\n9\n"} {
		if err := vfs.WriteAtomic(fsys, "d/"+HighWatermarkFile, []byte(content)); err != nil {
			t.Fatal(err)
		}
		c, problems, err := OpenCheckpoints(fsys, "d")
		if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Error(), HighWatermarkFile) {
			t.Fatalf("%q: %v %v", content, problems, err)
		}
		if got := c.Get(testPartition); got.RecoveryPoint != 5 || got.HighWatermark != 0 {
			t.Fatalf("%+v", got)
		}
	}
}

// TestCheckpointWritesJoin: requests that wait for one write share the next,
// and none returns before its marks are on disk.
func TestCheckpointWritesJoin(t *testing.T) {
	mem := memFS(t)
	ffs := faultfs.New(mem)
	l, dir := openWithCheckpoints(t, ffs, nil)
	follow(t, l, spec{epoch: 1, n: 9})
	gate := faultfs.NewGate()
	ffs.Inject(faultfs.Rule{Kinds: faultfs.Rename, Pattern: "d/" + HighWatermarkFile + "*", Times: 1, Gate: gate})
	var wg sync.WaitGroup
	l.SetHighWatermark(1)
	wg.Go(func() {
		if err := dir.Write(); err != nil {
			t.Error(err)
		}
	})
	<-gate.Arrived()
	l.SetHighWatermark(7)
	before := ffs.Count(faultfs.Rename)
	for range 10 {
		wg.Go(func() {
			if err := dir.Write(); err != nil {
				t.Error(err)
			}
			if got := string(get(t, mem.CrashClone(vfs.CrashConfig{}), "d/"+HighWatermarkFile)); got != "0\n1\ntopic 0 7\n" {
				t.Errorf("a write returned with %q on disk", got)
			}
		})
	}
	gate.Release()
	wg.Wait()
	if n := ffs.Count(faultfs.Rename) - before; n > 3 {
		t.Errorf("%d renames for ten requests", n)
	}
}

func FuzzParseOffsets(f *testing.F) {
	f.Add([]byte("0\n1\na 0 1\n"))
	f.Add([]byte("0\n-1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		lines, err := ParseOffsets(b)
		if err != nil {
			return
		}
		again, err := ParseOffsets(FormatOffsets(lines))
		if err != nil || len(again) != len(lines) {
			t.Fatalf("%q read as %v, written and read: %v %v", b, lines, again, err)
		}
	})
}

// A topic is deleted and made again: what the files say of the old one's
// partition must be off the disk before the new one's log is made. A log start
// of it would take the new records with it after a crash.
func TestAPartitionsNameComesAgain(t *testing.T) {
	tp := types.TopicPartition{Topic: "orders"}
	stale := func(t *testing.T) (vfs.FS, *DirCheckpoints) {
		t.Helper()
		fsys := vfs.NewMem()
		if err := fsys.MkdirAll("d"); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{RecoveryPointFile, HighWatermarkFile, LogStartFile} {
			if err := vfs.WriteAtomic(fsys, "d/"+name, FormatOffsets([]CheckpointLine{{tp, 30}})); err != nil {
				t.Fatal(err)
			}
		}
		c, problems, err := OpenCheckpoints(fsys, "d")
		if err != nil || len(problems) > 0 || c.Get(tp).LogStart != 30 {
			t.Fatal(c.Get(tp), problems, err)
		}
		return fsys, c
	}
	isGone := func(t *testing.T, fsys vfs.FS, c *DirCheckpoints) {
		t.Helper()
		if err := c.Begin(tp); err != nil {
			t.Fatal(err)
		}
		again, _, err := OpenCheckpoints(fsys, "d")
		if err != nil || again.Get(tp) != (Marked{}) || c.Get(tp) != (Marked{}) {
			t.Fatalf("the files say %+v, memory %+v (%v)", again.Get(tp), c.Get(tp), err)
		}
	}
	t.Run("read at the start", func(t *testing.T) {
		fsys, c := stale(t)
		isGone(t, fsys, c)
	})
	t.Run("deleted while it runs", func(t *testing.T) {
		fsys, c := stale(t)
		c.Detach(tp)
		isGone(t, fsys, c)
	})
}
