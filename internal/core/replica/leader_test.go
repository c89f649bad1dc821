package replica

import (
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// leading is broker 1 with 2 and 3, all in the ISR, at log end 10.
func leading(t *testing.T, hw types.Offset) *Leader {
	t.Helper()
	l := &Leader{}
	isNew, ok := l.Lead(1, LeaderState{Revision: 5, LeaderEpoch: 4, Replicas: []types.BrokerID{1, 2, 3}, ISR: members([]types.BrokerID{1, 2, 3}),
		MinISR: 2, LogEnd: 10, HighWatermark: hw, LagMax: 1000})
	if !isNew || !ok {
		t.Fatal("doesn't lead")
	}
	return l
}

func fetchAt(l *Leader, id types.BrokerID, o types.Offset) bool {
	moved, _, _ := l.Fetched(FollowerFetch{Replica: id, BrokerEpoch: types.NoBrokerEpoch, Offset: o, LeaderEpoch: 4, Now: 1})
	return moved
}

// TestLatestWaitsForTheEpochStart: KIP-207.
func TestLatestWaitsForTheEpochStart(t *testing.T) {
	l := leading(t, 7)
	if _, d := l.Latest(false, -1); d != OffsetNotAvailable {
		t.Errorf("consumer: %d", d)
	}
	if o, d := l.Latest(true, -1); d != Granted || o != 10 {
		t.Errorf("replica: %d, %d", o, d)
	}
	fetchAt(l, 2, 10)
	if !fetchAt(l, 3, 10) {
		t.Fatal("the mark doesn't move")
	}
	if o, d := l.Latest(false, -1); d != Granted || o != 10 {
		t.Errorf("consumer: %d, %d", o, d)
	}
}

// TestPositionsCountInTheirEpochOnly: R14.
func TestPositionsCountInTheirEpochOnly(t *testing.T) {
	l := leading(t, 7)
	fetchAt(l, 2, 10)
	fetchAt(l, 3, 9)
	if l.HighWatermark() != 9 || !l.HasFetchedAll() {
		t.Fatalf("mark %d, all fetched %v", l.HighWatermark(), l.HasFetchedAll())
	}
	l.Lead(1, LeaderState{Revision: 6, LeaderEpoch: 5, Replicas: []types.BrokerID{1, 2, 3}, ISR: members([]types.BrokerID{1, 2, 3}), MinISR: 2, LogEnd: 10, LagMax: 1000})
	if l.HasFetchedAll() || l.Appended(12) || l.HighWatermark() != 9 {
		t.Errorf("positions of epoch 4 count in epoch 5: mark %d", l.HighWatermark())
	}
}

// TestCutLowersWhatIsRemembered: R1.
func TestCutLowersWhatIsRemembered(t *testing.T) {
	l := leading(t, 7)
	fetchAt(l, 2, 10)
	fetchAt(l, 3, 10)
	l.Cut(6)
	if l.HighWatermark() != 6 || l.EpochStart() != 6 {
		t.Errorf("mark %d, epoch start %d", l.HighWatermark(), l.EpochStart())
	}
	if l.Appended(9); l.HighWatermark() != 6 {
		t.Errorf("the mark counts positions that are cut: %d", l.HighWatermark())
	}
}

// TestJoinCarriesTheBrokerEpoch: R15, KAFKA-14617.
func TestJoinCarriesTheBrokerEpoch(t *testing.T) {
	l := &Leader{}
	l.Lead(1, LeaderState{Revision: 5, LeaderEpoch: 4, Replicas: []types.BrokerID{1, 2}, ISR: members([]types.BrokerID{1}), MinISR: 1, LogEnd: 10, LagMax: 1000})
	l.SetBroker(2, BrokerView{Epoch: 33})
	// A follower whose registration has lapsed names none: an entry of it would be refused, over and over.
	if _, change, _ := l.Fetched(FollowerFetch{Replica: 2, BrokerEpoch: types.NoBrokerEpoch, Offset: 10, LeaderEpoch: 4}); change != nil || l.Join(0) != nil {
		t.Errorf("a fetch without a broker epoch proposes %+v", change)
	}
	_, change, _ := l.Fetched(FollowerFetch{Replica: 2, BrokerEpoch: 33, Offset: 10, LeaderEpoch: 4})
	if change == nil || change.ISR[1] != (meta.ISRMember{ID: 2, BrokerEpoch: 33}) {
		t.Fatalf("got %+v", change)
	}
	l.ISRRefused()
	if l.Pending() != nil || len(l.MaximalISR()) != 1 {
		t.Error("a refused change is still pending")
	}
}
