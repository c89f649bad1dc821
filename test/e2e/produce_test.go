package e2e

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// builtBatch makes the bytes of one batch.
func builtBatch(t testing.TB, o batch.BuilderOptions, values ...string) []byte {
	t.Helper()
	b := batch.NewBuilder(o)
	for i, v := range values {
		b.Append(types.Millis(1_000_000+1000*i), nil, []byte(v))
	}
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// produceRaw sends one batch for one partition, as it is.
func produceRaw(t testing.TB, cl *kgo.Client, topic string, partition int32, acks int16, raw []byte) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 10_000
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, raw
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{p}}}
	resp, err := req.RequestWith(harness.Context(t), cl)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Topics[0].Partitions[0]
}

// rawClient speaks to the one broker in the last versions that name topics.
func rawClient(t testing.TB, b *harness.Broker) *kgo.Client {
	t.Helper()
	return b.Client(t, kgo.MaxVersions(versionsUpTo(12)))
}

// Every codec's batches come back as they were sent, and are stored packed.
func TestEveryCodecComesBack(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 5, nil)
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		t.Run(batch.Codec(i).String(), func(t *testing.T) {
			part := int32(i)
			cl := b.Client(t, kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond))
			var sent []*kgo.Record
			for n := range 200 {
				r := &kgo.Record{Topic: "t", Partition: part, Key: fmt.Appendf(nil, "key-%d", n%7), Value: bytes.Repeat([]byte("value "), n%50),
					Headers: []kgo.RecordHeader{{Key: "h", Value: fmt.Append(nil, n)}, {Key: "null"}}, Timestamp: time.UnixMilli(1_700_000_000_000 + int64(n))}
				if n%10 == 0 {
					r.Key, r.Value = nil, nil
				}
				sent = append(sent, r)
			}
			if err := cl.ProduceSync(harness.Context(t), sent...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			got := readRecords(t, b, "t", part, len(sent))
			for n := range sent {
				want := kept(sent[n])
				want.Offset = int64(n)
				if diff := cmp.Diff(want, kept(got[n])); diff != "" {
					t.Fatalf("record %d: %s", n, diff)
				}
			}
			if h := firstHeader(t, b, "t", part); h.Compression() != batch.Codec(i) {
				t.Errorf("stored with codec %v", h.Compression())
			}
		})
	}
}

// keptRecord is what must survive of a record.
type keptRecord struct {
	Key, Value []byte
	Headers    []kgo.RecordHeader
	Millis     int64
	Offset     int64
}

func kept(r *kgo.Record) keptRecord {
	return keptRecord{r.Key, r.Value, r.Headers, r.Timestamp.UnixMilli(), r.Offset}
}

func readRecords(t *testing.T, b *harness.Broker, topic string, part int32, n int) []*kgo.Record {
	t.Helper()
	c := b.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {part: kgo.NewOffset().AtStart()}}))
	var all []*kgo.Record
	for ctx := harness.Context(t); len(all) < n; {
		fetches := c.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			t.Fatalf("got %d of %d records: %v", len(all), n, errs)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}

// A repeated batch of an idempotent producer is answered with its first offset,
// also after a restart; a gap and an old epoch are refused (G8).
func TestIdempotentProducer(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	init, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(harness.Context(t), b.Client(t))
	if err != nil || init.ErrorCode != 0 || init.ProducerID < 0 {
		t.Fatalf("no producer id: %+v, %v", init, err)
	}
	send := func(epoch int16, sequence int32, values ...string) (int64, error) {
		t.Helper()
		raw := builtBatch(t, batch.BuilderOptions{Producer: &batch.Producer{ID: types.ProducerID(init.ProducerID), Epoch: epoch, BaseSequence: sequence}}, values...)
		p := produceRaw(t, rawClient(t, b), "t", 0, -1, raw)
		return p.BaseOffset, kerr.ErrorForCode(p.ErrorCode)
	}
	f := func(what string, epoch int16, sequence int32, offset int64, want error, values ...string) {
		t.Helper()
		got, err := send(epoch, sequence, values...)
		if err != want || got != offset {
			t.Errorf("%s: offset %d, %v; want %d, %v", what, got, err, offset, want)
		}
	}
	f("first", 0, 0, 0, nil, "a", "b")
	f("second", 0, 2, 2, nil, "c")
	f("first again", 0, 0, 0, nil, "a", "b")
	f("gap", 0, 9, -1, kerr.OutOfOrderSequenceNumber, "z")
	b = b.Restart(t)
	f("second again, after a restart", 0, 2, 2, nil, "c")
	f("third, after a restart", 0, 3, 3, nil, "d")
	f("new epoch not at 0", 1, 4, -1, kerr.OutOfOrderSequenceNumber, "z")
	f("new epoch", 1, 0, 4, nil, "e")
	f("old epoch", 0, 4, -1, kerr.InvalidProducerEpoch, "z")
}

// What a batch can lie about is found out, and leaves nothing in the log.
func TestLyingBatches(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, map[string]string{"max.message.bytes": "1000"})
	b.CreateTopic(t, "compacted", 1, map[string]string{"cleanup.policy": "compact"})
	cl := rawClient(t, b)
	changed := func(resum bool, f func(raw []byte)) []byte {
		raw := builtBatch(t, batch.BuilderOptions{}, "a", "b", "c")
		f(raw)
		if resum {
			batch.SetChecksum(raw)
		}
		return raw
	}
	for name, tc := range map[string]struct {
		topic string
		raw   []byte
		want  error
	}{
		"a flipped bit":       {"t", changed(false, func(raw []byte) { raw[len(raw)-1] ^= 1 }), kerr.CorruptMessage},
		"count too high":      {"t", changed(true, func(raw []byte) { raw[60] = 4 }), kerr.InvalidRecord},
		"count too low":       {"t", changed(true, func(raw []byte) { raw[60] = 2 }), kerr.InvalidRecord},
		"last offset too far": {"t", changed(true, func(raw []byte) { raw[26] = 9 }), kerr.InvalidRecord},
		"magic 1":             {"t", changed(true, func(raw []byte) { raw[16] = 1 }), kerr.InvalidRecord},
		"control batch":       {"t", changed(true, func(raw []byte) { raw[22] |= 0x20 }), kerr.InvalidRecord},
		"too large":           {"t", builtBatch(t, batch.BuilderOptions{}, string(make([]byte, 1000))), kerr.MessageTooLarge},
		"no key, compacted":   {"compacted", builtBatch(t, batch.BuilderOptions{}, "a"), kerr.InvalidRecord},
		"two batches":         {"t", append(builtBatch(t, batch.BuilderOptions{}, "a"), builtBatch(t, batch.BuilderOptions{}, "b")...), kerr.InvalidRecord},
	} {
		t.Run(name, func(t *testing.T) {
			p := produceRaw(t, cl, tc.topic, 0, -1, tc.raw)
			if got := kerr.ErrorForCode(p.ErrorCode); got != tc.want {
				t.Errorf("error %v, want %v", got, tc.want)
			}
		})
	}
	if p := produceRaw(t, cl, "t", 0, -1, builtBatch(t, batch.BuilderOptions{}, "good")); p.ErrorCode != 0 || p.BaseOffset != 0 {
		t.Errorf("the log isn't empty: %+v", p)
	}
}

// acks=0: there is no answer, and an error closes the connection.
func TestProduceWithoutAcks(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	cl := b.Client(t, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	if err := cl.ProduceSync(harness.Context(t), kgo.StringRecord("x"), &kgo.Record{Topic: "t", Value: []byte("a")}).FirstErr(); err == nil {
		t.Error("a record without a topic was taken")
	}
	if got := b.Consume(t, "t", 0, 0, 1); got[0] != "a" {
		t.Errorf("read %q", got)
	}
	c := rawConn(t, b)
	// Produce 3, null transactional id, acks 0, topic "no" with one empty partition.
	sendHex(t, c, "00000003"+"00000001"+"ffff"+"ffff"+"0000"+"000003e8"+"00000001"+"0002"+"6e6f"+"00000001"+"00000000"+"00000000")
	wantClosed(t, c)
}

// One client's requests, many at once on one connection, keep their order.
func TestManyProducersKeepOrder(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	cl := b.Client(t, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(5), kgo.ProducerBatchMaxBytes(2000), kgo.DefaultProduceTopic("t"))
	const n = 2000
	ctx, cancel := context.WithTimeout(harness.Context(t), harness.Patience)
	defer cancel()
	for i := range n {
		cl.Produce(ctx, &kgo.Record{Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for i, r := range readRecords(t, b, "t", 0, n) {
		if string(r.Value) != fmt.Sprint(i) {
			t.Fatalf("record %d is %s", i, r.Value)
		}
	}
}
