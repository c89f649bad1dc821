package control_test

import (
	"slices"
	"testing"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// TestStandAside: a replica that can't be used is in nobody's way. It leaves the ISR at
// once, and is eligible below min ISR unless its records are lost (R15, KIP-858, KIP-966).
func TestStandAside(t *testing.T) {
	type fixture struct {
		*cluster
		leases map[types.BrokerID]meta.LeaseID
		mes    map[types.BrokerID]control.Me
		id     types.TopicID
	}
	begin := func(isr, elr []types.BrokerID) fixture {
		t.Helper()
		c, leases, mes, id := three(t)
		f := fixture{c, leases, mes, id}
		of := func(ids []types.BrokerID) (list []meta.ISRMember) {
			for _, n := range ids {
				list = append(list, meta.ISRMember{ID: n, BrokerEpoch: mes[n].Epoch})
			}
			return list
		}
		c.update(id, mes[1], func(r *meta.PartitionRecord) { r.ISR, r.ELR = of(isr), of(elr) })
		return f
	}
	// aside has a broker stand aside and compares what becomes of the record.
	aside := func(f fixture, who types.BrokerID, lost bool, leader types.BrokerID, isr, elr []types.BrokerID) {
		t.Helper()
		before := f.partition(f.id, 0)
		list := []control.Unusable{{Partition: meta.PartitionID{Topic: f.id}, Lost: lost}}
		_, plans := control.StandAside(f.image, list, f.mes[who], limits)
		f.commit(plans...)
		r := f.partition(f.id, 0)
		if r.Leader != leader || !slices.Equal(r.ISRIDs(), isr) || !slices.Equal(r.ELRIDs(), elr) {
			t.Errorf("leader %d, ISR %v, ELR %v; want %d, %v, %v", r.Leader, r.ISRIDs(), r.ELRIDs(), leader, isr, elr)
		}
		if moved := leader != before.Leader; moved != (r.LeaderEpoch == before.LeaderEpoch+1) || moved && r.LeaderBrokerEpoch != f.mes[leader].Epoch {
			t.Errorf("leader epoch %d after %d, leader %d after %d", r.LeaderEpoch, before.LeaderEpoch, leader, before.Leader)
		}
		if _, again := control.StandAside(f.image, list, f.mes[who], limits); len(again) != 0 {
			t.Errorf("it stands aside again: %v", again)
		}
	}
	ids := func(ids ...types.BrokerID) []types.BrokerID { return ids }

	aside(begin(ids(1, 2, 3), nil), 2, true, 1, ids(1, 3), nil)
	aside(begin(ids(1, 2), nil), 2, false, 1, ids(1), ids(2))   // its records may be read again
	aside(begin(ids(1, 2), nil), 2, true, 1, ids(1), nil)       // they are gone
	aside(begin(ids(1), ids(2, 3)), 2, true, 1, ids(1), ids(3)) // nor may it be elected later
	aside(begin(ids(1), ids(2)), 2, false, 1, ids(1), ids(2))
	aside(begin(ids(1, 2, 3), nil), 1, true, 2, ids(2, 3), nil)
	aside(begin(ids(1, 2), nil), 1, false, 2, ids(2), ids(1))
	aside(begin(ids(1), ids(2, 3)), 1, true, 2, ids(2), ids(3)) // an eligible one leads where nobody else is in sync
	aside(begin(ids(1), nil), 1, true, 1, ids(1), nil)          // nobody else may

	// Where nobody leads it stays: it may be the first to come back.
	f := begin(ids(1, 2), nil)
	f.end(f.leases, 1)
	aside(f, 2, false, 1, ids(1, 2), nil)

	// What it was decided on has changed, or the one who is to lead is gone, before the commit.
	f = begin(ids(1, 2, 3), nil)
	list := []control.Unusable{{Partition: meta.PartitionID{Topic: f.id}, Lost: true}}
	_, plans := control.StandAside(f.image, list, f.mes[1], limits)
	f.end(f.leases, 2)
	f.refused(plans[0])
	f.end(f.leases, 1)
	if _, plans := control.StandAside(f.image, list, f.mes[1], limits); len(plans) != 0 {
		t.Errorf("a registration that has ended stands aside: %v", plans)
	}
}
