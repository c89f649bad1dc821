package e2e

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
	"tidemark/test/e2e/harness"
)

// hint is what an answer says of a partition's leader (KIP-951).
type hint struct {
	code   wire.ErrCode
	leader int32
	epoch  int32
	port   int32 // of the leader, 0 if the answer doesn't give its address
}

func produceHint(t *testing.T, b *harness.Broker, topic types.TopicID) hint {
	t.Helper()
	raw, err := rawRecord("waits for everybody")
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, int32(harness.Patience/time.Millisecond)
	rt := kmsg.NewProduceRequestTopic()
	rt.TopicID = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = raw
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	kr, err := b.Client(t).SeedBrokers()[0].Request(harness.Context(t), req)
	if err != nil {
		t.Fatal(err)
	}
	out := kr.(*kmsg.ProduceResponse)
	got := out.Topics[0].Partitions[0]
	h := hint{code: wire.ErrCode(got.ErrorCode), leader: got.CurrentLeader.LeaderID, epoch: got.CurrentLeader.LeaderEpoch}
	for _, n := range out.Brokers {
		if n.NodeID == h.leader {
			h.port = n.Port
		}
	}
	return h
}

func rawRecord(value string) ([]byte, error) {
	b := batch.NewBuilder(batch.BuilderOptions{})
	b.Append(types.Millis(time.Now().UnixMilli()), nil, []byte(value))
	return b.Build()
}

func fetchHint(t *testing.T, b *harness.Broker, topic types.TopicID, offset types.Offset, current types.LeaderEpoch) hint {
	t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaState.ID, req.MaxBytes, req.MinBytes, req.SessionEpoch = -1, 1<<20, 1, -1
	req.MaxWaitMillis = int32(harness.Patience / time.Millisecond)
	rt := kmsg.NewFetchRequestTopic()
	rt.TopicID = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.PartitionMaxBytes = int64(offset), int32(current), -1, 1<<20
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	kr, err := b.Client(t).SeedBrokers()[0].Request(harness.Context(t), req)
	if err != nil {
		t.Fatal(err)
	}
	out := kr.(*kmsg.FetchResponse)
	got := out.Topics[0].Partitions[0]
	h := hint{code: wire.ErrCode(got.ErrorCode), leader: got.CurrentLeader.LeaderID, epoch: got.CurrentLeader.LeaderEpoch}
	for _, n := range out.Brokers {
		if n.NodeID == h.leader {
			h.port = n.Port
		}
	}
	return h
}

// TestLeaderHints (KIP-951): requests that wait at a leader when another is
// elected are answered at once, with the new one's id, epoch and address; so is
// a request that comes later, and one that names an older epoch to the new leader.
func TestLeaderHints(t *testing.T) {
	c := harness.StartCluster(t, 2)
	id := c.CreateTopic(t, "orders", []types.BrokerID{1, 2}, map[string]string{"min.insync.replicas": "2"})
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), "a")
	c.Gates.Hold(2, 1) // so that acks=all waits
	results := make(chan hint, 2)
	began := time.Now()
	go func() { results <- produceHint(t, c.Nodes[1], id) }()
	go func() { results <- fetchHint(t, c.Nodes[1], id, 1, 0) }()
	c.Nodes[1].AwaitEnd(t, "orders", 2) // the append waits for node 2
	c.Elect(t, "orders", 2, nil)
	want := hint{code: wire.ErrNotLeaderOrFollower, leader: 2, epoch: 1, port: portOf(t, c.Nodes[2])}
	for range 2 {
		got, _ := harness.Receive(t, "a hint", results)
		// A consumer's fetch that names epoch 0 may hear that it is fenced: node 1 knows of epoch 1.
		if got.code == wire.ErrFencedLeaderEpoch {
			got.code = wire.ErrNotLeaderOrFollower
		}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if d := time.Since(began); d > harness.Patience/2 {
		t.Errorf("answered after %v", d)
	}
	if got := produceHint(t, c.Nodes[1], id); got != want {
		t.Errorf("a later write: %+v, want %+v", got, want)
	}
	c.Nodes[2].AwaitServed(t, "orders")
	want.code = wire.ErrFencedLeaderEpoch
	if got := fetchHint(t, c.Nodes[2], id, 0, 0); got != want {
		t.Errorf("an older epoch at the new leader: %+v, want %+v", got, want)
	}
}

func portOf(t *testing.T, b *harness.Broker) int32 {
	t.Helper()
	e, ok := b.Image().Broker(b.NodeID())
	if !ok || len(e.Record.Endpoints) == 0 {
		t.Fatal("the node isn't registered")
	}
	return e.Record.Endpoints[0].Port
}
