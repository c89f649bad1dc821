package broker

import (
	"testing"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// A guard is good for one first batch of its producer's epoch, until a marker comes.
func TestGuards(t *testing.T) {
	var g guards
	if g.admits(5, 2, 0) || g.admits(5, 2, 1) {
		t.Error("a batch is admitted though nobody was asked")
	}
	n := g.begin(5, 2, 0)
	if again := g.begin(5, 2, 0); again != n {
		t.Errorf("two looks of one epoch: guards %d and %d", n, again)
	}
	if !g.admits(5, 2, n) || g.admits(5, 3, n) || g.admits(6, 2, n) || g.admits(5, 2, n+1) {
		t.Error("the guard admits another producer, epoch or number")
	}
	other := g.begin(5, 3, 0)
	if other == n || g.admits(5, 2, n) || !g.admits(5, 3, other) {
		t.Error("an epoch's guard outlives the next epoch's")
	}
	g.end(5) // a marker
	if g.admits(5, 3, other) {
		t.Error("a guard outlives a marker")
	}
	if next := g.begin(5, 3, 0); next == other {
		t.Error("a guard's number is given twice")
	}
	g.clear()
	if len(g.byProducer) != 0 {
		t.Error("guards outlive a leadership")
	}
}

// Guards that nobody uses are dropped once there are many.
func TestGuardsAreBounded(t *testing.T) {
	var g guards
	for id := range 3 * guardsMany {
		g.begin(types.ProducerID(10+id), 0, 0)
	}
	n := g.begin(1, 0, guardLifeMs)
	if len(g.byProducer) > 2 || !g.admits(1, 0, n) {
		t.Errorf("%d guards are kept", len(g.byProducer))
	}
}

// A group's offsets are the first of their transaction only with a guard that is in force,
// as a client's records are: those that come when the marker is there already would open
// one that nobody ends. A marker needs none.
func TestOffsetsOfATransactionNeedAGuard(t *testing.T) {
	b := newWorld(t).open()
	createTopic(t, b, "a", 1)
	p := mustPartition(t, b, "a", 0)
	write := func(guard api.TxnGuard) error {
		bld := batch.NewBuilder(batch.BuilderOptions{Transactional: true, Producer: &batch.Producer{ID: 5, BaseSequence: -1}})
		bld.Append(types.Millis(time.Now().UnixMilli()), []byte("k"), []byte("v"))
		raw, err := bld.Build()
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Append(testContext(t), raw, api.AppendRequest{Acks: -1, Timeout: time.Minute, LeaderEpoch: types.NoLeaderEpoch, Origin: api.OriginCoordinator, Guard: guard})
		return err
	}
	wantCode(t, "offsets of which nobody was asked", write(0), wire.ErrInvalidTxnState)
	guard, _, err := p.Guard(testContext(t), 5, 0)
	if err != nil {
		t.Fatal(err)
	}
	if code := marker(t, p, 5, 1); code != wire.None {
		t.Fatal(code)
	}
	wantCode(t, "offsets that come when their transaction has ended", write(guard), wire.ErrInvalidTxnState)
	if guard, _, err = p.Guard(testContext(t), 5, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := write(guard); err != nil {
			t.Errorf("offsets with a guard, or in a transaction that is open: %v", err)
		}
	}
	if n := len(p.Log().OpenTransactions()); n != 1 {
		t.Errorf("%d transactions are open", n)
	}
}
