//go:build kafka

package kafka_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/test/kafka/cluster"
)

// growNodes starts a node and has two others join it, each in a rack of its own.
func growNodes(t *testing.T) map[int32]*node {
	t.Helper()
	nodes := map[int32]*node{}
	for id := int32(1); id <= 3; id++ {
		args := []string{"--node-id", fmt.Sprint(id), "--set", fmt.Sprintf("broker.rack=r%d", id), "--set", "offsets.topic.num.partitions=3",
			"--set", "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector", "--set", "auto.leader.rebalance.enable=false"}
		if id > 1 {
			args = append(args, "--join", nodes[1].http)
		}
		nodes[id] = newNode(t, "serve", args...)
		nodes[id].start()
		nodes[id].waitReady()
		if id == 1 {
			haveOffsetsTopic(t, nodes[1].kafka)
		}
	}
	return nodes
}

// haveOffsetsTopic has a lone node make the topic that keeps groups' offsets.
func haveOffsetsTopic(t *testing.T, addr string) {
	t.Helper()
	ctx := testContext(t, time.Minute)
	cl := client(t, addr)
	eventually(t, time.Minute, "a group has a coordinator", func() error {
		return kadm.NewClient(cl).FindGroupCoordinators(ctx, "any").Error()
	})
	if replicas, _ := replicasOf(ctx, t, cl, "__consumer_offsets"); len(replicas) != 1 {
		t.Fatalf("on one node the offsets topic has replicas %v", replicas)
	}
}

// tool runs one of Kafka's command line tools to its end.
func tool(ctx context.Context, t *testing.T, class string, args ...string) string {
	t.Helper()
	out, err := cluster.RunJava(ctx, t, class, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", class, strings.Join(args, " "), err, out)
	}
	return out
}

func mustSay(t *testing.T, what, out string, patterns ...string) {
	t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(out) {
			t.Errorf("%s doesn't say %q:\n%s", what, p, out)
		}
	}
}

// replicasOf gives the partition's replicas and in-sync replicas.
func replicasOf(ctx context.Context, t *testing.T, cl *kgo.Client, topic string) (replicas, isr []int32) {
	t.Helper()
	m, err := kadm.NewClient(cl).Metadata(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	p := m.Topics[topic].Partitions[0]
	return p.Replicas, p.ISR
}

// createOn makes a topic of one partition on the brokers given, the leader first.
func createOn(ctx context.Context, t *testing.T, cl *kgo.Client, topic string, brokers ...int32) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, -1, -1
	rt.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: brokers}}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		t.Fatalf("create %s: %v", topic, err)
	}
}

// TestKafkasToolsOnACluster runs Kafka's own administration tools against three nodes that have grown from one.
func TestKafkasToolsOnACluster(t *testing.T) {
	ctx := testContext(t, 4*time.Minute)
	nodes := growNodes(t)
	addr := nodes[2].kafka
	cl := client(t, addr, kgo.DefaultProduceTopic("moved"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()))

	t.Run("metadata quorum", func(t *testing.T) {
		const class = "org.apache.kafka.tools.MetadataQuorumCommand"
		mustSay(t, "describe --status", tool(ctx, t, class, "--bootstrap-server", addr, "describe", "--status"),
			`LeaderId:\s+[123]\b`, `HighWatermark:\s+[1-9]`, `CurrentVoters:.*"id": 1.*"id": 2.*"id": 3`)
		mustSay(t, "describe --replication", tool(ctx, t, class, "--bootstrap-server", addr, "describe", "--replication"),
			`(?m)^1\s.*(Leader|Follower)`, `(?m)^2\s.*(Leader|Follower)`, `(?m)^3\s.*(Leader|Follower)`)
	})
	t.Run("features", func(t *testing.T) {
		out := tool(ctx, t, "org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", addr, "describe")
		mustSay(t, "describe", out, `Feature: tidemark\.version\s+SupportedMinVersion: 1\s+SupportedMaxVersion: \d+\s+FinalizedVersionLevel: \d+\s+Epoch: \d+`)
	})
	t.Run("throttled reassignment", func(t *testing.T) { throttledReassignment(ctx, t, cl, addr) })
	t.Run("reads from the client's rack", func(t *testing.T) { rackReads(ctx, t, cl, nodes) })
	t.Run("the offsets topic has grown", func(t *testing.T) {
		eventually(t, time.Minute, "three replicas in sync", func() error {
			if replicas, isr := replicasOf(ctx, t, cl, "__consumer_offsets"); len(replicas) != 3 || len(isr) != 3 {
				return fmt.Errorf("replicas %v, in sync %v", replicas, isr)
			}
			return nil
		})
	})
}

// throttledReassignment moves a partition of 3 MB at 1 MB/s from one broker to two others.
func throttledReassignment(ctx context.Context, t *testing.T, cl *kgo.Client, addr string) {
	const class = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
	createOn(ctx, t, cl, "moved", 1)
	value := make([]byte, 100_000)
	for range 30 {
		cl.Produce(ctx, &kgo.Record{Value: value}, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "move.json")
	plan := `{"version":1,"partitions":[{"topic":"moved","partition":0,"replicas":[2,3],"log_dirs":["any","any"]}]}`
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	out := tool(ctx, t, class, "--bootstrap-server", addr, "--reassignment-json-file", file, "--execute", "--throttle", "1000000")
	mustSay(t, "--execute", out, `throttle limit was set to 1000000 B/s`, `Successfully started partition reassignment`)
	out = tool(ctx, t, class, "--bootstrap-server", addr, "--reassignment-json-file", file, "--verify")
	mustSay(t, "--verify at once", out, `(?i)reassignment of partition moved-0 (is still in progress|is completed)`)
	eventually(t, time.Minute, "the partition has moved", func() error {
		if replicas, isr := replicasOf(ctx, t, cl, "moved"); fmt.Sprint(replicas) != "[2 3]" || len(isr) != 2 {
			return fmt.Errorf("replicas %v, in sync %v", replicas, isr)
		}
		return nil
	})
	if took := time.Since(begin); took < 2*time.Second {
		t.Errorf("3 MB moved in %s at 1 MB/s", took)
	}
	out = tool(ctx, t, class, "--bootstrap-server", addr, "--reassignment-json-file", file, "--verify")
	mustSay(t, "--verify at the end", out, `Reassignment of partition moved-0 is completed`, `(?i)clearing broker-level throttles`, `(?i)clearing topic-level throttles`)
	configs, err := kadm.NewClient(cl).DescribeTopicConfigs(ctx, "moved")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs[0].Configs {
		if strings.HasSuffix(c.Key, ".replication.throttled.replicas") && c.MaybeValue() != "" {
			t.Errorf("%s is still %s", c.Key, c.MaybeValue())
		}
	}
}

// rackReads has Java's consumer name its rack: the follower there gives the records.
func rackReads(ctx context.Context, t *testing.T, cl *kgo.Client, nodes map[int32]*node) {
	createOn(ctx, t, cl, "near", 1, 2, 3)
	const records = 50
	for i := range records {
		cl.Produce(ctx, &kgo.Record{Topic: "near", Value: []byte(fmt.Sprintf("v%d-%s", i, strings.Repeat("x", 10_000)))}, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "three replicas in sync", func() error {
		if _, isr := replicasOf(ctx, t, cl, "near"); len(isr) != 3 {
			return fmt.Errorf("in sync: %v", isr)
		}
		return nil
	})
	out := tool(ctx, t, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", nodes[1].kafka, "--topic", "near", "--from-beginning",
		"--max-messages", fmt.Sprint(records), "--timeout-ms", "60000", "--command-property", "client.rack=r3", "--command-property", "group.id=near-readers")
	values := slices.DeleteFunc(lines(out), func(l string) bool { return len(l) < 10_000 }) // the tool says things of its own
	for i := range records {
		if i >= len(values) || !strings.HasPrefix(values[i], fmt.Sprintf("v%d-", i)) {
			t.Fatalf("of %d records, number %d isn't there:\n%.300s", len(values), i, out)
		}
	}
	if given := nodes[3].bytesOut(t, "near"); given < records*10_000 {
		t.Errorf("the follower in the consumer's rack gave %d bytes", given)
	}
	if given := nodes[1].bytesOut(t, "near"); given > records*10_000/2 {
		t.Errorf("the leader gave %d bytes", given)
	}
}

// bytesOut is what the node gave consumers of a topic, by its metrics.
func (n *node) bytesOut(t *testing.T, topic string) int64 {
	t.Helper()
	resp, err := http.Get("http://" + n.http + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^kafka_server_brokertopicmetrics_bytesout_total\{topic="` + topic + `"\} (\S+)$`).FindSubmatch(text)
	if m == nil {
		return 0
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(v)
}
