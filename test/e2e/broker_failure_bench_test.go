package e2e

import (
	"fmt"
	"testing"
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/broker/api"
	"tidemark/internal/core/control"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// startLedBy starts three nodes with n partitions on each, all led by node 1.
func startLedBy(b *testing.B, n int) (*harness.Cluster, types.TopicID) {
	b.Helper()
	c := harness.StartCluster(b, 3, harness.WithSetting("auto.leader.rebalance.enable", "false"))
	assignments := make(map[int32][]types.BrokerID, n)
	for i := range n {
		assignments[int32(i)] = []types.BrokerID{1, types.BrokerID(2 + i%2), types.BrokerID(3 - i%2)}
	}
	two := "2"
	made, err := c.Nodes[1].Topics().Create(harness.Context(b), api.CreateTopic{
		Name: "t", Partitions: -1, ReplicationFactor: -1, Assignments: assignments, Configs: map[string]*string{"min.insync.replicas": &two},
	})
	if err != nil {
		b.Fatal(err)
	}
	awaitWritable(b, c, n, 1, 2, 3)
	return c, made.ID
}

// awaitWritable waits until every partition takes acks=all writes: its leader is
// one of the given nodes, and at least two in-sync replicas have fetched in its epoch.
func awaitWritable(b *testing.B, c *harness.Cluster, n int, nodes ...types.BrokerID) {
	b.Helper()
	for i := range int32(n) {
		benchEventually(b, fmt.Sprintf("partition %d takes writes", i), func() bool {
			for _, id := range nodes {
				p, ok := c.Nodes[id].PartitionByName("t", i)
				if !ok {
					continue
				}
				if _, err := p.LeaderEpoch(); err != nil {
					continue
				}
				proved := false
				_ = p.Do(harness.Context(b), func(o *broker.Owned) error { // not led any more: asked again
					r, _ := o.Record()
					proved = o.Serving() && o.AllFetched() && len(r.ISR) >= 2
					return nil
				})
				if proved {
					return true
				}
			}
			return false
		})
	}
}

// benchEventually waits for as long as the benchmark of 10,000 partitions may need on a busy machine.
func benchEventually(b *testing.B, what string, ok func() bool) {
	b.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(5 * time.Minute); !ok(); <-tick.C {
		if time.Now().After(limit) {
			b.Fatalf("never: %s", what)
		}
	}
}

func awaitElected(b *testing.B, c *harness.Cluster, id types.TopicID) {
	b.Helper()
	benchEventually(b, "every partition has another leader", func() bool {
		image := c.Nodes[2].Image()
		for p := range image.PartitionsOf(id) {
			if p.Record.Leader == 1 || control.NeedsLeader(image, p.Record) {
				return false
			}
		}
		return true
	})
}

// counts are partitions on each of three nodes of one process, which may open only so
// many files: 10,000 are measured with a process each (test/perf, TestFigureFailover).
var counts = []int{1000, 5000}

// BenchmarkBrokerFailure measures what a broker costs that leads n partitions and
// is gone: from the end of its registration until all of them have another leader,
// and until the last one takes acks=all writes. Nodes and metadata store are in
// this process: it is the work that is measured, not the store's disk.
func BenchmarkBrokerFailure(b *testing.B) {
	for _, n := range counts {
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				c, id := startLedBy(b, n)
				b.StartTimer()
				from := time.Now()
				c.Lapse(b, 1)
				awaitElected(b, c, id)
				elected := time.Since(from)
				awaitWritable(b, c, n, 2, 3)
				b.StopTimer()
				b.ReportMetric(float64(elected.Milliseconds()), "ms-elected")
				b.ReportMetric(float64(time.Since(from).Milliseconds()), "ms-writable")
				c.Stop(b)
			}
		})
	}
}

// BenchmarkControlledShutdown measures the orderly end of a broker that leads n
// partitions: until its leaders have moved, until it has ended, and until all take writes.
func BenchmarkControlledShutdown(b *testing.B) {
	for _, n := range counts {
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				c, id := startLedBy(b, n)
				b.StartTimer()
				from := time.Now()
				ended := make(chan struct{})
				go func() { defer close(ended); c.Nodes[1].Stop(b) }()
				awaitElected(b, c, id)
				moved := time.Since(from)
				awaitWritable(b, c, n, 2, 3)
				writable := time.Since(from)
				<-ended
				b.StopTimer()
				b.ReportMetric(float64(moved.Milliseconds()), "ms-moved")
				b.ReportMetric(float64(writable.Milliseconds()), "ms-writable")
				b.ReportMetric(float64(time.Since(from).Milliseconds()), "ms-ended")
				c.Stop(b)
			}
		})
	}
}
