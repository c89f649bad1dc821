package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// TestALateAnswerIsNotTaken (KAFKA-18991): a leader's answer to a fetch is on its
// way while the leader loses the partition, cuts what it said, and is elected
// again. The follower's log still ends at the offset that it had asked for, and
// follows the same node: the answer is of an older leader epoch all the same.
func TestALateAnswerIsNotTaken(t *testing.T) {
	// Fetches that wait long: no answer without news is under way when answers are held.
	c := harness.StartCluster(t, 3, harness.WithSetting("replica.fetch.wait.max.ms", "20000"))
	c.CreateTopic(t, "orders", three, map[string]string{"min.insync.replicas": "1"})
	c.CreateTopic(t, "other", []types.BrokerID{1, 2}, nil) // node 2 fetches from node 1 all the time
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("v", 10)...)
	for _, id := range three {
		c.Nodes[id].AwaitEnd(t, "orders", 10)
		harness.Eventually(t, "every replica knows the mark", func() bool { return markOf(t, c.Nodes[id], "orders") == 10 })
	}
	c.Gates.Hold(3, 1)
	c.Gates.HoldAnswers(2, 1)
	const sent = "kafka_server_brokertopicmetrics_replicationbytesout_total"
	given := metric(t, c.Nodes[1], sent)
	c.ProduceAll(t, "orders", kgo.LeaderAck(), "old")
	harness.Eventually(t, "the record is on its way to node 2", func() bool {
		return metric(t, c.Nodes[1], sent) > given
	})
	c.Gates.Hold(2, 3)
	c.Elect(t, "orders", 3, nil)
	c.Nodes[3].AwaitServed(t, "orders")
	c.Nodes[1].AwaitEnd(t, "orders", 10)
	c.ProduceAll(t, "orders", kgo.LeaderAck(), "new")
	c.Nodes[1].AwaitEnd(t, "orders", 11)
	c.Elect(t, "orders", 1, nil)
	c.Nodes[1].AwaitServed(t, "orders")
	epoch := c.Record("orders", 0).LeaderEpoch
	harness.Eventually(t, "node 2 follows node 1 again", func() bool { return c.Nodes[2].RecordOf("orders", 0).LeaderEpoch == epoch })
	c.Nodes[2].AwaitEnd(t, "orders", 10)

	for _, pair := range [][2]types.BrokerID{{2, 1}, {2, 3}, {3, 1}} {
		c.Gates.Release(pair[0], pair[1])
	}
	c.AwaitEqual(t, "orders", three...)
	kept, err := c.Nodes[2].Vault().List()
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) > 0 {
		t.Errorf("node 2 took the late answer, and had to cut it again: %+v", kept[0])
	}
}

// without takes a replica out of the ISR, with an election by hand.
func without(id types.BrokerID) func(*meta.PartitionRecord) {
	return func(r *meta.PartitionRecord) {
		r.ISR = slices.DeleteFunc(r.ISR, func(m meta.ISRMember) bool { return m.ID == id })
	}
}

// TestTheSecondBatchWaitsForTheFirst (KAFKA-15591): of two batches that a producer
// has on their way the first is refused while replicas are missing, and the second
// arrives when they are back. Java's producer sends the first one again for ever if
// the second was taken; refused, it comes again behind it.
func TestTheSecondBatchWaitsForTheFirst(t *testing.T) {
	c := harness.StartCluster(t, 2)
	c.CreateTopic(t, "orders", []types.BrokerID{1, 2}, map[string]string{"min.insync.replicas": "2"})
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), "another producer's")
	cl := rawClient(t, c.Nodes[1])
	got, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(harness.Context(t), cl)
	if err != nil || got.ErrorCode != 0 {
		t.Fatal(err, got)
	}
	send := func(sequence int32, want error) {
		t.Helper()
		b := batch.NewBuilder(batch.BuilderOptions{Producer: &batch.Producer{ID: types.ProducerID(got.ProducerID), Epoch: got.ProducerEpoch, BaseSequence: sequence}})
		b.Append(1, nil, fmt.Append(nil, sequence))
		raw, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		if p := produceRaw(t, cl, "orders", 0, -1, raw); !errors.Is(kerr.ErrorForCode(p.ErrorCode), want) {
			t.Errorf("sequence %d: %v, want %v", sequence, kerr.ErrorForCode(p.ErrorCode), want)
		}
	}
	c.Gates.Hold(2, 1)
	c.ProduceAll(t, "orders", kgo.LeaderAck(), "that node 2 lacks")
	// Not by a short lag time: then a machine that stands still takes node 2 out again, whenever it does.
	c.Elect(t, "orders", 1, without(2))
	c.Nodes[1].AwaitServed(t, "orders")
	harness.Eventually(t, "the leader knows who is in sync", func() bool { return len(c.Nodes[1].RecordOf("orders", 0).ISR) == 1 })
	send(0, kerr.NotEnoughReplicas)
	c.Gates.Release(2, 1)
	c.AwaitISR(t, "orders", 1, 2)
	harness.Eventually(t, "the leader takes writes", func() bool { return markOf(t, c.Nodes[1], "orders") == 2 })
	send(1, kerr.OutOfOrderSequenceNumber)
	send(0, nil)
	send(1, nil)
	send(0, nil) // a repetition
	if got := c.Nodes[1].Consume(t, "orders", 0, 0, 4); got[2] != "0" || got[3] != "1" {
		t.Errorf("read %q", got)
	}
}

// TestTheLatestOffsetNeverFalls (KAFKA-2334, KIP-207): whoever asks for the latest
// offset a thousand times a second, of whatever node leads, during fifty changes
// of the leader under load, hears it rise, or that it isn't known yet.
func TestTheLatestOffsetNeverFalls(t *testing.T) {
	c := harness.StartCluster(t, 3)
	c.CreateTopic(t, "orders", three, map[string]string{"min.insync.replicas": "2"})
	ctx, stop := context.WithCancel(harness.Context(t))
	defer stop()
	var work sync.WaitGroup
	defer harness.Join(t, "load and readers end", &work)
	defer stop()
	var acked atomic.Int64
	load(t, ctx, &work, c, &acked)

	var answers atomic.Int64
	ask := newLister(t, c)
	work.Go(func() {
		every := time.NewTicker(time.Millisecond)
		defer every.Stop()
		var top int64
		for {
			select {
			case <-every.C:
			case <-ctx.Done():
				return
			}
			for _, id := range three {
				got, known := ask(ctx, id)
				if known && got < top {
					t.Errorf("node %d says that the latest offset is %d, after %d", id, got, top)
					return
				}
				if known {
					top = max(top, got)
					answers.Add(1)
				}
			}
		}
	})
	for i := range 50 {
		writes, told := acked.Load(), answers.Load()
		c.Elect(t, "orders", types.BrokerID(1+i%3), nil)
		harness.Eventually(t, "writes and answers go on", func() bool { return acked.Load() > writes+5 && answers.Load() > told+5 })
	}
}

// load writes with acks=all until ctx ends, ten records at a time.
func load(t *testing.T, ctx context.Context, work *sync.WaitGroup, c *harness.Cluster, acked *atomic.Int64) {
	client := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.MetadataMinAge(10*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond }))
	room := make(chan struct{}, 10)
	work.Go(func() {
		for {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return
			}
			client.Produce(ctx, &kgo.Record{Topic: "orders", Value: []byte("x")}, func(_ *kgo.Record, err error) {
				<-room
				if err == nil {
					acked.Add(1)
				}
			})
		}
	})
}

// newLister gives a way to ask a node for the latest offset. It is unknown while
// the node doesn't lead, or doesn't know yet what its predecessor may have shown.
func newLister(t *testing.T, c *harness.Cluster) func(ctx context.Context, node types.BrokerID) (int64, bool) {
	nodes := map[types.BrokerID]*kgo.Broker{}
	for id, b := range c.Nodes {
		nodes[id] = b.Client(t).SeedBrokers()[0]
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = "orders"
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.CurrentLeaderEpoch, p.Timestamp = -1, -1
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	return func(ctx context.Context, id types.BrokerID) (int64, bool) {
		kr, err := nodes[id].Request(ctx, req)
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("ListOffsets of node %d: %v", id, err)
			}
			return 0, false
		}
		got := kr.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		switch err := kerr.ErrorForCode(got.ErrorCode); {
		case err == nil:
			return got.Offset, true
		case !errors.Is(err, kerr.NotLeaderForPartition) && !errors.Is(err, kerr.OffsetNotAvailable):
			t.Errorf("ListOffsets of node %d: %v", id, err)
		}
		return 0, false
	}
}

// TestReadersAtTheEndOverTheWire (KAFKA-9838): four readers, at the high
// watermark, at the log end and one above it, during 4,000 appends and 100 changes
// of the leader. Each names the leader epoch in which it saw these offsets: the
// first two hear of no error but of leadership, the last that it is out of range,
// or that the log has grown.
func TestReadersAtTheEndOverTheWire(t *testing.T) {
	c := harness.StartCluster(t, 2)
	c.CreateTopic(t, "orders", []types.BrokerID{1, 2}, nil)
	ctx, stop := context.WithCancel(harness.Context(t))
	defer stop()
	var work sync.WaitGroup
	defer harness.Join(t, "load and readers end", &work)
	defer stop()
	var acked, reads, above atomic.Int64
	load(t, ctx, &work, c, &acked)
	for n := range 4 {
		work.Go(func() {
			fetchers := map[types.BrokerID]fetcher12{1: newFetcher12(t, c.Nodes[1]), 2: newFetcher12(t, c.Nodes[2])}
			for i := n; ctx.Err() == nil; i++ {
				id := types.BrokerID(1 + i%2)
				if err := readAtEnd(c.Nodes[id], fetchers[id], &above); err != nil {
					t.Error(err)
					return
				}
				reads.Add(1)
			}
		})
	}
	const appends, changes = 4000, 100
	for i := range changes {
		c.Elect(t, "orders", types.BrokerID(1+i%2), nil)
		harness.Eventually(t, "writes go on", func() bool { return acked.Load() >= int64(appends*(i+1)/changes) })
	}
	stop()
	harness.Join(t, "load and readers end", &work)
	if reads.Load() < 200 || above.Load() == 0 {
		t.Errorf("%d reads, %d above the end: the test tested nothing", reads.Load(), above.Load())
	}
	c.AwaitEqual(t, "orders", 1, 2)
}

// readAtEnd reads at a node's high watermark, at its log end and above that, if it leads.
func readAtEnd(b *harness.Broker, f fetcher12, above *atomic.Int64) error {
	p, _ := b.PartitionByName("orders", 0)
	epoch, err := p.LeaderEpoch()
	if err != nil {
		return nil
	}
	v, _ := p.View()
	if again, err := p.LeaderEpoch(); err != nil || again != epoch {
		return nil // what it shows may be of a log that it has cut since
	}
	for i, at := range []types.Offset{v.HighWatermark, v.LogEnd, v.LogEnd + 1} {
		got := f.at("orders", at, epoch, -1)
		switch err := kerr.ErrorForCode(got.ErrorCode); {
		case err == nil, errors.Is(err, kerr.NotLeaderForPartition), errors.Is(err, kerr.FencedLeaderEpoch), errors.Is(err, kerr.UnknownLeaderEpoch):
		case i == 2 && errors.Is(err, kerr.OffsetOutOfRange):
			above.Add(1)
		default:
			return fmt.Errorf("read at %d (high watermark %d, log end %d, epoch %d): %w", at, v.HighWatermark, v.LogEnd, epoch, err)
		}
	}
	return nil
}
