package control_test

import (
	"slices"
	"testing"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// TestChangeISR (R15, KIP-903, KIP-966): who leaves below min ISR becomes
// eligible, an ISR that is large enough clears the ELR, and who joins must still
// be registered as it was when it proved itself.
func TestChangeISR(t *testing.T) {
	c, leases, mes, id := three(t)
	revision := func() meta.Revision { _, rev := c.image.Partition(id, 0); return rev }
	members := func(ids ...types.BrokerID) (list []meta.ISRMember) {
		for _, n := range ids {
			list = append(list, meta.ISRMember{ID: n, BrokerEpoch: mes[n].Epoch})
		}
		return list
	}
	f := func(isr []meta.ISRMember, elr ...types.BrokerID) {
		t.Helper()
		plan, err := control.ChangeISR(c.image, id, 0, revision(), isr, mes[1])
		if err != nil {
			t.Fatal(err)
		}
		c.commit(plan)
		if r := c.partition(id, 0); !slices.Equal(r.ISR, isr) || !slices.Equal(r.ELR, members(elr...)) || r.LeaderEpoch != 0 {
			t.Errorf("%+v, want ISR %v, ELR %v", r, isr, elr)
		}
	}
	old := revision()
	f(members(1, 2))
	if _, err := control.ChangeISR(c.image, id, 0, old, members(1), mes[1]); err == nil {
		t.Error("a change decided on an older record was planned")
	} else {
		wantError(t, err, control.ErrRecordChanged)
	}
	f(members(1), 2)
	f(members(1, 3)) // min ISR 2 is there: nobody is eligible beside it
	f(members(1), 3)
	f(members(1, 2, 3))
	f(members(1, 2))
	stale := []meta.ISRMember{members(1)[0], members(2)[0], {ID: 3, BrokerEpoch: mes[3].Epoch - 1}}
	_, err := control.ChangeISR(c.image, id, 0, revision(), stale, mes[1])
	wantError(t, err, control.ErrNotRegistered)
	// The registration ends between the plan and its commit.
	plan, err := control.ChangeISR(c.image, id, 0, revision(), members(1, 2, 3), mes[1])
	if err != nil {
		t.Fatal(err)
	}
	// One that leaves may not join any more, and is still registered: the plan from before would hold.
	drain, err := control.Drain(c.image, mes[3], leases[3])
	if err != nil {
		t.Fatal(err)
	}
	c.commit(drain)
	_, err = control.ChangeISR(c.image, id, 0, revision(), members(1, 2, 3), mes[1])
	wantError(t, err, control.ErrLeaving)
	c.end(leases, 3)
	c.refused(plan)
}
