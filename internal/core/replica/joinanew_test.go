package replica

import (
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// ledWithFollowerAt is a leader whose log ends at 10, with a follower in sync that has fetched at an
// offset, which is the high watermark.
func ledWithFollowerAt(t *testing.T, at types.Offset) (*Leader, LeaderState, FollowerFetch) {
	t.Helper()
	state := LeaderState{Revision: 5, LeaderEpoch: 4, Replicas: []types.BrokerID{1, 2}, ISR: []meta.ISRMember{{ID: 1, BrokerEpoch: 7}, {ID: 2, BrokerEpoch: 9}},
		MinISR: 1, LogEnd: 10, HighWatermark: at, LagMax: 1000}
	l := &Leader{}
	l.Lead(1, state)
	l.SetBroker(2, BrokerView{Epoch: 9})
	fetch := FollowerFetch{Replica: 2, BrokerEpoch: 9, Offset: at, LogStart: 0, LeaderEpoch: 4}
	if _, _, denied := l.Fetched(fetch); denied != Granted {
		t.Fatal(denied)
	}
	return l, state, fetch
}

// TestWhoLeftFetchesAnew: a replica that was taken out of the ISR by another than its
// leader, as one whose disk failed, doesn't come back for the position that it had.
func TestWhoLeftFetchesAnew(t *testing.T) {
	l, state, fetch := ledWithFollowerAt(t, 10)
	state.Revision, state.ISR = 6, state.ISR[:1]
	l.Lead(1, state)
	if change := l.Join(0); change != nil {
		t.Errorf("it is to join again: %v", change.ISR)
	}
	if _, change, _ := l.Fetched(fetch); change == nil {
		t.Error("it fetches and may not join")
	}
}

// TestWhoWasLateJoinsForWhatItHasFetchedSince: the leader takes a late follower out; before
// that is in force the follower has caught up with a log that gets nothing more, so that it
// asks for nothing again.
func TestWhoWasLateJoinsForWhatItHasFetchedSince(t *testing.T) {
	l, state, fetch := ledWithFollowerAt(t, 5)
	if change := l.Shrink(2000); change == nil || len(change.ISR) != 1 {
		t.Fatalf("%+v", change)
	}
	fetch.Offset, fetch.Now = 10, 2001
	if _, _, denied := l.Fetched(fetch); denied != Granted {
		t.Fatal(denied)
	}
	state.Revision, state.ISR = 6, state.ISR[:1]
	l.Lead(1, state) // the record comes before the answer
	if change := l.Join(2002); change == nil || len(change.ISR) != 2 {
		t.Errorf("it stays out: %+v", change)
	}
}

// TestWhoCameBackJoinsForWhatItHasFetchedSince: a broker restarts, and its new process has
// fetched up to the end of an idle log before the record comes in which the old one is in sync no more.
func TestWhoCameBackJoinsForWhatItHasFetchedSince(t *testing.T) {
	l, state, fetch := ledWithFollowerAt(t, 10)
	l.SetBroker(2, BrokerView{Epoch: 12})
	fetch.BrokerEpoch = 12
	if _, change, denied := l.Fetched(fetch); denied != Granted || change != nil {
		t.Fatal(denied, change)
	}
	state.Revision, state.ISR = 6, state.ISR[:1]
	l.Lead(1, state)
	change := l.Join(0)
	if change == nil || len(change.ISR) != 2 || change.ISR[1].BrokerEpoch != 12 {
		t.Errorf("it stays out: %+v", change)
	}
}
