package log

import (
	"path/filepath"
	"testing"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// diskLog opens a log with Kafka's default sizes on the real file system.
func diskLog(tb testing.TB) *Log {
	tb.Helper()
	o := options(vfs.OS())
	o.Dir = filepath.Join(tb.TempDir(), "topic-0")
	o.Config = DefaultConfig()
	o.Config.SegmentBytes, o.Config.TimestampAfterMaxMs = 256<<20, 0
	l, _, err := Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.CloseUnclean)
	if err := l.AssignEpoch(1); err != nil {
		tb.Fatal(err)
	}
	return l
}

// BenchmarkAppend appends 16 KiB batches to a log, and writes the same bytes
// to a file in a bare loop: the difference is what the log costs.
func BenchmarkAppend(b *testing.B) {
	raw := spec{n: 16, size: 1000, ts: 1}.build(b)
	b.Run("log", func(b *testing.B) {
		l := diskLog(b)
		b.SetBytes(int64(len(raw)))
		b.ReportAllocs()
		batchCopy := make([]byte, len(raw))
		for b.Loop() {
			copy(batchCopy, raw)
			if _, err := l.AppendAsLeader(batchCopy, 1, LeaderAppend{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("follower", func(b *testing.B) {
		l := diskLog(b)
		b.SetBytes(int64(len(raw)))
		b.ReportAllocs()
		batchCopy := make([]byte, len(raw))
		for b.Loop() {
			copy(batchCopy, raw)
			stamped(batchCopy, l.marks.end, 1)
			if _, err := l.AppendAsFollower(batchCopy, 1); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bare write", func(b *testing.B) {
		f, err := vfs.OS().Create(filepath.Join(b.TempDir(), "bare"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		b.SetBytes(int64(len(raw)))
		at := int64(0)
		for b.Loop() {
			if at > 256<<20 {
				at = 0 // the log rolls here
			}
			if _, err := f.WriteAt(raw, at); err != nil {
				b.Fatal(err)
			}
			at += int64(len(raw))
		}
	})
}

// BenchmarkRead finds the bytes of a fetch, without moving them: at the end,
// where consumers are, and anywhere in a sealed segment.
func BenchmarkRead(b *testing.B) {
	l := diskLog(b)
	raw := spec{n: 10, size: 400, ts: 1}.build(b)
	for range 20_000 {
		if _, err := l.AppendAsLeader(append([]byte{}, raw...), 1, LeaderAppend{}); err != nil {
			b.Fatal(err)
		}
	}
	l.SetHighWatermark(l.View().LogEnd)
	end := l.View().LogEnd
	read := func(b *testing.B, from types.Offset) {
		c, err := l.Read(from, ReadLimit{To: end, MaxBytes: 1 << 20, MinOne: true})
		if err != nil || c.Bytes == 0 {
			b.Fatal(err, c.Bytes)
		}
		c.Release()
	}
	b.Run("tail", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			read(b, end-10)
		}
	})
	b.Run("active", func(b *testing.B) {
		b.ReportAllocs()
		for o := types.Offset(0); b.Loop(); o = (o + 7919) % end {
			read(b, o)
		}
	})
	if err := l.Roll(); err != nil {
		b.Fatal(err)
	}
	b.Run("sealed", func(b *testing.B) {
		b.ReportAllocs()
		for o := types.Offset(0); b.Loop(); o = (o + 7919) % end {
			read(b, o)
		}
	})
}

// BenchmarkOpen opens a cleanly closed log with one small segment: what each of
// ten thousand partitions costs at start.
func BenchmarkOpen(b *testing.B) {
	fsys := memFS(b)
	l, _ := mustOpen(b, options(fsys))
	follow(b, l, spec{epoch: 1, size: 100, ts: 5})
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	o := options(fsys)
	o.CleanShutdown, o.RecoveryPoint = true, 1
	b.ReportAllocs()
	for b.Loop() {
		l, _, err := Open(o)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestHotPathAllocations bounds what an append and a read allocate.
func TestHotPathAllocations(t *testing.T) {
	o := options(memFS(t))
	o.Config = DefaultConfig()
	o.Config.TimestampAfterMaxMs = 0
	l, _ := mustOpen(t, o)
	if err := l.AssignEpoch(1); err != nil {
		t.Fatal(err)
	}
	raw := spec{n: 4, size: 100, ts: 1}.build(t)
	work := make([]byte, len(raw))
	f := func(name string, most float64, do func()) {
		t.Helper()
		if got := testing.AllocsPerRun(200, do); got > most {
			t.Errorf("%s allocates %.1f times, at most %.0f are right", name, got, most)
		}
	}
	f("append as leader", 0, func() {
		copy(work, raw)
		if _, err := l.AppendAsLeader(work, 1, LeaderAppend{}); err != nil {
			t.Fatal(err)
		}
	})
	f("append as follower", 2, func() {
		copy(work, raw)
		stamped(work, l.marks.end, 1)
		if a, err := l.AppendAsFollower(work, 1); err != nil || a.StoppedBy != nil {
			t.Fatal(err, a)
		}
	})
	l.SetHighWatermark(l.View().LogEnd)
	end := l.View().LogEnd
	f("read", 1, func() {
		c, err := l.Read(end-4, ReadLimit{To: end, MaxBytes: 1 << 20, MinOne: true})
		if err != nil || c.Bytes == 0 {
			t.Fatal(err)
		}
		c.Release()
	})
	f("view", 0, func() { _ = l.View() })
	f("high watermark", 0, func() { l.SetHighWatermark(end) })
}
