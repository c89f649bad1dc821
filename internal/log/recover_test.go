package log

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/batch"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// closedStory is a cleanly closed log of story's records and how it looked.
func closedStory(t testing.TB) (*vfs.Mem, picture) {
	t.Helper()
	fsys := memFS(t)
	l, _ := mustOpen(t, options(fsys))
	story(t, l)
	l.SetHighWatermark(40)
	want := pictureOf(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return fsys, want
}

// reopened opens what is on disk, cleanly or not.
func reopened(t testing.TB, fsys vfs.FS, clean bool, recoveryPoint types.Offset) (*Log, Recovery) {
	t.Helper()
	o := options(fsys)
	o.CleanShutdown, o.RecoveryPoint, o.HighWatermark = clean, recoveryPoint, 40
	l, r, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l, r
}

func lastSegment(t testing.TB, fsys vfs.FS) string {
	t.Helper()
	names := mustList(t, fsys)
	i := len(names) - 1
	for ; !strings.HasSuffix(names[i], logSuffix); i-- {
	}
	return join(testDir, names[i])
}

// TestCleanReopen: a cleanly closed log opens without a check and looks the same.
func TestCleanReopen(t *testing.T) {
	fsys, want := closedStory(t)
	before := dumpNames(t, fsys)
	for range 2 { // the second time nothing was written in between
		l, r := reopened(t, fsys, true, 40)
		if !r.Clean || r.BatchesChecked != 0 || r.IndexesRebuilt != 0 || r.HistoryRepaired || r.HistoryRebuilt {
			t.Fatalf("%+v", r)
		}
		if d := cmp.Diff(want, pictureOf(t, l)); d != "" {
			t.Fatal(d)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if after := dumpNames(t, fsys); !slices.Equal(after, before) {
			t.Fatalf("files before %v, after %v", before, after)
		}
	}
}

func dumpNames(t testing.TB, fsys vfs.FS) []string { return mustList(t, fsys) }

// TestTornTail cuts the last segment at every byte, and appends garbage and
// zeros of every small length: recovery drops the torn batch and nothing else,
// whatever the clean-shutdown mark says (KIP-101, KAFKA-21000).
func TestTornTail(t *testing.T) {
	fsys, whole := closedStory(t)
	name := lastSegment(t, fsys)
	data := get(t, fsys, name)
	batchLen := len(spec{base: 39, epoch: 3, size: 60, pid: 7, seq: 39}.build(t))
	check := func(t *testing.T, content []byte, end types.Offset) {
		t.Helper()
		for _, clean := range []bool{true, false} {
			disk := fsys.CrashClone(vfs.CrashConfig{})
			put(t, disk, name, content)
			l, _ := reopened(t, disk, clean, 30)
			want := shortStory(t, int(end), min(end, 40))
			if end == 40 {
				want = whole
			}
			if d := cmp.Diff(want, pictureOf(t, l)); d != "" {
				t.Fatalf("clean %t, %d of %d bytes:\n%s", clean, len(content), len(data), d)
			}
			follow(t, l, spec{base: end, epoch: 3, ts: 1, pid: 7, seq: int32(end)})
			l.CloseUnclean()
		}
	}
	t.Run("cut", func(t *testing.T) {
		for n := len(data) - batchLen; n < len(data); n++ {
			check(t, data[:n], 39)
		}
	})
	t.Run("zeros", func(t *testing.T) {
		for n := range 70 {
			check(t, append(slices.Clone(data), make([]byte, n)...), 40)
		}
		check(t, append(slices.Clone(data), make([]byte, 1<<16)...), 40)
	})
	t.Run("garbage", func(t *testing.T) {
		for n := 1; n < 130; n += 3 {
			tail := make([]byte, n)
			for i := range tail {
				tail[i] = byte(i*7 + 13)
			}
			check(t, append(slices.Clone(data), tail...), 40)
		}
	})
	t.Run("a batch written twice", func(t *testing.T) {
		check(t, append(slices.Clone(data), data[len(data)-batchLen:]...), 40)
	})
	t.Run("a batch of an older epoch", func(t *testing.T) {
		check(t, append(slices.Clone(data), spec{base: 40, epoch: 1}.build(t)...), 40)
	})
}

// TestDamagedFiles is the table of damages to everything but the data: each
// opens to the same log, cleanly or not, or is refused by name.
func TestDamagedFiles(t *testing.T) {
	zero := func(b []byte) []byte { return make([]byte, len(b)) }
	empty := func([]byte) []byte { return nil }
	half := func(b []byte) []byte { return b[:len(b)/2+1] }
	pad := func(b []byte) []byte { return append(slices.Clone(b), make([]byte, 240)...) }
	last := func(change func(e []byte), size int) func([]byte) []byte {
		return func(b []byte) []byte {
			b = slices.Clone(b)
			if len(b) >= size {
				change(b[len(b)-size:])
			}
			return b
		}
	}
	text := func(s string) func([]byte) []byte { return func([]byte) []byte { return []byte(s) } }
	for _, c := range []struct {
		name   string
		suffix string // of the damaged files
		damage func([]byte) []byte
	}{
		{"index empty", indexSuffix, empty}, {"index zeros", indexSuffix, zero}, {"index half", indexSuffix, half}, {"index padded with zeros", indexSuffix, pad},
		{"index position beyond the end", indexSuffix, last(func(e []byte) { binary.BigEndian.PutUint32(e[4:], 1<<30) }, 8)},
		{"index offset beyond the end", indexSuffix, last(func(e []byte) { binary.BigEndian.PutUint32(e, 1<<30) }, 8)},
		{"time index empty", timeSuffix, empty}, {"time index zeros", timeSuffix, zero}, {"time index half", timeSuffix, half}, {"time index padded with zeros", timeSuffix, pad},
		{"time index past a cut", timeSuffix, last(func(e []byte) { binary.BigEndian.PutUint32(e[8:], 5000) }, 12)},
		{"time index too new", timeSuffix, last(func(e []byte) { binary.BigEndian.PutUint64(e, 1<<50) }, 12)},
		{"aborted index half", txnSuffix, half}, {"aborted index zeros", txnSuffix, zero},
		{"snapshot empty", snapshotSuffix, empty}, {"snapshot zeros", snapshotSuffix, zero}, {"snapshot half", snapshotSuffix, half},
		{"epochs empty", epoch.CheckpointFile, empty}, {"epochs zeros", epoch.CheckpointFile, zero}, {"epochs half", epoch.CheckpointFile, half},
		{"epochs wrong count", epoch.CheckpointFile, text("0\n3\n0 0\n1 10\n")}, {"epochs unknown version", epoch.CheckpointFile, text("7\n0\n")},
		{"epochs lost the middle", epoch.CheckpointFile, text("0\n2\n0 0\n3 30\n")}, // KAFKA-7897
		{"epochs lost the beginning", epoch.CheckpointFile, text("0\n2\n2 20\n3 30\n")},
		{"epochs lost the end", epoch.CheckpointFile, text("0\n2\n0 0\n1 10\n")},
		{"epochs start too low", epoch.CheckpointFile, text("0\n4\n0 0\n1 9\n2 20\n3 30\n")},
		{"epochs start too high", epoch.CheckpointFile, text("0\n4\n0 0\n1 11\n2 20\n3 30\n")},
		{"epochs of another log", epoch.CheckpointFile, text("0\n1\n9 0\n")},
		{"epochs beyond the end", epoch.CheckpointFile, text("0\n5\n0 0\n1 10\n2 20\n3 30\n4 55\n")},
		{"epochs claim nothing", epoch.CheckpointFile, text("0\n0\n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys, want := closedStory(t)
			hit := 0
			for _, name := range mustList(t, fsys) {
				if strings.HasSuffix(name, c.suffix) {
					path := join(testDir, name)
					put(t, fsys, path, c.damage(get(t, fsys, path)))
					hit++
				}
			}
			if hit == 0 {
				t.Fatalf("no file ends in %s", c.suffix)
			}
			for _, clean := range []bool{true, false} {
				disk := fsys.CrashClone(vfs.CrashConfig{})
				l, r := reopened(t, disk, clean, 35)
				got := pictureOf(t, l)
				if c.suffix == snapshotSuffix && clean {
					// Without a snapshot the state comes from all batches.
					if r.ProducersReplayed == 0 {
						t.Error("nothing was replayed")
					}
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("clean %t: %+v\n%s", clean, r, d)
				}
				for ts := types.Millis(995); ts < 1045; ts++ {
					wantOffset, ok := max(types.Offset(ts-1000), 0), ts <= 1039
					got, found, err := l.OffsetForTimestamp(ts, 40)
					if err != nil || found != ok || (ok && got.Offset != wantOffset) {
						t.Fatalf("clean %t: timestamp %d gives %+v %t %v", clean, ts, got, found, err)
					}
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if r, err := VerifyDir(disk, testDir); err != nil || len(r.Problems) > 0 {
					t.Fatalf("after open and close: %v %v", err, r.Problems)
				}
			}
		})
	}
}

// TestDamagedData is the table of damages to segments.
func TestDamagedData(t *testing.T) {
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte {
			b = slices.Clone(b)
			b[at] ^= 1
			return b
		}
	}
	for _, c := range []struct {
		name     string
		segment  int // index of the segment
		damage   func([]byte) []byte
		recovery types.Offset
		end      types.Offset
	}{
		{"first byte of records, unsynced", 1, flip(70), 0, 7},
		{"first byte of records, synced: not looked at", 1, flip(70), 40, 40},
		{"length field, unsynced", 2, flip(10), 0, 14},
		{"whole segment empty, unsynced", 2, func([]byte) []byte { return nil }, 0, 14},
		{"segment ends a batch early, unsynced", 2, func(b []byte) []byte {
			it := batch.Iterate(b)
			for it.Next() && it.Header.BaseOffset < 19 {
			}
			return b[:len(b)-len(it.Rest())]
		}, 0, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys, _ := closedStory(t)
			var segs []string
			for _, name := range mustList(t, fsys) {
				if strings.HasSuffix(name, logSuffix) {
					segs = append(segs, join(testDir, name))
				}
			}
			put(t, fsys, segs[c.segment], c.damage(get(t, fsys, segs[c.segment])))
			l, r := reopened(t, fsys, false, c.recovery)
			if got := l.View(); got.LogEnd != c.end || got.HighWatermark != c.end {
				t.Fatalf("%+v %+v", got, r)
			}
			if (c.end < 40) != r.BelowMark || (c.end < 40) != (r.TruncatedBecause != "") {
				t.Fatalf("%+v", r)
			}
			l.CloseUnclean()
		})
	}
}

// TestSyncedDamageIsRefusedByName: a sealed, synced segment whose indexes must
// be rebuilt but whose data is no batch is not cut: the error names the place.
func TestSyncedDamageIsRefusedByName(t *testing.T) {
	fsys, _ := closedStory(t)
	first := join(testDir, FileName(0, logSuffix))
	b := get(t, fsys, first)
	b[16] = 9 // magic
	put(t, fsys, first, b)
	if err := fsys.Remove(join(testDir, FileName(0, indexSuffix))); err != nil {
		t.Fatal(err)
	}
	o := options(fsys)
	o.CleanShutdown, o.RecoveryPoint = true, 40
	_, _, err := Open(o)
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.File != first || corrupt.Pos != 0 {
		t.Fatalf("%v", err)
	}
}

// TestRecoveryPointAboveTheLog is KAFKA-10101: a recovery point or log start
// beyond what the disk holds is no reason to trust or to fail.
func TestRecoveryPointAboveTheLog(t *testing.T) {
	fsys, want := closedStory(t)
	o := options(fsys)
	o.RecoveryPoint, o.HighWatermark = 1000, 1000
	l, r := mustOpen(t, o)
	if v := l.View(); v.LogEnd != 40 || v.RecoveryPoint != 40 || v.HighWatermark != 40 || !r.BelowMark {
		t.Fatalf("%+v %+v", v, r)
	}
	if d := cmp.Diff(want, pictureOf(t, l)); d != "" {
		t.Fatal(d)
	}
	l.CloseUnclean()
	o.LogStart = 50
	l, _ = mustOpen(t, o)
	if v := l.View(); v.LogStart != 50 || v.LogEnd != 50 || v.History.Len() != 0 || len(l.Producers()) != 0 {
		t.Fatalf("%+v, %v", v, l.Producers())
	}
	follow(t, l, spec{base: 50, epoch: 4})
}

// TestSealedAtTheRecoveryPoint: a segment that a flush covered and a roll then
// sealed has unsynced indexes although the recovery point is its end.
func TestSealedAtTheRecoveryPoint(t *testing.T) {
	for seed := range uint64(12) {
		mem := memFS(t)
		l, _ := mustOpen(t, options(mem))
		for i := range types.Offset(6) { // the newest timestamp is not the last
			follow(t, l, spec{base: i, epoch: 1, size: 60, ts: 5000 - types.Millis(i)})
		}
		if err := errors.Join(l.Flush(), l.Roll()); err != nil {
			t.Fatal(err)
		}
		want := pictureOf(t, l)
		o := options(mem.CrashClone(vfs.CrashConfig{Seed: seed, KeepBlock: 0.5, KeepEntry: 1}))
		o.RecoveryPoint = l.RecoveryPoint()
		after, _ := mustOpen(t, o)
		if d := cmp.Diff(want, pictureOf(t, after)); d != "" {
			t.Fatal(d)
		}
		if err := after.Flush(); err != nil {
			t.Fatal(err)
		}
		if r, err := VerifyDir(o.FS, testDir); err != nil || len(r.Problems) > 0 {
			t.Fatal(err, r.Problems)
		}
	}
}

// TestIndexDecoding: entries end where they stop rising or leave the segment.
func TestIndexDecoding(t *testing.T) {
	times := func(relEnd int64, want int, entries ...timeEntry) {
		t.Helper()
		got, whole := decodeTimes(encodeTimes(nil, entries), relEnd)
		if len(got) != want || whole != (want == len(entries)) {
			t.Errorf("%v up to %d: %d entries, whole %t", entries, relEnd, len(got), whole)
		}
	}
	times(100, 0)
	times(100, 2, timeEntry{5, 1}, timeEntry{6, 1})
	times(100, 1, timeEntry{5, 1}, timeEntry{5, 2})
	times(100, 1, timeEntry{5, 1}, timeEntry{4, 2})
	times(100, 1, timeEntry{5, 3}, timeEntry{6, 2})
	times(100, 1, timeEntry{5, 1}, timeEntry{6, 100})
	times(100, 1, timeEntry{5, 1}, timeEntry{})
	offsets := func(size int64, want int, entries ...indexEntry) {
		t.Helper()
		got, whole := decodeIndex(encodeIndex(nil, entries), size)
		if len(got) != want || whole != (want == len(entries)) {
			t.Errorf("%v in %d bytes: %d entries, whole %t", entries, size, len(got), whole)
		}
	}
	offsets(100, 2, indexEntry{1, 10}, indexEntry{2, 20})
	offsets(100, 1, indexEntry{1, 10}, indexEntry{1, 20})
	offsets(100, 1, indexEntry{1, 10}, indexEntry{2, 10})
	offsets(100, 1, indexEntry{1, 10}, indexEntry{2, 100})
	offsets(100, 1, indexEntry{1, 10}, indexEntry{})
	if _, whole := decodeIndex([]byte{0, 0, 0, 1, 0, 0, 0, 9, 0}, 100); whole {
		t.Error("a torn entry is no entry")
	}
}

// TestTopicID: a leftover folder of another topic is never joined (KAFKA-12257).
func TestTopicID(t *testing.T) {
	o := options(memFS(t))
	o.TopicID = types.TopicID{1, 2, 3}
	l, _ := mustOpen(t, o)
	l.CloseUnclean()
	if got, want := string(get(t, o.FS, join(testDir, PartitionMetadataFile))), "version: 0\ntopic_id: AQIDAAAAAAAAAAAAAAAAAA"; got != want {
		t.Fatalf("%q", got)
	}
	l, _ = mustOpen(t, o)
	l.CloseUnclean()
	o.TopicID = types.TopicID{9}
	if _, _, err := Open(o); !errors.Is(err, ErrTopicID) {
		t.Fatalf("%v", err)
	}
}

// FuzzRecovery opens arbitrary bytes as a segment: no panic, and what is left
// is whole, readable, and opens again to the same.
func FuzzRecovery(f *testing.F) {
	f.Add(spec{base: 0, epoch: 1}.build(f), uint16(0))
	two := append(spec{base: 0, epoch: 1, pid: 4, txn: true}.build(f), spec{base: 1, epoch: 2}.build(f)...)
	f.Add(two, uint16(90))
	f.Add(append(two, make([]byte, 100)...), uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		if int(at) < len(b) {
			b[at] ^= 0x80
		}
		fsys := memFS(t)
		if err := fsys.MkdirAll(testDir); err != nil {
			t.Fatal(err)
		}
		put(t, fsys, join(testDir, FileName(0, logSuffix)), b)
		o := options(fsys)
		l, r, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		want := pictureOf(t, l)
		if report, err := VerifyDir(fsys, testDir); err != nil || len(report.Problems) > 0 {
			t.Fatalf("%v %v after %+v", err, report.Problems, r)
		}
		l.CloseUnclean()
		l2, r2, err := Open(o)
		if err != nil || r2.TruncatedBecause != "" {
			t.Fatalf("%v %+v", err, r2)
		}
		if d := cmp.Diff(want, pictureOf(t, l2)); d != "" {
			t.Fatal(d)
		}
		l2.CloseUnclean()
	})
}
