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
}
