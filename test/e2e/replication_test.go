package e2e

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// three is where a partition of the tests lies: node 1 is preferred.
var three = []types.BrokerID{1, 2, 3}

func TestReplicationFactorThree(t *testing.T) {
	c := harness.StartCluster(t, 3)
	c.CreateTopic(t, "orders", three, map[string]string{"min.insync.replicas": "2"})
	want := harness.Values("v", 50)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), want...)
	if got := c.Nodes[1].Consume(t, "orders", 0, 0, len(want)); !slices.Equal(got, want) {
		t.Errorf("read %q", got)
	}
	c.AwaitEqual(t, "orders", three...)
	for _, id := range three {
		harness.Eventually(t, "every replica knows the high watermark", func() bool {
			p, _ := c.Nodes[id].PartitionByName("orders", 0)
			v, _ := p.View()
			return v.HighWatermark == 50
		})
	}
}
