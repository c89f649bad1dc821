//go:build kafka

package kafka_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/test/kafka/cluster"
)

// groupReader reads count records of topic in group with one client library,
// commits exactly behind them, and gives their values.
type groupReader struct {
	name string
	read func(ctx context.Context, t *testing.T, bootstrap, group, topic string, count int) []string
}

var groupReaders = []groupReader{
	{"java", readJava}, {"java-new-protocol", readJavaNew}, {"kcat", readKcat}, {"franz-go", readFranz}, {"sarama", readSarama}, {"kafkajs", readKafkaJS},
}

func lines(out string) []string { return strings.Fields(strings.TrimSpace(out)) }

func readJava(ctx context.Context, t *testing.T, bootstrap, group, topic string, count int) []string {
	return javaConsole(ctx, t, bootstrap, group, topic, count)
}

// readJavaNew is a member of the new protocol (KIP-848) where the cluster has it.
func readJavaNew(ctx context.Context, t *testing.T, bootstrap, group, topic string, count int) []string {
	resp, err := client(t, bootstrap).Request(ctx, kmsg.NewPtrApiVersionsRequest())
	if err != nil {
		t.Fatal(err)
	}
	protocol := "classic"
	for _, k := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		if kmsg.Key(k.ApiKey) == kmsg.ConsumerGroupHeartbeat {
			protocol = "consumer"
		}
	}
	return javaConsole(ctx, t, bootstrap, group, topic, count, "--command-property", "group.protocol="+protocol)
}

// javaConsole runs Java's console consumer and gives the values that begin with a v.
func javaConsole(ctx context.Context, t *testing.T, bootstrap, group, topic string, count int, args ...string) []string {
	t.Helper()
	out, err := cluster.RunJava(ctx, t, "org.apache.kafka.tools.consumer.ConsoleConsumer", append([]string{"--bootstrap-server", bootstrap, "--group", group,
		"--topic", topic, "--from-beginning", "--max-messages", fmt.Sprint(count), "--timeout-ms", "60000"}, args...)...)
	if err != nil {
		t.Fatalf("Java console consumer: %v\n%s", err, out)
	}
	var values []string
	for _, l := range lines(out) {
		if strings.HasPrefix(l, "v") {
			values = append(values, l)
		}
	}
	return values
}

func readKcat(ctx context.Context, t *testing.T, bootstrap, group, topic string, count int) []string {
	return runReader(ctx, t, "kcat", "-b", bootstrap, "-G", group, "-q", "-X", "auto.offset.reset=earliest", "-c", fmt.Sprint(count), topic)
}

func readKafkaJS(ctx context.Context, t *testing.T, bootstrap, group, topic string, count int) []string {
	script := filepath.Join(filepath.Dir(cluster.Libs(t)), "js", "group.js")
	return runReader(ctx, t, "node", script, bootstrap, group, topic, fmt.Sprint(count))
}

func runReader(ctx context.Context, t *testing.T, name string, args ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, leastPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", name, err, out.String(), errOut.String())
	}
	return lines(out.String())
}

func readFranz(ctx context.Context, t *testing.T, bootstrap, group, topic string, count int) []string {
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var values []string
	var taken []*kgo.Record
	for len(values) < count {
		for _, r := range cl.PollRecords(ctx, count-len(values)).Records() {
			values, taken = append(values, string(r.Value)), append(taken, r)
		}
		if ctx.Err() != nil {
			t.Fatalf("franz-go read %d of %d", len(values), count)
		}
	}
	if err := cl.CommitRecords(ctx, taken...); err != nil {
		t.Fatal(err)
	}
	return values
}

// saramaHandler takes count records, marks them and ends the session.
type saramaHandler struct {
	count  int
	values []string
	cancel context.CancelFunc
}

func (h *saramaHandler) Setup(sarama.ConsumerGroupSession) error { return nil }

func (h *saramaHandler) Cleanup(s sarama.ConsumerGroupSession) error { s.Commit(); return nil }

func (h *saramaHandler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			h.values = append(h.values, string(m.Value))
			s.MarkMessage(m, "")
			if len(h.values) == h.count {
				s.Commit()
				h.cancel()
				return nil
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func readSarama(ctx context.Context, t *testing.T, bootstrap, group, topic string, count int) []string {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.MaxVersion
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Offsets.AutoCommit.Enable = false
	cg, err := sarama.NewConsumerGroup(strings.Split(bootstrap, ","), group, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer cg.Close()
	ctx, cancel := context.WithTimeout(ctx, leastPatience)
	defer cancel()
	h := &saramaHandler{count: count, cancel: cancel}
	for len(h.values) < count {
		if err := cg.Consume(ctx, []string{topic}, h); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		if ctx.Err() != nil && len(h.values) < count {
			t.Fatalf("sarama read %d of %d", len(h.values), count)
		}
	}
	return h.values
}
