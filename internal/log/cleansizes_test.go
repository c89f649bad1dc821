package log

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// notedStory is closedStory's disk with the note of a clean shutdown in registration 7.
func notedStory(t *testing.T) (fsys *vfs.Mem, dir, folder string) {
	t.Helper()
	fsys, _ = closedStory(t)
	dir, folder = filepath.Split(testDir)
	dir = filepath.Clean(dir)
	c, _, err := OpenCheckpoints(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	o := options(fsys)
	o.CleanShutdown = true
	l, _, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	c.Attach(l)
	if err := errors.Join(l.Close(), c.Write(), c.NoteSizes(7)); err != nil {
		t.Fatal(err)
	}
	return fsys, dir, folder
}

// TestShortenedLogs: each way a log's files can lose bytes while its node is stopped is
// seen without opening the log, and nothing is said of a log that was only added to.
func TestShortenedLogs(t *testing.T) {
	fsys, dir, folder := notedStory(t)
	if folder != testPartition.String() {
		t.Fatalf("the story's folder is %s", folder)
	}
	var segments []string
	for _, name := range mustList(t, fsys) {
		if _, suffix, ok := parseFileName(name); ok && suffix == logSuffix {
			segments = append(segments, join(testDir, name))
		}
	}
	if len(segments) < 3 {
		t.Fatalf("segments %v", segments)
	}
	f := func(what string, e types.BrokerEpoch, want int, harm func(*vfs.Mem) error) {
		t.Helper()
		disk := fsys.CrashClone(vfs.CrashConfig{})
		if err := harm(disk); err != nil {
			t.Fatal(err)
		}
		c, _, err := OpenCheckpoints(disk, dir)
		if err != nil {
			t.Fatal(err)
		}
		short, err := c.Shortened(e)
		if err != nil || len(short) != want {
			t.Errorf("%s: %+v, %v, want %d", what, short, err, want)
		}
		for _, s := range short {
			if s.Folder != folder || s.Found >= s.Was {
				t.Errorf("%s: %+v", what, s)
			}
		}
	}
	rewrite := func(name string, change func([]byte) []byte) func(*vfs.Mem) error {
		return func(disk *vfs.Mem) error {
			put(t, disk, name, change(get(t, disk, name)))
			return nil
		}
	}
	f("nothing was harmed", 7, 0, func(*vfs.Mem) error { return nil })
	for i, name := range segments {
		f(fmt.Sprintf("segment %d is empty", i), 7, 1, rewrite(name, func([]byte) []byte { return nil }))
		f(fmt.Sprintf("segment %d lacks its last byte", i), 7, 1, rewrite(name, func(b []byte) []byte { return b[:len(b)-1] }))
		f(fmt.Sprintf("segment %d is gone", i), 7, 1, func(disk *vfs.Mem) error { return disk.Remove(name) })
	}
	f("the folder is gone", 7, 1, func(disk *vfs.Mem) error { return disk.RemoveAll(testDir) })
	f("zeros behind the data", 7, 0, rewrite(segments[len(segments)-1], func(b []byte) []byte { return append(b, 0, 0) }))
	f("a note of another registration", 8, 0, func(disk *vfs.Mem) error { return disk.RemoveAll(testDir) })
	f("no note", 7, 0, func(disk *vfs.Mem) error {
		return errors.Join(disk.RemoveAll(testDir), disk.Remove(join(dir, CleanSizesFile)))
	})

	put(t, fsys, join(dir, CleanSizesFile), []byte("{"))
	c, _, err := OpenCheckpoints(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptError
	if _, err := c.Shortened(7); !errors.As(err, &corrupt) {
		t.Errorf("an unreadable note: %v", err)
	}
}

// TestSizesOfLogsThatWereNotOpened: a run that ends before it has opened its logs
// repeats what the last note said of them, but for those that were deleted.
func TestSizesOfLogsThatWereNotOpened(t *testing.T) {
	fsys, dir, folder := notedStory(t)
	reopen := func() *DirCheckpoints {
		t.Helper()
		c, _, err := OpenCheckpoints(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := reopen()
	if short, err := c.Shortened(7); len(short) > 0 || err != nil {
		t.Fatal(short, err)
	}
	if err := c.NoteSizes(7); err != nil {
		t.Fatal(err)
	}
	if err := fsys.RemoveAll(testDir); err != nil {
		t.Fatal(err)
	}
	c = reopen()
	if short, err := c.Shortened(7); len(short) != 1 || short[0].Folder != folder || err != nil {
		t.Errorf("%+v, %v", short, err)
	}
	c.Detach(testPartition)
	if err := errors.Join(c.Write(), c.NoteSizes(9)); err != nil {
		t.Fatal(err)
	}
	if short, err := reopen().Shortened(9); len(short) > 0 || err != nil {
		t.Errorf("a deleted log: %+v, %v", short, err)
	}
}

// BenchmarkShortened looks at 10,000 folders of one segment each, on this machine's disk.
func BenchmarkShortened(b *testing.B) {
	dir := b.TempDir()
	fsys := vfs.OS()
	c, _, err := OpenCheckpoints(fsys, dir)
	if err != nil {
		b.Fatal(err)
	}
	c.sizes = map[string]int64{}
	for i := range 10000 {
		tp := types.TopicPartition{Topic: "topic", Partition: int32(i)}
		c.found[tp], c.sizes[tp.String()] = Marked{}, 3
		if err := os.Mkdir(filepath.Join(dir, tp.String()), 0o755); err != nil {
			b.Fatal(err)
		}
		for _, suffix := range segmentSuffixes {
			if err := os.WriteFile(filepath.Join(dir, tp.String(), FileName(0, suffix)), []byte("abc"), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := c.NoteSizes(1); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if short, err := c.Shortened(1); len(short) > 0 || err != nil {
			b.Fatal(short, err)
		}
	}
}
