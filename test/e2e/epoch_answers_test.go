package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// epochEnd asks one node, and nobody else, where an epoch of partition 0 ends.
func epochEnd(t *testing.T, b *harness.Broker, topic string, current, asked types.LeaderEpoch) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	t.Helper()
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.CurrentLeaderEpoch, p.LeaderEpoch = int32(current), int32(asked)
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	kr, err := b.Client(t).SeedBrokers()[0].Request(harness.Context(t), req)
	if err != nil {
		t.Fatal(err)
	}
	resp := kr.(*kmsg.OffsetForLeaderEpochResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("%+v", resp)
	}
	return resp.Topics[0].Partitions[0]
}

// TestWhereEpochsEnd (Redpanda 5435 and 11864): only the leader says where an epoch ends;
// one that isn't there yet ends nowhere, and a past one has its own number, not the newest.
func TestWhereEpochsEnd(t *testing.T) {
	c := harness.StartCluster(t, 2)
	two := []types.BrokerID{1, 2}
	c.CreateTopic(t, "orders", two, map[string]string{"min.insync.replicas": "2"})
	// Epochs 0, 2 and 5 have records: 0 to 2, 3 and 4, 5 to 7.
	for epoch, n := range []int{3, 0, 2, 0, 0, 3} {
		leader := two[epoch%2]
		if epoch > 0 {
			c.Elect(t, "orders", leader, nil)
		}
		awaitProved(t, c.Nodes[leader], "orders")
		c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values(fmt.Sprint(epoch), n)...)
	}
	c.AwaitEqual(t, "orders", two...)
	type answer struct {
		epoch types.LeaderEpoch
		end   types.Offset
	}
	ask := func(when string, want map[types.LeaderEpoch]answer) {
		t.Helper()
		for _, current := range []types.LeaderEpoch{-1, 5} {
			for asked := types.LeaderEpoch(-1); asked <= 7; asked++ {
				a := epochEnd(t, c.Nodes[2], "orders", current, asked)
				if got := (answer{types.LeaderEpoch(a.LeaderEpoch), types.Offset(a.EndOffset)}); a.ErrorCode != 0 || got != want[asked] {
					t.Errorf("%s: epoch %d ends at %+v (%v), expected %+v", when, asked, got, kerr.ErrorForCode(a.ErrorCode), want[asked])
				}
			}
		}
	}
	none, second, last := answer{-1, -1}, answer{2, 5}, answer{5, 8}
	want := map[types.LeaderEpoch]answer{-1: none, 0: {0, 3}, 1: {0, 3}, 2: second, 3: second, 4: second, 5: last, 6: none, 7: none}
	ask("whole", want)
	for current, code := range map[types.LeaderEpoch]error{4: kerr.FencedLeaderEpoch, 6: kerr.UnknownLeaderEpoch} {
		if a := epochEnd(t, c.Nodes[2], "orders", current, 2); kerr.ErrorForCode(a.ErrorCode) != code || a.LeaderEpoch != -1 || a.EndOffset != -1 {
			t.Errorf("asked in epoch %d: %+v, expected %v", current, a, code)
		}
	}
	for _, current := range []types.LeaderEpoch{-1, 5} {
		if a := epochEnd(t, c.Nodes[1], "orders", current, 0); kerr.ErrorForCode(a.ErrorCode) != kerr.NotLeaderForPartition || a.EndOffset != -1 {
			t.Errorf("a follower says %+v", a)
		}
	}
	p, _ := c.Nodes[2].PartitionByName("orders", 0)
	if _, err := p.DeleteRecords(harness.Context(t), 4); err != nil {
		t.Fatal(err)
	}
	want[0], want[1] = answer{0, 4}, answer{1, 4}
	ask("with its first records deleted", want)
}

// TestACommittedPositionIsCheckedAfterACut (librdkafka 5158): a group stands in records that
// an unclean election has cut, and others are in their place since. Its commit, the answer
// about its epoch and a fetch from there all tell, and a consumer that begins there hears of it.
func TestACommittedPositionIsCheckedAfterACut(t *testing.T) {
	c := harness.StartCluster(t, 3)
	c.CreateTopic(t, "orders", []types.BrokerID{1, 2}, unclean)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("kept", 10)...)
	c.Nodes[2].AwaitEnd(t, "orders", 10)
	c.Nodes[2].Stop(t)
	c.AwaitISR(t, "orders", 1)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("cut", 5)...)
	ctx, offsets := harness.Context(t), make(kadm.Offsets)
	committed := kadm.Offset{Topic: "orders", At: 13, LeaderEpoch: int32(c.Record("orders", 0).LeaderEpoch)}
	offsets.Add(committed)
	if err := c.Nodes[3].Admin(t).CommitAllOffsets(ctx, "readers", offsets); err != nil {
		t.Fatal(err)
	}
	c.Nodes[1].Stop(t)
	c.Restart(t, 2).AwaitServed(t, "orders")
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("instead", 8)...)

	adm := c.Nodes[2].Admin(t)
	harness.Eventually(t, "the group's offset is told", func() bool {
		got, err := adm.FetchOffsets(ctx, "readers")
		o, ok := got.Lookup("orders", 0)
		if err != nil || !ok || o.Err != nil {
			return false
		}
		if o.At != committed.At || o.LeaderEpoch != committed.LeaderEpoch {
			t.Fatalf("committed %+v, told %+v", committed, o.Offset)
		}
		return true
	})
	old := types.LeaderEpoch(committed.LeaderEpoch)
	if a := epochEnd(t, c.Nodes[2], "orders", -1, old); a.ErrorCode != 0 || a.EndOffset != 10 {
		t.Errorf("epoch %d ends: %+v, expected at 10", old, a)
	}
	now := c.Record("orders", 0).LeaderEpoch
	if p := fetchAt(t, c.Nodes[2], "orders", 13, now, old); p.ErrorCode != 0 || p.DivergingEpoch.EndOffset != 10 || len(p.RecordBatches) != 0 {
		t.Errorf("a fetch at 13 after epoch %d: %+v, expected a divergence at 10", old, p)
	}
	reader := c.Client(t, kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit())
	harness.Eventually(t, "the consumer hears that its place was cut", func() bool {
		var loss *kgo.ErrDataLoss
		for _, e := range reader.PollFetches(ctx).Errors() {
			if errors.As(e.Err, &loss) {
				if loss.ConsumedTo != 13 || loss.ResetTo != 10 {
					t.Fatalf("told %+v, expected a cut from 13 to 10", loss)
				}
				return true
			}
		}
		return false
	})
}

// TestNoRewindWithoutACut (Redpanda 5435): a consumer that checks its position at every
// change of the leader, under load, never hears of a cut that wasn't, and reads each record once.
func TestNoRewindWithoutACut(t *testing.T) {
	const elections, each = 60, 10
	c := harness.StartCluster(t, 2)
	c.CreateTopic(t, "orders", []types.BrokerID{1, 2}, map[string]string{"min.insync.replicas": "2"})
	ctx := harness.Context(t)
	writer := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	reader := c.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {0: kgo.NewOffset().At(0)}}))
	read := make(chan error, 1)
	go func() {
		defer close(read)
		for next := 0; next < elections*each; {
			fetches := reader.PollFetches(ctx)
			for _, e := range fetches.Errors() {
				read <- fmt.Errorf("at %d: %w", next, e.Err)
				return
			}
			for _, r := range fetches.Records() {
				if n, err := strconv.Atoi(string(r.Value)); err != nil || n != next || r.Offset != int64(next) {
					read <- fmt.Errorf("read %q at %d, expected %d", r.Value, r.Offset, next)
					return
				}
				next++
			}
		}
	}()
	for i := range elections {
		for n := range each {
			r := &kgo.Record{Topic: "orders", Value: fmt.Append(nil, i*each+n)}
			if err := writer.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		c.Elect(t, "orders", types.BrokerID(2-i%2), nil)
	}
	if err, bad := harness.Receive(t, "the reader ends", read); bad {
		t.Error(err)
	}
}

// TestALeaderWithoutItsTailStopsNobody (KAFKA-7414): the only replica in sync loses its last
// records while all are down, and leads. The other one, whose log is longer, cuts, keeps
// what it cuts, and goes on; so do its other partitions.
func TestALeaderWithoutItsTailStopsNobody(t *testing.T) {
	c := harness.StartCluster(t, 2)
	c.CreateTopic(t, "orders", []types.BrokerID{1, 2}, unclean)
	c.CreateTopic(t, "other", []types.BrokerID{2}, nil)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("kept", 6)...)
	segment := filepath.Join(c.Nodes[1].Dir, "orders-0", "00000000000000000000.log")
	short, err := os.Stat(segment)
	if err != nil {
		t.Fatal(err)
	}
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("lost", 4)...)
	c.Nodes[2].AwaitEnd(t, "orders", 10)
	c.Nodes[2].Stop(t)
	c.AwaitISR(t, "orders", 1)
	c.Nodes[1].Stop(t)
	if err := os.Truncate(segment, short.Size()); err != nil {
		t.Fatal(err)
	}
	c.Restart(t, 1).AwaitServed(t, "orders")
	c.Restart(t, 2).AwaitServed(t, "other")
	c.AwaitISR(t, "orders", 1, 2)
	c.AwaitEqual(t, "orders", 1, 2)
	c.Nodes[2].Produce(t, "other", 0, "goes on")
	if got := c.Nodes[1].Consume(t, "orders", 0, 0, 6); !slices.Equal(got, harness.Values("kept", 6)) {
		t.Errorf("read %q", got)
	}
	kept, err := c.Nodes[2].Vault().List()
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) != 1 || kept[0].From != 6 || kept[0].To != 10 {
		t.Errorf("the vault of node 2 holds %+v, expected offsets 6 to 10", kept)
	}
}
