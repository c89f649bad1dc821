package coordinator

import (
	"errors"
	"testing"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// TestClampAtItsOffices: a node that was elected and doesn't know it yet finds no group
// to lower, and loads them as they were: it must not say that it has done its part (I-250).
func TestClampAtItsOffices(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	n.setLogEnd(0, 100)
	mustCommit(t, ctx, c, commit("g", "", -1, 90))
	me, epoch := c.o.NodeID, c.Of(0).Epoch
	cuts := []Cut{{TopicPartition: types.TopicPartition{Topic: "data"}, Offset: 60}}
	f := func(name string, o Office, refused bool, want types.Offset) {
		t.Helper()
		_, err := c.ClampAt(ctx, cuts, []Office{o})
		if errors.Is(err, wire.ErrNotCoordinator) != refused || !refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if at := committed(t, ctx, c, "g"); at != want {
			t.Errorf("%s: the group is at %d, not %d", name, at, want)
		}
	}
	f("of the next epoch", Office{0, me, epoch + 1}, true, 90)
	f("of the epoch before", Office{0, me, epoch - 1}, true, 90)
	f("of a partition that isn't led here", Office{1, me, epoch}, true, 90)
	f("of another node", Office{1, me + 1, 7}, false, 60)
	mustCommit(t, ctx, c, commit("g", "", -1, 90))
	f("its own", Office{0, me, epoch}, false, 60)
}
