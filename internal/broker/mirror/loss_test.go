package mirror

import (
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

func TestLossNow(t *testing.T) {
	f := func(srcEnd, end types.Offset, lagMs int64, copied bool, seenAt types.Millis, want Loss) {
		t.Helper()
		p := PartitionStatus{SrcEnd: srcEnd, SrcEpoch: 4, End: end, LagMs: lagMs}
		want.SrcEnd, want.SrcEpoch, want.SeenAt = srcEnd, 4, seenAt
		if got := lossNow(&p, copied, seenAt, 10_000); *got != want {
			t.Errorf("lossNow(%d, %d) = %+v, want %+v", srcEnd, end, *got, want)
		}
	}
	f(20, 20, 0, true, 9_500, Loss{Ms: 500, Known: true})
	f(20, 15, 2_000, true, 9_500, Loss{Records: 5, Ms: 2_000, Known: true})
	f(20, 15, 0, true, 1_000, Loss{Records: 5, Ms: 9_000, Known: true}) // restarted since: only the record's time is known
	f(15, 20, 0, true, 9_500, Loss{Ms: 500, Known: true})               // the source was cut
	f(20, 0, 0, false, 9_500, Loss{})                                   // looked at, never fetched from
	f(0, 0, 0, false, 9_500, Loss{Ms: 500, Known: true})                // nothing to fetch
	f(-1, 0, 0, true, -1, Loss{})
}

func TestLossOf(t *testing.T) {
	made := &meta.PromotionRecord{LogEnd: 15, SourceEnd: 20, SourceEpoch: 4, SourceSeenAt: 9_000, At: 10_000, MissingMs: 3_000}
	if got := *lossOf(made); got != (Loss{SrcEnd: 20, SrcEpoch: 4, SeenAt: 9_000, Records: 5, Ms: 3_000, Known: true}) {
		t.Errorf("%+v", got)
	}
	made.NeverFetched = true
	if got := *lossOf(made); got.Known || got.Records != 0 {
		t.Errorf("never fetched: %+v", got)
	}
}

func TestSumLoss(t *testing.T) {
	if sumLoss(nil) != nil {
		t.Error("a mirror without partitions has a loss")
	}
	behind := PartitionStatus{Loss: &Loss{Known: true, Records: 3, Ms: 700, SeenAt: 50}}
	whole := PartitionStatus{Loss: &Loss{Known: true, Ms: 10, SeenAt: 90}}
	unknown := PartitionStatus{Loss: &Loss{SeenAt: -1}}
	s := sumLoss([]PartitionStatus{behind, whole, unknown})
	if s.Records != 3 || s.Ms != 700 || s.Behind != 1 || s.Unknown != 1 || s.SeenAt != 50 {
		t.Errorf("%+v", s)
	}
	f := func(list []PartitionStatus, want ...string) {
		t.Helper()
		got := sumLoss(list).Statement
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%q doesn't say %q", got, w)
			}
		}
	}
	f([]PartitionStatus{behind, whole, unknown}, "at most 3 records in 1 of 3 partitions", "700 ms", "Of 1 partitions nothing is known")
	f([]PartitionStatus{whole}, "nothing is missing", "10 ms")
	f([]PartitionStatus{unknown}, "not known")
}
