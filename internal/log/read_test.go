package log

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// batchAtModel is what Read must begin with.
func bounds(t testing.TB, all []byte) (bases, nexts []types.Offset, sizes []int) {
	t.Helper()
	for it := batch.Iterate(all); it.Next(); {
		bases, nexts, sizes = append(bases, it.Header.BaseOffset), append(nexts, it.Header.NextOffset()), append(sizes, len(it.Raw))
	}
	return bases, nexts, sizes
}

// TestReadLimits compares Read with a scan, for every offset, upper bound and a
// few sizes: whole batches from the one that holds the offset, none that
// reaches to the bound, as many as fit, one at least if asked.
func TestReadLimits(t *testing.T) {
	l, _ := mustOpen(t, options(memFS(t)))
	rng := rand.New(rand.NewPCG(1, 2))
	for at := types.Offset(0); at < 60; {
		n := 1 + rng.IntN(4)
		follow(t, l, spec{base: at, n: n, epoch: 1, size: rng.IntN(90)})
		at += types.Offset(n + rng.IntN(2))
	}
	bases, nexts, sizes := bounds(t, contents(t, l, 1<<20))
	end := l.View().LogEnd
	for from := types.Offset(0); from <= end; from++ {
		for to := from; to <= end; to += 3 {
			for _, max := range []int{0, 100, 700, 1 << 20} {
				for _, minOne := range []bool{false, true} {
					c, err := l.Read(from, ReadLimit{To: to, MaxBytes: max, MinOne: minOne})
					if err != nil {
						t.Fatal(err)
					}
					b, err := c.ReadInto(nil)
					if err != nil {
						t.Fatal(err)
					}
					c.Release()
					checkRead(t, l, b, from, to, max, minOne, bases, nexts, sizes)
				}
			}
		}
	}
	for _, o := range []types.Offset{-1, end + 1} {
		if _, err := l.Read(o, ReadLimit{To: end, MaxBytes: 1}); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("read at %d: %v", o, err)
		}
	}
}

func checkRead(t *testing.T, l *Log, b []byte, from, to types.Offset, max int, minOne bool, bases, nexts []types.Offset, sizes []int) {
	t.Helper()
	got, _, _ := bounds(t, b)
	i := 0
	for i < len(bases) && nexts[i] <= from {
		i++
	}
	if i == len(bases) || nexts[i] > to || (sizes[i] > max && !minOne) {
		if len(got) != 0 {
			t.Fatalf("read %d to %d, %d bytes, min one %t: got batches at %v, want none", from, to, max, minOne, got)
		}
		return
	}
	if len(got) == 0 || got[0] != bases[i] {
		t.Fatalf("read %d to %d, %d bytes, min one %t: got batches at %v, want the one at %d first", from, to, max, minOne, got, bases[i])
	}
	total := 0
	for k, base := range got {
		total += sizes[i+k]
		if base != bases[i+k] || nexts[i+k] > to || (k > 0 && total > max) {
			t.Fatalf("read %d to %d, %d bytes: batch %d of it is at %d, expected %d", from, to, max, k, base, bases[i+k])
		}
	}
	// The next one must not have fitted, or lie in another segment: a chunk spans one.
	k := i + len(got)
	if k < len(bases) && nexts[k] <= to && total+sizes[k] <= max && l.segmentAt(bases[k]) == l.segmentAt(bases[k-1]) {
		t.Fatalf("read %d to %d, %d bytes: stopped before the batch at %d, which fits", from, to, max, bases[k])
	}
}

// TestReadersDuringCuts is KAFKA-9838: readers at the high watermark and the
// log end never see an error, whole batches only, while the log is appended to,
// cut, rolled, compacted in its head by retention, and flushed.
func TestReadersDuringCuts(t *testing.T) {
	l, _ := mustOpen(t, options(memFS(t)))
	story(t, l)
	l.SetHighWatermark(30)
	var stop atomic.Bool
	var readers sync.WaitGroup
	for k := range 4 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for n := 0; !stop.Load(); n++ {
				if err := readSomewhere(l, k, n); err != nil {
					t.Errorf("reader %d: %v", k, err)
					return
				}
			}
		}()
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		v := l.View()
		var err error
		switch rng.IntN(6) {
		case 0:
			at := v.HighWatermark + types.Offset(rng.IntN(int(v.LogEnd-v.HighWatermark)+1))
			if h, ok, _ := l.batchAt(at); ok && h.BaseOffset < v.HighWatermark {
				continue // the whole batch would go, and the high watermark fall
			}
			_, err = l.Cut(at, CutReason{Cause: CauseDivergence})
		case 1:
			err = l.Flush()
		case 2:
			l.SetHighWatermark(max(v.HighWatermark, v.LogEnd-types.Offset(rng.IntN(5))))
		case 3:
			if _, err = l.RaiseLogStart(max(v.HighWatermark-40, v.LogStart), true, CutReason{}); err == nil {
				_, err = l.EnforceRetention(1)
			}
		default:
			end := l.View().LogEnd
			follow(t, l, spec{base: end, n: 2, epoch: 5, size: rng.IntN(150), ts: types.Millis(end) + 1}, spec{base: end + 2, epoch: 5, ts: types.Millis(end) + 2})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	readers.Wait()
}

func readSomewhere(l *Log, k, n int) error {
	v := l.View()
	switch k {
	case 0, 1: // at the high watermark, which no cut here goes below
		c, err := l.Read(v.HighWatermark, ReadLimit{To: l.View().HighWatermark, MaxBytes: 300, MinOne: true})
		if err != nil && !(errors.Is(err, ErrOutOfRange) && l.View().LogStart > v.HighWatermark) {
			return err
		}
		defer c.Release()
		b, err := c.ReadInto(nil)
		if err != nil {
			return err
		}
		for it := batch.Iterate(b); ; {
			if !it.Next() {
				return it.Err()
			}
			if err := batch.VerifyCRC(it.Raw); err != nil {
				return err
			}
		}
	case 2:
		if _, _, err := l.OffsetForTimestamp(types.Millis(n%400), v.HighWatermark); err != nil {
			return err
		}
		_, _, err := l.MaxTimestamp()
		return err
	default:
		l.AbortedTxns(v.LogStart, v.LogEnd)
		l.Producers()
		if v.LogStart > v.LastStable || v.LastStable > v.HighWatermark || v.HighWatermark > v.LogEnd {
			return errors.New("marks out of order")
		}
		return nil
	}
}

// TestChunkOutlivesItsSegment: bytes of a chunk stay readable until Release,
// whatever became of the segment's file name.
func TestChunkOutlivesItsSegment(t *testing.T) {
	l, _ := mustOpen(t, options(memFS(t)))
	story(t, l)
	l.SetHighWatermark(40)
	c, err := l.Read(0, ReadLimit{To: 40, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	want, err := c.ReadInto(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.RaiseLogStart(40, true, CutReason{}); err != nil {
		t.Fatal(err)
	}
	if r, err := l.EnforceRetention(1); err != nil || r.Segments != 5 { // the active one stays
		t.Fatalf("%+v %v", r, err)
	}
	got, err := c.ReadInto(nil)
	if err != nil || string(got) != string(want) {
		t.Fatalf("%v, %d bytes", err, len(got))
	}
	c.Release()
	if _, err := c.ReadInto(nil); err != nil && c.Bytes != len(want) {
		t.Fatal("Release changed the size")
	}
}

// TestTimesAgainstScan compares time look-ups with a scan, over records whose
// times go back and forth, within batches too.
func TestTimesAgainstScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	fsys := memFS(t)
	l, _ := mustOpen(t, options(fsys))
	type rec struct {
		o  types.Offset
		ts types.Millis
	}
	var recs []rec
	for len(recs) < 200 {
		b := batch.NewBuilder(batch.BuilderOptions{BaseOffset: types.Offset(len(recs)), LeaderEpoch: 1, Codec: batch.Codec(rng.IntN(5))})
		for range 1 + rng.IntN(4) {
			ts := types.Millis(1000 + len(recs)*2 + rng.IntN(60))
			recs = append(recs, rec{types.Offset(len(recs)), ts})
			b.Append(ts, nil, make([]byte, rng.IntN(100)))
		}
		raw, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		mustFollow(t, l, raw)
	}
	check := func(l *Log, start, to types.Offset) {
		t.Helper()
		newest := rec{-1, -1}
		for _, r := range recs {
			if r.o >= start && r.ts > newest.ts {
				newest = r
			}
		}
		if got, ok, err := l.MaxTimestamp(); err != nil || !ok || got.Offset != newest.o || got.Timestamp != newest.ts {
			t.Fatalf("newest: %+v %t %v, want %+v", got, ok, err, newest)
		}
		for ts := types.Millis(990); ts < 1500; ts++ {
			want, found := rec{}, false
			for _, r := range recs {
				if r.ts >= ts && r.o >= start && r.o < to {
					want, found = r, true
					break
				}
			}
			got, ok, err := l.OffsetForTimestamp(ts, to)
			if err != nil || ok != found || (ok && (got.Offset != want.o || got.Timestamp != want.ts || got.Epoch != 1)) {
				t.Fatalf("time %d in [%d, %d): %+v %t %v, want %+v %t", ts, start, to, got, ok, err, want, found)
			}
		}
	}
	end := l.View().LogEnd
	check(l, 0, end)
	check(l, 0, 50)
	if _, err := l.RaiseLogStart(61, true, CutReason{}); err != nil {
		t.Fatal(err)
	}
	check(l, 61, end)
	if _, err := l.Cut(150, CutReason{}); err != nil {
		t.Fatal(err)
	}
	recs = recs[:l.View().LogEnd]
	check(l, 61, l.View().LogEnd)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	o := options(fsys)
	o.CleanShutdown, o.LogStart, o.RecoveryPoint = true, 61, l.View().RecoveryPoint
	l, _ = mustOpen(t, o)
	check(l, 61, l.View().LogEnd)
}
