package e2e

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/mem"
	"tidemark/test/e2e/harness"
)

// metric sums a node's metric over its labels.
func metric(t *testing.T, b *harness.Broker, name string) (sum float64) {
	t.Helper()
	families, err := b.Metrics().Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		found = true
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	if !found {
		t.Errorf("no metric %s", name)
	}
	return sum
}

// isrWatch counts, by the store's revisions, how often a partition's ISR lost and won a
// replica. A short lag time takes replicas out by itself where the machine stands still.
type isrWatch struct {
	t              *testing.T
	w              *mem.Watcher
	size           int
	shrinks, grows float64
}

func watchISR(t *testing.T, c *harness.Cluster, topic string) *isrWatch {
	t.Helper()
	named, _ := c.Any().Image().TopicByName(topic)
	return &isrWatch{t: t, w: c.Store.NewWatcher(context.Background(), c.Any().Image().Keys().Partition(named.ID, 0), 0)}
}

func (i *isrWatch) count() (shrinks, grows float64) {
	i.t.Helper()
	for {
		events, ok, err := i.w.Poll()
		if err != nil {
			i.t.Fatal(err)
		}
		if !ok {
			return i.shrinks, i.grows
		}
		for _, e := range events.Events {
			r, err := meta.DecodePartition(e.KV.Key, e.KV.Value)
			if err != nil {
				i.t.Fatal(err)
			}
			switch n := len(r.ISR); {
			case i.size > 0 && n < i.size:
				i.shrinks++
			case i.size > 0 && n > i.size:
				i.grows++
			}
			i.size = len(r.ISR)
		}
	}
}

// TestReplicationMetrics: what an operator watches follows an ISR that shrinks and comes back.
func TestReplicationMetrics(t *testing.T) {
	const under, atMin, belowMin = "kafka_server_replicamanager_underreplicatedpartitions", "kafka_server_replicamanager_atminisrpartitioncount", "kafka_server_replicamanager_underminisrpartitioncount"
	const shrinks, expands = "kafka_server_replicamanager_isrshrinks_total", "kafka_server_replicamanager_isrexpands_total"
	c := harness.StartCluster(t, 3, harness.WithSetting("replica.lag.time.max.ms", "1000"))
	c.CreateTopic(t, "orders", three, map[string]string{"min.insync.replicas": "2"})
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("v", 10)...)
	leader := c.Nodes[1]
	want := func(name string, value float64) {
		t.Helper()
		harness.Eventually(t, name, func() bool { return metric(t, leader, name) == value })
	}
	want(under, 0)
	want(atMin, 0)
	isr := watchISR(t, c, "orders")
	// A change is counted once; several that the leader hears of together may be one to it.
	counted := func(name string, of func() float64) {
		t.Helper()
		harness.Eventually(t, name, func() bool { n := metric(t, leader, name); return n >= 2 && n <= of() })
	}
	c.AwaitEqual(t, "orders", three...)
	if in, out := metric(t, c.Nodes[2], "kafka_server_brokertopicmetrics_replicationbytesin_total"), metric(t, leader, "kafka_server_brokertopicmetrics_replicationbytesout_total"); in == 0 || out < 2*in {
		t.Errorf("node 2 fetched %v bytes, its leader gave %v to two", in, out)
	}
	c.Gates.Hold(3, 1)
	c.ProduceAll(t, "orders", kgo.LeaderAck(), "w")
	c.AwaitISR(t, "orders", 1, 2)
	want(under, 1)
	want(atMin, 1)
	want(belowMin, 0)
	c.Gates.Hold(2, 1)
	c.ProduceAll(t, "orders", kgo.LeaderAck(), "x")
	c.AwaitISR(t, "orders", 1)
	want(belowMin, 1)
	counted(shrinks, func() float64 { n, _ := isr.count(); return n })
	c.Gates.Release(2, 1)
	c.Gates.Release(3, 1)
	c.AwaitISR(t, "orders", three...)
	want(under, 0)
	counted(expands, func() float64 { _, n := isr.count(); return n })
	harness.Eventually(t, "nobody lacks anything", func() bool {
		return metric(t, c.Nodes[2], "kafka_server_replicafetchermanager_maxlag") == 0 && metric(t, c.Nodes[3], "kafka_server_replicafetchermanager_maxlag") == 0
	})
	before := metric(t, leader, "kafka_server_replicamanager_leadercount")
	c.CreateTopic(t, "other", []types.BrokerID{2, 1}, nil)
	c.AwaitISR(t, "other", 1, 2)
	c.Nodes[2].Stop(t)
	want("kafka_server_replicamanager_leadercount", before+1)
	if n := metric(t, leader, "tidemark_controller_elections_total"); n < 1 {
		t.Errorf("%v elections counted by the controller", n)
	}
	if n := metric(t, leader, "kafka_controller_controllerstats_uncleanleaderelections_total"); n != 0 {
		t.Errorf("%v unclean elections", n)
	}
}
