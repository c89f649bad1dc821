package broker

import (
	"errors"
	"testing"

	"tidemark/internal/core/types"
)

// TestNothingIsAcknowledgedAfterTheLease: the fetch that proves a write came in time, and
// its event to the shard when the lease may be over (R10). The producer asks the next leader.
func TestNothingIsAcknowledgedAfterTheLease(t *testing.T) {
	f := func(over bool) {
		t.Helper()
		p := &Partition{env: &environment{ended: func(of types.BrokerEpoch) bool { return over && of == 7 }}}
		p.serving.Store(&serving{registration: 7})
		write, deletion := &appendOp{next: 10, reply: make(chan struct{}, 2)}, &deleteOp{done: make(chan struct{})}
		p.waiting, p.deletes = []*appendOp{write}, []*deleteOp{deletion}
		p.abandonLapsed()
		if errors.Is(write.err, errLapsed) != over || errors.Is(deletion.err, errLapsed) != over || (len(write.reply) == 1) != over {
			t.Errorf("lease over: %v; %v, %v and %d replies", over, write.err, deletion.err, len(write.reply))
		}
	}
	f(true)
	f(false)
}
