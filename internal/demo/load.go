package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What the demo writes.
const (
	codecPartitions = 3
	codecRecords    = 3000 // for each codec
	priceRecords    = 2000
	priceKeys       = 50
	groupTopic      = "orders-zstd"
	groupName       = "billing"
	groupRecords    = 1000 // read and committed before the source is lost
	pricesTopic     = "latest-prices"
	electionTopic   = "election"
)

var codecs = []struct {
	name  string
	codec kgo.CompressionCodec
}{
	{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()},
	{"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
}

// allTopics are the demo's topics.
func allTopics() []string {
	topics := []string{pricesTopic, electionTopic}
	for _, c := range codecs {
		topics = append(topics, "orders-"+c.name)
	}
	return topics
}

func (s *story) load(ctx context.Context) error {
	adm := kadm.NewClient(s.atSource)
	compact := "compact"
	for _, topic := range allTopics() {
		partitions, configs := int32(codecPartitions), map[string]*string{}
		switch topic {
		case pricesTopic:
			partitions, configs["cleanup.policy"] = 1, &compact
		case electionTopic:
			partitions = 1
		}
		if _, err := adm.CreateTopic(ctx, partitions, 1, configs, topic); err != nil {
			return fmt.Errorf("create %s: %w", topic, err)
		}
	}
	for _, c := range codecs {
		if err := s.writeOrders(ctx, c.name, c.codec); err != nil {
			return err
		}
	}
	if err := s.writePrices(ctx); err != nil {
		return err
	}
	s.say("Wrote %d records: five codecs with idempotent producers, headers and nulls, and %d keys to compact.", s.report.Records, priceKeys)
	return nil
}

// writeAll sends n records made by next and waits for all of them.
func (s *story) writeAll(ctx context.Context, cl *kgo.Client, n int, next func(i int) *kgo.Record) error {
	var failed atomic.Pointer[error]
	for i := range n {
		cl.Produce(ctx, next(i), func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	s.report.Records += int64(n)
	return nil
}

func (s *story) writeOrders(ctx context.Context, name string, codec kgo.CompressionCodec) error {
	cl, err := connect(s.source.KafkaAddr(), kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic("orders-"+name))
	if err != nil {
		return err
	}
	defer cl.Close()
	return s.writeAll(ctx, cl, codecRecords, func(i int) *kgo.Record {
		r := &kgo.Record{Partition: int32(i % codecPartitions), Key: fmt.Appendf(nil, "order-%d", i),
			Value: []byte(strings.Repeat(fmt.Sprint("line ", i, " "), 1+i%20))}
		if i%7 == 0 {
			r.Headers = []kgo.RecordHeader{{Key: "trace", Value: fmt.Append(nil, i)}, {Key: "empty"}}
		}
		if i%50 == 0 {
			r.Value = nil
		}
		return r
	})
}

func (s *story) writePrices(ctx context.Context) error {
	cl, err := connect(s.source.KafkaAddr(), kgo.DefaultProduceTopic(pricesTopic))
	if err != nil {
		return err
	}
	defer cl.Close()
	return s.writeAll(ctx, cl, priceRecords, func(i int) *kgo.Record {
		r := &kgo.Record{Key: fmt.Appendf(nil, "item-%d", i%priceKeys), Value: fmt.Append(nil, i)}
		if i%101 == 0 {
			r.Value = nil // a tombstone
		}
		return r
	})
}

// readSome reads n records in the group and commits exactly behind them; it gives the next offset of each partition.
func readSome(ctx context.Context, addr string, n int) (map[int32]int64, []*kgo.Record, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup(groupName), kgo.ConsumeTopics(groupTopic),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, nil, err
	}
	defer cl.Close()
	next := map[int32]int64{}
	var records []*kgo.Record
	for len(records) < n {
		fetches := cl.PollRecords(ctx, n-len(records))
		if err := errors.Join(fetches.Err0(), ctx.Err()); err != nil {
			return nil, nil, err
		}
		for _, r := range fetches.Records() {
			records = append(records, r)
			next[r.Partition] = r.Offset + 1
		}
	}
	return next, records, cl.CommitRecords(ctx, records...)
}

func (s *story) readInGroup(ctx context.Context) error {
	_, _, err := readSome(ctx, s.source.KafkaAddr(), groupRecords)
	if err != nil {
		return fmt.Errorf("group %s: %w", groupName, err)
	}
	s.say("The group %q read %d records of %s and committed.", groupName, groupRecords, groupTopic)
	return nil
}
