package e2e

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// TestAMirrorWithThreeReplicas: the mirror's leader copies from the source, its
// followers from it, byte for byte; when it stops another goes on, and a
// failover leaves a partition that takes acks=all writes.
func TestAMirrorWithThreeReplicas(t *testing.T) {
	src := harness.StartBroker(t)
	src.CreateTopic(t, "t", 1, nil)
	src.Produce(t, "t", 0, harness.Values("v", 20)...)
	c := harness.StartCluster(t, 3, append([]harness.Option{
		harness.WithSetting("mirror.replication.factor", "3"), harness.WithSetting("min.insync.replicas", "2"),
	}, quick...)...)
	mirrorOf(t, c.Nodes[1], mirror.Spec{Bootstrap: []string{src.Addr}})
	leaderOf := func() *harness.Broker {
		var b *harness.Broker
		harness.Eventually(t, "somebody leads the mirror's partition", func() bool {
			r := c.Record("t", 0)
			if r == nil || r.Leader == types.NoBroker || c.Nodes[r.Leader].Ready() != nil {
				return false
			}
			b = c.Nodes[r.Leader]
			return true
		})
		return b
	}
	for _, id := range three {
		c.Nodes[id].AwaitEnd(t, "t", 20)
	}
	c.AwaitEqual(t, "t", three...)
	harness.Eventually(t, "every replica is in sync, and the mirror runs", func() bool {
		r := c.Record("t", 0)
		return len(r.ISR) == 3 && r.Mirror != nil && r.Mirror.State == meta.MirrorMirroring
	})
	old := leaderOf()
	old.Stop(t)
	harness.Eventually(t, "another leads", func() bool { return leaderOf() != old })
	src.Produce(t, "t", 0, harness.Values("w", 10)...)
	var left []types.BrokerID
	for _, id := range three {
		if c.Nodes[id] != old {
			left = append(left, id)
			c.Nodes[id].AwaitEnd(t, "t", 30)
		}
	}
	c.AwaitEqual(t, "t", left...)
	if _, err := leaderOf().Mirrors().Failover(harness.Context(t), "m", nil); err != nil {
		t.Fatal(err)
	}
	c.ProduceAll(t, "t", kgo.AllISRAcks(), "after the failover")
	c.AwaitEqual(t, "t", left...)
	if got := leaderOf().Consume(t, "t", 0, 0, 31); got[30] != "after the failover" {
		t.Error(fmt.Sprint(got))
	}
}

// TestAFailoverReachesEveryLeader: one node is told; the partitions that others
// lead are promoted by them, and the answer comes when all take writes.
func TestAFailoverReachesEveryLeader(t *testing.T) {
	const partitions = 6
	src := harness.StartBroker(t)
	src.CreateTopic(t, "t", partitions, nil)
	for p := range int32(partitions) {
		src.Produce(t, "t", p, "a")
	}
	c := harness.StartCluster(t, 3, quick...) // three brokers: three replicas, unasked
	mirrorOf(t, c.Nodes[1], mirror.Spec{Bootstrap: []string{src.Addr}})
	leaders := map[types.BrokerID]bool{}
	for p := range int32(partitions) {
		harness.Eventually(t, "the mirror runs", func() bool {
			r := c.Record("t", p)
			return r != nil && r.Mirror != nil && r.Mirror.State == meta.MirrorMirroring && len(r.ISR) == 3
		})
		leaders[c.Record("t", p).Leader] = true
	}
	if len(leaders) < 2 {
		t.Fatalf("led by %v: nothing to see", leaders)
	}
	if d, err := c.Nodes[1].Mirrors().Describe(harness.Context(t), "m"); err != nil || d.Replication != (mirror.Replication{New: 3}) {
		t.Errorf("described as %+v, %v", d.Replication, err)
	}
	src.Stop(t)
	st, err := c.Nodes[1].Mirrors().Failover(harness.Context(t), "m", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range st.Partitions {
		if r := c.Nodes[1].RecordOf("t", p.Partition); !r.Writable || p.Reason != "" {
			t.Errorf("partition %d, led by %d, when the failover was answered: writable %v, %q", p.Partition, r.Leader, r.Writable, p.Reason)
		}
	}
	client := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(partitions) {
		if err := client.ProduceSync(harness.Context(t), &kgo.Record{Topic: "t", Partition: p, Value: []byte("b")}).FirstErr(); err != nil {
			t.Errorf("partition %d: %v", p, err)
		}
	}
}
