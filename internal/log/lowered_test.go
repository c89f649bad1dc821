package log

import (
	"testing"

	"tidemark/internal/vfs"
)

// TestOpenLowersARecoveryPointAboveTheEnd opens a log whose checkpoint vouches for more than there is: it
// must be lowered on disk before anything is appended up to it, whose loss it would hide.
func TestOpenLowersARecoveryPointAboveTheEnd(t *testing.T) {
	fsys := memFS(t)
	dir, _, err := OpenCheckpoints(fsys, "d")
	if err != nil {
		t.Fatal(err)
	}
	o := options(fsys)
	o.Checkpoints = dir
	l, _ := mustOpen(t, o)
	follow(t, l, spec{base: 0, n: 5, epoch: 1})
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	l.CloseUnclean()

	// A crash in the middle of a cut: the checkpoint still vouches for offset 10.
	stale := FormatOffsets([]CheckpointLine{{testPartition, 10}})
	if err := vfs.WriteAtomic(fsys, join("d", RecoveryPointFile), stale); err != nil {
		t.Fatal(err)
	}
	if o.Checkpoints, _, err = OpenCheckpoints(fsys, "d"); err != nil {
		t.Fatal(err)
	}
	o.RecoveryPoint = o.Checkpoints.Get(testPartition).RecoveryPoint
	if l, _ = mustOpen(t, o); l.View().LogEnd != 5 || o.RecoveryPoint != 10 {
		t.Fatalf("log end %d, recovery point %d", l.View().LogEnd, o.RecoveryPoint)
	}
	after, problems, err := OpenCheckpoints(fsys.CrashClone(vfs.CrashConfig{}), "d")
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	if got := after.Get(testPartition).RecoveryPoint; got > 5 {
		t.Errorf("the checkpoint vouches for offset %d, the log ends at 5", got)
	}
}
