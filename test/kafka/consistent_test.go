//go:build kafka

package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/test/kafka/cluster"
)

const consistentPartitions = 3

// TestConsistentFailoverUnderTransactions kills a Kafka while Java's
// transactional producers write into three partitions at once, and fails over at a
// consistent cut: every transaction, whose records all carry its number and of
// which one goes into each partition, is there in all partitions or in none.
func TestConsistentFailoverUnderTransactions(t *testing.T) {
	ctx := testContext(t, 4*time.Minute)
	kafka := cluster.Start(t, cluster.Options{})
	cl := client(t, kafka.Bootstrap())
	createTopic(ctx, t, cl, "tx", consistentPartitions, 1)
	standby := startStandby(t, kafka.Bootstrap())
	load, stop := context.WithCancel(ctx)
	defer stop()
	writers := make(chan string, 2)
	for _, id := range []string{"a", "b"} {
		go func() {
			out, _ := cluster.RunJava(load, t, "Transactions", kafka.Bootstrap(), "tx", fmt.Sprint(consistentPartitions), id) // it never ends by itself
			writers <- out
		}()
	}
	eventually(t, time.Minute, "some transactions are mirrored", func() error {
		st, err := standby.status()
		if err != nil {
			return err
		}
		for _, p := range st.Partitions {
			if p.Topic == "tx" && p.End < 200 {
				return fmt.Errorf("tx-%d is at %d", p.Partition, p.End)
			}
		}
		if len(st.Partitions) < consistentPartitions {
			return fmt.Errorf("%d partitions are mirrored", len(st.Partitions))
		}
		return nil
	})
	kafka.KillAll()
	stop()
	for range 2 {
		<-writers
	}
	code, out, said := standby.tidemark("mirror", "preview", "standby", "--failover")
	if code != 0 || !strings.Contains(said, "half mirrored") {
		t.Fatalf("preview: exit %d\n%s\n%s", code, out, said)
	}
	t.Logf("preview:\n%s%s", said, out)
	if code, out, said = standby.tidemark("mirror", "failover", "standby", "--consistent", "--yes"); code != 0 {
		t.Fatalf("failover: exit %d\n%s\n%s", code, out, said)
	}
	mustBeWhole(ctx, t, standby.kafka)
}

// mustBeWhole reads all committed records and looks for each transaction in all partitions.
func mustBeWhole(ctx context.Context, t *testing.T, bootstrap string) {
	t.Helper()
	cl := client(t, bootstrap, kgo.ConsumeTopics("tx"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(consistentPartitions) {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "tx", Partition: p, Value: []byte("end")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	found := map[string]int{}
	for ends := 0; ends < consistentPartitions; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatal(err)
		}
		for _, r := range fetches.Records() {
			if string(r.Value) == "end" {
				ends++
				continue
			}
			found[string(r.Value)]++
		}
	}
	half := 0
	for txn, n := range found {
		if n != consistentPartitions {
			half++
			t.Errorf("transaction %s is committed in %d of %d partitions", txn, n, consistentPartitions)
		}
	}
	t.Logf("%d transactions, %d half committed", len(found), half)
	if len(found) < 20 {
		t.Errorf("only %d transactions were committed", len(found))
	}
}
