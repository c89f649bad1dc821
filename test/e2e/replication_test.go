package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/broker"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/test/e2e/harness"
)

// three is where a partition of the tests lies: node 1 is preferred.
var three = []types.BrokerID{1, 2, 3}

func markOf(t *testing.T, b *harness.Broker, topic string) types.Offset {
	t.Helper()
	p, ok := b.PartitionByName(topic, 0)
	if !ok {
		return types.NoOffset
	}
	v, _ := p.View()
	return v.HighWatermark
}

// awaitProved waits until all in-sync replicas have fetched in the leader's present epoch.
func awaitProved(t *testing.T, leader *harness.Broker, topic string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("every in-sync replica of %s has fetched from node %d", topic, leader.NodeID()), func() bool {
		p, ok := leader.PartitionByName(topic, 0)
		all := false
		return ok && p.Do(harness.Context(t), func(o *broker.Owned) error { all = o.Serving() && o.AllFetched(); return nil }) == nil && all
	})
}

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
		harness.Eventually(t, "every replica knows the high watermark", func() bool { return markOf(t, c.Nodes[id], "orders") == 50 })
	}
}

// TestAFollowerComesBack: a replica that was away copies what it missed and is in sync again.
func TestAFollowerComesBack(t *testing.T) {
	c := harness.StartCluster(t, 3, harness.WithSetting("log.segment.bytes", "16384"))
	c.CreateTopic(t, "orders", three, map[string]string{"min.insync.replicas": "2"})
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("before", 20)...)
	c.Nodes[3].Stop(t)
	c.AwaitISR(t, "orders", 1, 2)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values(strings.Repeat("meanwhile", 100), 100)...)
	c.Restart(t, 3)
	c.AwaitISR(t, "orders", three...)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("after", 20)...)
	c.AwaitEqual(t, "orders", three...)
}

// TestMinISRStopsTheMark (KAFKA-15583): below the minimum the high watermark
// stands, acks=all is refused, those who left stay eligible; both come back with the ISR.
func TestMinISRStopsTheMark(t *testing.T) {
	c := harness.StartCluster(t, 3, harness.WithSetting("replica.lag.time.max.ms", "300"))
	c.CreateTopic(t, "orders", three, map[string]string{"min.insync.replicas": "2"})
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), "a")
	c.Gates.Hold(2, 1)
	c.Gates.Hold(3, 1)
	c.ProduceAll(t, "orders", kgo.LeaderAck(), "b")
	r := c.AwaitISR(t, "orders", 1)
	if elr := r.ELRIDs(); len(elr) == 0 || len(elr) > 2 {
		t.Errorf("ELR %v: who left below the minimum should be eligible", elr)
	}
	c.ProduceAll(t, "orders", kgo.LeaderAck(), "c")
	if hw := markOf(t, c.Nodes[1], "orders"); hw != 1 {
		t.Errorf("high watermark %d with the leader alone, want 1", hw)
	}
	client := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordRetries(0), kgo.DisableIdempotentWrite())
	err := client.ProduceSync(harness.Context(t), &kgo.Record{Topic: "orders", Value: []byte("d")}).FirstErr()
	if !errors.Is(err, kerr.NotEnoughReplicas) {
		t.Errorf("acks=all with the leader alone: %v", err)
	}
	c.Gates.Release(2, 1)
	r = c.AwaitISR(t, "orders", 1, 2)
	if len(r.ELR) > 0 {
		t.Errorf("ELR %v with enough in-sync replicas", r.ELR)
	}
	if got := c.Nodes[1].Consume(t, "orders", 0, 0, 3); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("read %q", got)
	}
	c.Gates.Release(3, 1)
	c.AwaitISR(t, "orders", three...)
	c.AwaitEqual(t, "orders", three...)
}

// TestAnOrderlyStopHoldsNothingUp (KAFKA-15021): a follower that leaves is not waited for.
func TestAnOrderlyStopHoldsNothingUp(t *testing.T) {
	c := harness.StartCluster(t, 3)
	c.CreateTopic(t, "orders", three, map[string]string{"min.insync.replicas": "2"})
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), "first")
	client := c.Nodes[1].Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProduceRequestTimeout(20*time.Second), kgo.ProducerLinger(0), kgo.RecordRetries(0))
	stop, ended := make(chan struct{}), make(chan error, 1)
	var slowest, count atomic.Int64
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			from := time.Now()
			if err := client.ProduceSync(harness.Context(t), &kgo.Record{Topic: "orders", Value: []byte("x")}).FirstErr(); err != nil {
				ended <- err
				return
			}
			slowest.Store(max(slowest.Load(), int64(time.Since(from))))
			count.Add(1)
		}
	}()
	harness.Eventually(t, "the load runs", func() bool { return count.Load() > 20 })
	c.Nodes[3].Stop(t)
	c.AwaitISR(t, "orders", 1, 2)
	n := count.Load()
	harness.Eventually(t, "the load goes on", func() bool { return count.Load() > n+20 || len(ended) > 0 })
	close(stop)
	if err, _ := harness.Receive(t, "the load ends", ended); err != nil {
		t.Errorf("a write failed: %v", err)
	}
	if d := time.Duration(slowest.Load()); d > 15*time.Second {
		t.Errorf("a write took %v; the lag time is 30 s", d)
	}
}

// TestARebootedReplicaIsNotItsOldSelf (KIP-903): a join that was proposed for a
// registration that has ended since is refused; the replica, which lost its
// tail meanwhile, joins once it has caught up again.
func TestARebootedReplicaIsNotItsOldSelf(t *testing.T) {
	c := harness.StartCluster(t, 2, harness.WithSetting("controlled.shutdown.enable", "false"))
	two := []types.BrokerID{1, 2}
	id := c.CreateTopic(t, "orders", two, nil)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), "a", "b", "c")
	c.Nodes[2].Stop(t)
	c.AwaitISR(t, "orders", 1)
	key := c.Nodes[1].Image().Keys().Partition(id, 0)
	kept, let := c.Stores[1].Keep(func(txn metastore.Txn) bool {
		return slices.ContainsFunc(txn.Then, func(op metastore.Op) bool { return op.Key == key })
	})
	c.Restart(t, 2)
	harness.Eventually(t, "the join is on its way", func() bool { return kept() > 0 })
	c.Gates.Hold(2, 1)
	crash(t, c.Nodes[2], "orders")
	c.Restart(t, 2)
	let()
	harness.Eventually(t, "the leader knows the new registration", func() bool {
		e, ok := c.Nodes[2].BrokerEpoch()
		seen, known := c.Nodes[1].Image().BrokerEpoch(2)
		return ok && known && e == seen
	})
	for _, m := range c.Record("orders", 0).ISR {
		if m.ID == 2 {
			t.Errorf("ISR %v: the replica is in it before it has fetched", c.Record("orders", 0).ISR)
		}
	}
	c.Gates.Release(2, 1)
	r := c.AwaitISR(t, "orders", two...)
	e, _ := c.Nodes[2].BrokerEpoch()
	if m := r.ISR[slices.IndexFunc(r.ISR, func(m meta.ISRMember) bool { return m.ID == 2 })]; m.BrokerEpoch != e {
		t.Errorf("the ISR names registration %d, present is %d", m.BrokerEpoch, e)
	}
	c.AwaitEqual(t, "orders", two...)
}

// crash stops a node and makes its folder look as after a power failure that
// took the tail of a partition's log.
func crash(t *testing.T, b *harness.Broker, topic string) {
	t.Helper()
	b.Stop(t)
	if err := os.Remove(filepath.Join(b.Dir, ".kafka_cleanshutdown")); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(b.Dir, topic+"-0", "*.log"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no segment: %v", err)
	}
	last := names[len(names)-1]
	info, err := os.Stat(last)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(last, info.Size()/2); err != nil {
		t.Fatal(err)
	}
}
