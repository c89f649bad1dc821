//go:build kafka

package kafka_test

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/test/kafka/cluster"
	"tidemark/test/relay"
)

const (
	retryPart  = 40 // records of each of three parts: acknowledged, unheard of, after the failover
	retryTotal = 3 * retryPart
)

// retrier is a producer that knows one address, is idempotent and is never restarted.
type retrier struct {
	name string
	// start gives a way to hand over a record, and one to wait until all were acknowledged.
	start func(ctx context.Context, t *testing.T, addr, topic string) (send func(value string), finish func() error)
}

var retriers = []retrier{{"java", retryJava}, {"librdkafka", retryKcat}, {"franz-go", retryFranz}}

// retryValue is record n's: a line of 128 bytes, which is what kcat reads at a time.
func retryValue(n int) string {
	v := "v" + strconv.Itoa(n) + " "
	return v + strings.Repeat("x", 127-len(v))
}

// lineProducer runs a program that sends each line of its standard input as a record.
func lineProducer(t *testing.T, cmd *exec.Cmd) (send func(string), finish func() error) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	send = func(v string) {
		if _, err := io.WriteString(in, v+"\n"); err != nil {
			t.Errorf("%s: %v", cmd.Path, err)
		}
	}
	return send, func() error {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%w\n%s", err, out.String())
		}
		for l := range strings.Lines(out.String()) {
			if strings.Contains(l, "ERROR") && !strings.Contains(l, "broker connections are down") { // they are, for a moment
				return fmt.Errorf("it says:\n%s", out.String())
			}
		}
		return nil
	}
}

func retryJava(ctx context.Context, t *testing.T, addr, topic string) (func(string), func() error) {
	args := []string{"--bootstrap-server", addr, "--topic", topic, "--request-timeout-ms", "60000", "--message-send-max-retries", "1000"}
	for _, p := range []string{"enable.idempotence=true", "acks=all", "linger.ms=0", "delivery.timeout.ms=240000", "max.in.flight.requests.per.connection=5", "reconnect.backoff.max.ms=200"} {
		args = append(args, "--producer-property", p)
	}
	return lineProducer(t, cluster.Java(ctx, t, "org.apache.kafka.tools.ConsoleProducer", args...))
}

func retryKcat(ctx context.Context, t *testing.T, addr, topic string) (func(string), func() error) {
	args := []string{"-P", "-E", "-b", addr, "-t", topic, "-p", "0", "-q"} // -E: a broker that is gone is no reason to end
	for _, p := range []string{"enable.idempotence=true", "linger.ms=0", "message.timeout.ms=240000", "socket.timeout.ms=60000", "reconnect.backoff.max.ms=200"} {
		args = append(args, "-X", p)
	}
	return lineProducer(t, exec.CommandContext(ctx, "kcat", args...))
}

func retryFranz(ctx context.Context, t *testing.T, addr, topic string) (func(string), func() error) {
	cl := client(t, addr, kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0), kgo.RequiredAcks(kgo.AllISRAcks()))
	errs := make(chan error, retryTotal)
	send := func(v string) {
		cl.Produce(ctx, kgo.StringRecord(v), func(_ *kgo.Record, err error) { errs <- err })
	}
	return send, func() error {
		if err := cl.Flush(ctx); err != nil {
			return err
		}
		for range retryTotal {
			if err := <-errs; err != nil {
				return err
			}
		}
		return nil
	}
}

// TestProducersRetryAcrossTheFailover: idempotent producers of three libraries
// know one address. Batches of theirs are written and mirrored, but no producer
// hears of it; the source dies, the standby is promoted, the address points at it. What the
// producers send again is found to be there already (DESIGN §8, R30): every
// record is there once, in order, and no producer sees an error or is restarted.
func TestProducersRetryAcrossTheFailover(t *testing.T) {
	ctx := testContext(t, 4*time.Minute)
	front := relay.Start(t)
	kafka := cluster.Start(t, cluster.Options{Advertised: []int{front.Port()}})
	front.Point(fmt.Sprintf("127.0.0.1:%d", kafka.Node(1).Port))
	behind := fmt.Sprintf("127.0.0.1:%d", kafka.Node(1).Internal)
	source := client(t, behind)
	var topics []string
	for _, r := range retriers {
		topics = append(topics, "retry-"+r.name)
		createTopic(ctx, t, source, "retry-"+r.name, 1, 1)
	}
	standby := startStandby(t, behind, "--advertise", front.Addr())

	sends, finishes := make([]func(string), len(retriers)), make([]func() error, len(retriers))
	for i, r := range retriers {
		sends[i], finishes[i] = r.start(ctx, t, front.Addr(), topics[i])
	}
	sendPart := func(part int) {
		for n := part * retryPart; n < (part+1)*retryPart; n++ {
			for _, send := range sends {
				send(retryValue(n))
			}
		}
	}
	sendPart(0)
	acked := awaitEnds(ctx, t, source, topics, func(end int64) bool { return end == retryPart })
	eventually(t, time.Minute, "the first part is acknowledged", func() error {
		if n := front.Pending(); n > 0 {
			return fmt.Errorf("%d requests have no answer", n)
		}
		return nil
	})
	front.HoldProduceAnswers()
	sendPart(1)
	awaitEnds(ctx, t, source, topics, func(end int64) bool { return end > retryPart })
	eventually(t, time.Minute, "every producer waits for an answer", func() error {
		if n := front.Held(); n < len(retriers) {
			return fmt.Errorf("answers to %d are held back", n)
		}
		return nil
	})
	standby.waitCaughtUp(time.Minute, ends(ctx, t, source, topics...))
	kafka.KillAll()
	st := standby.failover()
	unheard := map[string]int64{}
	for _, p := range st.Partitions {
		if p.Promotion == nil {
			t.Fatalf("%s is not promoted: %s", p.Topic, p.Reason)
		}
		unheard[p.Topic] = p.End - acked[p.Topic]
	}
	front.Point(standby.kafka)
	sendPart(2)
	for i, r := range retriers {
		if err := finishes[i](); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
	}
	for i, r := range retriers {
		t.Logf("%s: %d records were mirrored that the producer hadn't heard of", r.name, unheard[topics[i]])
		if unheard[topics[i]] == 0 {
			t.Errorf("%s: nothing was sent twice: the test shows nothing", r.name)
		}
		mustBeOnce(ctx, t, standby.kafka, topics[i])
	}
}

// awaitEnds waits until every topic's only partition ends as it should, and gives the ends.
func awaitEnds(ctx context.Context, t *testing.T, cl *kgo.Client, topics []string, ok func(int64) bool) map[string]int64 {
	t.Helper()
	found := map[string]int64{}
	eventually(t, time.Minute, "the source has the records", func() error {
		for tp, end := range ends(ctx, t, cl, topics...) {
			if found[tp.Topic] = end; !ok(end) {
				return fmt.Errorf("%s ends at %d", tp, end)
			}
		}
		return nil
	})
	return found
}

// mustBeOnce reads a topic from its start: v0, v1 and so on, each once.
func mustBeOnce(ctx context.Context, t *testing.T, bootstrap, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cl := client(t, bootstrap, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	end := int64(-1)
	for _, e := range ends(ctx, t, cl, topic) {
		end = e
	}
	var values, want []string
	for int64(len(values)) < end && ctx.Err() == nil {
		for _, r := range cl.PollFetches(ctx).Records() {
			values = append(values, string(r.Value))
		}
	}
	for n := range retryTotal {
		want = append(want, retryValue(n))
	}
	if !slices.Equal(values, want) {
		t.Errorf("%s holds %d records (log end %d), want %d, each once and in order:\n%q", topic, len(values), end, retryTotal, values)
	}
}
