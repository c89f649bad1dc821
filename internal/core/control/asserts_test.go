package control

import (
	"testing"

	"tidemark/internal/assert/asserttest"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// What is asserted of a plan behind the code that makes it can't be brought about
// by the plan's input: it is shown to the assertion itself.
func TestPlansThatMayNotBe(t *testing.T) {
	knows := func(epoch types.LeaderEpoch) []restoredLog {
		return []restoredLog{
			{member: meta.ISRMember{ID: 1}, log: meta.LogReport{Restored: &meta.RestoredLog{EpochMax: 3}}},
			{member: meta.ISRMember{ID: 2}, log: meta.LogReport{Restored: &meta.RestoredLog{EpochMax: epoch}}},
		}
	}
	checkAbove(meta.PartitionID{}, 8, knows(7))
	asserttest.Breaks(t, "I-220", func() { checkAbove(meta.PartitionID{}, 8, knows(8)) })

	checkGrowth("topic", 0, []types.BrokerID{2, 1}, []types.BrokerID{2, 1, 3})
	for _, to := range [][]types.BrokerID{{2}, {1, 2, 3}, {2, 3, 1}} {
		asserttest.Breaks(t, "I-342", func() { checkGrowth("topic", 0, []types.BrokerID{2, 1}, to) })
	}

	leader := meta.BrokerRecord{ID: 1, DirectoryID: "d", Incarnation: "i"}
	image, _ := meta.Load("c", []meta.KV{{Key: meta.KeysOf("c").Broker(1), Value: leader.Encode(), CreateRevision: 5, ModRevision: 5}}, 9)
	aside := func(leader types.BrokerID, isr ...types.BrokerID) func() {
		r := meta.PartitionRecord{Replicas: []types.BrokerID{1, 2, 3}, Leader: leader, LeaderBrokerEpoch: 5}
		for _, id := range isr {
			r.ISR = append(r.ISR, meta.ISRMember{ID: id, BrokerEpoch: 5})
		}
		return func() { (&Change{Record: r}).checkAside(image, 2) }
	}
	aside(1, 1, 3)()
	asserttest.Breaks(t, "I-272", aside(1, 1, 2)) // still in sync
	asserttest.Breaks(t, "I-272", aside(1, 3))    // the leader isn't
	asserttest.Breaks(t, "I-272", aside(2, 1, 2)) // it leads
	asserttest.Breaks(t, "I-272", aside(3, 1, 3)) // the leader is gone
}
