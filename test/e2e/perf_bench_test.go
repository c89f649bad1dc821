package e2e

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/test/e2e/harness"
)

// BenchmarkProduce measures acks=all writes of 1 KiB records by one client to six partitions.
func BenchmarkProduce(b *testing.B) {
	node := harness.StartBroker(b)
	node.CreateTopic(b, "t", 6, nil)
	c := node.Client(b, kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	value := make([]byte, 1024)
	ctx := harness.Context(b)
	var failed atomic.Int64
	b.SetBytes(1024)
	b.ResetTimer()
	for range b.N {
		c.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Add(1)
			}
		})
	}
	if err := c.Flush(ctx); err != nil || failed.Load() > 0 {
		b.Fatalf("%v, %d failed", err, failed.Load())
	}
}

// BenchmarkConsume measures reads of what BenchmarkProduce writes.
func BenchmarkConsume(b *testing.B) {
	node := harness.StartBroker(b)
	node.CreateTopic(b, "t", 6, nil)
	c := node.Client(b, kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	value := make([]byte, 1024)
	ctx := harness.Context(b)
	for range b.N {
		c.Produce(ctx, &kgo.Record{Value: value}, nil)
	}
	if err := c.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	r := node.Client(b, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	b.SetBytes(1024)
	b.ResetTimer()
	for n := 0; n < b.N; {
		f := r.PollFetches(ctx)
		if err := f.Err(); err != nil {
			b.Fatal(err)
		}
		n += f.NumRecords()
	}
}
