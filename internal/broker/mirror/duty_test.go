package mirror

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestADutyLosesNoAsking: what is asked for while the duty ends, behind its last look, is
// done; however often it is asked for meanwhile, once.
func TestADutyLosesNoAsking(t *testing.T) {
	var d duty
	var work sync.WaitGroup
	spawn := func(f func()) { work.Go(f) }
	looked, mayEnd := make(chan struct{}, 3), make(chan struct{})
	var done atomic.Int32
	f := func() {
		done.Add(1)
		looked <- struct{}{}
		<-mayEnd
	}
	d.ask(spawn, f)
	<-looked
	d.ask(spawn, f)
	d.ask(spawn, f)
	close(mayEnd)
	work.Wait()
	if n := done.Load(); n != 2 {
		t.Errorf("done %d times, want 2", n)
	}
	d.ask(spawn, f)
	work.Wait()
	if n := done.Load(); n != 3 {
		t.Errorf("asked for when idle: done %d times, want 3", n)
	}
}

// TestADutySeesEveryChange: many change and ask; the last look has seen all changes.
func TestADutySeesEveryChange(t *testing.T) {
	var d duty
	var work sync.WaitGroup
	var changes, seen, busy atomic.Int64
	for range 8 {
		work.Go(func() {
			for range 2000 {
				changes.Add(1)
				d.ask(func(f func()) { work.Go(f) }, func() {
					if busy.Add(1) != 1 {
						t.Error("two do it at once")
					}
					seen.Store(changes.Load())
					busy.Add(-1)
				})
			}
		})
	}
	work.Wait()
	if seen.Load() != changes.Load() {
		t.Errorf("%d of %d changes were seen", seen.Load(), changes.Load())
	}
}
