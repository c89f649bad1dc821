package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// TestAnyNodeKnowsHowAMirrorStands: lag and ends of partitions that other nodes lead
// are their leaders' to tell; whose leader can't be asked is named.
func TestAnyNodeKnowsHowAMirrorStands(t *testing.T) {
	source := harness.StartBroker(t)
	source.CreateTopic(t, "orders", 6, nil)
	for p := range int32(6) {
		source.Produce(t, "orders", p, harness.Values("v", int(p)+1)...)
	}
	c := harness.StartCluster(t, 3, append(slices.Clone(quick), harness.WithSetting("default.replication.factor", "3"))...)
	mirrorOf(t, c.Any(), mirror.Spec{Bootstrap: []string{source.Addr}})
	ctx := harness.Context(t)
	for id, b := range c.Nodes {
		var st mirror.Status
		harness.Eventually(t, fmt.Sprintf("node %d tells of all partitions as they are", id), func() bool {
			var err error
			if st, err = b.Mirrors().StatusEverywhere(ctx, "m"); err != nil || len(st.Partitions) != 6 {
				return false
			}
			return !slices.ContainsFunc(st.Partitions, func(p mirror.PartitionStatus) bool {
				return p.End != types.Offset(p.Partition)+1 || p.LagRecords != 0
			})
		})
		if st.Loss == nil || st.Loss.Unknown != 0 {
			t.Errorf("node %d: what a failover would lack: %+v", id, st.Loss)
		}
	}
	leader := c.Record("orders", 0).Leader
	asked := c.Nodes[leader%3+1]
	c.Gates.Hold(asked.NodeID(), leader)
	st, err := asked.Mirrors().StatusEverywhere(ctx, "m")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("its leader, broker %d, can't be asked", leader); !strings.Contains(st.Partitions[0].Reason, want) {
		t.Errorf("%+v, want %q", st.Partitions[0], want)
	}
}
