package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"tidemark/internal/await"
	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
	"tidemark/test/e2e/harness"
)

// protocols are the two that producers of transactions speak: before KIP-890, and since.
func protocols(t *testing.T, f func(t *testing.T, opts ...kgo.Opt)) {
	old := kversion.V3_9_0()
	t.Run("v1", func(t *testing.T) { f(t, kgo.MaxVersions(old)) })
	t.Run("v2", func(t *testing.T) { f(t) })
}

func txnClient(t *testing.T, seeds []string, id string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return harness.Connect(t, append([]kgo.Opt{kgo.SeedBrokers(seeds...), kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
}

// transact writes values into partitions of a topic and ends the transaction.
func transact(t *testing.T, c *kgo.Client, topic string, end kgo.TransactionEndTry, values ...string) {
	t.Helper()
	ctx := harness.Context(t)
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	var records []*kgo.Record
	for i, v := range values {
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(i % 2), Value: []byte(v)})
	}
	if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatalf("produce %v: %v", values, err)
	}
	if err := c.EndTransaction(ctx, end); err != nil {
		t.Fatalf("end of %v: %v", values, err)
	}
}

// stable reads a topic to its last stable offsets and gives the values, sorted.
func stable(t *testing.T, seeds []string, topic string, level kgo.IsolationLevel) []string {
	t.Helper()
	ctx := harness.Context(t)
	c := harness.Connect(t, kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(level))
	defer c.Close() // it is called again and again
	adm := kadm.NewClient(c)
	list := adm.ListCommittedOffsets
	if level == kgo.ReadUncommitted() {
		list = adm.ListEndOffsets
	}
	ends, err := list(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	var values []string
	for len(left) > 0 && ctx.Err() == nil {
		fetches := c.PollFetches(ctx)
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if n := len(p.Records); n > 0 && p.Records[n-1].Offset+2 >= left[p.Partition] {
				delete(left, p.Partition) // what may follow is a marker
			}
		})
	}
	if ctx.Err() != nil {
		t.Fatalf("%s was not read to its end: %v left, %v read", topic, left, values)
	}
	slices.Sort(values)
	return values
}

// awaitStable waits until a topic's read_committed readers see these values: an end is
// answered before its markers are written.
func awaitStable(t *testing.T, seeds []string, topic string, want ...string) {
	t.Helper()
	want = slices.Clone(want)
	slices.Sort(want)
	var got []string
	harness.Eventually(t, "read_committed readers see what was committed", func() bool {
		got = stable(t, seeds, topic, kgo.ReadCommitted())
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		t.Errorf("read committed:\n%v, want\n%v", got, want)
	}
}

// A transaction's records are there whole or not at all, for producers of both
// protocols, one after the other with one transactional id.
func TestTransactions(t *testing.T) {
	protocols(t, func(t *testing.T, opts ...kgo.Opt) {
		b := harness.StartBroker(t)
		b.CreateTopic(t, "t", 2, nil)
		c := txnClient(t, []string{b.Addr}, "id", opts...)
		var want []string
		for i := range 10 {
			kept, dropped := fmt.Sprintf("kept-%d", i), fmt.Sprintf("dropped-%d", i)
			transact(t, c, "t", kgo.TryCommit, kept+"a", kept+"b", kept+"c")
			transact(t, c, "t", kgo.TryAbort, dropped+"a", dropped+"b")
			want = append(want, kept+"a", kept+"b", kept+"c")
		}
		transact(t, c, "t", kgo.TryCommit, "last-a", "last-b")
		want = append(want, "last-a", "last-b")
		awaitStable(t, []string{b.Addr}, "t", want...)
		if all := stable(t, []string{b.Addr}, "t", kgo.ReadUncommitted()); len(all) != len(want)+20 {
			t.Errorf("read uncommitted: %d records, want %d", len(all), len(want)+20)
		}
	})
}

// A second producer with the transactional id ends what the first one has open, and
// fences it.
func TestTransactionsAreFenced(t *testing.T) {
	protocols(t, func(t *testing.T, opts ...kgo.Opt) {
		b := harness.StartBroker(t)
		b.CreateTopic(t, "t", 2, nil)
		ctx := harness.Context(t)
		old := txnClient(t, []string{b.Addr}, "id", opts...)
		if err := old.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := old.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("zombie")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		c := txnClient(t, []string{b.Addr}, "id", opts...)
		transact(t, c, "t", kgo.TryCommit, "new")
		err := old.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("late")}).FirstErr()
		if err == nil {
			err = old.EndTransaction(ctx, kgo.TryCommit)
		}
		if err == nil {
			t.Error("the fenced producer commits")
		}
		awaitStable(t, []string{b.Addr}, "t", "new")
	})
}

// Offsets that are committed in a transaction are the group's with its commit, and
// nobody's with its abort; meanwhile who asks for stable ones is told to wait.
func TestOffsetsInTransactions(t *testing.T) {
	protocols(t, func(t *testing.T, opts ...kgo.Opt) {
		b := harness.StartBroker(t)
		b.CreateTopic(t, "in", 1, nil)
		b.CreateTopic(t, "t", 2, nil)
		b.Produce(t, "in", 0, harness.Values("v", 20)...)
		ctx := harness.Context(t)
		s, err := kgo.NewGroupTransactSession(append([]kgo.Opt{kgo.SeedBrokers(b.Addr), kgo.TransactionalID("etl"), kgo.ConsumerGroup("g"),
			kgo.ConsumeTopics("in"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond)}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		moved, tries := 0, 0
		for moved < 20 && ctx.Err() == nil {
			fetches := s.PollRecords(ctx, 7)
			if err := s.Begin(); err != nil {
				t.Fatal(err)
			}
			n := 0
			fetches.EachRecord(func(r *kgo.Record) {
				n++
				s.Produce(ctx, &kgo.Record{Topic: "t", Partition: int32(r.Offset % 2), Value: r.Value}, nil)
			})
			tries++
			end := kgo.TryCommit
			if tries == 2 {
				end = kgo.TryAbort // read again then
				// What is still on its way would come after its transaction's end, and be refused.
				if err := s.Client().Flush(ctx); err != nil {
					t.Fatal(err)
				}
			}
			done, err := s.End(ctx, end)
			if err != nil {
				t.Fatalf("end of try %d with %d records: %v", tries, n, err)
			}
			if done {
				moved += n
			}
		}
		awaitStable(t, []string{b.Addr}, "t", harness.Values("v", 20)...)
		adm := b.Admin(t)
		harness.Eventually(t, "the last transaction's offset is committed", func() bool {
			offsets, err := adm.FetchOffsets(ctx, "g")
			o, ok := offsets.Lookup("in", 0)
			return err == nil && ok && o.At == 20
		})
	})
}

// On three nodes a transaction outlives the death of its coordinator, of its
// partitions' leaders, and both.
func TestTransactionsOutliveNodes(t *testing.T) {
	protocols(t, func(t *testing.T, opts ...kgo.Opt) {
		c := harness.StartCluster(t, 3, harness.WithSetting("min.insync.replicas", "2"))
		c.CreateTopic(t, "t", []types.BrokerID{1, 2, 3}, map[string]string{"min.insync.replicas": "2"})
		seeds := []string{c.Nodes[1].Addr, c.Nodes[2].Addr, c.Nodes[3].Addr}
		p := txnClient(t, seeds, "id", opts...)
		ctx := harness.Context(t)
		var want []string
		for round, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
			if err := p.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			value := func(part string) string { return fmt.Sprintf("%d-%s", round, part) }
			if err := p.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(value("a"))}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			down := c.Record("t", 0).Leader
			if round == 1 {
				down = coordinatorOf(t, c, "id")
			}
			dir := c.Nodes[down]
			dir.Stop(t)
			if err := p.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(value("b"))}).FirstErr(); err != nil {
				t.Fatalf("round %d, node %d down: %v", round, down, err)
			}
			if err := p.EndTransaction(ctx, end); err != nil {
				t.Fatalf("round %d, node %d down: end: %v", round, down, err)
			}
			if end == kgo.TryCommit {
				want = append(want, value("a"), value("b"))
			}
			back := c.Restart(t, down)
			c.AwaitISR(t, "t", 1, 2, 3)
			back.AwaitKnown(t, p)
		}
		transact(t, p, "t", kgo.TryCommit, "last")
		want = append(want, "last")
		var all []string
		for _, n := range c.Nodes {
			all = append(all, n.Addr)
		}
		awaitStable(t, all, "t", want...)
		c.AwaitEqual(t, "t", 1, 2, 3)
	})
}

func coordinatorOf(t *testing.T, c *harness.Cluster, id string) types.BrokerID {
	t.Helper()
	adm := kadm.NewClient(c.Client(t))
	var at kadm.FindCoordinatorResponse
	await.NoError(t, harness.Patience, fmt.Sprintf("somebody coordinates %q", id), func() error {
		found := adm.FindTxnCoordinators(harness.Context(t), id)
		if at = found[id]; at.Name != id {
			return fmt.Errorf("%+v", found)
		}
		return at.Err
	})
	return types.BrokerID(at.NodeID)
}

// A transaction that its producer leaves open is aborted when its time is over, and a
// batch of it that comes late opens no other one (KIP-890).
func TestTransactionsTimeOut(t *testing.T) {
	b := harness.StartBroker(t, harness.WithSetting("transaction.abort.timed.out.transaction.cleanup.interval.ms", "50"))
	b.CreateTopic(t, "t", 2, nil)
	ctx := harness.Context(t)
	c := txnClient(t, []string{b.Addr}, "id", kgo.TransactionTimeout(3*time.Second)) // the first record comes in time
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("left open")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	adm := b.Admin(t)
	harness.Eventually(t, "the transaction is aborted", func() bool {
		d, err := adm.DescribeTransactions(ctx, "id")
		return err == nil && d["id"].State == "CompleteAbort"
	})
	err := c.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("late")}).FirstErr()
	if err == nil {
		t.Error("a record of a transaction that was aborted is taken")
	}
	b.Produce(t, "t", 0, "after")
	awaitStable(t, []string{b.Addr}, "t", "after")
}

// What operators' tools see of transactions.
func TestTransactionsAreListed(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 2, nil)
	ctx := harness.Context(t)
	c := txnClient(t, []string{b.Addr}, "open")
	transact(t, txnClient(t, []string{b.Addr}, "done"), "t", kgo.TryCommit, "x")
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: 1, Value: []byte("y")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	adm := b.Admin(t)
	list, err := adm.ListTransactions(ctx, nil, nil)
	if err != nil || len(list) != 2 || list["open"].State != "Ongoing" || !strings.HasPrefix(list["done"].State, "Complete") && !strings.HasPrefix(list["done"].State, "Prepare") {
		t.Errorf("listed %+v, %v", list, err)
	}
	d, err := adm.DescribeTransactions(ctx, "open")
	if err != nil || d["open"].State != "Ongoing" || !d["open"].Topics.Lookup("t", 1) {
		t.Errorf("described %+v, %v", d, err)
	}
	var set kadm.TopicsSet
	set.Add("t", 1)
	producers, err := adm.DescribeProducers(ctx, set)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	producers.EachProducer(func(p kadm.DescribedProducer) {
		found = found || p.ProducerID == d["open"].ProducerID && p.CurrentTxnStartOffset == 0
	})
	if !found {
		t.Errorf("producers of t-1: %+v", producers)
	}
}

// A producer's raw requests that Kafka refuses are refused with its codes.
func TestTransactionRefusals(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 2, nil)
	ctx := harness.Context(t)
	c := b.Client(t)
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = kmsg.StringPtr("id"), 1<<30
	var got *kmsg.InitProducerIDResponse
	harness.Eventually(t, "there is a coordinator", func() bool {
		var err error
		got, err = init.RequestWith(ctx, c)
		return err == nil && !kerr.IsRetriable(kerr.ErrorForCode(got.ErrorCode))
	})
	if got.ErrorCode != kerr.InvalidTransactionTimeout.Code {
		t.Errorf("too long a transaction: %v", kerr.ErrorForCode(got.ErrorCode))
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch = "never used", 1, 0
	resp, err := end.RequestWith(ctx, c)
	if err != nil || resp.ErrorCode != kerr.InvalidProducerIDMapping.Code {
		t.Errorf("the end of an id that nobody has: %+v, %v", resp, err)
	}
}

// A batch whose coordinator was asked before a marker of its producer came opens no
// transaction, which nobody would end (KIP-890); nor does one that nobody was asked about.
func TestLateBatchOpensNoTransaction(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	b.AwaitServed(t, "t")
	topic, _ := b.Image().TopicByName("t")
	p, ok := b.Partition(topic.Record.ID, 0)
	if !ok {
		t.Fatal("the partition isn't here")
	}
	ctx := harness.Context(t)
	write := func(sequence int32, guard api.TxnGuard) error {
		builder := batch.NewBuilder(batch.BuilderOptions{LeaderEpoch: -1, Transactional: true, Producer: &batch.Producer{ID: 5, BaseSequence: sequence}})
		builder.Append(1, nil, []byte("v"))
		raw, err := builder.Build()
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Append(ctx, raw, api.AppendRequest{Acks: 1, LeaderEpoch: types.NoLeaderEpoch, Guard: guard})
		return err
	}
	look := func() api.TxnGuard {
		guard, open, err := p.Guard(ctx, 5, 0)
		if err != nil || open {
			t.Fatalf("guard: open %v, %v", open, err)
		}
		return guard
	}
	end := func() {
		marker := batch.NewMarker(batch.Abort, 5, 0, 0, 1)
		if _, err := p.Append(ctx, marker, api.AppendRequest{Acks: 1, LeaderEpoch: types.NoLeaderEpoch, Origin: api.OriginCoordinator}); err != nil {
			t.Fatal(err)
		}
	}
	if err := write(0, 0); wire.CodeOf(err) != wire.ErrInvalidTxnState {
		t.Errorf("nobody was asked: %v", err)
	}
	early := look()
	end()
	if err := write(0, early); wire.CodeOf(err) != wire.ErrInvalidTxnState {
		t.Errorf("asked before the marker: %v", err)
	}
	if err := write(0, look()); err != nil {
		t.Errorf("asked behind it: %v", err)
	}
	if err := write(1, 0); err != nil {
		t.Errorf("the next batch of an open transaction: %v", err)
	}
}
