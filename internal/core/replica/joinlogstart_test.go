package replica

import (
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// TestJoinNeedsTheLogStart: a follower that still holds what the leader has deleted
// stays out of the ISR until it has raised its log start: the deletion may have been
// told to be done on every in-sync replica (KIP-107), and it might lead next.
func TestJoinNeedsTheLogStart(t *testing.T) {
	f := func(rules LeaderRules, said types.Offset, joins bool) {
		t.Helper()
		l := Leader{Rules: rules}
		l.Lead(1, LeaderState{Revision: 5, LeaderEpoch: 4, Replicas: []types.BrokerID{1, 2}, ISR: []meta.ISRMember{{ID: 1, BrokerEpoch: 7}}, MinISR: 1,
			LogStart: 2, LogEnd: 10, HighWatermark: 10, LagMax: 1000})
		l.SetBroker(2, BrokerView{Epoch: 9})
		l.Started(6)
		_, change, denied := l.Fetched(FollowerFetch{Replica: 2, BrokerEpoch: 9, Offset: 10, LogStart: said, LeaderEpoch: 4})
		if denied != Granted || (change != nil) != joins {
			t.Errorf("log start %d: proposed %v (%v), want a join: %v", said, change, denied, joins)
		}
		if !joins && l.Join(0) != nil {
			t.Errorf("log start %d: it joins by the clock", said)
		}
	}
	f(LeaderRules{}, 5, false)
	f(LeaderRules{}, 6, true)
	f(LeaderRules{}, 8, true)              // it may have deleted more than this leader
	f(LeaderRules{}, types.NoOffset, true) // it didn't say
	f(LeaderRules{JoinBelowLogStart: true}, 5, true)
}
