package log

import (
	"fmt"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// Retention takes segment after segment, and the power goes: whichever of the
// removals had reached the disk, the log has no hole.
func TestRetentionLeavesNoHole(t *testing.T) {
	for seed := range uint64(30) {
		m := memFS(t)
		o := options(m)
		o.Config.RetentionBytes, o.Config.Delete = 1, true
		l, _ := mustOpen(t, o)
		if err := l.AssignEpoch(1); err != nil {
			t.Fatal(err)
		}
		for range 6 {
			lead(t, l, spec{})
			if err := l.Roll(); err != nil {
				t.Fatal(err)
			}
		}
		lead(t, l, spec{})
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		for mark := range l.View().LogEnd {
			l.SetHighWatermark(mark)
			if _, err := l.EnforceRetention(0); err != nil {
				t.Fatal(err)
			}
		}
		end := l.View().LogEnd
		l.CloseUnclean()

		o.FS, o.RecoveryPoint = m.CrashClone(vfs.CrashConfig{Seed: seed, KeepEntry: 0.5}), end
		l, _ = mustOpen(t, o)
		next := l.View().LogStart
		for _, e := range walkAll(t, l) {
			if e[0] != next {
				t.Fatalf("seed %d: the log goes on at %d after %d: %s", seed, e[0], next, fmt.Sprint(l.View()))
			}
			next = e[1]
		}
		if next != end {
			t.Fatalf("seed %d: the log ends at %d, %d was flushed", seed, next, end)
		}
		l.CloseUnclean()
	}
}

// walkAll gives the first and the next offset of every batch.
func walkAll(t *testing.T, l *Log) [][2]types.Offset {
	t.Helper()
	var out [][2]types.Offset
	for it := batch.Iterate(contents(t, l, 1<<20)); it.Next(); {
		out = append(out, [2]types.Offset{it.Header.BaseOffset, it.Header.NextOffset()})
	}
	return out
}
