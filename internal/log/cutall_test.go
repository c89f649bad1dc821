package log

import (
	"bytes"
	"errors"
	"testing"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// TestCutThatLeavesNothing: a cut that leaves no record begins the log anew, at its
// log start (R1). Deleted records below it are gone from the disk: if the log start's
// checkpoint is lost with the power, an open neither brings them back nor takes them for
// what comes before records of an older epoch.
func TestCutThatLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		name    string
		batches []spec
		deleted types.Offset // the log start
		high    types.Offset
		at      types.Offset // of the cut
		want    types.Offset // where the log is empty then
	}{
		{name: "at the log start", batches: []spec{{base: 0, n: 5, epoch: 3}, {base: 5, epoch: 3}, {base: 6, epoch: 4, size: 900}}, deleted: 5, high: 7, at: 5, want: 5},
		{name: "at a log start within a batch", batches: []spec{{base: 0, n: 5, epoch: 3}, {base: 5, n: 4, epoch: 3}, {base: 9, epoch: 4, size: 900}}, deleted: 7, high: 10, at: 7, want: 7},
		{name: "within the batch that holds the log start", batches: []spec{{base: 0, n: 5, epoch: 3}, {base: 5, n: 4, epoch: 3}}, deleted: 6, high: 9, at: 8, want: 6},
		{name: "in a gap behind the log start", batches: []spec{{base: 0, n: 5, epoch: 3}, {base: 9, epoch: 4}}, deleted: 5, high: 10, at: 7, want: 7},
		{name: "in such a gap, above the high watermark", batches: []spec{{base: 0, n: 5, epoch: 3}, {base: 9, epoch: 4}}, deleted: 5, high: 5, at: 7, want: 5},
		{name: "of a log that begins at 0", batches: []spec{{base: 0, n: 5, epoch: 3}, {base: 5, epoch: 4, size: 900}}, high: 6, at: 0, want: 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			keeper := &memoKeeper{}
			o := options(memFS(t))
			o.Keeper = keeper
			l, _ := mustOpen(t, o)
			follow(t, l, c.batches...)
			l.SetHighWatermark(c.high)
			if _, err := l.DeleteRecords(c.deleted); err != nil {
				t.Fatal(err)
			}
			held := contents(t, l, 1<<20)
			before := l.View()
			r, err := l.Cut(c.at, CutReason{Cause: CauseDivergence})
			if err != nil {
				t.Fatal(err)
			}
			v := l.View()
			if v.LogStart != c.want || v.LogEnd != c.want || v.HighWatermark != c.want || v.Size != 0 || v.History.Len() != 0 || v.HasLastEpoch {
				t.Fatalf("%+v, expected an empty log at %d", v, c.want)
			}
			if v.HighWatermark > before.HighWatermark || r.LogEnd != c.want || r.HighWatermark != c.want || r.To != before.LogEnd || r.Bytes != int64(len(held)) {
				t.Errorf("%+v, before %+v", r, before)
			}
			if !bytes.Equal(keeper.bytes, held) {
				t.Errorf("%d bytes were kept, %d could be read", len(keeper.bytes), len(held))
			}
			follow(t, l, spec{base: c.want, epoch: 2}, spec{base: c.want + 1, epoch: 5, size: 900})
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			l.CloseUnclean()

			o.LogStart, o.RecoveryPoint = 0, c.want
			l, rec := mustOpen(t, o)
			if v := l.View(); v.LogStart != c.want || v.LogEnd != c.want+2 {
				t.Errorf("after a crash the log is [%d, %d), expected [%d, %d): %s", v.LogStart, v.LogEnd, c.want, c.want+2, rec.TruncatedBecause)
			}
		})
	}
}

// TestProducersOutliveTheirRecords: whose records were all deleted is still known
// after a cut that leaves nothing, and after a crash behind it: a retry is recognised.
func TestProducersOutliveTheirRecords(t *testing.T) {
	o := options(memFS(t))
	l, _ := mustOpen(t, o)
	follow(t, l, spec{base: 0, n: 5, epoch: 3, pid: 7, ts: 999_000}, spec{base: 5, epoch: 3, pid: 8, ts: 999_000})
	l.SetHighWatermark(6)
	_, err := l.DeleteRecords(5)
	if err == nil {
		_, err = l.Cut(5, CutReason{Cause: CauseDivergence})
	}
	if err != nil {
		t.Fatal(err)
	}
	look := func(when string) {
		t.Helper()
		if p := l.Producers(); len(p) != 1 || p[0].ID != 7 || p[0].LastSequence != 4 {
			t.Fatalf("%s: %+v", when, p)
		}
	}
	look("after the cut")
	l.CloseUnclean()
	o.FS = o.FS.(*vfs.Mem).CrashClone(vfs.CrashConfig{})
	o.RecoveryPoint = 5
	l, _ = mustOpen(t, o)
	look("after a crash")
	if err := l.AssignEpoch(4); err != nil {
		t.Fatal(err)
	}
	a, err := l.AppendAsLeader(spec{n: 5, epoch: 4, pid: 7, ts: 999_000}.build(t), 4, LeaderAppend{})
	if err != nil || !a.Duplicate || a.First != 0 {
		t.Fatalf("a retry: %+v, %v", a, err)
	}
}

// TestCutThatLeavesNothingSurvivesCrashes loses the power at every operation of such
// a cut, with the log start's checkpoint not written yet: the open finds a log that
// still begins where it did, and the cut again ends as without the crash.
func TestCutThatLeavesNothingSurvivesCrashes(t *testing.T) {
	atEveryCrash(t, func(fsys vfs.FS) *Log {
		l, dir := openWithCheckpoints(t, fsys, &memoKeeper{})
		for at := types.Offset(0); at < 20; at += 2 {
			follow(t, l, spec{base: at, n: 2, epoch: 1, size: 200})
		}
		if err := errors.Join(l.Flush(), dir.Write()); err != nil {
			t.Fatal(err)
		}
		l.SetHighWatermark(20)
		if _, err := l.RaiseLogStart(11, true, CutReason{}); err != nil {
			t.Fatal(err)
		}
		return l
	}, func(l *Log) error {
		_, err := l.Cut(11, CutReason{Cause: CauseDivergence})
		return err
	}, func(disk vfs.FS, where string) {
		again, _ := openWithCheckpoints(t, disk, &memoKeeper{})
		v := again.View()
		if v.LogEnd < 11 || v.LogStart != 11 && (v.LogStart != 0 || v.LogEnd != 20) {
			t.Fatalf("%s: the log is [%d, %d)", where, v.LogStart, v.LogEnd)
		}
		again.CloseUnclean()
	})
}

// TestDeletedRecordsOfANewerEpoch: a log whose start was raised to its end forgets its
// history (R1) and still has the deleted records. What comes then, of an older epoch, from
// the leader of an unclean election, must survive a crash, whatever became of the log start.
func TestDeletedRecordsOfANewerEpoch(t *testing.T) {
	for _, start := range []types.Offset{0, 5} { // as it is known at the start
		o := options(memFS(t))
		l, _ := mustOpen(t, o)
		follow(t, l, spec{base: 0, n: 5, epoch: 3, pid: 7, ts: 999_000})
		if _, err := l.RaiseLogStart(5, true, CutReason{}); err != nil {
			t.Fatal(err)
		}
		follow(t, l, spec{base: 5, epoch: 2}, spec{base: 6, epoch: 4, size: 900})
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		l.CloseUnclean()

		o.LogStart, o.RecoveryPoint = start, 5
		l, r := mustOpen(t, o)
		if v := l.View(); v.LogStart != 5 || v.LogEnd != 7 || v.History.String() != "[2@5 4@6]" {
			t.Errorf("start %d: the log is [%d, %d) with history %v: %s", start, v.LogStart, v.LogEnd, v.History, r.TruncatedBecause)
		}
		if p := l.Producers(); len(p) != 1 || p[0].ID != 7 {
			t.Errorf("start %d: producers %+v", start, p)
		}
		l.CloseUnclean()
	}
}
