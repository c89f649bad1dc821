package api

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/await"
	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// want is one partition of a Fetch request.
type want struct {
	topic  string
	part   int32
	offset types.Offset
	max    int32 // 0: 1 MiB
	epoch  types.LeaderEpoch
	last   types.LeaderEpoch
}

const unsaid = types.NoLeaderEpoch

func fetchOf(wants ...want) *kmsg.FetchRequest {
	in := kmsg.NewPtrFetchRequest()
	in.ReplicaID, in.ReplicaState.ID = -1, -1
	in.MaxBytes, in.SessionEpoch = 50<<20, -1
	for _, x := range wants {
		if n := len(in.Topics); n == 0 || in.Topics[n-1].Topic != x.topic {
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = x.topic, topicIDOf(x.topic)
			in.Topics = append(in.Topics, t)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = x.part, int64(x.offset), x.max
		if x.max == 0 {
			p.PartitionMaxBytes = 1 << 20
		}
		p.CurrentLeaderEpoch, p.LastFetchedEpoch = int32(x.epoch), int32(x.last)
		t := &in.Topics[len(in.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return in
}

// got is what a Fetch answer says about a partition.
type got struct {
	Part    string
	Code    wire.ErrCode
	HW      int64
	Offsets []types.Offset // first offsets of the batches
}

func gotOf(t *testing.T, out *kmsg.FetchResponse) []got {
	t.Helper()
	var all []got
	for _, topic := range out.Topics {
		name := topic.Topic
		if out.Version >= 13 {
			name = string(topic.TopicID[len("id-of-"):])
			for len(name) > 0 && name[len(name)-1] == 0 {
				name = name[:len(name)-1]
			}
		}
		for _, p := range topic.Partitions {
			g := got{Part: fmt.Sprintf("%s-%d", name, p.Partition), Code: wire.ErrCode(p.ErrorCode), HW: p.HighWatermark}
			it := batch.Iterate(p.RecordBatches)
			for it.Next() {
				g.Offsets = append(g.Offsets, it.Header.BaseOffset)
			}
			if len(it.Rest()) > 0 || it.Err() != nil {
				t.Errorf("%s: a batch was cut: %v", g.Part, it.Err())
			}
			all = append(all, g)
		}
	}
	return all
}

func wantGot(t *testing.T, out *kmsg.FetchResponse, want ...got) {
	t.Helper()
	if out.ErrorCode != 0 {
		t.Fatalf("answered %v", wire.ErrCode(out.ErrorCode))
	}
	if diff := cmp.Diff(want, gotOf(t, out)); diff != "" {
		t.Errorf("answer differs (-want +got):\n%s", diff)
	}
}

// nothingHeld checks that no chunk and no subscription is left.
func (w *world) nothingHeld() {
	w.t.Helper()
	for _, p := range w.parts {
		if n := p.release.get(); n != 0 {
			w.t.Errorf("%s: %d chunks never released", p.tp, n)
		}
		if n := p.listening(); n != 0 {
			w.t.Errorf("%s: %d listeners left", p.tp, n)
		}
	}
}

func TestFetchVersions(t *testing.T) {
	for v := int16(4); v <= 18; v++ {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			w := newWorld(t)
			w.topic("t", topicOptions{partitions: 2, epoch: 3})
			w.topic("u", topicOptions{})
			w.part("t", 0).fill(3, 10).advance(2)
			w.part("t", 1).fill(1, 10).advance(1)
			w.part("u", 0).logStart = 0
			out := ask[*kmsg.FetchResponse](w, fetchOf(want{topic: "t", epoch: 3, last: unsaid}, want{topic: "t", part: 1, offset: 1, epoch: unsaid, last: unsaid},
				want{topic: "u", epoch: unsaid, last: unsaid}), v)
			wantGot(t, out,
				got{Part: "t-0", HW: 2, Offsets: []types.Offset{0, 1}},
				got{Part: "t-1", HW: 1},
				got{Part: "u-0", HW: 0})
			w.nothingHeld()
		})
	}
}

func TestFetchErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		version int16
		ask     want
		code    wire.ErrCode
		leader  int32 // expected hint; 0 for none
	}{
		"unknown topic":       {12, want{topic: "nobody", epoch: unsaid, last: unsaid}, wire.ErrUnknownTopicOrPartition, 0},
		"unknown topic id":    {13, want{topic: "nobody", epoch: unsaid, last: unsaid}, wire.ErrUnknownTopicID, 0},
		"unknown partition":   {12, want{topic: "t", part: 7, epoch: unsaid, last: unsaid}, wire.ErrUnknownTopicOrPartition, 0},
		"negative partition":  {12, want{topic: "t", part: -1, epoch: unsaid, last: unsaid}, wire.ErrUnknownTopicOrPartition, 0},
		"below the log start": {12, want{topic: "t", offset: 1, epoch: unsaid, last: unsaid}, wire.ErrOffsetOutOfRange, 0},
		"beyond the log end":  {12, want{topic: "t", offset: 6, epoch: unsaid, last: unsaid}, wire.ErrOffsetOutOfRange, 0},
		"old leader epoch":    {16, want{topic: "t", offset: 3, epoch: 2, last: unsaid}, wire.ErrFencedLeaderEpoch, 1},
		"old epoch, no hints": {15, want{topic: "t", offset: 3, epoch: 2, last: unsaid}, wire.ErrFencedLeaderEpoch, 0},
		"new leader epoch":    {16, want{topic: "t", offset: 3, epoch: 4, last: unsaid}, wire.ErrUnknownLeaderEpoch, 0},
		"led elsewhere":       {16, want{topic: "away", epoch: unsaid, last: unsaid}, wire.ErrNotLeaderOrFollower, 2},
		"led by nobody":       {16, want{topic: "leaderless", epoch: unsaid, last: unsaid}, wire.ErrNotLeaderOrFollower, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.topic("t", topicOptions{epoch: 3})
			w.topic("away", topicOptions{leader: 2, epoch: 9, noLog: true})
			w.topic("leaderless", topicOptions{leader: types.NoBroker, noLog: true})
			p := w.part("t", 0).fill(5, 10)
			p.logStart = 2
			p.advance(5)
			in := fetchOf(tc.ask)
			in.MaxWaitMillis, in.MinBytes = 60_000, 1 // an error ends the wait
			out := ask[*kmsg.FetchResponse](w, in, tc.version)
			wantGot(t, out, got{Part: fmt.Sprintf("%s-%d", tc.ask.topic, tc.ask.part), Code: tc.code, HW: -1})
			a := out.Topics[0].Partitions[0]
			if a.LogStartOffset != -1 || a.LastStableOffset != -1 {
				t.Errorf("offsets %d, %d beside an error", a.LogStartOffset, a.LastStableOffset)
			}
			if tc.leader == 0 && (a.CurrentLeader.LeaderID != -1 || len(out.Brokers) != 0) {
				t.Errorf("leader hint %+v, brokers %+v; want none", a.CurrentLeader, out.Brokers)
			}
			if tc.leader != 0 && (a.CurrentLeader.LeaderID != tc.leader || len(out.Brokers) != 1 || out.Brokers[0].NodeID != tc.leader) {
				t.Errorf("leader hint %+v, brokers %+v; want broker %d", a.CurrentLeader, out.Brokers, tc.leader)
			}
			w.nothingHeld()
		})
	}
}

// The first batch comes whole, whatever the limits; all others keep them.
func TestFetchLimits(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{partitions: 3})
	for n := range int32(3) {
		w.part("t", n).fill(3, 1000).advance(3)
	}
	size := int32(len(rawBatch(1, 1000)))
	f := func(name string, total int32, each int32, want ...got) {
		t.Helper()
		in := fetchOf(wantAll("t", 3, each)...)
		in.MaxBytes = total
		t.Run(name, func(t *testing.T) { wantGot(t, ask[*kmsg.FetchResponse](w, in, 12), want...) })
	}
	one := func(n int, offsets ...types.Offset) got {
		return got{Part: fmt.Sprintf("t-%d", n), HW: 3, Offsets: offsets}
	}
	f("one byte", 1, 1, one(0, 0), one(1), one(2))
	f("one byte each", 1<<20, 1, one(0, 0), one(1), one(2))
	f("one batch each", 1<<20, size, one(0, 0), one(1, 0), one(2, 0))
	f("just below two batches", 1<<20, 2*size-1, one(0, 0), one(1, 0), one(2, 0))
	f("two in all", 2*size, 1<<20, one(0, 0, 1), one(1), one(2))
	f("four in all", 4*size, 1<<20, one(0, 0, 1, 2), one(1, 0), one(2))
	f("everything", 1<<20, 1<<20, one(0, 0, 1, 2), one(1, 0, 1, 2), one(2, 0, 1, 2))
	w.settings.FetchMaxBytes = int(size)
	f("the broker's limit", 1<<20, 1<<20, one(0, 0), one(1), one(2))
	w.nothingHeld()
}

func wantAll(topic string, n int32, max int32) []want {
	var all []want
	for i := range n {
		all = append(all, want{topic: topic, part: i, max: max, epoch: unsaid, last: unsaid})
	}
	return all
}

func TestFetchReadCommitted(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{})
	p := w.part("t", 0).fill(5, 10)
	p.held, p.stable = true, 2
	p.aborted = []AbortedTxn{{ProducerID: 9, FirstOffset: 1}}
	p.advance(4)
	in := fetchOf(want{topic: "t", epoch: unsaid, last: unsaid})
	plain := ask[*kmsg.FetchResponse](w, in, 12)
	wantGot(t, plain, got{Part: "t-0", HW: 4, Offsets: []types.Offset{0, 1, 2, 3}})
	if a := plain.Topics[0].Partitions[0]; a.AbortedTransactions != nil || a.LastStableOffset != 2 {
		t.Errorf("read_uncommitted: aborted %v, last stable %d", a.AbortedTransactions, a.LastStableOffset)
	}
	in.IsolationLevel = 1
	committed := ask[*kmsg.FetchResponse](w, in, 12)
	wantGot(t, committed, got{Part: "t-0", HW: 4, Offsets: []types.Offset{0, 1}})
	a := committed.Topics[0].Partitions[0].AbortedTransactions
	if len(a) != 1 || a[0].ProducerID != 9 || a[0].FirstOffset != 1 {
		t.Errorf("aborted %+v", a)
	}
}

// R5: a divergence is answered at once, and with nothing else.
func TestFetchDivergence(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{epoch: 5})
	p := w.part("t", 0).fill(5, 10)
	p.diverging = &EpochEnd{Epoch: 3, End: 2}
	p.advance(5)
	in := fetchOf(want{topic: "t", offset: 4, epoch: 5, last: 4})
	in.MaxWaitMillis, in.MinBytes = 60_000, 1
	out := ask[*kmsg.FetchResponse](w, in, 12)
	wantGot(t, out, got{Part: "t-0", HW: 5})
	if d := out.Topics[0].Partitions[0].DivergingEpoch; d.Epoch != 3 || d.EndOffset != 2 {
		t.Errorf("diverging epoch %+v", d)
	}
}

// start runs a request in the background; the channel gives its answer.
func (w *world) start(ctx context.Context, in kmsg.Request, version int16) <-chan *kmsg.FetchResponse {
	req := request(in, version, "test")
	ch := make(chan *kmsg.FetchResponse, 1)
	go func() {
		out, err := w.send(ctx, req, in)
		if err != nil {
			w.t.Errorf("Fetch: %v", err)
			close(ch)
			return
		}
		ch <- out.(*kmsg.FetchResponse)
	}()
	return ch
}

// A long poll ends by the high watermark's move, not by the append, and only
// once min bytes are there.
func TestFetchLongPoll(t *testing.T) {
	for _, session := range []bool{false, true} {
		t.Run(fmt.Sprintf("session=%v", session), func(t *testing.T) {
			w := newWorld(t)
			w.topic("t", topicOptions{partitions: 2})
			in := fetchOf(wantAll("t", 2, 1<<20)...)
			if session {
				in.SessionEpoch = 0
				first := ask[*kmsg.FetchResponse](w, in, 12)
				in.Topics, in.SessionID, in.SessionEpoch = nil, first.SessionID, 1
			}
			in.MaxWaitMillis, in.MinBytes = 60_000, int32(2*len(rawBatch(1, 10)))
			ch := w.start(context.Background(), in, 12)
			p0, p1 := w.part("t", 0), w.part("t", 1)
			await.True(t, "listeners", func() bool { return p0.listening() == 1 && p1.listening() == 1 })
			p0.fill(1, 10)
			p0.advance(1)
			p1.fill(1, 10) // not committed yet
			reads := p0.readCount()
			await.True(t, "the first move to be looked at", func() bool { return p0.readCount() >= reads })
			select {
			case <-ch:
				t.Fatal("answered before min bytes were committed")
			default:
			}
			p1.advance(1)
			wantGot(t, <-ch, got{Part: "t-0", HW: 1, Offsets: []types.Offset{0}}, got{Part: "t-1", HW: 1, Offsets: []types.Offset{0}})
		})
	}
}

func TestFetchLongPollEndings(t *testing.T) {
	for name, end := range map[string]func(w *world, cancel func()){
		"leadership moves away": func(w *world, _ func()) { w.part("t", 0).fail(wire.ErrNotLeaderOrFollower) },
		"the log fails":         func(w *world, _ func()) { w.part("t", 0).fail(wire.ErrKafkaStorageError) },
		"the client goes":       func(_ *world, cancel func()) { cancel() },
		"the server drains":     func(w *world, _ func()) { w.server.Drain() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.topic("t", topicOptions{})
			in := fetchOf(want{topic: "t", epoch: unsaid, last: unsaid})
			in.MaxWaitMillis, in.MinBytes = 60_000, 1
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ch := w.start(ctx, in, 12)
			await.True(t, "a listener", func() bool { return w.part("t", 0).listening() == 1 })
			end(w, cancel)
			if out := <-ch; len(out.Topics) != 1 {
				t.Errorf("answer %+v", out)
			}
			w.nothingHeld()
		})
	}
	t.Run("time is up", func(t *testing.T) {
		w := newWorld(t)
		w.topic("t", topicOptions{})
		in := fetchOf(want{topic: "t", epoch: unsaid, last: unsaid})
		in.MaxWaitMillis, in.MinBytes = 20, 1
		from := time.Now()
		wantGot(t, ask[*kmsg.FetchResponse](w, in, 12), got{Part: "t-0"})
		if took := time.Since(from); took < 20*time.Millisecond {
			t.Errorf("answered after %v", took)
		}
	})
}

// A topic deleted and made anew under the same name is found by name, and not by the old id.
func TestFetchOfATopicMadeAnew(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{})
	in := fetchOf(want{topic: "t", epoch: unsaid, last: unsaid})
	in.SessionEpoch = 0
	first := ask[*kmsg.FetchResponse](w, in, 12)
	w.part("t", 0).fail(wire.ErrUnknownTopicOrPartition)
	w.topic("t", topicOptions{}) // same id in this world, a new partition object
	w.part("t", 0).fill(1, 1).advance(1)
	next := fetchOf()
	next.SessionID, next.SessionEpoch = first.SessionID, 1
	wantGot(t, ask[*kmsg.FetchResponse](w, next, 12), got{Part: "t-0", HW: 1, Offsets: []types.Offset{0}})
}

// A request that finds data allocates little, and nothing per record byte.
func TestFetchAllocations(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{})
	w.part("t", 0).fill(1, 100_000).advance(1)
	in := fetchOf(want{topic: "t", epoch: unsaid, last: unsaid})
	req := request(in, 12, "c")
	n := testing.AllocsPerRun(200, func() {
		r, err := w.server.Handle(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		r.Done()
	})
	// Decoding (5), the call and its parts (8), the fake's chunk (2).
	if n > 20 {
		t.Errorf("%v allocations per Fetch, want at most 20", n)
	}
	w.nothingHeld()
}

func BenchmarkFetchHandler(b *testing.B) {
	for _, parts := range []int32{1, 100} {
		b.Run(fmt.Sprintf("%d partitions", parts), func(b *testing.B) {
			w := newWorld(b)
			w.topic("t", topicOptions{partitions: parts})
			for n := range parts {
				w.part("t", n).fill(1, 1000).advance(1)
			}
			req := request(fetchOf(wantAll("t", parts, 1<<20)...), 12, "c")
			b.ReportAllocs()
			for b.Loop() {
				r, err := w.server.Handle(context.Background(), req)
				if err != nil {
					b.Fatal(err)
				}
				r.Done()
			}
		})
	}
}
