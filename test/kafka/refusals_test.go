//go:build kafka

package kafka_test

import (
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

// TestTopicMadeAnew deletes and creates a mirrored topic at the source: the standby keeps what it has and says why.
func TestTopicMadeAnew(t *testing.T) {
	ctx := testContext(t, 3*time.Minute)
	kafka := cluster.Start(t, cluster.Options{})
	cl := client(t, kafka.Bootstrap())
	fillTopic(ctx, t, cl, "anew", 50)
	fillTopic(ctx, t, cl, "other", 10)
	standby := startStandby(t, kafka.Bootstrap())
	standby.waitCaughtUp(30*time.Second, ends(ctx, t, cl, "anew", "other"))
	if _, err := kadm.NewClient(cl).DeleteTopic(ctx, "anew"); err != nil {
		t.Fatal(err)
	}
	cl2 := client(t, kafka.Bootstrap())
	eventually(t, 60*time.Second, "the name is free", func() error {
		_, err := kadm.NewClient(cl2).CreateTopic(ctx, 1, 1, nil, "anew")
		return err
	})
	p := standby.reasonOf(30*time.Second, "anew", "FAILED")
	if !strings.Contains(p.Reason, "TOPIC_ID_MISMATCH") || p.End != 50 {
		t.Errorf("%+v", p)
	}
	fill := client(t, kafka.Bootstrap(), kgo.DefaultProduceTopic("other"))
	for i := range 10 {
		if err := fill.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint("more", i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	standby.waitCaughtUp(30*time.Second, ends(ctx, t, cl, "other"))
}

// TestRetentionPassesUs stops the standby while the source deletes what it lacks: a gap is never jumped in silence.
func TestRetentionPassesUs(t *testing.T) {
	ctx := testContext(t, 3*time.Minute)
	kafka := cluster.Start(t, cluster.Options{})
	cl := client(t, kafka.Bootstrap())
	fillTopic(ctx, t, cl, "gap", 50)
	standby := startStandby(t, kafka.Bootstrap())
	standby.waitCaughtUp(30*time.Second, ends(ctx, t, cl, "gap"))
	standby.kill()
	writer := client(t, kafka.Bootstrap(), kgo.DefaultProduceTopic("gap"))
	for i := range 50 {
		if err := writer.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint("more", i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var del kadm.Offsets
	del.AddOffset("gap", 0, 80, -1)
	if _, err := kadm.NewClient(cl).DeleteRecords(ctx, del); err != nil {
		t.Fatal(err)
	}
	standby.start()
	standby.waitReady()
	p := standby.reasonOf(30*time.Second, "gap", "FAILED")
	if !strings.Contains(p.Reason, "SOURCE_GAP") || !strings.Contains(p.Reason, "50") || p.End != 50 {
		t.Errorf("%+v", p)
	}
}

// TestRecordsDeletedAndPartitionsAdded follows a log start that rises and a topic that grows.
func TestRecordsDeletedAndPartitionsAdded(t *testing.T) {
	ctx := testContext(t, 3*time.Minute)
	kafka := cluster.Start(t, cluster.Options{})
	cl := client(t, kafka.Bootstrap())
	fillTopic(ctx, t, cl, "grow", 50)
	standby := startStandby(t, kafka.Bootstrap())
	standby.waitCaughtUp(30*time.Second, ends(ctx, t, cl, "grow"))
	var del kadm.Offsets
	del.AddOffset("grow", 0, 20, -1)
	adm := kadm.NewClient(cl)
	if _, err := adm.DeleteRecords(ctx, del); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.UpdatePartitions(ctx, 3, "grow"); err != nil {
		t.Fatal(err)
	}
	writer := client(t, kafka.Bootstrap(), kgo.DefaultProduceTopic("grow"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(3) {
		eventually(t, 60*time.Second, "the partition takes writes", func() error {
			return writer.ProduceSync(ctx, &kgo.Record{Partition: p, Value: []byte("x")}).FirstErr()
		})
	}
	standby.waitCaughtUp(30*time.Second, ends(ctx, t, cl, "grow"))
	mustBeEqual(ctx, t, cl, client(t, standby.kafka), []string{"grow"}, compare.Options{})
	eventually(t, 60*time.Second, "the log start follows", func() error {
		starts, err := kadm.NewClient(client(t, standby.kafka)).ListStartOffsets(ctx, "grow")
		if err != nil {
			return err
		}
		if o, _ := starts.Lookup("grow", 0); o.Offset != 20 {
			return fmt.Errorf("starts at %d, want 20", o.Offset)
		}
		return nil
	})
}

// TestAnotherClusterAtTheAddress puts a different cluster, with a topic of the same name, where the source was.
func TestAnotherClusterAtTheAddress(t *testing.T) {
	ctx := testContext(t, 3*time.Minute)
	first := cluster.Start(t, cluster.Options{})
	cl := client(t, first.Bootstrap())
	fillTopic(ctx, t, cl, "same", 50)
	standby := startStandby(t, first.Bootstrap())
	standby.waitCaughtUp(30*time.Second, ends(ctx, t, cl, "same"))
	port := first.Node(1).Port
	first.KillAll()
	second := cluster.Start(t, cluster.Options{Ports: []int{port}})
	fillTopic(ctx, t, client(t, second.Bootstrap()), "same", 500)
	standby.waitSaid(60*time.Second, "OTHER_CLUSTER", first.ClusterID, second.ClusterID)
	have := ends(ctx, t, client(t, standby.kafka), "same")
	if have[types.TopicPartition{Topic: "same"}] != 50 {
		t.Errorf("the standby's log moved: %v", have)
	}
}
