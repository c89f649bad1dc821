package mirror

import (
	"slices"
	"testing"

	"tidemark/internal/batch"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// record is one record of a made batch.
type record struct {
	offset types.Offset
	value  string
}

// made builds one batch at base that ends at last, whatever records are left in it.
func made(t *testing.T, epoch types.LeaderEpoch, codec batch.Codec, base, last types.Offset, records ...record) []byte {
	t.Helper()
	b := batch.NewBuilder(batch.BuilderOptions{Codec: codec, BaseOffset: base, LeaderEpoch: epoch, LastOffset: &last})
	for _, r := range records {
		b.AppendAt(r.offset, 1000, []byte("k"), []byte(r.value))
	}
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestCompareWith(t *testing.T) {
	own := made(t, 3, batch.None, 10, 11, record{10, "a"}, record{11, "b"})
	h, err := batch.ParseHeader(own)
	if err != nil {
		t.Fatal(err)
	}
	next := made(t, 3, batch.None, 12, 12, record{12, "c"})
	for _, tc := range []struct {
		name      string
		theirs    []byte
		compacted bool
		want      core.ProbeResult
	}{
		{"equal", own, false, core.ProbeSame},
		{"equal, and more behind it", slices.Concat(own, next), false, core.ProbeSame},
		{"equal, the rest cut off", own[:batch.HeaderSize], false, core.ProbeSame},
		{"other content", made(t, 3, batch.None, 10, 11, record{10, "a"}, record{11, "x"}), false, core.ProbeDifferent},
		{"other epoch", made(t, 2, batch.None, 10, 11, record{10, "a"}, record{11, "b"}), false, core.ProbeDifferent},
		{"other length", made(t, 3, batch.None, 10, 11, record{10, "a"}), false, core.ProbeDifferent},
		{"other end", made(t, 3, batch.None, 10, 12, record{10, "a"}, record{11, "b"}), false, core.ProbeDifferent},
		{"other codec", made(t, 3, batch.Gzip, 10, 11, record{10, "a"}, record{11, "b"}), false, core.ProbeDifferent},
		{"nothing there", nil, false, core.ProbeMissing},
		{"only later batches", next, false, core.ProbeMissing},
		{"compacted, equal", own, true, core.ProbeSame},
		{"compacted, one left", made(t, 3, batch.None, 10, 11, record{11, "b"}), true, core.ProbeSame},
		{"compacted, other codec", made(t, 3, batch.Zstd, 10, 11, record{10, "a"}, record{11, "b"}), true, core.ProbeSame},
		{"compacted, other content", made(t, 3, batch.None, 10, 11, record{11, "x"}), true, core.ProbeDifferent},
		{"compacted, none left", next, true, core.ProbeMissing},
	} {
		if got, err := compareWith(own, h, tc.theirs, tc.compacted); err != nil || got != tc.want {
			t.Errorf("%s: got %v, %v, want %v", tc.name, got, err, tc.want)
		}
	}
}

func TestPrefixOf(t *testing.T) {
	whole := slices.Concat(made(t, 1, batch.None, 5, 6, record{5, "x"}, record{6, "y"}), made(t, 2, batch.None, 9, 9, record{9, "z"}))
	if _, err := prefixOf(whole, 3); err == nil {
		t.Errorf("three batches were found in two")
	}
}

func TestLastBatchBelow(t *testing.T) {
	l, _, err := log.Open(log.Options{FS: vfs.NewMem(), Dir: "t-0", TopicPartition: types.TopicPartition{Topic: "t"}, Config: log.DefaultConfig(), Now: func() types.Millis { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.CloseUnclean()
	raw := slices.Concat(
		made(t, 1, batch.None, 0, 2, record{0, "a"}, record{2, "c"}),
		made(t, 1, batch.None, 7, 9, record{7, "d"}, record{9, "f"}), // a gap left by compaction before it
		made(t, 2, batch.None, 10, 10, record{10, "g"}),
	)
	if a, err := l.AppendAsFollower(raw, 5); err != nil || a.StoppedBy != nil {
		t.Fatal(err, a.StoppedBy)
	}
	for _, tc := range []struct {
		below, want types.Offset // want -1: none
	}{{11, 10}, {10, 7}, {9, 0}, {8, 0}, {7, 0}, {5, 0}, {3, 0}, {2, -1}, {0, -1}} {
		_, h, ok, err := lastBatchBelow(l, tc.below)
		if err != nil || ok != (tc.want >= 0) || (ok && h.BaseOffset != tc.want) {
			t.Errorf("below %d: got %d, %v, %v, want %d", tc.below, h.BaseOffset, ok, err, tc.want)
		}
	}
}

func TestDescribeDifference(t *testing.T) {
	a := made(t, 1, batch.None, 5, 5, record{5, "x"})
	for _, tc := range []struct {
		theirs []byte
		want   string
	}{
		{a, ""},
		{nil, "here is a batch at offset 5 that the source doesn't have"},
		{made(t, 1, batch.None, 6, 6, record{6, "x"}), "batch at offset 5: base offset is 5 here and 6 at the source"},
		{made(t, 2, batch.None, 5, 5, record{5, "x"}), "batch at offset 5: leader epoch is 1 here and 2 at the source"},
		{made(t, 1, batch.None, 5, 5, record{5, "xy"}), "batch at offset 5: size is 70 here and 71 at the source"},
	} {
		if got := describeDifference(a, tc.theirs); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
	if got := describeDifference(nil, a); got != "the source has a batch at offset 5 that is not here" {
		t.Errorf("got %q", got)
	}
}

// TestAClosedLogIsNotRead: a node may close a partition between two looks at it.
func TestAClosedLogIsNotRead(t *testing.T) {
	if _, err := readLog(nil, 0, 10, 100); err == nil {
		t.Error("readLog reads no log")
	}
	if _, _, _, err := lastBatchBelow(nil, 10); err == nil {
		t.Error("lastBatchBelow reads no log")
	}
	if base := batchBase(nil)(7); base != 7 {
		t.Errorf("a batch of no log begins at %d", base)
	}
}
