package mirror

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"tidemark/internal/await"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
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

// hungPart is a partition whose shard doesn't get on.
type hungPart struct {
	Partition
	waits *atomic.Int32
	until chan struct{}
}

func (hungPart) Name() types.TopicPartition { return types.TopicPartition{Topic: "t"} }

func (p hungPart) Do(context.Context, func(Owned) error) error {
	p.waits.Add(1)
	<-p.until
	return errors.New("its disk hangs")
}

// TestAShardThatHangsCollectsNoWork: looks at the source and new records come every few
// seconds, and each left one more goroutine behind for every partition of a disk that hung.
func TestAShardThatHangsCollectsNoWork(t *testing.T) {
	var waits atomic.Int32
	r := &run{m: &Mirrors{o: Options{Node: holdingNode{newPaperNode(t, 0)}}}, ctx: t.Context()}
	c := newCopier(r, meta.PartitionID{}, hungPart{waits: &waits, until: make(chan struct{})})
	for range 100 {
		c.show()
		c.refresh(core.Source{})
		c.tick()
	}
	await.True(t, "each has begun", func() bool { return waits.Load() >= 3 })
	if n := waits.Load(); n != 3 {
		t.Errorf("%d wait for the shard", n)
	}
	close(c.part.(hungPart).until)
	r.work.Wait()
	if n := waits.Load(); n > 6 {
		t.Errorf("%d times it was worked on", n)
	}
}
