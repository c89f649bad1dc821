package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/compare"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// quick are the settings of a standby in tests: looks at the source follow one another fast.
var quick = []harness.Option{
	harness.WithSetting("mirror.metadata.refresh.ms", "100"),
	harness.WithSetting("mirror.group.sync.ms", "100"),
	harness.WithSetting("mirror.config.sync.ms", "100"),
	harness.WithSetting("mirror.fetch.max.wait.ms", "50"),
	harness.WithSetting("mirror.retry.backoff.max.ms", "200"),
}

func startStandby(t testing.TB, opts ...harness.Option) *harness.Broker {
	t.Helper()
	return harness.StartBroker(t, append(slices.Clone(quick), opts...)...)
}

// mirrorOf creates and starts mirror "m" of the addresses on a standby.
func mirrorOf(t testing.TB, standby *harness.Broker, spec mirror.Spec) {
	t.Helper()
	spec.Name = "m"
	if err := standby.Mirrors().Create(harness.Context(t), spec); err != nil {
		t.Fatal(err)
	}
	if err := standby.Mirrors().Start(harness.Context(t), "m"); err != nil {
		t.Fatal(err)
	}
}

func status(t testing.TB, standby *harness.Broker) mirror.Status {
	t.Helper()
	st, err := standby.Mirrors().Status(harness.Context(t), "m")
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// statusOf gives one partition's status; the zero value if the mirror doesn't have it.
func statusOf(t testing.TB, standby *harness.Broker, topic string, partition int32) mirror.PartitionStatus {
	t.Helper()
	for _, p := range status(t, standby).Partitions {
		if p.Topic == topic && p.Partition == partition {
			return p
		}
	}
	return mirror.PartitionStatus{}
}

// awaitEnd waits until a mirrored partition has reached a log end.
func awaitEnd(t testing.TB, standby *harness.Broker, topic string, partition int32, end int64) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%s-%d mirrored up to %d", topic, partition, end), func() bool {
		p := statusOf(t, standby, topic, partition)
		return p.State == meta.MirrorMirroring && p.End == types.Offset(end) && p.LagRecords == 0
	})
}

// checkEqual compares everything on the topics, byte for byte, by a checker of its own.
func checkEqual(t testing.TB, source, standby *kgo.Client, o compare.Options, topics ...string) {
	t.Helper()
	results, err := compare.Partitions(harness.Context(t), compare.Side{Name: "source", Client: source}, compare.Side{Name: "standby", Client: standby}, topics, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		t.Fatalf("nothing was compared")
	}
	for _, r := range results {
		if r.Difference != "" {
			t.Errorf("%s: %s", r.TopicPartition, r.Difference)
		}
	}
}

// checkVerify has the mirror's own verify agree that both sides are equal.
func checkVerify(t testing.TB, standby *harness.Broker) {
	t.Helper()
	v, err := standby.Mirrors().Verify(harness.Context(t), "m", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range v.Partitions {
		if p.Difference != "" {
			t.Errorf("verify: %s-%d: %s", p.Topic, p.Partition, p.Difference)
		}
	}
	if !v.Equal || !v.Done {
		t.Errorf("verify: got %+v", v)
	}
}

func TestMirrorOfAllCodecs(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "mixed", 3, map[string]string{"retention.ms": "123456789"})
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, codec := range codecs {
		c := source.Client(t, kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("mixed"))
		var records []*kgo.Record
		for n := range 300 {
			r := &kgo.Record{Partition: int32(n % 3), Key: fmt.Appendf(nil, "key-%d", n), Value: fmt.Appendf(nil, "%d/%d: some text that compresses", i, n)}
			if n%7 == 0 {
				r.Value, r.Headers = nil, []kgo.RecordHeader{{Key: "h", Value: []byte("x")}, {Key: "null"}}
			}
			records = append(records, r)
		}
		if err := c.ProduceSync(harness.Context(t), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for p := range int32(3) {
		awaitEnd(t, standby, "mixed", p, 500)
	}
	checkEqual(t, source.Client(t), standby.Client(t), compare.Options{}, "mixed")
	checkVerify(t, standby)
	st := status(t, standby)
	if st.State != "RUNNING" || st.SourceClusterID != source.ClusterID() || len(st.Partitions) != 3 {
		t.Errorf("status: %+v", st)
	}
	if p := st.Partitions[0]; p.VerifiedTo != 500 || p.SrcEnd != 500 || p.Epoch < p.SrcEpoch {
		t.Errorf("partition: %+v", p)
	}
	mine, _ := source.Image().TopicByName("mixed")
	theirs, ok := standby.Image().TopicByName("mixed")
	if !ok || theirs.ID != mine.ID || theirs.Record.Configs["retention.ms"] != "123456789" {
		t.Errorf("the topic here: %+v, at the source: %+v", theirs, mine)
	}
	w := standby.Client(t, kgo.RecordRetries(1))
	if err := w.ProduceSync(harness.Context(t), &kgo.Record{Topic: "mixed", Value: []byte("no")}).FirstErr(); err == nil {
		t.Errorf("a client could write into a mirror")
	}
}
