package log

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidemark/internal/batch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
)

// compactNow compacts everything there is, on the caller's goroutine.
func compactNow(l *Log, now types.Millis) (CompactionResult, error) {
	c, err := l.StartCompaction(now, CompactionLimits{})
	if c == nil || err != nil {
		return CompactionResult{}, err
	}
	return l.FinishCompaction(c, c.Run(context.Background()))
}

// keyed is one record as a reader sees it.
type keyed struct {
	offset types.Offset
	epoch  types.LeaderEpoch
	key    string
	value  string
	null   bool
}

// visible reads all data records, without those of aborted transactions.
func visible(t testing.TB, l *Log) []keyed {
	t.Helper()
	v := l.View()
	aborted := l.AbortedTxns(v.LogStart, v.LogEnd)
	open := map[types.ProducerID]bool{}
	var out []keyed
	for it := batch.Iterate(contents(t, l, 1<<20)); it.Next(); {
		h := it.Header
		for len(aborted) > 0 && aborted[0].FirstOffset <= h.LastOffset() {
			open[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		if h.IsControl() {
			if m, err := batch.ParseMarker(it.Raw); err == nil && m.Kind == batch.Abort {
				delete(open, h.ProducerID)
			}
			continue
		}
		if h.IsTransactional() && open[h.ProducerID] {
			continue
		}
		for rec := batch.Records(it.Raw, nil); rec.Next(); {
			r := rec.Record
			out = append(out, keyed{r.Offset, h.PartitionLeaderEpoch, string(r.Key), string(r.Value), r.Value == nil})
		}
	}
	return out
}

// latest keeps each key's newest value; tombstones delete.
func latest(records []keyed) map[string]string {
	out := map[string]string{}
	for _, r := range records {
		if r.null {
			delete(out, r.key)
		} else {
			out[r.key] = r.value
		}
	}
	return out
}

// kv builds a batch of one key per record; a value of "" is a tombstone.
func kv(t testing.TB, base types.Offset, epoch types.LeaderEpoch, ts types.Millis, o batch.BuilderOptions, pairs ...string) []byte {
	t.Helper()
	o.BaseOffset, o.LeaderEpoch = base, epoch
	b := batch.NewBuilder(o)
	for i := 0; i < len(pairs); i += 2 {
		value := []byte(pairs[i+1])
		if pairs[i+1] == "" {
			value = nil
		}
		b.Append(ts, []byte(pairs[i]), value)
	}
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func compactOptions(fsys vfs.FS) Options {
	o := options(fsys)
	o.Config.Compact, o.Config.Delete, o.Config.SegmentBytes = true, false, 600
	o.Config.DeleteRetentionMs, o.Config.MinCleanableDirtyRatio = 1000, 0
	return o
}

func mustFollow(t testing.TB, l *Log, raw []byte) {
	t.Helper()
	if a, err := l.AppendAsFollower(raw, 1<<31-1); err != nil || a.StoppedBy != nil {
		t.Fatalf("%v, %+v", err, a)
	}
}

// TestCompactionKeepsTheLatest is compaction against a map: random keys,
// tombstones, producers and transactions, compactions in between, reopened both
// ways. A reader of committed records sees the same latest values, no record
// moved, and what a retry of a producer would be answered stays.
func TestCompactionKeepsTheLatest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		outer := tbOf{t, rt}
		fsys := memFS(t)
		o := compactOptions(fsys)
		l, _, err := Open(o)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { l.CloseUnclean() }()
		pending := map[types.ProducerID][]types.Offset{} // records of open transactions
		aborted := map[types.Offset]bool{}
		seqs := map[types.ProducerID]int32{}
		byOffset := map[types.Offset]keyed{}
		now := types.Millis(1_000_000)
		var e types.LeaderEpoch
		appendOne := func(rt *rapid.T) {
			end := l.View().LogEnd
			e += types.LeaderEpoch(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(rt, "epoch+"))
			pid := types.ProducerID(rapid.IntRange(0, 3).Draw(rt, "pid"))
			if _, in := pending[pid]; in && rapid.Bool().Draw(rt, "end") {
				kind := rapid.SampledFrom([]batch.MarkerKind{batch.Commit, batch.Abort}).Draw(rt, "kind")
				raw := batch.NewMarker(kind, pid, 0, 1, now)
				batch.Stamp(raw, end, e)
				mustFollow(outer, l, raw)
				for _, o := range pending[pid] {
					aborted[o] = kind == batch.Abort
				}
				delete(pending, pid)
				return
			}
			n := rapid.IntRange(1, 4).Draw(rt, "n")
			bo := batch.BuilderOptions{Codec: rapid.SampledFrom([]batch.Codec{batch.None, batch.None, batch.LZ4}).Draw(rt, "codec")}
			if pid > 0 {
				bo.Producer = &batch.Producer{ID: pid, BaseSequence: seqs[pid]}
				bo.Transactional = pid > 1
				seqs[pid] += int32(n)
			}
			var pairs []string
			for range n {
				k := fmt.Sprintf("k%d", rapid.IntRange(0, 6).Draw(rt, "key"))
				v := fmt.Sprintf("v%d", int(end)+len(pairs)/2)
				if rapid.IntRange(0, 4).Draw(rt, "tombstone") == 0 {
					v = ""
				}
				byOffset[end+types.Offset(len(pairs)/2)] = keyed{end + types.Offset(len(pairs)/2), e, k, v, v == ""}
				pairs = append(pairs, k, v)
				if bo.Transactional {
					pending[pid] = append(pending[pid], end+types.Offset(len(pairs)/2-1))
				}
			}
			mustFollow(outer, l, kv(outer, end, e, now, bo, pairs...))
		}
		reopen := func(rt *rapid.T, clean bool) {
			v := l.View()
			o.CleanShutdown, o.Cleaned = clean, l.Cleaned()
			o.RecoveryPoint, o.HighWatermark, o.LogStart = v.RecoveryPoint, v.HighWatermark, v.LogStart
			if clean {
				if err := l.Close(); err != nil {
					rt.Fatal(err)
				}
			}
			l.CloseUnclean()
			for _, name := range mustList(outer, fsys) { // producers must be there without snapshots, too
				if _, suffix, ok := parseFileName(name); ok && suffix == snapshotSuffix && !clean {
					if err := fsys.Remove(join(testDir, name)); err != nil {
						rt.Fatal(err)
					}
				}
			}
			if l, _, err = Open(o); err != nil {
				rt.Fatal(err)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"append":  appendOne,
			"append2": appendOne,
			"roll":    func(rt *rapid.T) { _ = l.Roll() },
			"time":    func(rt *rapid.T) { now += types.Millis(rapid.IntRange(1, 700).Draw(rt, "ms")) },
			"compact": func(rt *rapid.T) {
				l.SetHighWatermark(l.View().LogEnd)
				before := l.Producers()
				if _, err := compactNow(l, now); err != nil {
					rt.Fatal(err)
				}
				if !slices.Equal(before, l.Producers()) {
					rt.Fatal("producers changed")
				}
			},
			"reopen clean":   func(rt *rapid.T) { reopen(rt, true) },
			"reopen unclean": func(rt *rapid.T) { reopen(rt, false) },
			"": func(rt *rapid.T) {
				records := visible(outer, l)
				for _, r := range records {
					if byOffset[r.offset] != r {
						rt.Fatalf("offset %d holds %+v, was written as %+v", r.offset, r, byOffset[r.offset])
					}
				}
				for pid, seq := range seqs {
					if seq == 0 {
						continue
					}
					i := slices.IndexFunc(l.Producers(), func(p txn.Producer) bool { return p.ID == pid })
					if i < 0 || l.Producers()[i].LastSequence != seq-1 {
						rt.Fatalf("producer %d wrote up to %d, the log knows %+v", pid, seq-1, l.Producers())
					}
				}
				if len(pending) > 0 {
					return // what is open is read, too; compare when all have ended
				}
				var committed []keyed
				for _, o := range slices.Sorted(maps.Keys(byOffset)) {
					if !aborted[o] {
						committed = append(committed, byOffset[o])
					}
				}
				if got, want := latest(records), latest(committed); !maps.Equal(got, want) {
					rt.Fatalf("latest values %v, want %v", got, want)
				}
				if r, err := VerifyDir(fsys, testDir); err != nil || len(r.Problems) > 0 {
					rt.Fatalf("verify: %v %v", err, r.Problems)
				}
			},
		})
	})
}

func mustList(t testing.TB, fsys vfs.FS) []string {
	t.Helper()
	names, err := fsys.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestTombstoneLifetime: a tombstone gets its delete horizon at the first
// compaction, stays until then, and goes at the first one after (KIP-534).
func TestTombstoneLifetime(t *testing.T) {
	l, _ := mustOpen(t, compactOptions(memFS(t)))
	mustFollow(t, l, kv(t, 0, 0, 5, batch.BuilderOptions{}, "a", "1", "b", "1"))
	mustFollow(t, l, kv(t, 2, 0, 5, batch.BuilderOptions{}, "a", ""))
	more := func() { // something dirty
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
		end := l.View().LogEnd
		mustFollow(t, l, kv(t, end, 0, 5, batch.BuilderOptions{}, "c", fmt.Sprint(end)))
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
		l.SetHighWatermark(l.View().LogEnd)
	}
	compactAt := func(now types.Millis, wantTombstone bool) {
		t.Helper()
		more()
		if _, err := compactNow(l, now); err != nil {
			t.Fatal(err)
		}
		has := slices.ContainsFunc(visible(t, l), func(r keyed) bool { return r.key == "a" && r.null })
		if has != wantTombstone {
			t.Fatalf("at %d: tombstone there: %t, want %t", now, has, wantTombstone)
		}
		if slices.ContainsFunc(visible(t, l), func(r keyed) bool { return r.key == "a" && !r.null }) {
			t.Fatal("the deleted value is back")
		}
	}
	compactAt(10_000, true)
	compactAt(10_999, true)
	compactAt(11_000, false)
	if got := latest(visible(t, l)); got["b"] != "1" || len(got) != 2 {
		t.Errorf("left: %v", got)
	}
}

// TestMinCompactionLag: records younger than the lag are not compacted, nor is
// anything behind them.
func TestMinCompactionLag(t *testing.T) {
	o := compactOptions(memFS(t))
	o.Config.MinCompactionLagMs = 100
	l, _ := mustOpen(t, o)
	for i := range 4 {
		mustFollow(t, l, kv(t, types.Offset(i), 0, types.Millis(1000+i*50), batch.BuilderOptions{}, "k", fmt.Sprint(i)))
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	l.SetHighWatermark(4)
	if c := l.Cleanable(1160); c.End != 2 || !c.Due {
		t.Errorf("cleanable at 1160: %+v", c)
	}
	l.SetHighWatermark(1)
	if c := l.Cleanable(9999); c.End != 1 {
		t.Errorf("above the high watermark: %+v", c)
	}
}

// fillForCompaction makes a log with several sealed segments worth compacting.
func fillForCompaction(t testing.TB, l *Log) {
	t.Helper()
	for i := range types.Offset(24) {
		mustFollow(t, l, kv(t, i*3, types.LeaderEpoch(i/8), 5, batch.BuilderOptions{}, "x", fmt.Sprint(i), fmt.Sprintf("k%d", i%5), fmt.Sprint(i), "y", ""))
	}
	raw := batch.NewMarker(batch.Abort, 9, 0, 1, 5)
	mustFollow(t, l, append(kv(t, 72, 3, 5, batch.BuilderOptions{Transactional: true, Producer: &batch.Producer{ID: 9}}, "x", "aborted"), stamped(raw, 73, 3)...))
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	l.SetHighWatermark(l.View().LogEnd)
}

func stamped(raw []byte, o types.Offset, e types.LeaderEpoch) []byte {
	batch.Stamp(raw, o, e)
	return raw
}

// TestCompactionSurvivesFaults fails the n-th I/O operation of a compaction,
// then loses power: what an open finds holds the same latest values.
func TestCompactionSurvivesFaults(t *testing.T) {
	for n := 0; ; n++ {
		mem := memFS(t)
		ffs := faultfs.New(mem)
		o := compactOptions(ffs)
		l, _ := mustOpen(t, o)
		fillForCompaction(t, l)
		want := latest(visible(t, l))
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		rule := ffs.Inject(faultfs.Rule{Kinds: faultfs.Mutating, Skip: n, Times: 1})
		_, err := compactNow(l, 10_000)
		if err != nil && !errors.Is(err, ErrOffline) {
			t.Fatalf("op %d: %v", n, err)
		}
		rule.Remove()
		v := l.View()
		for seed := range uint64(8) {
			disk := mem.CrashClone(vfs.CrashConfig{Seed: seed, KeepBlock: float64(seed) / 7, KeepEntry: float64(seed) / 7})
			again := compactOptions(disk)
			again.RecoveryPoint, again.HighWatermark = v.RecoveryPoint, v.HighWatermark
			l2, r, err := Open(again)
			if err != nil {
				t.Fatalf("op %d seed %d: %v", n, seed, err)
			}
			if r, err := VerifyDir(disk, testDir); err != nil || len(r.Problems) > 0 {
				t.Fatalf("op %d seed %d: %v %v", n, seed, err, r.Problems)
			}
			if got := latest(visible(t, l2)); !maps.Equal(got, want) || r.TruncatedBecause != "" || l2.View().LogEnd != v.LogEnd {
				t.Fatalf("op %d seed %d: latest %v, want %v; %+v", n, seed, got, want, r)
			}
			l2.CloseUnclean()
		}
		if rule.Fired() == 0 {
			t.Logf("%d operations", n)
			return
		}
	}
}

// TestCompactionOvertaken: a cut or retention during a compaction wins
// (KAFKA-3330), and the next one begins anew.
func TestCompactionOvertaken(t *testing.T) {
	l, _ := mustOpen(t, compactOptions(memFS(t)))
	fillForCompaction(t, l)
	c, err := l.StartCompaction(10_000, CompactionLimits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Cut(40, CutReason{Cause: CauseDivergence}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.FinishCompaction(c, c.Run(context.Background())); !errors.Is(err, ErrCompactionOvertaken) {
		t.Fatalf("a compaction of cut segments gave %v", err)
	}
	if l.Cleaned() > 39 {
		t.Fatalf("cleaner position %d is above the cut", l.Cleaned())
	}
	if _, err := compactNow(l, 10_000); err != nil {
		t.Fatal(err)
	}
	if l.View().Offline != nil {
		t.Fatal(l.View().Offline)
	}
}

// TestCutPullsTheCleanerBack: what is written again after a cut is dirty again (KAFKA-3330).
func TestCutPullsTheCleanerBack(t *testing.T) {
	l, _ := mustOpen(t, compactOptions(memFS(t)))
	fillForCompaction(t, l)
	if _, err := compactNow(l, 10_000); err != nil {
		t.Fatal(err)
	}
	if l.Cleaned() < 60 {
		t.Fatalf("cleaned to %d", l.Cleaned())
	}
	if _, err := l.Cut(50, CutReason{Cause: CauseDivergence}); err != nil {
		t.Fatal(err)
	}
	if end := l.View().LogEnd; l.Cleaned() > end {
		t.Fatalf("cleaned to %d, the log ends at %d", l.Cleaned(), end)
	}
	end := l.View().LogEnd
	for i := range types.Offset(40) {
		mustFollow(t, l, kv(t, end+i, 9, 5, batch.BuilderOptions{}, "x", fmt.Sprint("again", i)))
	}
	l.SetHighWatermark(l.View().LogEnd)
	if _, err := compactNow(l, 10_000); err != nil {
		t.Fatal(err)
	}
	if got := latest(visible(t, l)); got["x"] != "again39" {
		t.Fatalf("x is %q", got["x"])
	}
}

// TestLastBatchOfAProducerStays: emptied, with its sequence and its time, so
// that a replay still knows the producer, and when it expires (KAFKA-5490).
func TestLastBatchOfAProducerStays(t *testing.T) {
	l, _ := mustOpen(t, compactOptions(memFS(t)))
	mustFollow(t, l, kv(t, 0, 0, 777, batch.BuilderOptions{Producer: &batch.Producer{ID: 5, Epoch: 2, BaseSequence: 40}}, "a", "1", "b", "1"))
	mustFollow(t, l, kv(t, 2, 0, 900, batch.BuilderOptions{}, "a", "2", "b", "2"))
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	l.SetHighWatermark(4)
	if _, err := compactNow(l, 10_000); err != nil {
		t.Fatal(err)
	}
	h, err := batch.ParseHeader(contents(t, l, 1<<20))
	if err != nil || h.RecordsCount != 0 || h.BaseOffset != 0 || h.LastOffset() != 1 || h.LastSequence() != 41 || h.ProducerEpoch != 2 || h.MaxTimestamp != 777 {
		t.Fatalf("%+v %v", h, err)
	}
}

// TestReplacedSegmentIsNoticed: whoever found a segment before the swap must
// not take what its names mean after it.
func TestReplacedSegmentIsNoticed(t *testing.T) {
	l, _ := mustOpen(t, compactOptions(memFS(t)))
	fillForCompaction(t, l)
	p, _, err := l.pinFor(0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.seg.release()
	if _, err := compactNow(l, 10_000); err != nil {
		t.Fatal(err)
	}
	if err := l.settled(&p, nil); !errors.Is(err, errRetired) {
		t.Fatalf("%v", err)
	}
}

// TestCompactedGapsAreVouchedFor: power fails right after a compaction whose
// log had no recovery point on disk before: recovery must not take the gaps that
// compaction made for lost records.
func TestCompactedGapsAreVouchedFor(t *testing.T) {
	mem := memFS(t)
	l, _ := openWithCheckpoints(t, mem, nil)
	c := l.Config()
	c.Compact, c.Delete, c.MinCleanableDirtyRatio = true, false, 0
	l.UpdateConfig(c)
	fillForCompaction(t, l)
	want := latest(visible(t, l))
	if r, err := compactNow(l, 10_000); err != nil || r.RecordsKept == r.RecordsBefore {
		t.Fatalf("%+v %v", r, err)
	}
	after, dir := openWithCheckpoints(t, mem.CrashClone(vfs.CrashConfig{}), nil)
	if got := latest(visible(t, after)); !maps.Equal(got, want) || after.View().LogEnd != l.View().LogEnd {
		t.Fatalf("latest %v, want %v; log end %d of %d, recovery point was %d", got, want, after.View().LogEnd, l.View().LogEnd, dir.Get(testPartition).RecoveryPoint)
	}
	if after.Cleaned() != l.Cleaned() || l.Cleaned() == 0 {
		t.Fatalf("compacted up to %d, and the disk says %d: a cut below wouldn't be seen as one (ADR 27)", l.Cleaned(), after.Cleaned())
	}
}

// TestCutBelowCompaction: what a log takes in place of what a cut removed counts as not
// compacted, also after it is opened again.
func TestCutBelowCompaction(t *testing.T) {
	for name, cut := range map[string]types.Offset{"within": 3, "everything": 0} {
		fs := memFS(t)
		l, _ := mustOpen(t, compactOptions(fs))
		fillForCompaction(t, l)
		if _, err := compactNow(l, 1_000_000); err != nil {
			t.Fatal(err)
		}
		if l.Cleaned() <= 3 {
			t.Fatalf("%s: compaction stopped at %d already", name, l.Cleaned())
		}
		if _, err := l.Cut(cut, CutReason{Cause: CauseDivergence}); err != nil {
			t.Fatal(err)
		}
		if end := l.View().LogEnd; l.Cleaned() > end {
			t.Errorf("%s: the log ends at %d, and is compacted to %d", name, end, l.Cleaned())
		}
	}
}

// TestAbortedBelowTheDirtyRange: of a producer whose aborted transaction has ended below
// what is dirty, later transactions count. They didn't, so that the value of a deleted
// key stayed, and came back once its tombstone's time was over.
func TestAbortedBelowTheDirtyRange(t *testing.T) {
	l, _ := mustOpen(t, compactOptions(memFS(t)))
	sequence := int32(0)
	follow := func(pid types.ProducerID, pairs ...string) {
		o := batch.BuilderOptions{}
		if pid >= 0 {
			o.Producer, o.Transactional = &batch.Producer{ID: pid, BaseSequence: sequence}, true
			sequence++
		}
		mustFollow(t, l, kv(t, l.View().LogEnd, 0, 5, o, pairs...))
	}
	marker := func(kind batch.MarkerKind) {
		mustFollow(t, l, stamped(batch.NewMarker(kind, 3, 0, 1, 5), l.View().LogEnd, 0))
	}
	compact := func(now types.Millis) {
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
		l.SetHighWatermark(l.View().LogEnd)
		if _, err := compactNow(l, now); err != nil {
			t.Fatal(err)
		}
	}
	follow(3, "a", "aborted")
	marker(batch.Abort)
	compact(1_000_000)
	follow(-1, "k", "deleted below")
	follow(3, "k", "")
	marker(batch.Commit)
	compact(1_000_001)
	follow(-1, "x", "y")
	compact(1_002_000) // the tombstone's time is over
	if got := latest(visible(t, l)); len(got) != 1 || got["x"] != "y" {
		t.Errorf("latest values %v, want x alone", got)
	}
}

// TestCutBelowCompactionSurvivesCrashes loses the power at every operation of a cut that
// takes a compacted log whole. An open in the middle of it finds a log that ends lower,
// and lacks records below that compaction had dropped for what the cut took: its mark of
// compaction says so, above its end, until the log begins anew (ADR 27).
func TestCutBelowCompactionSurvivesCrashes(t *testing.T) {
	for name, fill := range map[string]func(testing.TB, *Log){"keys": fillForCompaction, "a transaction's end": fillAcross} {
		t.Run(name, func(t *testing.T) { cutsBelowCompaction(t, fill) })
	}
}

func cutsBelowCompaction(t *testing.T, fill func(testing.TB, *Log)) {
	t.Helper()
	between := 0
	var cleaned, end types.Offset
	atEveryCrash(t, func(fsys vfs.FS) *Log {
		l, dir := openWithCheckpoints(t, fsys, &memoKeeper{})
		c := l.Config()
		c.Compact, c.Delete, c.MinCleanableDirtyRatio, c.SegmentBytes = true, false, 0, 300
		l.UpdateConfig(c)
		fill(t, l)
		if _, err := compactNow(l, 10_000); err != nil {
			t.Fatal(err)
		}
		if err := dir.Write(); err != nil {
			t.Fatal(err)
		}
		cleaned, end = l.Cleaned(), l.View().LogEnd
		return l
	}, func(l *Log) error {
		_, err := l.Cut(0, CutReason{Cause: CauseDivergence})
		return err
	}, func(disk vfs.FS, where string) {
		again, _ := openWithCheckpoints(t, disk, &memoKeeper{})
		v := again.View()
		switch {
		case v.LogEnd == end && again.Cleaned() == cleaned, v.LogEnd == v.LogStart:
		case again.Cleaned() <= v.LogEnd:
			t.Fatalf("%s: the log ends at %d of %d, and is compacted to %d of %d", where, v.LogEnd, end, again.Cleaned(), cleaned)
		default:
			between++
		}
		if _, err := again.Restart(0, CutReason{Cause: CauseRestart}); err != nil || again.Cleaned() > 0 {
			t.Fatalf("%s: begun anew it is compacted to %d: %v", where, again.Cleaned(), err)
		}
		again.CloseUnclean()
	})
	if between == 0 {
		t.Error("no crash came in the middle")
	}
}

// fillAcross writes a transaction whose records lie in a sealed segment, and its marker,
// of several segments, in the last.
func fillAcross(t testing.TB, l *Log) {
	t.Helper()
	fillEnding(t, l, batch.Commit, true)
}

// fillEnding writes a value and, in a transaction, another one for the same key; isLater: the
// marker comes after the end of their segment.
func fillEnding(t testing.TB, l *Log, kind batch.MarkerKind, isLater bool) {
	t.Helper()
	roll := func() {
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	plain := func(key, value string) {
		mustFollow(t, l, kv(t, l.View().LogEnd, 0, 5, batch.BuilderOptions{}, key, value))
	}
	plain("k", "old")
	mustFollow(t, l, kv(t, 1, 0, 5, batch.BuilderOptions{Producer: &batch.Producer{ID: 3}, Transactional: true}, "k", "new"))
	if isLater {
		roll()
		plain("open", "1")
	}
	mustFollow(t, l, stamped(batch.NewMarker(kind, 3, 0, 1, 5), l.View().LogEnd, 0))
	if !isLater {
		roll()
	}
	plain("z", "1")
	l.SetHighWatermark(l.View().LogEnd)
}

// TestCompactionGoesByLaterMarkers: what is left of a transaction's records is decided by its
// marker, which may lie above all that is compacted. A cut that takes it is a cut below
// compaction (ADR 27), also after the log was opened again; one above it isn't.
func TestCompactionGoesByLaterMarkers(t *testing.T) {
	f := func(kind batch.MarkerKind, isLater bool, upTo, reached types.Offset) {
		t.Helper()
		mem := memFS(t)
		l, _ := openWithCheckpoints(t, mem, nil)
		c := l.Config()
		c.Compact, c.Delete, c.MinCleanableDirtyRatio = true, false, 0
		l.UpdateConfig(c)
		fillEnding(t, l, kind, isLater)
		r, err := compactNow(l, 10_000)
		if err != nil || r.To != upTo || r.RecordsKept == r.RecordsBefore {
			t.Fatalf("%v, later %t: %+v %v", kind, isLater, r, err)
		}
		after, _ := openWithCheckpoints(t, mem.CrashClone(vfs.CrashConfig{}), nil)
		if l.Cleaned() != reached || after.Cleaned() != reached {
			t.Errorf("%v, later %t: a cut below %d is one below compaction, on the disk below %d; want %d", kind, isLater, l.Cleaned(), after.Cleaned(), reached)
		}
		// The next compaction goes on where this one stopped all the same.
		if d := after.Cleanable(10_000); d.FirstDirty != upTo {
			t.Errorf("%v, later %t: the next compaction begins at %d, not %d", kind, isLater, d.FirstDirty, upTo)
		}
		if _, err := after.Cut(upTo, CutReason{Cause: CauseDivergence}); err != nil || after.Cleaned() != upTo {
			t.Errorf("%v, later %t: after a cut it has reached %d: %v", kind, isLater, after.Cleaned(), err)
		}
	}
	f(batch.Commit, true, 2, 5)
	f(batch.Abort, true, 2, 5)
	f(batch.Commit, false, 3, 3)
	f(batch.Abort, false, 3, 3)
}
