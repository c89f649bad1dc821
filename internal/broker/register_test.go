package broker

import (
	"testing"

	"tidemark/internal/metastore/mem"
)

// TestStartWithABusyStore: a node that starts asks again while nobody can say
// what became of its registration, whether it was made or not.
func TestStartWithABusyStore(t *testing.T) {
	w := newWorld(t)
	w.store.FailTxns(mem.UnknownNotApplied, mem.Unavailable, mem.NoFault, mem.UnknownApplied)
	b := w.open()
	if e, ok := b.BrokerEpoch(); !ok || b.Ready() != nil {
		t.Fatalf("registration %d (%v), %v", e, ok, b.Ready())
	}
}
