package log

import (
	"errors"
	"fmt"
	"testing"

	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
)

// TestCutLeavesNoHole: a cut of several synced segments ends at its n-th operation
// and the power goes. Whichever of its changes had reached the disk, files' contents
// or names, the log that opens has no hole, though the recovery point lies above it.
func TestCutLeavesNoHole(t *testing.T) {
	f := func(name string, change func(l *Log) error) {
		t.Helper()
		for n := 0; ; n++ {
			mem := memFS(t)
			ffs := faultfs.New(mem)
			l, dir := openWithCheckpoints(t, ffs, nil)
			if err := l.AssignEpoch(1); err != nil {
				t.Fatal(err)
			}
			for range 4 {
				lead(t, l, spec{})
				lead(t, l, spec{})
				lead(t, l, spec{})
				if err := l.Roll(); err != nil {
					t.Fatal(err)
				}
			}
			lead(t, l, spec{})
			l.SetHighWatermark(l.View().LogEnd)
			if err := errors.Join(l.Flush(), dir.Write()); err != nil {
				t.Fatal(err)
			}
			rule := ffs.Inject(faultfs.Rule{Kinds: faultfs.Mutating, Skip: n, Times: 1})
			_ = change(l)
			fired := rule.Fired() > 0
			rule.Remove()
			for seed := range uint64(12) {
				crash := vfs.CrashConfig{Seed: seed, KeepBlock: float64(seed % 2), KeepEntry: float64(seed/2%3) / 2}
				after, _ := openWithCheckpoints(t, mem.CrashClone(crash), nil)
				next := after.View().LogStart
				for _, e := range walkAll(t, after) {
					if e[0] != next {
						t.Fatalf("%s, op %d, %+v: the log goes on at %d after %d: %s", name, n, crash, e[0], next, fmt.Sprint(after.View()))
					}
					next = e[1]
				}
				after.CloseUnclean()
			}
			l.CloseUnclean()
			if !fired {
				return
			}
		}
	}
	f("cut", func(l *Log) error { _, err := l.Cut(2, CutReason{Cause: CauseDivergence}); return err })
	f("restart", func(l *Log) error { _, err := l.Restart(50, CutReason{Cause: CauseRestart}); return err })
}
