package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

func produceOf(acks int16, topic string, id types.TopicID, parts map[int32][]byte) *kmsg.ProduceRequest {
	in := kmsg.NewPtrProduceRequest()
	in.Acks, in.TimeoutMillis = acks, 1000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, id
	for n := range int32(100) {
		if raw, ok := parts[n]; ok {
			t.Partitions = append(t.Partitions, kmsg.ProduceRequestTopicPartition{Partition: n, Records: raw})
		}
	}
	in.Topics = append(in.Topics, t)
	return in
}

// Every version appends, and answers by name or by id as its schema has it.
func TestProduceVersions(t *testing.T) {
	for v := int16(3); v <= 13; v++ {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			w := newWorld(t)
			id := w.topic("t", topicOptions{partitions: 3})
			w.part("t", 2).logStart = 4
			in := produceOf(-1, "t", id, map[int32][]byte{0: rawBatch(1, 10), 2: rawBatch(3, 10)})
			out := ask[*kmsg.ProduceResponse](w, in, v)
			if len(out.Topics) != 1 || len(out.Topics[0].Partitions) != 2 {
				t.Fatalf("answer %+v", out)
			}
			if v < 13 && out.Topics[0].Topic != "t" || v >= 13 && out.Topics[0].TopicID != [16]byte(id) {
				t.Errorf("topic answered as %q %v", out.Topics[0].Topic, out.Topics[0].TopicID)
			}
			for _, p := range out.Topics[0].Partitions {
				if p.ErrorCode != 0 || p.BaseOffset != 0 || p.LogAppendTime != -1 {
					t.Errorf("partition %d: %+v", p.Partition, p)
				}
			}
			if got := out.Topics[0].Partitions[1].LogStartOffset; v >= 5 && got != 4 {
				t.Errorf("log start %d, want 4", got)
			}
			if got := w.part("t", 2).end; got != 3 {
				t.Errorf("log end %d after three records", got)
			}
			if got := w.part("t", 2).appended[0]; got.Acks != -1 || got.RequestVersion != v || got.Timeout.Milliseconds() != 1000 {
				t.Errorf("appended with %+v", got)
			}
		})
	}
}

func TestProduceErrors(t *testing.T) {
	good := rawBatch(1, 10)
	bad := func(f func(b []byte)) []byte {
		b := rawBatch(1, 10)
		f(b)
		return b
	}
	zstd := batch.NewBuilder(batch.BuilderOptions{Codec: batch.Zstd})
	zstd.Append(1, nil, []byte("v"))
	zstdRaw, err := zstd.Build()
	if err != nil {
		t.Fatal(err)
	}
	refused := &batch.RecordsError{Kind: batch.ErrInvalidRecord, Records: []batch.RecordError{{Index: 2, Reason: "no key"}}}
	for name, tc := range map[string]struct {
		version int16 // 0: 12
		acks    int16
		topic   string // "": t
		part    int32
		raw     []byte // nil: a good batch
		txn     *string
		err     error // of Append
		code    wire.ErrCode
		message string
		records []int32
	}{
		"acks 2":                     {acks: 2, code: wire.ErrInvalidRequiredAcks, message: "not 2"},
		"acks -2":                    {acks: -2, code: wire.ErrInvalidRequiredAcks, message: "not -2"},
		"unknown topic":              {acks: 1, topic: "nobody", code: wire.ErrUnknownTopicOrPartition},
		"unknown partition":          {acks: 1, part: 9, code: wire.ErrUnknownTopicOrPartition},
		"unknown topic id":           {version: 13, acks: 1, topic: "nobody", code: wire.ErrUnknownTopicID},
		"internal topic":             {acks: 1, topic: "internal", code: wire.ErrInvalidTopic, message: "internal"},
		"mirror":                     {acks: 1, topic: "mirrored", code: wire.ErrPolicyViolation, message: "read-only mirror"},
		"no records":                 {acks: 1, raw: []byte{}, code: wire.ErrInvalidRecord, message: "one record batch"},
		"two batches":                {acks: 1, raw: append(rawBatch(1, 1), rawBatch(1, 1)...), code: wire.ErrInvalidRecord, message: "not more"},
		"cut short":                  {acks: 1, raw: good[:len(good)-1], code: wire.ErrCorruptMessage},
		"shorter than a header":      {acks: 1, raw: good[:20], code: wire.ErrCorruptMessage},
		"magic 1":                    {acks: 1, raw: bad(func(b []byte) { b[16] = 1 }), code: wire.ErrInvalidRecord},
		"negative batch length":      {acks: 1, raw: bad(func(b []byte) { b[8] = 0xff }), code: wire.ErrCorruptMessage},
		"zstd before 7":              {version: 6, acks: 1, raw: zstdRaw, code: wire.ErrUnsupportedCompressionType},
		"zstd":                       {version: 7, acks: 1, raw: zstdRaw},
		"transactional id":           {acks: -1, txn: ptr("tx")},
		"CRC":                        {acks: 1, err: batch.ErrCRC, code: wire.ErrCorruptMessage},
		"too large":                  {acks: 1, err: fmt.Errorf("%w: 2 MiB", batch.ErrTooLarge), code: wire.ErrMessageTooLarge, message: "2 MiB"},
		"refused records":            {acks: 1, err: refused, code: wire.ErrInvalidRecord, records: []int32{2}, message: "no key"},
		"sequence gap":               {acks: -1, err: txn.ErrOutOfOrderSequence, code: wire.ErrOutOfOrderSequenceNumber},
		"old producer epoch":         {acks: -1, err: txn.ErrProducerEpoch, code: wire.ErrInvalidProducerEpoch},
		"too few replicas":           {acks: -1, err: wire.ErrNotEnoughReplicas, code: wire.ErrNotEnoughReplicas},
		"no answer in time":          {acks: -1, err: context.DeadlineExceeded, code: wire.ErrRequestTimedOut},
		"a path in an unknown error": {acks: -1, err: errors.New("/var/lib/x"), code: wire.ErrUnknownServerError},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.topic("t", topicOptions{partitions: 2})
			w.topic("internal", topicOptions{internal: true})
			w.topic("mirrored", topicOptions{mirror: "standby"})
			w.part("t", 0).appendErr = tc.err
			topic, version, raw := tc.topic, tc.version, tc.raw
			if topic == "" {
				topic = "t"
			}
			if version == 0 {
				version = 12
			}
			if raw == nil {
				raw = good
			}
			in := produceOf(tc.acks, topic, topicIDOf(topic), map[int32][]byte{tc.part: raw})
			in.TransactionID = tc.txn
			p := ask[*kmsg.ProduceResponse](w, in, version).Topics[0].Partitions[0]
			if got := wire.ErrCode(p.ErrorCode); got != tc.code {
				t.Fatalf("error %v, want %v", got, tc.code)
			}
			message := ""
			if p.ErrorMessage != nil {
				message = *p.ErrorMessage
			}
			if !strings.Contains(message, tc.message) || strings.Contains(message, "/var") {
				t.Errorf("message %q, want one with %q", message, tc.message)
			}
			if tc.code != wire.None && p.BaseOffset != -1 {
				t.Errorf("base offset %d with an error", p.BaseOffset)
			}
			var records []int32
			for _, r := range p.ErrorRecords {
				records = append(records, r.RelativeOffset)
			}
			if fmt.Sprint(records) != fmt.Sprint(tc.records) {
				t.Errorf("record errors %v, want %v", records, tc.records)
			}
		})
	}
}

// acks=0: no answer; an error closes the connection.
func TestProduceWithoutAnswer(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", topicOptions{})
	in := produceOf(0, "t", id, map[int32][]byte{0: rawBatch(1, 1)})
	out, err := w.try(context.Background(), in, 9)
	if out != nil || err != nil {
		t.Errorf("answered %v, error %v; want neither", out, err)
	}
	// The client is gone: its batch is appended all the same.
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := w.try(gone, in, 9); err != nil {
		t.Error(err)
	}
	if got := w.part("t", 0).end; got != 2 {
		t.Errorf("log end %d, want 2", got)
	}
	w.part("t", 0).appendErr = wire.ErrNotLeaderOrFollower
	if _, err := w.try(context.Background(), in, 9); !errors.Is(err, ErrClose) {
		t.Errorf("error %v, want the connection closed", err)
	}
}

// Kafka's admin client may write to internal topics.
func TestProduceToInternalTopicsByTheAdminClient(t *testing.T) {
	w := newWorld(t)
	id := w.topic("internal", topicOptions{internal: true})
	in := produceOf(1, "internal", id, map[int32][]byte{0: rawBatch(1, 1)})
	out, err := w.send(context.Background(), request(in, 9, "__admin_client"), in)
	if err != nil {
		t.Fatal(err)
	}
	if code := out.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Errorf("error %v", wire.ErrCode(code))
	}
}

// Partitions of one request wait together: none waits for another's acks.
func TestProduceAppendsPartitionsAtOnce(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", topicOptions{partitions: 3})
	gate := make(chan struct{})
	w.part("t", 0).hold = gate // opened by the append to partition 2
	third := w.part("t", 2)
	third.OnProgress(func() { close(gate) })
	in := produceOf(-1, "t", id, map[int32][]byte{0: rawBatch(1, 1), 1: rawBatch(1, 1), 2: rawBatch(1, 1)})
	for _, p := range ask[*kmsg.ProduceResponse](w, in, 9).Topics[0].Partitions {
		if p.ErrorCode != 0 {
			t.Errorf("partition %d: %v", p.Partition, wire.ErrCode(p.ErrorCode))
		}
	}
}

// KIP-951: from version 10 on an answer names the leader and its address.
func TestProduceNamesTheLeader(t *testing.T) {
	for v := int16(9); v <= 13; v++ {
		w := newWorld(t)
		id := w.topic("t", topicOptions{leader: 2, epoch: 5, noLog: true})
		out := ask[*kmsg.ProduceResponse](w, produceOf(1, "t", id, map[int32][]byte{0: rawBatch(1, 1)}), v)
		p := out.Topics[0].Partitions[0]
		if p.ErrorCode != int16(wire.ErrNotLeaderOrFollower) {
			t.Fatalf("version %d: error %v", v, wire.ErrCode(p.ErrorCode))
		}
		if v < 10 {
			if p.CurrentLeader.LeaderID != -1 || len(out.Brokers) != 0 {
				t.Errorf("version %d names a leader", v)
			}
			continue
		}
		if p.CurrentLeader.LeaderID != 2 || p.CurrentLeader.LeaderEpoch != 5 {
			t.Errorf("version %d: leader %+v", v, p.CurrentLeader)
		}
		if len(out.Brokers) != 1 || out.Brokers[0].Host != "two.example" || out.Brokers[0].NodeID != 2 {
			t.Errorf("version %d: brokers %+v", v, out.Brokers)
		}
	}
}

// A produce of one partition allocates for the decoding and the answer, and
// nothing that grows with the records.
func TestProduceAllocations(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{})
	p := w.part("t", 0)
	p.appendErr = wire.ErrNotEnoughReplicas // the fake's log would grow
	small := request(produceOf(-1, "t", types.TopicID{}, map[int32][]byte{0: rawBatch(1, 10)}), 9, "c")
	large := request(produceOf(-1, "t", types.TopicID{}, map[int32][]byte{0: rawBatch(500, 1000)}), 9, "c")
	count := func(req *wire.Request) float64 {
		return testing.AllocsPerRun(100, func() {
			r, err := w.server.Handle(context.Background(), req)
			if err != nil {
				t.Fatal(err)
			}
			r.Done()
		})
	}
	a, b := count(small), count(large)
	if a != b || a > 20 {
		t.Errorf("%v allocations for one small record, %v for 500 large ones; want the same, at most 20", a, b)
	}
}
