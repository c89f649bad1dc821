package log

import (
	"errors"
	"testing"

	"tidemark/internal/core/epoch"
	"tidemark/internal/vfs"
)

// TestTrailingEntryIsDroppedBeforeTheNextRecord opens a log whose last election wrote nothing. The open
// changes no file; a copied record must not fall under the entry that is gone (R3), also after a crash.
func TestTrailingEntryIsDroppedBeforeTheNextRecord(t *testing.T) {
	fsys := memFS(t)
	l, _ := mustOpen(t, options(fsys))
	follow(t, l, spec{base: 0, n: 2, epoch: 5})
	if err := errors.Join(l.AssignEpoch(9), l.Close()); err != nil {
		t.Fatal(err)
	}
	elected := checkpointOf(t, fsys)

	l, _ = mustOpen(t, options(fsys))
	if got := checkpointOf(t, fsys); got != elected {
		t.Errorf("the open wrote the checkpoint: %q, was %q", got, elected)
	}
	if h := l.View().History; h.Len() != 1 {
		t.Errorf("history after the open: %v", h)
	}
	follow(t, l, spec{base: 2, epoch: 5})
	if got := checkpointOf(t, fsys); got != "0\n1\n5 0\n" {
		t.Errorf("checkpoint after a copied record: %q", got)
	}
	l.CloseUnclean()

	l, r := mustOpen(t, options(fsys))
	if h := l.View().History; h.Len() != 1 || r.HistoryRebuilt {
		t.Errorf("history after a crash: %v, rebuilt: %v", h, r.HistoryRebuilt)
	}
	if err := l.AssignEpoch(12); err != nil {
		t.Fatal(err)
	}
	if got := checkpointOf(t, fsys); got != "0\n2\n5 0\n12 3\n" {
		t.Errorf("checkpoint after an election: %q", got)
	}
}

func checkpointOf(t *testing.T, fsys vfs.FS) string {
	t.Helper()
	b, err := vfs.ReadFile(fsys, join(testDir, epoch.CheckpointFile), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
