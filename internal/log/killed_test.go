package log

import (
	"testing"

	"tidemark/internal/vfs"
)

// KAFKA-3968 across two ends: a process is killed after it has begun a segment,
// the next one accepts it and flushes, and then the power goes.
func TestSegmentOfAKilledProcessSurvivesAFlush(t *testing.T) {
	m := memFS(t)
	o := options(m)
	l, _ := mustOpen(t, o)
	if err := l.AssignEpoch(1); err != nil {
		t.Fatal(err)
	}
	lead(t, l, spec{})
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	lead(t, l, spec{})
	end := l.View().LogEnd
	l.CloseUnclean() // killed: the page cache stays

	o.RecoveryPoint = end - 1
	l, _ = mustOpen(t, o)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := l.RecoveryPoint(); got != end {
		t.Fatalf("flushed to %d, the log ends at %d", got, end)
	}
	l.CloseUnclean()

	o.FS, o.RecoveryPoint = m.CrashClone(vfs.CrashConfig{}), end // the power goes
	l, _ = mustOpen(t, o)
	if got := l.View().LogEnd; got != end {
		t.Fatalf("the log ends at %d after the loss of power, %d was flushed", got, end)
	}
}

// The same of a folder: made, the process killed, opened, flushed, power lost.
func TestFolderOfAKilledProcessSurvivesAFlush(t *testing.T) {
	m := memFS(t)
	if err := m.MkdirAll(testDir); err != nil {
		t.Fatal(err)
	}
	o := options(m)
	l, _ := mustOpen(t, o)
	follow(t, l, spec{epoch: 1, n: 3})
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	o.FS, o.RecoveryPoint = m.CrashClone(vfs.CrashConfig{}), 3
	after, _ := mustOpen(t, o)
	if got := after.View().LogEnd; got != 3 {
		t.Fatalf("the log ends at %d after the loss of power, 3 was flushed", got)
	}
}
