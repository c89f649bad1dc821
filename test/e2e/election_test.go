package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/broker"
	"tidemark/internal/broker/api"
	"tidemark/internal/core/control"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/wire"
	"tidemark/test/e2e/harness"
)

// fetchAt sends one Fetch v12 to a node, as a consumer that says which epoch it believes in and which its last record has.
func fetchAt(t *testing.T, b *harness.Broker, topic string, offset types.Offset, current, last types.LeaderEpoch) kmsg.FetchResponseTopicPartition {
	t.Helper()
	return newFetcher12(t, b).at(topic, offset, current, last)
}

// fetcher12 sends Fetch v12 to one node.
type fetcher12 struct {
	t    *testing.T
	node *kgo.Broker
}

func newFetcher12(t *testing.T, b *harness.Broker) fetcher12 {
	// The version is kept down: topic ids would need a look-up.
	return fetcher12{t, b.Client(t, kgo.MaxVersions(versionsUpTo(12))).SeedBrokers()[0]}
}

func (f fetcher12) at(topic string, offset types.Offset, current, last types.LeaderEpoch) kmsg.FetchResponseTopicPartition {
	t := f.t
	t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(12)
	req.MaxBytes, req.SessionEpoch = 1<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.PartitionMaxBytes = int64(offset), int32(current), int32(last), 1<<20
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	kr, err := f.node.Request(harness.Context(t), req)
	if err != nil {
		t.Fatal(err)
	}
	resp := kr.(*kmsg.FetchResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("%+v", resp)
	}
	return resp.Topics[0].Partitions[0]
}

// unclean says that the controller elects whoever is left.
var unclean = map[string]string{"unclean.leader.election.enable": "true"}

// TestBackToBackElections is KAFKA-7415 on real brokers: the second of two
// leaders in a row had nothing of the first one's epoch, and its follower still
// finds where the logs part, however low the high watermarks are.
func TestBackToBackElections(t *testing.T) {
	c := harness.StartCluster(t, 3, harness.WithSetting("controlled.shutdown.enable", "false"))
	c.CreateTopic(t, "orders", three, nil)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("v", 10)...)
	for _, id := range three {
		c.Nodes[id].AwaitEnd(t, "orders", 10)
	}
	c.Gates.Hold(3, 2) // 3 sees nothing of what 2 will write
	c.Nodes[1].Stop(t)
	c.Nodes[2].AwaitServed(t, "orders")
	c.ProduceAll(t, "orders", kgo.LeaderAck(), "of epoch 1 alone")
	c.Elect(t, "orders", 3, nil)
	c.Nodes[3].AwaitServed(t, "orders")
	r := c.Record("orders", 0)
	if p := fetchAt(t, c.Nodes[3], "orders", 11, r.LeaderEpoch, r.LeaderEpoch-1); p.DivergingEpoch.Epoch != 0 || p.DivergingEpoch.EndOffset != 10 {
		t.Errorf("asked for 11 with epoch %d: %+v, want to hear that epoch 0 ends at 10", r.LeaderEpoch-1, p.DivergingEpoch)
	}
	c.Nodes[2].AwaitEnd(t, "orders", 10)
	awaitProved(t, c.Nodes[3], "orders")
	c.Gates.Release(3, 2)
	c.AwaitEqual(t, "orders", 2, 3)
	c.Nodes[3].Stop(t)
	c.Nodes[2].AwaitServed(t, "orders")
	if got := c.Nodes[2].Consume(t, "orders", 0, 0, 10); !slices.Equal(got, harness.Values("v", 10)) {
		t.Errorf("read %q", got)
	}
}

// TestElectionsWithoutRecords (KAFKA-10706): leaders that write nothing leave no
// trace that keeps anybody from following, or that is asked about over and over.
func TestElectionsWithoutRecords(t *testing.T) {
	c := harness.StartCluster(t, 2)
	c.CreateTopic(t, "orders", []types.BrokerID{1, 2}, map[string]string{"min.insync.replicas": "2"})
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("v", 3)...)
	const elections, diverged = 20, "tidemark_replication_divergences_total"
	for i := range elections {
		leader := types.BrokerID(2 - i%2)
		before := metric(t, c.Nodes[leader], diverged)
		c.Elect(t, "orders", leader, nil)
		awaitProved(t, c.Nodes[leader], "orders")
		if n := metric(t, c.Nodes[leader], diverged) - before; n > 2 {
			t.Errorf("after election %d node %d answered %v fetches with a divergence: none of the logs differ", i, leader, n)
		}
	}
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("w", 3)...)
	c.AwaitEqual(t, "orders", 1, 2)
	if r := c.Record("orders", 0); len(r.ISR) != 2 || r.LeaderEpoch != elections {
		t.Errorf("%+v", r)
	}
	for _, id := range []types.BrokerID{1, 2} { // the histories hold what the batches imply, and no leader that wrote nothing
		p, _ := c.Nodes[id].PartitionByName("orders", 0)
		harness.Eventually(t, "the history of node "+fmt.Sprint(id), func() bool {
			v, _ := p.View()
			return slices.Equal(v.History.Entries(), []epoch.Entry{{Epoch: 0, Start: 0}, {Epoch: elections, Start: 3}})
		})
	}
}

// TestLeadersThatNeverMeet (KAFKA-6361): two replicas lead in turn, each alone;
// when they meet they agree.
func TestLeadersThatNeverMeet(t *testing.T) {
	c := harness.StartCluster(t, 3, harness.WithSetting("controlled.shutdown.enable", "false"))
	two := []types.BrokerID{1, 2}
	c.CreateTopic(t, "orders", two, unclean)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), "together")
	c.Nodes[2].Stop(t)
	c.AwaitISR(t, "orders", 1)
	up := types.BrokerID(1)
	for i, n := range []int{1, 1, 3, 1, 2} {
		if i > 0 {
			c.Nodes[up].Stop(t)
			up = 3 - up
			c.Restart(t, up)
		}
		c.Nodes[up].AwaitServed(t, "orders")
		c.ProduceAll(t, "orders", kgo.LeaderAck(), harness.Values(strings.Repeat("x", 10*(i+1)), n)...)
	}
	c.Restart(t, 3-up)
	c.AwaitISR(t, "orders", two...)
	c.AwaitEqual(t, "orders", two...)
}

// TestDivergenceMovesNoMark (KAFKA-14704): an old leader with a tail that nobody
// copied never takes the new leader's high watermark for its tail.
func TestDivergenceMovesNoMark(t *testing.T) {
	c := harness.StartCluster(t, 3)
	c.CreateTopic(t, "orders", three, map[string]string{"min.insync.replicas": "2"})
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("v", 10)...)
	for _, id := range three {
		c.Nodes[id].AwaitEnd(t, "orders", 10)
	}
	c.Gates.Hold(2, 1)
	c.Gates.Hold(3, 1)
	c.Gates.HoldRequests(1, 2)
	c.ProduceAll(t, "orders", kgo.LeaderAck(), harness.Values("tail", 100)...)
	c.Elect(t, "orders", 2, without(1))
	c.Nodes[2].AwaitServed(t, "orders")
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("committed", 150)...)
	p, _ := c.Nodes[1].PartitionByName("orders", 0)
	stop, wrong := make(chan struct{}), make(chan types.Offset, 1)
	var looks atomic.Int64
	go func() {
		defer close(wrong)
		for {
			select {
			case <-stop:
				return
			default:
			}
			v, _ := p.View()
			looks.Add(1)
			if e, ok := v.History.EpochForOffset(10); ok && e == 0 && v.LogEnd > 10 && v.HighWatermark > 10 {
				wrong <- v.HighWatermark
				return
			}
		}
	}()
	c.Gates.Release(1, 2)
	c.Nodes[1].AwaitEnd(t, "orders", 160)
	close(stop)
	if hw, bad := harness.Receive(t, "the looks end", wrong); bad {
		t.Errorf("high watermark %d over a tail of epoch 0 that was never committed", hw)
	}
	c.Gates.Release(2, 1)
	c.Gates.Release(3, 1)
	c.AwaitISR(t, "orders", three...)
	c.AwaitEqual(t, "orders", three...)
}

// TestADivergingFetchIsNoProgress (KAFKA-13141): a fetch at the leader's log end
// whose last epoch diverges further down acknowledges nothing.
func TestADivergingFetchIsNoProgress(t *testing.T) {
	c := harness.StartCluster(t, 2)
	c.CreateTopic(t, "orders", []types.BrokerID{1, 2}, map[string]string{"min.insync.replicas": "2"})
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("v", 6)...)
	c.Nodes[2].AwaitEnd(t, "orders", 6)
	c.Gates.Hold(2, 1)
	c.ProduceAll(t, "orders", kgo.LeaderAck(), harness.Values("tail", 4)...)
	c.Gates.HoldAnswers(1, 2)
	c.Elect(t, "orders", 2, nil)
	c.Nodes[2].AwaitServed(t, "orders")
	client := c.Nodes[2].Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var acked atomic.Int64
	for _, v := range harness.Values("new", 4) {
		client.Produce(harness.Context(t), &kgo.Record{Topic: "orders", Value: []byte(v)}, func(_ *kgo.Record, err error) {
			if err == nil {
				acked.Add(1)
			}
		})
	}
	c.Nodes[2].AwaitEnd(t, "orders", 10)
	// 1 fetches at 10 with epoch 0, over and over; no answer reaches it.
	harness.Eventually(t, "1 has asked", func() bool { return c.Gates.Asked(1, 2) > 0 })
	if hw := markOf(t, c.Nodes[2], "orders"); hw > 6 || acked.Load() > 0 {
		t.Errorf("high watermark %d, %d writes acknowledged: the other replica has 6 of these records", hw, acked.Load())
	}
	c.Gates.Release(1, 2)
	harness.Eventually(t, "the writes are acknowledged", func() bool { return acked.Load() == 4 })
	c.AwaitEqual(t, "orders", 1, 2)
}

// TestARestartedLogHasOneMark (KAFKA-9491): a follower whose whole log fell below
// the leader's log start begins anew there, with start, end and mark alike.
func TestARestartedLogHasOneMark(t *testing.T) {
	c := harness.StartCluster(t, 2)
	two := []types.BrokerID{1, 2}
	c.CreateTopic(t, "orders", two, nil)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("v", 6)...)
	c.Nodes[2].Stop(t)
	c.AwaitISR(t, "orders", 1)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("w", 4)...)
	p, _ := c.Nodes[1].PartitionByName("orders", 0)
	if _, err := p.DeleteRecords(harness.Context(t), 10); err != nil {
		t.Fatal(err)
	}
	c.Restart(t, 2)
	c.AwaitISR(t, "orders", two...)
	c.Nodes[1].Stop(t)
	c.Nodes[2].AwaitServed(t, "orders")
	q, _ := c.Nodes[2].PartitionByName("orders", 0)
	if v, _ := q.View(); v.LogStart != 10 || v.LogEnd != 10 || v.HighWatermark != 10 {
		t.Errorf("start %d, end %d, mark %d; all should be 10", v.LogStart, v.LogEnd, v.HighWatermark)
	}
	if a := fetchAt(t, c.Nodes[2], "orders", 10, -1, -1); a.ErrorCode != 0 {
		t.Errorf("fetch at 10: %v", kerr.ErrorForCode(a.ErrorCode))
	}
	if o := c.Nodes[2].Produce(t, "orders", 0, "x"); o != 10 {
		t.Errorf("offset %d", o)
	}
}

// TestALeaderCutOffFromTheMetadata (KIP-320): it acknowledges nothing any more,
// who still fetches from it or with its epoch is fenced, and its tail is cut when it is back.
func TestALeaderCutOffFromTheMetadata(t *testing.T) {
	c := harness.StartCluster(t, 3, harness.WithSetting("broker.session.timeout.ms", "3000"))
	c.CreateTopic(t, "orders", three, map[string]string{"min.insync.replicas": "2"})
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("v", 5)...)
	for _, id := range three {
		c.Nodes[id].AwaitEnd(t, "orders", 5)
	}
	c.Gates.Hold(2, 1)
	c.Gates.Hold(3, 1)
	c.ProduceAll(t, "orders", kgo.LeaderAck(), harness.Values("tail", 3)...)
	var acked atomic.Int64
	old := c.Nodes[1].Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0))
	old.Produce(harness.Context(t), &kgo.Record{Topic: "orders", Value: []byte("never committed")}, func(_ *kgo.Record, err error) {
		if err == nil {
			acked.Add(1)
		}
	})
	c.Nodes[1].AwaitEnd(t, "orders", 9)
	c.Stores[1].Cut(true)
	expire(t, c, 1)
	harness.Eventually(t, "another leads", func() bool {
		r := c.Nodes[2].RecordOf("orders", 0)
		return r.Leader != 1 && !control.NeedsLeader(c.Nodes[2].Image(), r)
	})
	leader := c.Nodes[c.Nodes[2].RecordOf("orders", 0).Leader]
	leader.AwaitServed(t, "orders")
	asks := newFetcher12(t, leader)
	harness.Eventually(t, "the new leader answers", func() bool { // it doesn't for a moment, if the machine stood still for longer than its lease
		err := kerr.ErrorForCode(asks.at("orders", 5, 0, 0).ErrorCode)
		if !errors.Is(err, kerr.NotLeaderForPartition) && !errors.Is(err, kerr.FencedLeaderEpoch) {
			t.Fatalf("a fetch with the old epoch: %v", err)
		}
		return errors.Is(err, kerr.FencedLeaderEpoch)
	})
	harness.Eventually(t, "the old leader serves nothing", func() bool { return c.Nodes[1].Ready() != nil })
	if hw := markOf(t, c.Nodes[1], "orders"); hw > 5 {
		t.Errorf("the old leader's high watermark is %d: nobody has copied more than 5 records", hw)
	}
	leader.Produce(t, "orders", 0, "w")
	c.Gates.Release(2, 1)
	c.Gates.Release(3, 1)
	c.Stores[1].Cut(false)
	c.AwaitISR(t, "orders", three...)
	c.AwaitEqual(t, "orders", three...)
	if n := acked.Load(); n != 0 {
		t.Error("a write to the old leader was acknowledged with acks=all")
	}
	kept, err := c.Nodes[1].Vault().List()
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) != 1 || kept[0].From != 5 || kept[0].To != 9 || kept[0].OrderedBy != log.OrderedByLeader {
		t.Errorf("the old leader's vault holds %+v, want its tail, offsets 5 to 9", kept)
	}
	for _, e := range c.Nodes[1].Mirrors().Events() {
		if e.Kind == "CUT" && e.OrderedBy != log.OrderedByLeader {
			t.Errorf("nothing but the leader ordered a cut here: %+v", e)
		}
	}
}

// expire ends the lease of a node's registration, as its silence would in time.
func expire(t *testing.T, c *harness.Cluster, id types.BrokerID) {
	kv, _, err := c.Store.Get(harness.Context(t), c.Nodes[2].Image().Keys().Broker(id))
	if err != nil {
		t.Fatal(err)
	}
	c.Store.ExpireLease(kv.Lease)
}

// readEnd reads at the high watermark and at the log end of one moment.
func readEnd(p *broker.Partition) error {
	v, ok := p.View()
	if !ok {
		return nil
	}
	for _, at := range []types.Offset{v.HighWatermark, v.LogEnd} {
		var out api.ReadResult
		err := p.Read(at, api.ReadRequest{CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 1 << 10, Replica: types.NoBroker}, &out)
		if out.Release != nil {
			out.Release()
		}
		if err != nil && api.CodeOf(err) != wire.ErrNotLeaderOrFollower {
			return fmt.Errorf("read at %d (high watermark %d, log end %d): %w", at, v.HighWatermark, v.LogEnd, err)
		}
	}
	return nil
}

// TestReadersAtTheEnd (KAFKA-9838): whoever reads at the high watermark or at the
// log end, during appends and changes of the leader, hears no error but those of leadership.
func TestReadersAtTheEnd(t *testing.T) {
	c := harness.StartCluster(t, 2)
	c.CreateTopic(t, "orders", []types.BrokerID{1, 2}, nil)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), "first")
	client := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	stop := time.Now().Add(3 * time.Second)
	bad := make(chan error, 2)
	go func() {
		defer close(bad)
		for time.Now().Before(stop) {
			for _, id := range []types.BrokerID{1, 2} {
				p, _ := c.Nodes[id].PartitionByName("orders", 0)
				if _, err := p.LeaderEpoch(); err != nil {
					continue
				}
				if err := readEnd(p); err != nil {
					bad <- err
					return
				}
			}
		}
	}()
	for i := 0; time.Now().Before(stop); i++ {
		if err := client.ProduceSync(harness.Context(t), &kgo.Record{Topic: "orders", Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if i%50 == 49 {
			c.Elect(t, "orders", types.BrokerID(1+(i/50+1)%2), nil)
		}
	}
	for err := range bad {
		t.Error(err)
	}
	c.AwaitEqual(t, "orders", 1, 2)
}
