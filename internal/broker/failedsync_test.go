package broker

import (
	"errors"
	"syscall"
	"testing"

	"tidemark/internal/core/timeline"
	"tidemark/internal/log"
	"tidemark/internal/vault"
	"tidemark/internal/vfs/faultfs"
)

// aNodeThatMayFail has one partition with a few records, on a disk of the test's.
func aNodeThatMayFail(t *testing.T, settings ...string) (*Broker, *Partition, *faultfs.FS) {
	t.Helper()
	w := newWorld(t, settings...)
	faults := faultfs.New(w.fs)
	w.fs = faults
	b := w.open()
	createTopic(t, b, "a", 1)
	p := mustPartition(t, b, "a", 0)
	mustAppend(t, p, "x", "y")
	mustAppend(t, p, "z")
	return b, p, faults
}

// whatSyncs are what a partition's owner, a mirror among them, does to its log and
// what must be on the disk afterwards.
var whatSyncs = map[string]func(*log.Log) error{
	"cut":        func(l *log.Log) error { _, err := l.Cut(2, log.CutReason{Cause: log.CauseTimeline}); return err },
	"cut of all": func(l *log.Log) error { _, err := l.Cut(0, log.CutReason{Cause: log.CauseTimeline}); return err },
	"restart":    func(l *log.Log) error { _, err := l.Restart(7, log.CutReason{Cause: log.CauseRestart}); return err },
	"log start": func(l *log.Log) error {
		_, err := l.RaiseLogStart(2, false, log.CutReason{Cause: log.CauseLogStart})
		return err
	},
	"epoch history": func(l *log.Log) error { return l.AssignEpoch(70) },
	"timelines":     func(l *log.Log) error { return l.SetTimelineCheckpoint(timeline.Checkpoint{}.Format()) },
	"records":       func(l *log.Log) error { return l.Flush() },
}

// TestEveryFailedSyncIsFinal lets the n-th sync of each of them fail, for every n: the
// log dir is offline, whoever asked for it. What the page cache holds of a file whose
// sync failed counts as clean there, so that the next sync succeeds and proves nothing.
func TestEveryFailedSyncIsFinal(t *testing.T) {
	for name, do := range whatSyncs {
		t.Run(name, func(t *testing.T) {
			runs := faultfs.Sweep(faultfs.Rule{Kinds: faultfs.Sync | faultfs.SyncDir}, func(rule faultfs.Rule) bool {
				b, p, faults := aNodeThatMayFail(t)
				bad := faults.Inject(rule)
				err := p.Do(testContext(t), func(o *Owned) error { return do(o.Log()) })
				fired := bad.Fired() > 0
				bad.Remove()
				if fired {
					if err == nil {
						t.Errorf("sync %d failed and nobody was told", rule.Skip)
					}
					eventually(t, "the log dir is offline", func() bool { return p.dir.failure() != nil })
					if f := p.dir.failure(); !errors.Is(f, log.ErrOffline) {
						t.Errorf("sync %d: the dir is offline because of %v", rule.Skip, f)
					}
					eventually(t, "the partition is offline", p.down.Load)
				} else if err != nil {
					t.Errorf("without a fault: %v", err)
				}
				closeFailed(t, b)
				return fired
			})
			if runs == 0 {
				t.Error("nothing was synced")
			}
		})
	}
}

// TestAVaultThatFailedIsNotAskedAgain: where it has a disk of its own the logs go on,
// and no cut relies on what a later sync there says.
func TestAVaultThatFailedIsNotAskedAgain(t *testing.T) {
	t.Run("an I/O error", func(t *testing.T) { vaultThatFailed(t, syscall.EIO) })
	// Some file systems find out at the sync that there is no room, and have dropped what was to be written.
	t.Run("no room, at the sync", func(t *testing.T) { vaultThatFailed(t, syscall.ENOSPC) })
}

func vaultThatFailed(t *testing.T, cause error) {
	b, p, faults := aNodeThatMayFail(t, "vault.dir=/vault")
	cut := func() error {
		return p.Do(testContext(t), func(o *Owned) error {
			_, err := o.Log().Cut(2, log.CutReason{Cause: log.CauseTimeline})
			return err
		})
	}
	bad := faults.Inject(faultfs.Rule{Kinds: faultfs.Sync, Pattern: "/vault/*/*/*", Times: 1, Err: cause})
	for range 2 {
		if err := cut(); err == nil || bad.Fired() != 1 {
			t.Fatalf("a cut whose removal isn't kept: %v, %d faults", err, bad.Fired())
		}
	}
	if err := cut(); !errors.Is(err, vault.ErrOffline) {
		t.Errorf("the vault's refusal: %v", err)
	}
	if err := p.dir.failure(); err != nil {
		t.Errorf("the log dir is offline because of another disk: %v", err)
	}
	if o := mustAppend(t, p, "more"); o != 3 {
		t.Errorf("appended at %d", o)
	}
	closeNode(t, b)
}

// TestWhatMayBeLost: a line of the event log that can't be synced costs the line, and
// the disk is asked whether it takes anything else.
func TestWhatMayBeLost(t *testing.T) {
	b, p, faults := aNodeThatMayFail(t)
	asked := faults.Count(faultfs.Remove)
	bad := faults.Inject(faultfs.Rule{Kinds: faultfs.Sync, Pattern: "/data/" + eventsFolder + "/*"})
	b.events.Append([]byte(`{"kind":"X"}`))
	eventually(t, "the sync of the event log failed", func() bool { return bad.Fired() > 0 })
	eventually(t, "the disk was asked", func() bool { return faults.Count(faultfs.Remove) > asked })
	if err := p.dir.failure(); err != nil {
		t.Fatalf("offline for the event log alone: %v", err)
	}
	mustAppend(t, p, "more")
	bad.Remove()
	faults.Inject(faultfs.Rule{Kinds: faultfs.Sync})
	b.events.Append([]byte(`{"kind":"X"}`))
	eventually(t, "a disk that takes nothing is offline", func() bool { return p.dir.failure() != nil })
	closeFailed(t, b)
}

// closeFailed ends a node whose only log dir is offline, which it says.
func closeFailed(t *testing.T, b *Broker) {
	t.Helper()
	_ = b.Close(testContext(t))
}
