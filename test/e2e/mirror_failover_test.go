package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/compare"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

func commit(t testing.TB, adm *kadm.Client, group, topic string, offsets ...int64) {
	t.Helper()
	var o kadm.Offsets
	for p, at := range offsets {
		o.Add(kadm.Offset{Topic: topic, Partition: int32(p), At: at, LeaderEpoch: -1, Metadata: "by hand"})
	}
	if err := adm.CommitAllOffsets(harness.Context(t), group, o); err != nil {
		t.Fatal(err)
	}
}

// committed gives a group's committed offset of one partition at a node, -1 if there is none.
func committed(t testing.TB, adm *kadm.Client, group, topic string, partition int32) int64 {
	t.Helper()
	all, err := adm.FetchOffsets(harness.Context(t), group)
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := all.Lookup(topic, partition); ok {
		return o.At
	}
	return -1
}

func failover(t testing.TB, standby *harness.Broker, topics ...string) mirror.Status {
	t.Helper()
	st, err := standby.Mirrors().Failover(harness.Context(t), "m", topics)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range st.Partitions {
		if p.Promotion == nil || p.State != meta.MirrorStopped {
			t.Errorf("%s-%d is not promoted: %+v", p.Topic, p.Partition, p)
		}
	}
	return st
}

func TestFailoverWithProducerAndGroup(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "orders", 2, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	for p := range int32(2) {
		for i := range 20 {
			source.Produce(t, "orders", p, fmt.Sprintf("%d-%d", p, i))
		}
		awaitEnd(t, standby, "orders", p, 20)
	}
	commit(t, source.Admin(t), "readers", "orders", 7, 20)
	adm := standby.Admin(t)
	harness.Eventually(t, "group offsets mirrored", func() bool {
		return committed(t, adm, "readers", "orders", 0) == 7 && committed(t, adm, "readers", "orders", 1) == 20
	})
	checkEqual(t, source.Client(t), standby.Client(t), compare.Options{}, "orders")
	source.Stop(t)

	st := failover(t, standby)
	if st.State != "STOPPED" || len(st.Partitions) != 2 || len(st.Message) == 0 {
		t.Errorf("status: %+v", st)
	}
	for _, p := range st.Partitions {
		pr := p.Promotion
		if pr.LastMirroredOffset != 20 || pr.SrcEndLastSeen != 20 || pr.SrcEndSeenAt <= 0 || pr.PromotedEpoch < 65536 || pr.LastMirroredEpoch < 0 {
			t.Errorf("%s-%d: promotion %+v", p.Topic, p.Partition, pr)
		}
	}
	again := failover(t, standby)
	if !slices.EqualFunc(st.Partitions, again.Partitions, func(a, b mirror.PartitionStatus) bool { return *a.Promotion == *b.Promotion }) {
		t.Errorf("a second failover changed something: %+v, before %+v", again.Partitions, st.Partitions)
	}
	if o := standby.Produce(t, "orders", 0, "after"); o != 20 {
		t.Errorf("the first record after the failover has offset %d, want 20", o)
	}
	group := standby.Client(t, kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	first := map[int32]int64{}
	var got []string
	for len(got) < 14 {
		fetches := group.PollFetches(harness.Context(t))
		if err := fetches.Err0(); err != nil {
			t.Fatalf("after %d records: %v", len(got), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if _, ok := first[r.Partition]; !ok {
				first[r.Partition] = r.Offset
			}
			got = append(got, string(r.Value))
		})
	}
	if first[0] != 7 || got[len(got)-1] != "after" {
		t.Errorf("the group went on at %v, last record %q", first, got[len(got)-1])
	}
	if err := standby.Mirrors().Delete(harness.Context(t), "m"); err != nil {
		t.Errorf("delete after the failover: %v", err)
	}
}

func TestFailoverOfOneTopic(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "a", 1, nil)
	source.CreateTopic(t, "b", 1, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	source.Produce(t, "a", 0, "1")
	source.Produce(t, "b", 0, "1")
	awaitEnd(t, standby, "a", 0, 1)
	awaitEnd(t, standby, "b", 0, 1)
	if st := failover(t, standby, "a"); len(st.Partitions) != 1 || st.State != "RUNNING" {
		t.Errorf("status: %+v", st)
	}
	if o := standby.Produce(t, "a", 0, "here"); o != 1 {
		t.Errorf("offset %d, want 1", o)
	}
	source.Produce(t, "b", 0, "2")
	awaitEnd(t, standby, "b", 0, 2)
	source.Produce(t, "a", 0, "too late")
	source.Produce(t, "b", 0, "3")
	awaitEnd(t, standby, "b", 0, 3)
	if got := standby.Consume(t, "a", 0, 0, 2); !slices.Equal(got, []string{"1", "here"}) {
		t.Errorf("topic a reads %q", got)
	}
	if err := standby.Mirrors().Delete(harness.Context(t), "m"); err == nil {
		t.Errorf("a mirror that still mirrors was deleted")
	}
	if _, err := standby.Mirrors().Failover(harness.Context(t), "m", []string{"none"}); err == nil {
		t.Errorf("a topic that isn't mirrored was failed over")
	}
}

func TestFailoverAbortsOpenTransactions(t *testing.T) {
	source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "tx"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: source.ListenAddrs()})
	producer := func(id string) *kgo.Client {
		c := harness.Connect(t, kgo.SeedBrokers(source.ListenAddrs()...), kgo.TransactionalID(id), kgo.DefaultProduceTopic("tx"),
			kgo.TransactionTimeout(10*time.Minute)) // longer than the test
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	write := func(c *kgo.Client, value string) {
		if err := c.ProduceSync(harness.Context(t), kgo.StringRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	done, aborted, open := producer("done"), producer("aborted"), producer("open")
	write(done, "committed")
	write(aborted, "aborted")
	for c, how := range map[*kgo.Client]kgo.TransactionEndTry{done: kgo.TryCommit, aborted: kgo.TryAbort} {
		if err := c.EndTransaction(harness.Context(t), how); err != nil {
			t.Fatal(err)
		}
	}
	write(open, "open")
	awaitEnd(t, standby, "tx", 0, 5)
	failover(t, standby)
	standby.Produce(t, "tx", 0, "after")
	c := standby.Client(t, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeTopics("tx"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var got []string
	for len(got) < 2 {
		fetches := c.PollFetches(harness.Context(t))
		if err := fetches.Err0(); err != nil {
			t.Fatalf("read %q: %v", got, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	if !slices.Equal(got, []string{"committed", "after"}) {
		t.Errorf("read_committed reads %q", got)
	}
}

func TestFailoverBeforeAnythingWasFetched(t *testing.T) {
	source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	source.KeepControl()
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: source.ListenAddrs()})
	harness.Eventually(t, "the topic is found", func() bool { return statusOf(t, standby, "t", 0).Topic != "" })
	source.Close()
	st := failover(t, standby)
	if o := standby.Produce(t, "t", 0, "first"); o != 0 {
		t.Errorf("offset %d, want 0", o)
	}
	if !strings.Contains(strings.Join(st.Message, "\n"), "writable") {
		t.Errorf("message: %q", st.Message)
	}
}

func TestPauseAndResume(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "t", 1, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	source.Produce(t, "t", 0, "1")
	awaitEnd(t, standby, "t", 0, 1)
	ctx := harness.Context(t)
	if err := standby.Mirrors().Pause(ctx, "m"); err != nil {
		t.Fatal(err)
	}
	if p := statusOf(t, standby, "t", 0); p.State != meta.MirrorPaused || status(t, standby).State != "PAUSED" {
		t.Errorf("paused: %+v", p)
	}
	source.Produce(t, "t", 0, "2")
	if got := standby.Consume(t, "t", 0, 0, 1); !slices.Equal(got, []string{"1"}) {
		t.Errorf("a paused mirror reads %q", got)
	}
	if end := statusOf(t, standby, "t", 0).End; end != types.Offset(1) {
		t.Errorf("a paused mirror went on to %d", end)
	}
	if err := standby.Mirrors().Resume(ctx, "m"); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, standby, "t", 0, 2)
	for _, verb := range []func() error{
		func() error { return standby.Mirrors().Resume(ctx, "m") },
		func() error { return standby.Mirrors().Start(ctx, "m") },
	} {
		if err := verb(); err != nil {
			t.Errorf("a verb on a running mirror: %v", err)
		}
	}
	if err := standby.Mirrors().Pause(ctx, "none"); err == nil {
		t.Errorf("a mirror that doesn't exist was paused")
	}
}
