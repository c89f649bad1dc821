package broker

import (
	"strconv"
	"testing"

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
