package vfs

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// TestSyncGroupCoversEveryWrite runs many syncs at once: each that returns nil must have had its own
// sync, or a whole one that began after its write.
func TestSyncGroupCoversEveryWrite(t *testing.T) {
	f := func(name string, wholeWorks func(n int64) bool) {
		t.Helper()
		var clock, wholeBegan, wholes, owns atomic.Int64
		g := &syncGroup{all: func() bool {
			began := clock.Add(1)
			if !wholeWorks(wholes.Add(1)) {
				return false
			}
			for {
				old := wholeBegan.Load()
				if old >= began || wholeBegan.CompareAndSwap(old, began) {
					return true
				}
			}
		}}
		var work sync.WaitGroup
		for range 64 {
			work.Go(func() {
				for range 200 {
					wrote := clock.Add(1)
					own := false
					if err := g.sync(func() error { own = true; owns.Add(1); return nil }); err != nil {
						t.Error(err)
					}
					if !own && wholeBegan.Load() < wrote {
						t.Errorf("%s: a write at %d was called durable by a sync that began at %d", name, wrote, wholeBegan.Load())
					}
				}
			})
		}
		work.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.leaders != 0 || len(g.waiting) != 0 {
			t.Errorf("%s: %d leaders and %d waiters are left", name, g.leaders, len(g.waiting))
		}
		t.Logf("%s: %d own, %d whole", name, owns.Load(), wholes.Load())
	}
	f("always", func(int64) bool { return true })
	f("never", func(int64) bool { return false })
	f("sometimes", func(n int64) bool { return n%3 == 0 })
}

// TestSyncGroupReportsOwnFault gives a file's fault to the one that synced it.
func TestSyncGroupReportsOwnFault(t *testing.T) {
	broken := errors.New("broken")
	g := &syncGroup{all: func() bool { return false }}
	var work sync.WaitGroup
	var faults atomic.Int64
	for i := range 100 {
		work.Go(func() {
			err := g.sync(func() error {
				if i%10 == 0 {
					return broken
				}
				return nil
			})
			if errors.Is(err, broken) != (i%10 == 0) {
				t.Errorf("sync %d: %v", i, err)
			}
			if err != nil {
				faults.Add(1)
			}
		})
	}
	work.Wait()
	if faults.Load() != 10 {
		t.Errorf("%d faults, want 10", faults.Load())
	}
}

// BenchmarkWriteAtomic replaces small files in folders of their own, as a failover does, alone and in a crowd.
func BenchmarkWriteAtomic(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprint(writers), func(b *testing.B) {
			fsys, dir := OS(), b.TempDir()
			for i := range writers {
				if err := fsys.MkdirAll(filepath.Join(dir, fmt.Sprint(i))); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			var work sync.WaitGroup
			var next atomic.Int64
			for i := range writers {
				work.Go(func() {
					name := filepath.Join(dir, fmt.Sprint(i), "checkpoint")
					for next.Add(1) <= int64(b.N) {
						if err := WriteAtomic(fsys, name, []byte("0\n1\n0 0\n")); err != nil {
							b.Error(err)
						}
					}
				})
			}
			work.Wait()
		})
	}
}
