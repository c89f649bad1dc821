package e2e

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// benchMiB is how much the catch-up benchmark copies; TIDEMARK_BENCH_MIB says otherwise.
func benchMiB() int {
	n := 256
	_, _ = fmt.Sscan(os.Getenv("TIDEMARK_BENCH_MIB"), &n) // unset: the default stays
	return n
}

const benchPartitions = 12

// fillBulk writes incompressible records of 1 KiB.
func fillBulk(b *testing.B, source *harness.Broker, mib int) {
	b.Helper()
	source.CreateTopic(b, "bulk", benchPartitions, nil)
	c := source.Client(b, kgo.DefaultProduceTopic("bulk"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(50_000), kgo.RetryTimeout(time.Minute))
	value := make([]byte, 1000)
	_, _ = rand.Read(value) // never fails (crypto/rand)
	var failed error
	var mu sync.Mutex
	for range mib << 10 {
		c.Produce(b.Context(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	if err := c.Flush(b.Context()); err != nil || failed != nil {
		b.Fatal(err, failed)
	}
}

// BenchmarkMirrorCatchUp copies a filled source, next to a bare loop that only
// fetches and writes files. The ratio is what mirroring costs.
func BenchmarkMirrorCatchUp(b *testing.B) {
	source := harness.StartBroker(b)
	mib := benchMiB()
	fillBulk(b, source, mib)
	for range b.N {
		bare := bareLoop(b, source)
		standby := harness.StartBroker(b)
		from := time.Now()
		mirrorOf(b, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
		for p := range int32(benchPartitions) {
			end := logEnd(b, source, p)
			harness.Eventually(b, "caught up", func() bool { return logEnd(b, standby, p) >= end })
		}
		took := time.Since(from)
		standby.Stop(b)
		b.ReportMetric(float64(mib)/took.Seconds(), "MiB/s")
		b.ReportMetric(float64(mib)/bare.Seconds(), "bare-MiB/s")
		b.ReportMetric(bare.Seconds()/took.Seconds(), "of-bare")
	}
}

func logEnd(b *testing.B, node *harness.Broker, partition int32) types.Offset {
	b.Helper()
	p, ok := node.PartitionByName("bulk", partition)
	if !ok {
		return -1
	}
	v, _ := p.View()
	return v.LogEnd
}

// bareLoop fetches every partition from the beginning and writes what comes into files.
func bareLoop(b *testing.B, source *harness.Broker) time.Duration {
	b.Helper()
	c := source.Client(b)
	topic, _ := source.Image().TopicByName("bulk")
	dir := b.TempDir()
	at := make([]int64, benchPartitions)
	files := make([]*os.File, benchPartitions)
	for i := range files {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	from := time.Now()
	for left := benchPartitions; left > 0; {
		req := kmsg.NewPtrFetchRequest()
		req.ReplicaID, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, 1, 16<<20, -1
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = "bulk", topic.ID
		for i := range at {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.LastFetchedEpoch = int32(i), at[i], 4<<20, -1, -1
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
		resp, err := req.RequestWith(b.Context(), c)
		if err != nil || kerr.ErrorForCode(resp.ErrorCode) != nil {
			b.Fatal(err, resp.ErrorCode)
		}
		left = benchPartitions
		for _, p := range resp.Topics[0].Partitions {
			for it := batch.Iterate(p.RecordBatches); it.Next(); {
				at[p.Partition] = int64(it.Header.NextOffset())
			}
			if _, err := files[p.Partition].Write(p.RecordBatches); err != nil {
				b.Fatal(err)
			}
			if at[p.Partition] >= p.HighWatermark {
				left--
			}
		}
	}
	return time.Since(from)
}
