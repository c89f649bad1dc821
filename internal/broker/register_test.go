package broker

import (
	"context"
	"strconv"
	"testing"
	"time"

	"tidemark/internal/config"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/mem"
)

// TestStartWithABusyStore: a node that starts asks again while the store can't
// register it, whichever of the registration's transactions fails.
func TestStartWithABusyStore(t *testing.T) {
	for before := 2; before < 4; before++ { // the first two find the cluster and make it
		t.Run(strconv.Itoa(before), func(t *testing.T) {
			w := newWorld(t)
			w.store.FailTxns(append(make([]mem.Fault, before), mem.Unavailable)...)
			b := w.open()
			if e, ok := b.BrokerEpoch(); !ok || b.Ready() != nil {
				t.Fatalf("registration %d (%v), %v", e, ok, b.Ready())
			}
		})
	}
}

// sleepy is a store as a process sees it that is stopped for long right after its
// first lease was granted.
type sleepy struct {
	*mem.Store
	slept bool
}

func (s *sleepy) Grant(ctx context.Context, ttl time.Duration) (metastore.LeaseID, error) {
	id, err := s.Store.Grant(ctx, ttl)
	if err == nil && !s.slept {
		s.slept = true
		s.ExpireLease(id)
	}
	return id, err
}

// TestStartAcrossALease: a node that was stopped while it started, for longer than
// its first lease lives, registers with another one.
func TestStartAcrossALease(t *testing.T) {
	w := newWorld(t)
	cfg, _, err := config.Resolve(w.set)
	if err != nil {
		t.Fatal(err)
	}
	store := &sleepy{Store: w.store}
	b, err := Open(testContext(t), cfg, Options{FS: w.fs, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := b.BrokerEpoch(); !ok || !store.slept || b.Ready() != nil {
		t.Errorf("registration %d (%v), %v", e, ok, b.Ready())
	}
	closeNode(t, b)
}
