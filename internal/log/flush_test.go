package log

import (
	"errors"
	"testing"

	"tidemark/internal/assert"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// TestFlushJobBesideAppends: the owner goes on while a job syncs; the recovery
// point covers what the job captured, and no more.
func TestFlushJobBesideAppends(t *testing.T) {
	mem := memFS(t)
	l, _ := mustOpen(t, options(mem))
	follow(t, l, spec{base: 0, epoch: 1, n: 3})
	j, err := l.StartFlush()
	if err != nil {
		t.Fatal(err)
	}
	follow(t, l, spec{base: 3, epoch: 1, n: 2, size: 900}, spec{base: 5, epoch: 1, n: 2, size: 900}) // rolls
	if err := l.EndFlush(j, j.Sync()); err != nil {
		t.Fatal(err)
	}
	if got := l.RecoveryPoint(); got != 3 || j.Offset() != 3 {
		t.Fatalf("recovery point %d, job to %d", got, j.Offset())
	}
	due := func(messages int64, ms, now types.Millis, want bool) {
		t.Helper()
		c := l.Config()
		c.FlushMessages, c.FlushMs = messages, ms
		l.UpdateConfig(c)
		if got := l.FlushDue(now, 0); got != want {
			t.Errorf("four records behind, %d messages, %d ms, %d ms since the last: due %t", messages, ms, now, got)
		}
	}
	due(0, 0, 1<<40, false)
	due(4, 0, 0, true)
	due(5, 0, 1<<40, false)
	due(0, 1000, 999, false)
	due(0, 1000, 1000, true)
	o := options(mem.CrashClone(vfs.CrashConfig{}))
	o.RecoveryPoint = l.RecoveryPoint()
	if after, _ := mustOpen(t, o); after.View().LogEnd < 3 {
		t.Fatalf("%+v", after.View())
	}
}

// TestFlushDuringCut: a job that began before a cut does not vouch for what was
// appended after it.
func TestFlushDuringCut(t *testing.T) {
	l, _ := mustOpen(t, options(memFS(t)))
	for i := range types.Offset(10) {
		follow(t, l, spec{base: i, epoch: 1})
	}
	j, err := l.StartFlush()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Cut(4, CutReason{}); err != nil {
		t.Fatal(err)
	}
	follow(t, l, spec{base: 4, epoch: 2, n: 20})
	if err := l.EndFlush(j, j.Sync()); err != nil {
		t.Fatal(err)
	}
	if got := l.RecoveryPoint(); got > 4 {
		t.Fatalf("recovery point %d over unsynced records", got)
	}
}

// TestSecondFlushJob is invariant I-27.
func TestSecondFlushJob(t *testing.T) {
	l, _ := mustOpen(t, options(memFS(t)))
	j, err := l.StartFlush()
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if _, ok := recover().(*assert.Error); !ok {
				t.Error("a second job began")
			}
		}()
		_, _ = l.StartFlush()
	}()
	if err := l.EndFlush(j, errors.New("disk")); !errors.Is(err, ErrOffline) {
		t.Fatalf("%v", err)
	}
}

// TestSyncAllTakesOverAJob: a sync in the middle of another procedure covers
// what a job under way has taken to sync and may not have synced.
func TestSyncAllTakesOverAJob(t *testing.T) {
	mem := memFS(t)
	l, _ := mustOpen(t, options(mem))
	for i := range types.Offset(12) {
		follow(t, l, spec{base: i, epoch: 1, size: 200, ts: types.Millis(1 + i), pid: 4, seq: int32(i)})
	}
	j, err := l.StartFlush()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.syncAll(); err != nil {
		t.Fatal(err)
	}
	o := options(mem.CrashClone(vfs.CrashConfig{}))
	o.RecoveryPoint = l.RecoveryPoint()
	after, r := mustOpen(t, o)
	if after.View().LogEnd != 12 || o.RecoveryPoint != 12 || r.IndexesRebuilt > 0 || r.SnapshotsDropped > 0 {
		t.Fatalf("%+v %+v", after.View(), r)
	}
	if err := l.EndFlush(j, j.Sync()); err != nil {
		t.Fatal(err)
	}
}
