package replica

import (
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// TestLowWatermarkWaitsForAdditions: who has been proposed for the ISR may be in it, and lead next, before this
// leader hears of it: what it still holds isn't deleted on every in-sync replica (KIP-107, R8).
func TestLowWatermarkWaitsForAdditions(t *testing.T) {
	joining := meta.ISRMember{ID: 2, BrokerEpoch: 7}
	l := Leader{
		local: 1, leads: true, epoch: 3, isr: []meta.ISRMember{{ID: 1, BrokerEpoch: 5}},
		followers: map[types.BrokerID]*progress{2: {logEnd: 20, logStart: 4, provedIn: 3}},
	}
	if low := l.LowWatermark(10); low != 10 {
		t.Errorf("alone in the ISR: %d, want its own log start 10", low)
	}
	l.pending = &ISRChange{added: []meta.ISRMember{joining}}
	if low := l.LowWatermark(10); low != 4 {
		t.Errorf("with an addition pending: %d, want the follower's 4", low)
	}
	l.ISRRefused()
	if low := l.LowWatermark(10); low != 10 {
		t.Errorf("after the addition was refused: %d, want 10", low)
	}
}
