package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// longPoll makes a follower's fetch wait at its leader for longer than any test
// does: what happens meanwhile must end the wait.
var longPoll = harness.WithSetting("replica.fetch.wait.max.ms", "600000")

// soon bounds what follows from news in a waiting fetch; without the news it takes ten minutes.
const soon = harness.Patience

func within(t *testing.T, what string, f func()) {
	t.Helper()
	from := time.Now()
	f()
	d := time.Since(from)
	t.Logf("%s: %v", what, d.Round(time.Millisecond))
	if d > soon {
		t.Errorf("%s took %v", what, d)
	}
}

// TestNewsEndsAWait: a partition new in a fetch session, a moved high watermark, a
// raised log start and a new leader don't wait for the end of the session's long poll.
func TestNewsEndsAWait(t *testing.T) {
	c := harness.StartCluster(t, 3, longPoll, harness.WithSetting("replica.socket.timeout.ms", "600000"))
	configs := map[string]string{"min.insync.replicas": "3"}
	for i := range 3 {
		topic := fmt.Sprint("t", i)
		within(t, "the first write of "+topic, func() {
			c.CreateTopic(t, topic, three, configs)
			c.ProduceAll(t, topic, kgo.AllISRAcks(), "a")
		})
	}
	within(t, "the high watermark's way to the followers", func() {
		for i := range 3 {
			for _, id := range three {
				harness.Eventually(t, "every replica knows the high watermark", func() bool { return markOf(t, c.Nodes[id], fmt.Sprint("t", i)) == 1 })
			}
		}
	})
	within(t, "the first write of a new leader", func() {
		c.Elect(t, "t0", 2, nil)
		c.ProduceAll(t, "t0", kgo.AllISRAcks(), "b")
	})
	within(t, "a log start's way to the followers", func() {
		deleteBefore(t, c, "t1", 1, nil)
		for _, id := range three {
			if start := startOf(t, c.Nodes[id], "t1"); start != 1 {
				t.Errorf("node %d: log start %d when the deletion was answered", id, start)
			}
		}
	})
}

func startOf(t *testing.T, b *harness.Broker, topic string) types.Offset {
	t.Helper()
	p, ok := b.PartitionByName(topic, 0)
	if !ok {
		return types.NoOffset
	}
	v, _ := p.View()
	return v.LogStart
}

// deleteBefore deletes records of partition 0, and wants the answer to be an error.
func deleteBefore(t *testing.T, c *harness.Cluster, topic string, at int64, want error, opts ...kgo.Opt) {
	t.Helper()
	admin := kadm.NewClient(c.Client(t, opts...))
	if want != nil {
		admin.SetTimeoutMillis(1000)
	}
	out, err := admin.DeleteRecords(harness.Context(t), kadm.Offsets{topic: {0: {Topic: topic, At: at}}})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := out.Lookup(topic, 0)
	if !errors.Is(got.Err, want) {
		t.Errorf("delete before %d: %v, want %v", at, got.Err, want)
	}
	if want == nil && got.LowWatermark < at {
		t.Errorf("delete before %d: low watermark %d", at, got.LowWatermark)
	}
}

// TestDeleteRecordsWaitsForTheISR (KIP-107): the answer comes when all in-sync
// replicas have raised their log starts, or after the request's time; one outside the ISR isn't waited for.
func TestDeleteRecordsWaitsForTheISR(t *testing.T) {
	c := harness.StartCluster(t, 3)
	c.CreateTopic(t, "orders", three, map[string]string{"min.insync.replicas": "2"})
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("v", 10)...)
	deleteBefore(t, c, "orders", 3, nil)
	for _, id := range three {
		if start := startOf(t, c.Nodes[id], "orders"); start != 3 {
			t.Errorf("node %d: log start %d, want 3", id, start)
		}
	}
	c.Gates.Hold(3, 1)
	deleteBefore(t, c, "orders", 5, kerr.RequestTimedOut, kgo.RequestRetries(0))
	if start := startOf(t, c.Nodes[1], "orders"); start != 5 {
		t.Errorf("the leader's log start %d, want 5", start)
	}
	c.Elect(t, "orders", 1, without(3))
	c.Nodes[1].AwaitServed(t, "orders")
	deleteBefore(t, c, "orders", 6, nil)
	if start := startOf(t, c.Nodes[2], "orders"); start != 6 {
		t.Errorf("node 2: log start %d, want 6", start)
	}
	c.Gates.Release(3, 1)
	c.AwaitISR(t, "orders", three...)
	deleteBefore(t, c, "orders", 2, nil) // gone already
	// A deletion whose leader is replaced meanwhile ends; the client asks the next one.
	c.Gates.Hold(2, 1)
	result := make(chan struct{})
	go func() { defer close(result); deleteBefore(t, c, "orders", 8, nil) }()
	harness.Eventually(t, "the leader has deleted", func() bool { return startOf(t, c.Nodes[1], "orders") == 8 })
	c.Elect(t, "orders", 3, without(2))
	harness.Receive(t, "the deletion ends", result)
}
