package e2e

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/test/e2e/harness"
)

// TestAllRegistrationsLapseAtOnce (R11): nodes that were all paused for longer
// than their leases, as when a machine sleeps, have lost nothing. Each says so
// when it registers anew, so that leaders are elected from the in-sync replicas
// without an operator.
func TestAllRegistrationsLapseAtOnce(t *testing.T) {
	c := harness.StartCluster(t, 3)
	c.CreateTopic(t, "orders", three, map[string]string{"min.insync.replicas": "2"})
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("before", 20)...)
	before := c.Record("orders", 0).LeaderEpoch
	for _, id := range three {
		expire(t, c, id)
	}
	harness.Eventually(t, "a leader is elected", func() bool { return c.Record("orders", 0).LeaderEpoch > before })
	c.AwaitISR(t, "orders", three...)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("after", 20)...)
	c.AwaitEqual(t, "orders", three...)
}
