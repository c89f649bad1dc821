package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"tidemark/internal/batch"
	"tidemark/test/e2e/harness"
)

// versionsUpTo is what a client of this version of Fetch and Produce speaks.
func versionsUpTo(version int16) *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(0, version)
	v.SetMaxKeyVersion(1, version)
	return v
}

// fetchRaw makes a request for one partition.
func fetchRaw(topic string, partition int32, offset int64, waitMillis, minBytes int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.ReplicaID, req.SessionEpoch = waitMillis, minBytes, 50<<20, -1, -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.LastFetchedEpoch = partition, offset, 1<<20, -1, -1
	req.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	return req
}

func askFetch(t testing.TB, cl *kgo.Client, req *kmsg.FetchRequest) *kmsg.FetchResponse {
	t.Helper()
	resp, err := req.RequestWith(harness.Context(t), cl)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func firstHeader(t *testing.T, b *harness.Broker, topic string, partition int32) batch.Header {
	t.Helper()
	resp := askFetch(t, rawClient(t, b), fetchRaw(topic, partition, 0, 0, 0))
	h, err := batch.ParseHeader(resp.Topics[0].Partitions[0].RecordBatches)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestFetchRanges(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	cl := rawClient(t, b)
	for range 3 {
		produceRaw(t, cl, "t", 0, -1, builtBatch(t, batch.BuilderOptions{}, "a", "b"))
	}
	f := func(offset int64, want error, base int64) {
		t.Helper()
		p := askFetch(t, cl, fetchRaw("t", 0, offset, 0, 0)).Topics[0].Partitions[0]
		if got := kerr.ErrorForCode(p.ErrorCode); got != want {
			t.Errorf("offset %d: %v, want %v", offset, got, want)
		}
		if base < 0 {
			if len(p.RecordBatches) != 0 {
				t.Errorf("offset %d: %d bytes of records", offset, len(p.RecordBatches))
			}
			return
		}
		h, err := batch.ParseHeader(p.RecordBatches)
		if err != nil || int64(h.BaseOffset) != base || p.HighWatermark != 6 {
			t.Errorf("offset %d: batch at %d, high watermark %d, %v", offset, h.BaseOffset, p.HighWatermark, err)
		}
	}
	f(0, nil, 0)
	f(3, nil, 2) // inside a batch: the whole batch
	f(5, nil, 4)
	f(6, nil, -1)
	f(7, kerr.OffsetOutOfRange, -1)
	f(-1, kerr.OffsetOutOfRange, -1)
}

// A long poll ends when the record is there, not when the time is up.
func TestLongPollIsWoken(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	cl := rawClient(t, b)
	type answer struct {
		resp *kmsg.FetchResponse
		err  error
	}
	ch := make(chan answer, 1)
	ctx := harness.Context(t)
	go func() {
		resp, err := fetchRaw("t", 0, 0, 50_000, 1).RequestWith(ctx, cl)
		ch <- answer{resp, err}
	}()
	from := time.Now()
	b.Produce(t, "t", 0, "news")
	a, _ := harness.Receive(t, "the long poll is answered", ch)
	if a.err != nil || len(a.resp.Topics[0].Partitions[0].RecordBatches) == 0 {
		t.Fatalf("answer %+v, %v", a.resp, a.err)
	}
	if took := time.Since(from); took > harness.Patience/2 {
		t.Errorf("woken after %v", took)
	}
}

// writeHook gets a token when a Fetch was written.
type writeHook chan struct{}

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (h writeHook) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == 1 {
		h <- struct{}{}
	}
}

// A shutdown doesn't wait for long polls.
func TestShutdownEndsLongPolls(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	sent := make(writeHook, 1)
	cl := b.Client(t, kgo.WithHooks(sent), kgo.MaxVersions(versionsUpTo(12)))
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(harness.Context(t))
	defer cancel()
	go func() {
		defer close(done)
		_, _ = fetchRaw("t", 0, 0, 600_000, 1).RequestWith(ctx, cl) // an answer or a closed connection
	}()
	harness.Receive(t, "the fetch is sent", sent)
	from := time.Now()
	b.Stop(t)
	if took := time.Since(from); took > harness.Patience/2 {
		t.Errorf("the shutdown took %v", took)
	}
	cancel()
	harness.Receive(t, "the long poll ends", done)
}

// KIP-227 with real partitions: only news is answered.
func TestFetchSession(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 2, nil)
	cl := rawClient(t, b)
	req := fetchRaw("t", 0, 0, 0, 0)
	second := req.Topics[0].Partitions[0]
	second.Partition = 1
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, second)
	req.SessionEpoch = 0
	first := askFetch(t, cl, req)
	if first.SessionID == 0 || len(first.Topics[0].Partitions) != 2 {
		t.Fatalf("first answer %+v", first)
	}
	next := fetchRaw("t", 0, 0, 0, 0)
	next.Topics, next.SessionID = nil, first.SessionID
	incremental := func(epoch int32) *kmsg.FetchResponse {
		t.Helper()
		next.SessionEpoch = epoch
		resp := askFetch(t, cl, next)
		if resp.ErrorCode != 0 || resp.SessionID != first.SessionID {
			t.Fatalf("epoch %d: %v, session %d", epoch, kerr.ErrorForCode(resp.ErrorCode), resp.SessionID)
		}
		return resp
	}
	if resp := incremental(1); len(resp.Topics) != 0 {
		t.Errorf("news although nothing happened: %+v", resp.Topics)
	}
	produceRaw(t, cl, "t", 1, -1, builtBatch(t, batch.BuilderOptions{}, "x"))
	resp := incremental(2)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != 1 || len(resp.Topics[0].Partitions[0].RecordBatches) == 0 {
		t.Errorf("answer %+v", resp.Topics)
	}
	next.SessionEpoch = 9
	if resp := askFetch(t, cl, next); resp.ErrorCode != kerr.InvalidFetchSessionEpoch.Code {
		t.Errorf("wrong epoch: %v", kerr.ErrorForCode(resp.ErrorCode))
	}
}

// Every special timestamp of ListOffsets, and times between records.
func TestListOffsetsTimestamps(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	b.CreateTopic(t, "empty", 1, nil)
	raw := rawClient(t, b)
	// Times 1,000,000 to 1,002,000, twice.
	produceRaw(t, raw, "t", 0, -1, builtBatch(t, batch.BuilderOptions{}, "a", "b", "c"))
	produceRaw(t, raw, "t", 0, -1, builtBatch(t, batch.BuilderOptions{Codec: batch.Zstd}, "d", "e", "f"))
	cl := b.Client(t)
	f := func(topic string, ts, offset, stamp int64) {
		t.Helper()
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp, p.CurrentLeaderEpoch = ts, -1
		req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
		resp, err := req.RequestWith(harness.Context(t), cl)
		if err != nil {
			t.Fatal(err)
		}
		if a := resp.Topics[0].Partitions[0]; a.ErrorCode != 0 || a.Offset != offset || a.Timestamp != stamp {
			t.Errorf("%s at %d: %v, offset %d, time %d; want %d, %d", topic, ts, kerr.ErrorForCode(a.ErrorCode), a.Offset, a.Timestamp, offset, stamp)
		}
	}
	f("t", -1, 6, -1)
	f("t", -2, 0, -1)
	f("t", -3, 2, 1_002_000) // the first of two with the largest time
	f("t", -4, 0, -1)
	f("t", -5, -1, -1)
	f("t", -6, -1, -1)
	f("t", 0, 0, 1_000_000)
	f("t", 1_000_001, 1, 1_001_000)
	f("t", 1_001_000, 1, 1_001_000)
	f("t", 1_002_001, -1, -1)
	f("empty", -1, 0, -1)
	f("empty", -3, -1, -1)
	f("empty", 5, -1, -1)
}

// Fetches name a topic by id from version 13 on; one made anew has another id.
func TestFetchByTopicID(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	b.Produce(t, "t", 0, "a")
	id := topicID(t, b, "t")
	req := fetchRaw("", 0, 0, 0, 0)
	req.Topics[0].TopicID = id
	cl := b.Client(t)
	if p := askFetch(t, cl, req).Topics[0].Partitions[0]; p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
		t.Errorf("by id: %v", kerr.ErrorForCode(p.ErrorCode))
	}
	if _, err := b.Admin(t).DeleteTopics(harness.Context(t), "t"); err != nil {
		t.Fatal(err)
	}
	b.CreateTopic(t, "t", 1, nil)
	if p := askFetch(t, cl, req).Topics[0].Partitions[0]; p.ErrorCode != kerr.UnknownTopicID.Code {
		t.Errorf("by the old id: %v", kerr.ErrorForCode(p.ErrorCode))
	}
	if topicID(t, b, "t") == id {
		t.Error("the topic made anew has the old id")
	}
}

// R5: a client whose last epoch isn't ours learns where to go back to.
func TestFetchTellsTheDivergence(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	b.Produce(t, "t", 0, "a", "b")
	b = b.Restart(t) // a restart is an election: a new epoch
	b.Produce(t, "t", 0, "c")
	cl := rawClient(t, b)
	probe := askFetch(t, cl, fetchRaw("t", 0, 2, 0, 0))
	h, err := batch.ParseHeader(probe.Topics[0].Partitions[0].RecordBatches)
	if err != nil || h.PartitionLeaderEpoch < 1 {
		t.Fatalf("epoch of the second election %d, %v", h.PartitionLeaderEpoch, err)
	}
	req := fetchRaw("t", 0, 3, 0, 0)
	req.Topics[0].Partitions[0].LastFetchedEpoch = 0 // of epoch 0 there are two records only
	p := askFetch(t, cl, req).Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.DivergingEpoch.Epoch != 0 || p.DivergingEpoch.EndOffset != 2 || len(p.RecordBatches) != 0 {
		t.Errorf("%v, diverging %+v", kerr.ErrorForCode(p.ErrorCode), p.DivergingEpoch)
	}
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = 0
	if p := askFetch(t, cl, req).Topics[0].Partitions[0]; p.ErrorCode != kerr.FencedLeaderEpoch.Code {
		t.Errorf("an old leader epoch: %v", kerr.ErrorForCode(p.ErrorCode))
	}
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = 1000
	if p := askFetch(t, cl, req).Topics[0].Partitions[0]; p.ErrorCode != kerr.UnknownLeaderEpoch.Code {
		t.Errorf("a leader epoch from the future: %v", kerr.ErrorForCode(p.ErrorCode))
	}
}
