//go:build kafka

// Package kafka_test runs Tidemark, as the binary that users run, beside real Apache Kafka clusters.
package kafka_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/test/kafka/cluster"
)

// starting is what a busy machine may take to start a test's JVMs, beside what the test itself takes.
const starting = 4 * time.Minute

// testContext ends a while before the test binary's own limit would. limit doesn't count the start of what the test runs against.
func testContext(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), starting+limit)
	t.Cleanup(cancel)
	return ctx
}

// client gives a plain client that is closed with the test. It has patience with a topic that
// was just made: brokers of a busy machine hear of it later than a client tries four times.
func client(t testing.TB, bootstrap string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	all := append([]kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.MetadataMinAge(100 * time.Millisecond), kgo.UnknownTopicRetries(300)}, opts...)
	cl, err := kgo.NewClient(all...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// createTopic makes a topic with configs given as key, value, key, value.
func createTopic(ctx context.Context, t testing.TB, cl *kgo.Client, name string, partitions int32, rf int16, configs ...string) {
	t.Helper()
	m := map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		m[configs[i]] = &configs[i+1]
	}
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, rf, m, name); err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
}

// loadResult is what the Java load says of one spec.
type loadResult struct {
	Topic  string `json:"topic"`
	Sent   int64  `json:"sent"`
	Acked  int64  `json:"acked"`
	Failed int64  `json:"failed"`
	Millis int64  `json:"ms"`
}

// javaLoad writes with Java's own producers and gives a result per spec.
func javaLoad(ctx context.Context, t testing.TB, bootstrap string, specs ...string) []loadResult {
	t.Helper()
	out, err := cluster.RunJava(ctx, t, "Load", append([]string{bootstrap}, specs...)...)
	if err != nil {
		t.Fatalf("Java load: %v\n%s", err, out)
	}
	var results []loadResult
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var r loadResult
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("Java load said %q: %v", line, err)
		}
		results = append(results, r)
	}
	if len(results) != len(specs) {
		t.Fatalf("Java load answered %d of %d specs:\n%s", len(results), len(specs), out)
	}
	return results
}

// TestHarnessSelf shows that a Kafka starts, takes Java's load, and counts what it holds.
func TestHarnessSelf(t *testing.T) {
	ctx := testContext(t, 2*time.Minute)
	kafka := cluster.Start(t, cluster.Options{})
	cl := client(t, kafka.Bootstrap())
	createTopic(ctx, t, cl, "self", 2, 1)
	r := javaLoad(ctx, t, kafka.Bootstrap(), "topic=self,count=500,codec=lz4,headers=3,nulls=10,keys=7")
	if r[0].Acked != 500 {
		t.Fatalf("acked %d of 500", r[0].Acked)
	}
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, "self")
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	if total != 500 {
		t.Fatal(fmt.Errorf("%d records, want 500", total))
	}
}
