//go:build kafka

package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/compare"
	"tidemark/internal/core/types"
	"tidemark/test/kafka/cluster"
)

const (
	resumeRecords = 900 // in the topic that the groups read
	resumeFirst   = 300 // read and committed at the source
)

// TestFailoverGroupsGoOn kills the whole source and lets five client libraries' groups go on at exactly their committed offsets.
func TestFailoverGroupsGoOn(t *testing.T) {
	ctx := testContext(t, 6*time.Minute)
	kafka := cluster.Start(t, cluster.Options{})
	cl := client(t, kafka.Bootstrap(), kgo.DefaultProduceTopic("resume"), kgo.ProducerBatchCompression(kgo.NoCompression())) // kafkajs reads no snappy
	createTopic(ctx, t, cl, "resume", 1, 1)
	for i := range resumeRecords {
		cl.Produce(ctx, kgo.StringRecord(fmt.Sprint("v", i)), nil)
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	standby := startStandby(t, kafka.Bootstrap())
	for _, reader := range groupReaders {
		mustBeValues(t, reader.name, reader.read(ctx, t, kafka.Bootstrap(), "g-"+reader.name, "resume", resumeFirst), 0, resumeFirst)
	}
	standby.waitCaughtUp(time.Minute, ends(ctx, t, cl, "resume"))
	waitGroups(ctx, t, standby)
	before := ends(ctx, t, cl, "resume")
	mustBeEqual(ctx, t, cl, client(t, standby.kafka), []string{"resume"}, compare.Options{})

	kafka.KillAll()
	st := standby.failover()
	mustBePromoted(t, st, before)
	for _, reader := range groupReaders {
		mustBeValues(t, reader.name, reader.read(ctx, t, standby.kafka, "g-"+reader.name, "resume", resumeRecords-resumeFirst), resumeFirst, resumeRecords)
	}
	// Producers of each kind write on.
	writer := client(t, standby.kafka, kgo.DefaultProduceTopic("resume"))
	r, err := writer.ProduceSync(ctx, kgo.StringRecord("after")).First()
	if err != nil {
		t.Fatal(err)
	}
	if r.Offset != resumeRecords {
		t.Errorf("the first record after the failover is at %d, want %d", r.Offset, resumeRecords)
	}
	if got := javaLoad(ctx, t, standby.kafka, "topic=resume,count=100,codec=zstd"); got[0].Acked != 100 {
		t.Errorf("Java's producer: %d of 100 acked", got[0].Acked)
	}
	// A second failover of the same mirror is found done.
	again := standby.failover()
	mustBePromoted(t, again, before)
}

func mustBeValues(t *testing.T, name string, values []string, from, to int) {
	t.Helper()
	if len(values) != to-from {
		t.Errorf("%s read %d records, want %d", name, len(values), to-from)
		return
	}
	for i, v := range values {
		if v != fmt.Sprint("v", from+i) {
			t.Errorf("%s: record %d is %s, want v%d", name, i, v, from+i)
			return
		}
	}
}

// waitGroups waits until the standby has every reader's committed offset.
func waitGroups(ctx context.Context, t *testing.T, standby *node) {
	t.Helper()
	adm := kadm.NewClient(client(t, standby.kafka))
	eventually(t, 60*time.Second, "group offsets are mirrored", func() error {
		for _, reader := range groupReaders {
			offsets, err := adm.FetchOffsets(ctx, "g-"+reader.name)
			if err != nil {
				return err
			}
			if o, ok := offsets.Lookup("resume", 0); !ok || o.At != resumeFirst {
				return fmt.Errorf("%s is at %d", reader.name, o.At)
			}
		}
		return nil
	})
}

func mustBePromoted(t *testing.T, st mirrorStatus, ends map[types.TopicPartition]int64) {
	t.Helper()
	seen := 0
	for _, p := range st.Partitions {
		end, ok := ends[types.TopicPartition{Topic: p.Topic, Partition: p.Partition}]
		if !ok {
			continue
		}
		seen++
		if p.Promotion == nil {
			t.Errorf("%s-%d has no promotion: %s %s", p.Topic, p.Partition, p.State, p.Reason)
			continue
		}
		if p.Promotion.LastMirroredOffset != end || p.Promotion.SrcEndLastSeen != end || p.Promotion.PromotedEpoch < 65536 {
			t.Errorf("%s-%d: promotion %+v, source ended at %d", p.Topic, p.Partition, *p.Promotion, end)
		}
	}
	if seen != len(ends) {
		t.Errorf("%d of %d partitions promoted", seen, len(ends))
	}
}

// TestFailoverOfAThousandPartitions measures from the command to the last partition's first accepted write.
func TestFailoverOfAThousandPartitions(t *testing.T) {
	const partitions = 1000
	ctx := testContext(t, 5*time.Minute)
	kafka := cluster.Start(t, cluster.Options{})
	cl := client(t, kafka.Bootstrap(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("many"))
	createTopic(ctx, t, cl, "many", partitions, 1)
	for p := range int32(partitions) {
		cl.Produce(ctx, &kgo.Record{Partition: p, Value: []byte(fmt.Sprint("v", p))}, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	standby := startStandby(t, kafka.Bootstrap())
	before := ends(ctx, t, cl, "many")
	standby.waitCaughtUp(2*time.Minute, before)
	kafka.KillAll()
	begin := time.Now()
	st := standby.failover()
	writer := client(t, standby.kafka, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("many"))
	var errs []error
	for p := range int32(partitions) {
		writer.Produce(ctx, &kgo.Record{Partition: p, Value: []byte("after")}, func(r *kgo.Record, err error) {
			if err != nil || r.Offset != 1 {
				errs = append(errs, fmt.Errorf("partition %d, offset %d: %w", r.Partition, r.Offset, err))
			}
		})
	}
	if err := writer.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	if len(errs) > 0 {
		t.Fatalf("%d writes failed, first: %v", len(errs), errs[0])
	}
	mustBePromoted(t, st, before)
	t.Logf("%d partitions written to %s after the command was typed", partitions, took.Round(time.Millisecond))
}
