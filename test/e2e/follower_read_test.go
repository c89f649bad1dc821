package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/config"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
	"tidemark/test/e2e/harness"
)

// fetchedFrom counts the bytes of Fetch answers by the broker that gave them.
type fetchedFrom [4]atomic.Int64

// OnBrokerRead implements kgo.HookBrokerRead.
func (f *fetchedFrom) OnBrokerRead(b kgo.BrokerMetadata, key int16, n int, _, _ time.Duration, err error) {
	if key == 1 && err == nil && b.NodeID > 0 && int(b.NodeID) < len(f) {
		f[b.NodeID].Add(int64(n))
	}
}

// consume reads n values of partition 0 on from where the client stands.
func consume(t *testing.T, c *kgo.Client, n int) []string {
	t.Helper()
	var got []string
	for len(got) < n {
		fetches := c.PollRecords(harness.Context(t), n-len(got))
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d of %d values: %v", len(got), n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return got
}

// TestConsumersReadFromTheirRack (KIP-392): a consumer reads from the follower of
// its rack, everything and in order, and from the leader when that follower has gone.
func TestConsumersReadFromTheirRack(t *testing.T) {
	c := harness.StartCluster(t, 3, harness.WithRacks("a", "b", "c"), harness.WithSetting("replica.selector.class", config.RackAwareSelector))
	c.CreateTopic(t, "orders", three, map[string]string{"min.insync.replicas": "2"})
	noise := make([]byte, 1000) // so that a record has its size also where clients compress
	_, _ = rand.Read(noise)
	big := hex.EncodeToString(noise)
	first, second, third := harness.Values("first"+big, 50), harness.Values("second"+big, 50), harness.Values("third"+big, 50)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), first...)
	c.AwaitISR(t, "orders", three...)
	var from fetchedFrom
	client := c.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {0: kgo.NewOffset().AtStart()}}), kgo.Rack("b"), kgo.WithHooks(&from),
		kgo.RecheckPreferredReplicaInterval(2*time.Second)) // else the client never gives up a broker that has gone
	if got := consume(t, client, len(first)); !slices.Equal(got, first) {
		t.Errorf("read %.200q", got)
	}
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), second...)
	if got := consume(t, client, len(second)); !slices.Equal(got, second) {
		t.Errorf("read %.200q", got)
	}
	if one, two := from[1].Load(), from[2].Load(); two < 50*int64(len(big)) || two < 20*one { // the leader is asked again and again, and answers without records
		t.Errorf("%d bytes from the leader and %d from the follower in the consumer's rack", one, two)
	}
	if b := from[3].Load(); b > 0 {
		t.Errorf("%d bytes from a broker of another rack", b)
	}
	c.Nodes[2].Stop(t)
	c.AwaitISR(t, "orders", 1, 3)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), third...)
	if got := consume(t, client, len(third)); !slices.Equal(got, third) {
		t.Errorf("read %.200q", got)
	}
}

// TestAFollowersTailIsNeverShown (KAFKA-14704): a former leader with a tail that
// nobody else has shows none of it, and nothing of the new leader's high
// watermark before its own log agrees with the new leader's.
func TestAFollowersTailIsNeverShown(t *testing.T) {
	c := harness.StartCluster(t, 3)
	c.CreateTopic(t, "orders", three, nil)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("shared", 5)...)
	for _, id := range three {
		harness.Eventually(t, "every replica knows the high watermark", func() bool { return markOf(t, c.Nodes[id], "orders") == 5 })
	}
	c.Gates.Hold(2, 1)
	c.Gates.Hold(3, 1)
	c.ProduceAll(t, "orders", kgo.LeaderAck(), harness.Values("tail", 200)...)
	c.Gates.Hold(1, 2)
	c.Elect(t, "orders", 2, without(1))
	c.Nodes[2].AwaitServed(t, "orders")
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("new", 300)...)
	harness.Eventually(t, "node 1 knows that it follows", func() bool { return c.Nodes[1].RecordOf("orders", 0).Leader == 2 })
	p1, _ := c.Nodes[1].PartitionByName("orders", 0)
	harness.Eventually(t, "its replica follows", func() bool { _, err := p1.LeaderEpoch(); return err != nil })
	f := newFetcher12(t, c.Nodes[1])
	served := 0
	read := func(at types.Offset) bool {
		p := f.at("orders", at, -1, -1)
		if bytes.Contains(p.RecordBatches, []byte("tail-")) {
			t.Fatalf("offset %d: a record of the former leader's tail, high watermark %d", at, p.HighWatermark)
		}
		switch code := wire.ErrCode(p.ErrorCode); code {
		case wire.None:
			served++
			return true
		case wire.ErrNotLeaderOrFollower, wire.ErrOffsetOutOfRange:
		default:
			t.Errorf("offset %d: %v", at, code)
		}
		return false
	}
	for at := types.Offset(0); at < 300; at += 7 {
		if read(at) {
			t.Errorf("offset %d is served by a follower that has not heard its leader", at)
		}
	}
	c.Gates.Release(1, 2)
	harness.Eventually(t, "the former leader serves all of the new leader's records", func() bool {
		for at := types.Offset(0); at < 300; at += 7 {
			read(at)
		}
		return markOf(t, c.Nodes[1], "orders") == 305
	})
	if !read(304) || served == 0 {
		t.Error("the follower serves nothing in the end")
	}
	c.AwaitEqual(t, "orders", 1, 2)
}

// TestWhatAFollowerAnswers: the errors by which a consumer finds back to the leader.
func TestWhatAFollowerAnswers(t *testing.T) {
	c := harness.StartCluster(t, 2)
	c.CreateTopic(t, "orders", []types.BrokerID{1, 2}, map[string]string{"min.insync.replicas": "2"})
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("v", 5)...)
	c.Elect(t, "orders", 1, nil)
	awaitProved(t, c.Nodes[1], "orders")
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("w", 5)...)
	harness.Eventually(t, "the follower knows the high watermark", func() bool { return markOf(t, c.Nodes[2], "orders") == 10 })
	c.Gates.Hold(2, 1)
	c.ProduceAll(t, "orders", kgo.LeaderAck(), harness.Values("x", 5)...)
	f := newFetcher12(t, c.Nodes[2])
	for name, tc := range map[string]struct {
		at            types.Offset
		current, last types.LeaderEpoch
		want          wire.ErrCode
		records       bool
	}{
		"the beginning":                          {0, 1, -1, wire.None, true},
		"the end":                                {10, 1, 1, wire.None, false},
		"beyond what it holds":                   {11, 1, -1, wire.ErrOffsetOutOfRange, false},
		"an epoch that it has no record of":      {10, 1, 7, wire.ErrOffsetOutOfRange, false},
		"beyond where the epoch ends":            {9, 1, 0, wire.ErrOffsetOutOfRange, false},
		"an older leader epoch":                  {0, 0, -1, wire.ErrFencedLeaderEpoch, false},
		"a leader epoch that it hasn't heard of": {0, 2, -1, wire.ErrUnknownLeaderEpoch, false},
	} {
		p := f.at("orders", tc.at, tc.current, tc.last)
		if wire.ErrCode(p.ErrorCode) != tc.want || (len(p.RecordBatches) > 0) != tc.records || p.DivergingEpoch.Epoch >= 0 {
			t.Errorf("%s: %v, %d bytes, diverging %+v; want %v", name, wire.ErrCode(p.ErrorCode), len(p.RecordBatches), p.DivergingEpoch, tc.want)
		}
	}
}
