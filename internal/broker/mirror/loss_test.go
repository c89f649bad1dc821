package mirror

import (
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/replica"
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
	again := PartitionStatus{Loss: whole.Loss.madeAgain()}
	f([]PartitionStatus{again}, "Of 1 partitions the source has deleted the topic and made it again")
	f([]PartitionStatus{again, behind, unknown}, "at most 3 records in 1 of 3", "Of 1 partitions nothing is known", "Of 1 partitions the source has deleted")
	if got := sumLoss([]PartitionStatus{again}).Statement; strings.Contains(got, "nothing is missing") || strings.Contains(got, "nothing was fetched") {
		t.Error(got)
	}
}

// TestLossOfATopicThatWasMadeAgain: what the source's new topic holds isn't here, before
// the failover and after it; "nothing is missing" was said of the old one.
func TestLossOfATopicThatWasMadeAgain(t *testing.T) {
	n := newPaperNode(t, 1)
	n.put(t, meta.KeysOf(paperCluster).Name("t"), meta.NameRecord{ID: paperTopic}.Encode())
	m := &Mirrors{o: Options{Node: nowhere{n}}}
	e, _ := n.Image().PartitionEntry(paperTopic, 0)
	rec := e.Record.Clone()
	rec.Mirror.State, rec.Mirror.SourceEnd, rec.Mirror.SourceSeenAt, rec.Mirror.Copied = meta.MirrorFailed, 0, 50, true
	status := func(rec meta.PartitionRecord) PartitionStatus {
		return m.partitionStatus("t", &meta.Partition{ID: e.ID, Record: &rec})
	}
	if l := status(rec).Loss; l.MadeAgain {
		t.Errorf("of a topic that is the same: %+v", l)
	}
	rec.Mirror.Reason = "TOPIC_ID_MISMATCH: it was deleted and made again"
	if l := status(rec).Loss; !l.MadeAgain || l.Known {
		t.Errorf("before the failover: %+v", l)
	}
	own := core.Own{Log: replica.Log{}}
	done, err := core.Promote(&rec, core.PromoteRequest{TimelineID: "x", Now: 60, Own: &own, TellsMadeAgain: true})
	if err != nil {
		t.Fatal(err)
	}
	if st := status(done.Record); !st.Loss.MadeAgain || st.Loss.Known || st.Reason != "" || lossLine(types.TopicPartition{Topic: "t"}, 0, st.Loss) == "" {
		t.Errorf("after it: %+v, %q", st.Loss, st.Reason)
	}
	// What a later start was refused for says nothing of the promotion before.
	below, err := core.Promote(&rec, core.PromoteRequest{TimelineID: "x", Now: 60, Own: &own})
	if err != nil {
		t.Fatal(err)
	}
	below.Record.Mirror.Reason = rec.Mirror.Reason
	if st := status(below.Record); st.Loss.MadeAgain {
		t.Errorf("of an earlier promotion: %+v", st.Loss)
	}
}

// nowhere is a paper node that holds nothing.
type nowhere struct{ *paperNode }

func (nowhere) Partition(types.TopicID, int32) (Partition, bool) { return nil, false }

func (nowhere) Now() types.Millis { return 100 }
