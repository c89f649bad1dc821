package broker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// TestISRChangesGoTogether: what partitions propose while a transaction is under
// way goes into one; a stale proposal is refused and holds nobody up, also when it
// becomes stale after the others were planned with it.
func TestISRChangesGoTogether(t *testing.T) {
	const partitions = 40
	f := newFleet(t, 2)
	assignment := map[int32][]types.BrokerID{}
	for n := range int32(partitions) {
		assignment[n] = []types.BrokerID{1, 2}
	}
	id := f.create("a", assignment)
	b := f.nodes[1].Broker
	eventually(t, "the leader knows all partitions", func() bool {
		_, ok := b.Image().PartitionEntry(id, partitions-1)
		return ok
	})
	entry := func(n int32) *meta.Partition {
		p, ok := b.Image().PartitionEntry(id, n)
		if !ok {
			t.Fatalf("no partition %d", n)
		}
		return p
	}
	w := newISRWriter(b)
	var commits atomic.Int32
	begun, release := make(chan struct{}), make(chan struct{})
	w.commit = func(ctx context.Context, plan meta.Plan) (meta.Revision, error) {
		switch commits.Add(1) {
		case 1:
			close(begun)
			<-release
		case 2: // somebody else's write, after the plan was made
			if err := b.changeISR(ctx, id, 7, entry(7).ModRevision, []meta.ISRMember{entry(7).Record.ISR[0]}); err != nil {
				t.Errorf("the write in between: %v", err)
			}
		}
		return b.Commit(ctx, plan)
	}
	errs := make([]chan error, partitions)
	ask := func(n int32) {
		p := entry(n)
		from := p.ModRevision
		if n == 5 {
			from-- // an older record than the present one
		}
		errs[n] = make(chan error, 1)
		go func() { errs[n] <- w.change(testContext(t), id, n, from, []meta.ISRMember{p.Record.ISR[0]}) }()
	}
	ask(0)
	<-begun
	for n := int32(1); n < partitions; n++ {
		ask(n)
	}
	eventually(t, "all others wait", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.waiting) == partitions-1
	})
	close(release)
	for n, done := range errs {
		err := <-done
		if stale := n == 5 || n == 7; stale && !errors.Is(err, control.ErrRecordChanged) || !stale && err != nil {
			t.Errorf("partition %d: %v", n, err)
		}
	}
	if got := commits.Load(); got != 3 {
		t.Errorf("%d transactions; want one alone, one of all others that is refused, and that again", got)
	}
}
