package log

import (
	"errors"
	"syscall"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
)

// TestCutOnAFullDisk: a cut that finds no room for a new segment or the checkpoints
// keeps the log dir online. Until they are written nothing is appended, led in or closed cleanly
// (R1 step 7); reads go on, a crash meanwhile loses nothing, and with room the next call goes through.
func TestCutOnAFullDisk(t *testing.T) {
	f := func(name, pattern string, change func(l *Log) error, end, afterCrash types.Offset) {
		t.Run(name+" "+pattern, func(t *testing.T) {
			mem := memFS(t)
			ffs := faultfs.New(mem)
			l, _ := openWithCheckpoints(t, ffs, nil)
			for at := types.Offset(0); at < 10; at++ {
				follow(t, l, spec{base: at, epoch: types.LeaderEpoch(at / 4), ts: 1})
			}
			follow(t, l, spec{base: 20, epoch: 2, ts: 1}) // behind a gap
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			rule := ffs.Inject(faultfs.Rule{Kinds: faultfs.Mutating, Pattern: pattern, Err: syscall.ENOSPC})
			if err := change(l); !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrOffline) {
				t.Fatalf("without room: %v (%d operations refused)", err, rule.Fired())
			}
			if v := l.View(); v.Offline != nil || v.LogEnd != end {
				t.Fatalf("%+v", v)
			}
			contents(t, l, 1<<20)
			if _, err := l.AppendAsFollower(spec{base: end, epoch: 9, ts: 1}.build(t), 9); !errors.Is(err, ErrNoSpace) {
				t.Errorf("an append before the checkpoints are written: %v", err)
			}
			if err := l.AssignEpoch(9); !errors.Is(err, ErrNoSpace) {
				t.Errorf("an election before the checkpoints are written: %v", err)
			}
			again := options(mem.CrashClone(vfs.CrashConfig{Seed: 1}))
			again.RecoveryPoint = 10
			crashed, _, err := Open(again)
			if err != nil {
				t.Fatalf("after a crash: %v", err)
			}
			if got := crashed.View().LogEnd; got != afterCrash {
				t.Errorf("after a crash the log ends at %d, want %d", got, afterCrash)
			}
			crashed.CloseUnclean()
			rule.Remove()
			follow(t, l, spec{base: end, epoch: 9, ts: 1})
			if p := l.RecoveryPoint(); p > end {
				t.Errorf("recovery point %d above the cut at %d", p, end)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	cut := func(l *Log) error { _, err := l.Cut(6, CutReason{Cause: CauseDivergence}); return err }
	intoGap := func(l *Log) error { _, err := l.Cut(15, CutReason{Cause: CauseDivergence}); return err }
	restart := func(l *Log) error { _, err := l.Restart(30, CutReason{Cause: CauseRestart}); return err }
	for _, pattern := range []string{"recovery-point-offset-checkpoint*", "leader-epoch-checkpoint*"} {
		f("cut", pattern, cut, 6, 6)
		f("restart", pattern, restart, 30, 30)
	}
	// A crash before the segment in the gap is there, and known, leaves a log that ends below the gap; one before
	// the folder is synced leaves it as it was.
	for _, pattern := range []string{"recovery-point-offset-checkpoint*", "00000000000000000015.log", "00000000000000000015.snapshot"} {
		f("cut into a gap", pattern, intoGap, 15, 10)
	}
	for _, pattern := range []string{"*.index", "*.timeindex"} {
		f("cut into a gap", pattern, intoGap, 15, 21)
	}
	// What a restart takes is off the disk, and with the keeper, before the segment that it begins.
	f("restart", "00000000000000000030.log", restart, 30, 0)
	closed := func(l *Log) error { return errors.Join(cut(l), l.Close()) }
	mem := memFS(t)
	ffs := faultfs.New(mem)
	l, _ := openWithCheckpoints(t, ffs, nil)
	for at := types.Offset(0); at < 10; at++ {
		follow(t, l, spec{base: at, epoch: types.LeaderEpoch(at / 4), ts: 1})
	}
	ffs.Inject(faultfs.Rule{Kinds: faultfs.Mutating, Pattern: "recovery-point-offset-checkpoint*", Err: syscall.ENOSPC})
	if err := closed(l); err == nil {
		t.Error("a log that owes its checkpoints closes cleanly")
	}
}

// TestAbortOnAFullDisk: a marker that found room, and its entry in the aborted index none, is in the
// log. Until the entry is written nothing more is appended or flushed; readers know of it at once,
// and so does the log that is opened after a crash.
func TestAbortOnAFullDisk(t *testing.T) {
	aborted := func(at types.Offset) []byte {
		raw := spec{base: at, epoch: 1, ts: 1, pid: 7, seq: int32(at / 2), txn: true}.build(t)
		return append(raw, stamped(batch.NewMarker(batch.Abort, 7, 0, 0, 5), at+1, 1)...)
	}
	f := func(name string, segmentBytes int, batches []byte, batchesIn int, entries int) {
		t.Run(name, func(t *testing.T) {
			mem := memFS(t)
			ffs := faultfs.New(mem)
			o := options(ffs)
			o.Config.SegmentBytes = segmentBytes
			l, _ := mustOpen(t, o)
			rule := ffs.Inject(faultfs.Rule{Kinds: faultfs.Mutating, Pattern: "*.txnindex", Err: syscall.ENOSPC})
			a, err := l.AppendAsFollower(batches, 1)
			if a.Batches != batchesIn || err != nil && !errors.Is(err, ErrNoSpace) {
				t.Fatalf("%d batches are in, want %d: %v", a.Batches, batchesIn, err)
			}
			if n := len(l.AbortedTxns(0, 100)); n != batchesIn/2 || l.View().Offline != nil {
				t.Fatalf("readers are told of %d aborted transactions, want %d; offline %v", n, batchesIn/2, l.View().Offline)
			}
			next := types.Offset(batchesIn)
			if _, err := l.AppendAsFollower(aborted(next), 1); !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrOffline) {
				t.Errorf("an append before the entry is written: %v", err)
			}
			if err := l.Flush(); !errors.Is(err, ErrNoSpace) {
				t.Errorf("a flush before the entry is written: %v", err)
			}
			again := options(mem.CrashClone(vfs.CrashConfig{Seed: 1, KeepBlock: 1, KeepEntry: 1}))
			again.Config.SegmentBytes = segmentBytes
			crashed, _, err := Open(again)
			if err != nil {
				t.Fatalf("after a crash: %v", err)
			}
			if got, want := len(crashed.AbortedTxns(0, 100)), int(crashed.View().LogEnd)/2; got != want {
				t.Errorf("after a crash %d aborted transactions are known, of %d in the log", got, want)
			}
			crashed.CloseUnclean()
			rule.Remove()
			if a, err := l.AppendAsFollower(aborted(next), 1); err != nil || a.Batches != 2 {
				t.Fatal(a, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l, _ = mustOpen(t, o)
			if n := len(l.AbortedTxns(0, 100)); n != entries {
				t.Errorf("%d aborted transactions after all, want %d", n, entries)
			}
		})
	}
	f("one segment", 1000, aborted(0), 2, 2)
	f("a roll behind the first", 150, append(aborted(0), aborted(2)...), 2, 2)
}
