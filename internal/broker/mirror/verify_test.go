package mirror

import (
	"context"
	"strings"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/source"
	"tidemark/internal/vfs"
)

// toldSource is a source that ends at an offset and shows the same bytes at each.
type toldSource struct {
	Source
	end     types.Offset
	shows   []byte
	fetched int
}

func (s *toldSource) Metadata(context.Context, []string) (*source.Metadata, error) {
	return &source.Metadata{Topics: []source.Topic{{Name: "t", Partitions: []source.Partition{{Leader: 1}}}}}, nil
}

func (s *toldSource) ListOffsets(_ context.Context, _ types.BrokerID, q []source.OffsetQuery) (map[types.TopicPartition]source.OffsetAnswer, error) {
	a := source.OffsetAnswer{Offset: s.end}
	if q[0].Timestamp == source.Earliest {
		a.Offset = 0
	}
	return map[types.TopicPartition]source.OffsetAnswer{q[0].TopicPartition: a}, nil
}

func (s *toldSource) FetchAt(context.Context, types.BrokerID, source.FetchPartition) (*source.FetchedPartition, *source.FetchAnswer, error) {
	s.fetched++
	return &source.FetchedPartition{Records: s.shows}, &source.FetchAnswer{}, nil
}

// shownPart is a partition with a log.
type shownPart struct {
	Partition
	log *log.Log
}

func (p shownPart) View() (log.View, bool) { return p.log.View(), true }

func (p shownPart) Log() *log.Log { return p.log }

// logOf is a log in memory that holds batches.
func logOf(t *testing.T, batches ...[]byte) *log.Log {
	t.Helper()
	l, _, err := log.Open(log.Options{FS: vfs.NewMem(), Dir: "t-0", TopicPartition: types.TopicPartition{Topic: "t"}, Config: log.DefaultConfig(), Now: func() types.Millis { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.CloseUnclean)
	for _, b := range batches {
		if _, err := l.AppendAsFollower(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// TestASourceThatLostRecordsIsDifferent: a promoted copy was found equal to an old source
// that lacks the end of what was mirrored: the batches before it are the same.
func TestASourceThatLostRecordsIsDifferent(t *testing.T) {
	raw := made(t, 0, batch.None, 0, 1, record{0, "a"}, record{1, "b"})
	l := logOf(t, raw, made(t, 0, batch.None, 2, 2, record{2, "c"}))
	src := &toldSource{end: 2, shows: raw}
	v := &verification{m: &Mirrors{ctx: t.Context(), proved: map[meta.PartitionID]provedTo{}}, client: src, result: Verify{Equal: true}}
	p := &verified{tp: types.TopicPartition{Topic: "t"}, part: shownPart{log: l}, want: 3}
	if err := v.partition(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if out := v.result.Partitions[0]; v.result.Equal || !strings.Contains(out.Difference, "ends at 2, below the 3") || out.VerifiedTo != 2 || out.Batches != 1 {
		t.Errorf("%+v", v.result)
	}
	src.end = 3
	src.shows = append(raw, made(t, 0, batch.None, 2, 2, record{2, "c"})...)
	out, from := &VerifyPartition{Difference: p.short}, types.Offset(2)
	if err := v.compare(t.Context(), p, out, &from); err != nil || out.Difference != "" || p.short != "" || out.VerifiedTo != 3 {
		t.Errorf("the source has them again: %+v, %q, %v", out, p.short, err)
	}
}

// TestASourceThatShowsNoBatch: one that shows the half of a batch at each offset, or an
// old one, was asked for the same without end.
func TestASourceThatShowsNoBatch(t *testing.T) {
	raw := made(t, 0, batch.None, 0, 0, record{0, "a"})
	for _, shows := range [][]byte{raw[:len(raw)-1], raw, nil} {
		src := &toldSource{end: 9, shows: shows}
		r := &sourceReader{v: &verification{client: src}, p: &verified{}, at: 5}
		if _, err := r.next(t.Context(), 9); err == nil || src.fetched != emptyFetchesMax {
			t.Errorf("asked %d times: %v", src.fetched, err)
		}
	}
}
