package log

import (
	"slices"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// TestMissingRecordsAreTold: after a clean stop nothing in the log is checked, and
// a segment whose data was removed or shortened was passed over in silence.
func TestMissingRecordsAreTold(t *testing.T) {
	fsys, _ := closedStory(t)
	var bases []types.Offset
	for _, name := range mustList(t, fsys) {
		if base, suffix, ok := parseFileName(name); ok && suffix == logSuffix {
			bases = append(bases, base)
		}
	}
	if len(bases) < 4 {
		t.Fatalf("segments %v", bases)
	}
	data := func(base types.Offset) string { return join(testDir, FileName(base, logSuffix)) }
	remove := func(base types.Offset) func(*vfs.Mem) {
		return func(disk *vfs.Mem) {
			if err := disk.Remove(data(base)); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := func(name string, harm func(*vfs.Mem), compacted bool, want ...OffsetRange) {
		t.Helper()
		disk := fsys.CrashClone(vfs.CrashConfig{})
		harm(disk)
		o := options(disk)
		o.CleanShutdown, o.RecoveryPoint, o.HighWatermark, o.Config.Compact = true, 40, 40, compacted
		l, r, err := Open(o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer l.CloseUnclean()
		if !slices.Equal(r.Missing, want) {
			t.Errorf("%s: missing %v, want %v", name, r.Missing, want)
		}
		if end := l.View().LogEnd; end != 40 {
			t.Errorf("%s: the log ends at %d", name, end)
		}
	}
	empty := func(disk *vfs.Mem) { put(t, disk, data(bases[1]), nil) }
	f("nothing was harmed", func(*vfs.Mem) {}, false)
	f("a segment is empty", empty, false, OffsetRange{bases[1], bases[2]})
	f("a compacted log's segment is empty", empty, true)
	f("a segment is gone", remove(bases[1]), false, OffsetRange{bases[1], bases[2]})
	f("the first segment is gone", remove(bases[0]), false, OffsetRange{bases[0], bases[1]})
	b := get(t, fsys, data(bases[1]))
	var from types.Offset
	size := 0
	for it := batch.Iterate(b); it.Next(); {
		from, size = it.Header.BaseOffset, it.Header.Size()
	}
	f("the last batch of a segment is gone", func(disk *vfs.Mem) {
		put(t, disk, data(bases[1]), b[:len(b)-size])
		if err := disk.Remove(join(testDir, FileName(bases[1], indexSuffix))); err != nil {
			t.Fatal(err)
		}
	}, false, OffsetRange{from, bases[2]})
}
