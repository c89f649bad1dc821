package log

import (
	"errors"
	"syscall"
	"testing"

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
