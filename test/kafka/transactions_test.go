//go:build kafka

package kafka_test

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const transactionsTool = "org.apache.kafka.tools.TransactionsCommand"

// TestJavasTransactions has Java's transactional clients work against a node, and Kafka's tools look at what they left.
func TestJavasTransactions(t *testing.T) {
	ctx := testContext(t, 4*time.Minute)
	n := startNode(t, "serve", "--set", "transaction.state.log.num.partitions=1", "--set", "group.initial.rebalance.delay.ms=0")
	cl := client(t, n.kafka)
	createTopic(ctx, t, cl, "in", 1, 1)
	createTopic(ctx, t, cl, "out", 1, 1)
	const records = 5000

	out := tool(ctx, t, "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", n.kafka, "--topic", "in", "--num-records", fmt.Sprint(records),
		"--record-size", "100", "--throughput", "2500", "--transactional-id", "perf", "--transaction-duration-ms", "100")
	mustSay(t, "the producer", out, fmt.Sprintf(`(?m)^%d records sent`, records))
	adm := kadm.NewClient(cl)
	perf := described(ctx, t, adm, "perf")
	if perf.ProducerEpoch == 0 {
		t.Error("no commit has raised the epoch: the producer didn't speak version 2")
	}
	want := committed(ctx, t, n.kafka, "in", records)
	if got := slices.DeleteFunc(lines(tool(ctx, t, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", n.kafka, "--topic", "in", "--from-beginning",
		"--isolation-level", "read_committed", "--max-messages", fmt.Sprint(records), "--timeout-ms", "60000")), func(l string) bool { return len(l) != 100 }); !slices.Equal(got, want) {
		t.Errorf("Java's consumer reads %d records, %d were committed", len(got), len(want))
	}

	// The copier counts offsets as records: what it reads has no markers.
	fillTopic(ctx, t, client(t, n.kafka), "plain", records)
	want = committed(ctx, t, n.kafka, "plain", records)
	out = tool(ctx, t, "org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", n.kafka, "--input-topic", "plain", "--input-partition", "0", "--output-topic", "out",
		"--transactional-id", "copier", "--consumer-group", "copiers", "--transaction-size", "500", "--group-mode", "--use-group-metadata", "--enable-random-aborts")
	mustSay(t, "the copier", out, `"remaining":"?0`)
	if got := committed(ctx, t, n.kafka, "out", records); !slices.Equal(got, want) {
		t.Errorf("of %d records %d were copied, not all or not in order", len(want), len(got))
	}
	eventually(t, time.Minute, "the copier's offset is committed", func() error {
		offsets, err := adm.FetchOffsets(ctx, "copiers")
		if o, ok := offsets.Lookup("plain", 0); err != nil || !ok || o.At < records {
			return fmt.Errorf("%+v, %w", o, err)
		}
		return nil
	})
	t.Run("kafka-transactions", func(t *testing.T) { transactionsToolLooks(ctx, t, n) })
	t.Run("kafka-dump-log", func(t *testing.T) {
		n.stop()
		logs, err := filepath.Glob(filepath.Join(n.dir, "__transaction_state-*", "*.log"))
		if err != nil || len(logs) == 0 {
			t.Fatalf("logs of transactions: %v, %v", logs, err)
		}
		out := tool(ctx, t, "org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", strings.Join(logs, ","))
		mustSay(t, "the decoder", out, fmt.Sprintf(`(?i)perf.*producerId[":=]+%d\b`, perf.ProducerID), `(?i)copier.*(CompleteCommit|"transactionStatus":4)`)
		if strings.Contains(out, "isvalid: false") || strings.Contains(out, "Error") {
			t.Errorf("the decoder found something wrong:\n%.3000s", out)
		}
	})
}

func described(ctx context.Context, t *testing.T, adm *kadm.Client, id string) kadm.DescribedTransaction {
	t.Helper()
	all, err := adm.DescribeTransactions(ctx, id)
	if err != nil || all[id].Err != nil {
		t.Fatalf("describe %s: %v, %v", id, err, all[id].Err)
	}
	return all[id]
}

// committed reads as many committed values of partition 0.
func committed(ctx context.Context, t *testing.T, addr, topic string, count int) []string {
	t.Helper()
	cl := client(t, addr, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	var values []string
	for len(values) < count && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

// transactionsToolLooks at one transaction that is open, aborts it in its partition, and ends another one by its id.
func transactionsToolLooks(ctx context.Context, t *testing.T, n *node) {
	const startOffsets = `(?m)^\S+\s+\S+\s+\S+\s+\S+\s+\S+\s+(\d+)\s*$`
	say := func(args ...string) string {
		return tool(ctx, t, transactionsTool, append([]string{"--bootstrap-server", n.kafka}, args...)...)
	}
	open := client(t, n.kafka, kgo.TransactionalID("open"), kgo.DefaultProduceTopic("out"))
	begin := func() {
		if err := open.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := open.ProduceSync(ctx, kgo.StringRecord("open")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	mustSay(t, "list", say("list"), `(?m)^open\s+\d+\s+\d+\s+Ongoing`, `(?m)^copier\s+\d+\s+\d+\s+CompleteCommit`, `(?m)^perf\s+\d+\s+\d+\s+CompleteCommit`)
	mustSay(t, "describe", say("describe", "--transactional-id", "open"), `Ongoing\s.*\bout-0\b`)
	if out := say("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"); strings.Contains(out, "out") {
		t.Errorf("a transaction that its coordinator knows is said to hang:\n%s", out)
	}
	out := say("describe-producers", "--topic", "out", "--partition", "0")
	start := regexp.MustCompile(startOffsets).FindStringSubmatch(out)
	if start == nil {
		t.Fatalf("describe-producers tells no open transaction:\n%s", out)
	}
	say("abort", "--topic", "out", "--partition", "0", "--start-offset", start[1])
	if out := say("describe-producers", "--topic", "out", "--partition", "0"); regexp.MustCompile(startOffsets).MatchString(out) {
		t.Errorf("after its abort the transaction is open in the partition:\n%s", out)
	}
	say("forceTerminateTransaction", "--transactionalId", "open")
	eventually(t, time.Minute, "the transaction is ended", func() error {
		if d := described(ctx, t, kadm.NewClient(client(t, n.kafka)), "open"); d.State == "Ongoing" {
			return fmt.Errorf("it is %s", d.State)
		}
		return nil
	})
	if err := open.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Error("the producer commits a transaction that an operator has ended")
	}
}
