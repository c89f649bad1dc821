//go:build kafka

package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/compare"
	"tidemark/internal/core/types"
	"tidemark/test/kafka/cluster"
)

// ends gives the end offsets of the topics' partitions.
func ends(ctx context.Context, t testing.TB, cl *kgo.Client, topics ...string) map[types.TopicPartition]int64 {
	t.Helper()
	listed, err := kadm.NewClient(cl).ListEndOffsets(ctx, topics...)
	if err != nil {
		t.Fatal(err)
	}
	out := map[types.TopicPartition]int64{}
	listed.Each(func(o kadm.ListedOffset) {
		if o.Err != nil {
			t.Fatalf("end of %s-%d: %v", o.Topic, o.Partition, o.Err)
		}
		out[types.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
	})
	return out
}

// mustBeEqual compares both sides' bytes with a checker of its own and gives the totals.
func mustBeEqual(ctx context.Context, t testing.TB, source, standby *kgo.Client, topics []string, o compare.Options) (batches, bytes int64) {
	t.Helper()
	results, err := compare.Partitions(ctx, compare.Side{Name: "source", Client: source}, compare.Side{Name: "standby", Client: standby}, topics, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		t.Fatal("nothing was compared")
	}
	for _, r := range results {
		if r.Difference != "" {
			t.Errorf("%s: %s", r.TopicPartition, r.Difference)
		}
		batches, bytes = batches+r.Batches, bytes+r.Bytes
	}
	return batches, bytes
}

// mustVerify runs our own verify, which must agree with the checker that the sides are equal.
func mustVerify(t *testing.T, n *node) {
	t.Helper()
	if code, out, errOut := n.tidemark("mirror", "verify", "standby"); code != 0 {
		t.Errorf("mirror verify: exit %d\n%s\n%s", code, out, errOut)
	}
}

// TestMirrorOfEverything is 2 million records of every kind over 24 partitions, mirrored while they are written.
func TestMirrorOfEverything(t *testing.T) {
	ctx := testContext(t, 10*time.Minute)
	kafka := cluster.Start(t, cluster.Options{})
	cl := client(t, kafka.Bootstrap())
	plain := []string{"plain-none", "plain-gzip", "plain-snappy", "plain-lz4", "plain-zstd"}
	for _, name := range plain {
		createTopic(ctx, t, cl, name, 4, 1)
	}
	createTopic(ctx, t, cl, "compacted", 2, 1, "cleanup.policy", "compact", "segment.bytes", "1048576", "min.cleanable.dirty.ratio", "0.01")
	createTopic(ctx, t, cl, "retained", 2, 1, "retention.bytes", "4194304", "segment.bytes", "1048576")
	standby := startStandby(t, kafka.Bootstrap())

	// Two loads one after the other: transactions in the second find idempotent producers' records before them.
	specs := []string{}
	for i, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		specs = append(specs, fmt.Sprintf("topic=plain-%s,codec=%s,count=340000,headers=2,nulls=3,keys=1000,min=10,max=200,seed=%d", codec, codec, i))
	}
	javaLoad(ctx, t, kafka.Bootstrap(), append(specs,
		"topic=compacted,codec=lz4,count=100000,keys=500,nulls=10,min=10,max=300,seed=20",
		"topic=retained,codec=none,count=100000,min=50,max=400,seed=21")...)
	txns := []string{}
	for i, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		txns = append(txns, fmt.Sprintf("topic=plain-%s,codec=%s,count=20000,txn=mix,perTxn=50,min=10,max=2000,headers=1,seed=%d", codec, codec, 100+i))
	}
	javaLoad(ctx, t, kafka.Bootstrap(), txns...)

	all := append(append([]string{}, plain...), "compacted", "retained")
	sourceEnds := ends(ctx, t, cl, all...)
	var records int64
	for _, end := range sourceEnds {
		records += end
	}
	if records < 2_000_000 {
		t.Fatalf("only %d offsets written", records)
	}
	standby.waitCaughtUp(3*time.Minute, sourceEnds)
	to := map[types.TopicPartition]types.Offset{}
	for tp, end := range sourceEnds {
		to[tp] = types.Offset(end)
	}
	batches, bytes := mustBeEqual(ctx, t, cl, client(t, standby.kafka), all,
		compare.Options{To: to, Compacted: func(topic string) bool { return topic == "compacted" }})
	t.Logf("%d records in %d batches, %d bytes: equal", records, batches, bytes)
	mustVerify(t, standby)
}

// TestUncleanElectionAtSource loses records at the source twice; the standby must follow, and keep what was cut in its vault.
func TestUncleanElectionAtSource(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	kafka := cluster.Start(t, cluster.Options{Brokers: 2, Props: map[string]string{"unclean.leader.election.enable": "true"}})
	cl := client(t, kafka.Bootstrap(), kgo.DefaultProduceTopic("unclean"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	createTopic(ctx, t, cl, "unclean", 1, 2, "unclean.leader.election.enable", "true", "min.insync.replicas", "1")
	standby := startStandby(t, kafka.Bootstrap())
	write := func(tag string, n int) {
		t.Helper()
		for i := range n {
			if err := cl.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(tag, i))).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	upTo := func() {
		t.Helper()
		standby.waitCaughtUp(time.Minute, ends(ctx, t, cl, "unclean"))
	}
	write("both", 20)
	upTo()
	for round := range 2 {
		follower, leader := 2-round, 1+round
		waitISR(ctx, t, cl, "unclean", 2)
		moveLeader(ctx, t, cl, "unclean", int32(leader))
		kafka.Kill(follower)
		write(fmt.Sprint("lost", round), 5) // acknowledged by all of an ISR of one
		upTo()                              // the standby now holds what the source is about to lose
		kafka.Kill(leader)
		kafka.Restart(follower)
		waitLeader(ctx, t, cl, "unclean", int32(follower))
		write(fmt.Sprint("after", round), 7)
		upTo()
		mustBeEqual(ctx, t, cl, client(t, standby.kafka), []string{"unclean"}, compare.Options{})
		kafka.Restart(leader)
	}
	code, out, errOut := standby.tidemark("vault", "list", "-o", "json")
	if code != 0 || strings.Count(out, `"records": 5`) != 2 {
		t.Errorf("the vault must hold two cuts of 5 records: exit %d\n%s\n%s", code, out, errOut)
	}
	view, err := cluster.RunJava(ctx, t, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", standby.kafka, "--topic", "__vault.unclean",
		"--from-beginning", "--max-messages", "10", "--timeout-ms", "60000")
	for i := range 10 {
		if want := fmt.Sprintf("lost%d%d", i/5, i%5); err != nil || !strings.Contains(view, want+"\n") {
			t.Errorf("Java's consumer doesn't read %s of the vault: %v\n%s", want, err, view)
			break
		}
	}
	mustVerify(t, standby)
}

func describe(ctx context.Context, t *testing.T, cl *kgo.Client, topic string) kadm.PartitionDetail {
	t.Helper()
	topics, err := kadm.NewClient(cl).ListTopics(ctx, topic)
	if err != nil {
		return kadm.PartitionDetail{Leader: -1}
	}
	return topics[topic].Partitions[0]
}

func waitISR(ctx context.Context, t *testing.T, cl *kgo.Client, topic string, n int) {
	t.Helper()
	eventually(t, time.Minute, "the ISR is full", func() error {
		if p := describe(ctx, t, cl, topic); len(p.ISR) != n {
			return fmt.Errorf("ISR %v", p.ISR)
		}
		return nil
	})
}

func waitLeader(ctx context.Context, t *testing.T, cl *kgo.Client, topic string, id int32) {
	t.Helper()
	eventually(t, time.Minute, fmt.Sprintf("broker %d leads", id), func() error {
		if p := describe(ctx, t, cl, topic); p.Leader != id {
			return fmt.Errorf("leader %d", p.Leader)
		}
		return nil
	})
}

// moveLeader makes the replica the preferred one and elects it.
func moveLeader(ctx context.Context, t *testing.T, cl *kgo.Client, topic string, id int32) {
	t.Helper()
	adm := kadm.NewClient(cl)
	order := []int32{id, 3 - id}
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, 0, order)
	if _, err := adm.AlterPartitionAssignments(ctx, req); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the leader has moved", func() error {
		set := kadm.TopicsSet{}
		set.Add(topic, 0)
		_, _ = adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
		if p := describe(ctx, t, cl, topic); p.Leader != id {
			return fmt.Errorf("leader %d", p.Leader)
		}
		return nil
	})
}

// TestSourceInMotion moves leaders, restarts brokers and kills the standby ten times while both are under load.
func TestSourceInMotion(t *testing.T) {
	ctx := testContext(t, 8*time.Minute)
	kafka := cluster.Start(t, cluster.Options{Brokers: 3})
	cl := client(t, kafka.Bootstrap())
	topics := []string{"motion-a", "motion-b"}
	for _, name := range topics {
		createTopic(ctx, t, cl, name, 6, 3, "min.insync.replicas", "2")
	}
	standby := startStandby(t, kafka.Bootstrap())
	done := make(chan []loadResult, 1)
	go func() {
		done <- javaLoad(ctx, t, kafka.Bootstrap(), "topic=motion-a,count=90000,rate=2000,codec=lz4,min=20,max=400,seed=1",
			"topic=motion-b,count=90000,rate=2000,codec=zstd,txn=mix,perTxn=40,min=20,max=400,seed=2")
	}()
	for i := range 10 {
		switch i % 3 {
		case 0:
			kafka.Stop(1 + i%2)
			kafka.Restart(1 + i%2)
		case 1:
			_, _ = kadm.NewClient(cl).ElectLeaders(ctx, kadm.ElectPreferredReplica, nil)
		case 2:
			kafka.Kill(3)
			kafka.Restart(3)
		}
		standby.kill()
		standby.start()
		standby.waitReady()
	}
	results := <-done
	for _, r := range results {
		if r.Topic == "motion-a" && r.Acked != r.Sent {
			t.Errorf("%s: %d of %d acked", r.Topic, r.Acked, r.Sent)
		}
	}
	standby.waitCaughtUp(2*time.Minute, ends(ctx, t, cl, topics...))
	batches, _ := mustBeEqual(ctx, t, cl, client(t, standby.kafka), topics, compare.Options{})
	t.Logf("%d batches equal after ten kills", batches)
	mustVerify(t, standby)
}
