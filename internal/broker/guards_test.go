package broker

import (
	"testing"

	"tidemark/internal/core/types"
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
