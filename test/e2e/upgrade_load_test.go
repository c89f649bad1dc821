package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/test/e2e/harness"
)

// workload is idempotent acks=all producers and members of one group at work on a
// topic of its own, and what they saw, for history.Check.
type workload struct {
	t     testing.TB
	topic string
	parts int32

	stopSending, stopReading context.CancelFunc
	sending, reading         context.Context
	senders, readers         sync.WaitGroup
	clients                  []*kgo.Client // the test's alone

	mu    sync.Mutex // guards the following
	h     history.History
	clock int64
	acked map[int32]int // by partition
}

func newWorkload(t testing.TB, topic string, parts int32) *workload {
	l := &workload{t: t, topic: topic, parts: parts, acked: make(map[int32]int)}
	l.sending, l.stopSending = context.WithCancel(context.Background())
	l.reading, l.stopReading = context.WithCancel(context.Background())
	t.Cleanup(func() {
		l.stopSending()
		l.stopReading()
		harness.Join(t, "the producers end", &l.senders)
		harness.Join(t, "the consumers end", &l.readers)
	})
	return l
}

// sendEvery is the pause between two records of a producer.
const sendEvery = 25 * time.Millisecond

// produce sends to all partitions in turn until finish.
func (l *workload) produce(name string, cl *kgo.Client) {
	l.clients = append(l.clients, cl)
	l.senders.Go(func() {
		tick := time.NewTicker(sendEvery)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
			case <-l.sending.Done():
				if err := cl.Flush(harness.Context(l.t)); err != nil {
					l.t.Errorf("%s: records still have no outcome: %v", name, err)
				}
				return
			}
			r := &kgo.Record{Topic: l.topic, Partition: int32(n) % l.parts, Value: fmt.Appendf(nil, "%s-%d", name, n)}
			i := l.sent(name, r)
			cl.Produce(context.Background(), r, func(r *kgo.Record, err error) { l.outcome(i, r, err) })
		}
	})
}

// awaitKnown waits until all clients have heard where a node is that was started again
// (harness.Broker.AwaitKnown).
func (l *workload) awaitKnown(n *harness.Process) {
	l.t.Helper()
	for _, cl := range l.clients {
		harness.AwaitKnown(l.t, cl, types.BrokerID(n.ID), n.Addr)
	}
}

func (l *workload) sent(name string, r *kgo.Record) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	l.h.Sends = append(l.h.Sends, history.Send{Producer: name, Partition: partitionOf(r), Value: string(r.Value), Outcome: history.Unknown, Began: l.clock})
	return len(l.h.Sends) - 1
}

func (l *workload) outcome(i int, r *kgo.Record, err error) {
	if errors.Is(err, kgo.ErrClientClosed) {
		return // the test has failed elsewhere
	}
	if err != nil {
		l.t.Errorf("a producer gave up: %v", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	s := &l.h.Sends[i]
	s.Outcome, s.Offset, s.At = history.Acked, types.Offset(r.Offset), l.clock
	l.acked[r.Partition]++
}

func partitionOf(r *kgo.Record) types.TopicPartition {
	return types.TopicPartition{Topic: r.Topic, Partition: r.Partition}
}

// consume is a member of a group until the end; it commits after each poll.
func (l *workload) consume(group, name string, connect func(...kgo.Opt) *kgo.Client) {
	given := make(map[types.TopicPartition]int)
	cl := connect(kgo.ConsumerGroup(group), kgo.ConsumeTopics(l.topic), kgo.BlockRebalanceOnPoll(), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond), kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			for topic, ps := range parts {
				for _, p := range ps {
					l.mu.Lock()
					given[types.TopicPartition{Topic: topic, Partition: p}]++
					l.mu.Unlock()
				}
			}
		}))
	l.clients = append(l.clients, cl)
	l.readers.Go(func() {
		defer cl.CloseAllowingRebalance()
		for l.reading.Err() == nil {
			fetches := cl.PollRecords(l.reading, 500)
			next := make(map[string]map[int32]kgo.EpochOffset)
			fetches.EachRecord(func(r *kgo.Record) {
				l.read(name, group, given, r)
				if next[r.Topic] == nil {
					next[r.Topic] = make(map[int32]kgo.EpochOffset)
				}
				next[r.Topic][r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
			})
			if len(next) > 0 {
				l.commit(cl, group, next)
			}
			cl.AllowRebalance()
		}
	})
}

func (l *workload) read(name, group string, given map[types.TopicPartition]int, r *kgo.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	tp := partitionOf(r)
	l.h.Polls = append(l.h.Polls, history.Poll{Consumer: name, Group: group, Assignment: given[tp], Partition: tp, Offset: types.Offset(r.Offset), Value: string(r.Value), At: l.clock})
}

func (l *workload) tick() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	return l.clock
}

func (l *workload) commit(cl *kgo.Client, group string, next map[string]map[int32]kgo.EpochOffset) {
	began := l.tick()
	cl.CommitOffsetsSync(context.Background(), next, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			return // its outcome is unknown: it binds nobody
		}
		ended := l.tick()
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				if kerr.ErrorForCode(p.ErrorCode) == nil {
					l.h.Commits = append(l.h.Commits, history.Commit{Group: group, Partition: types.TopicPartition{Topic: topic.Topic, Partition: p.Partition},
						Offset: types.Offset(next[topic.Topic][p.Partition].Offset), Began: began, Ended: ended})
				}
			}
		}
	})
}

func (l *workload) ackedBy() map[int32]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.acked)
}

// progress waits until more records of every partition have been acknowledged.
func (l *workload) progress(when string) {
	l.t.Helper()
	before := l.ackedBy()
	harness.Eventually(l.t, "every partition of "+l.topic+" takes records "+when, func() bool {
		now := l.ackedBy()
		for p := range l.parts {
			if now[p] < before[p]+3 {
				return false
			}
		}
		return true
	})
}

// finish ends the producers, waits until the group has been given all, reads
// everything once more from the start, and judges.
func (l *workload) finish(connect func(...kgo.Opt) *kgo.Client) map[types.TopicPartition]types.Offset {
	l.t.Helper()
	l.stopSending()
	harness.Join(l.t, "the producers end", &l.senders)
	ends := make(map[types.TopicPartition]types.Offset)
	l.mu.Lock()
	for _, s := range l.h.Sends {
		ends[s.Partition] = max(ends[s.Partition], s.Offset+1)
	}
	l.mu.Unlock()
	harness.Eventually(l.t, "the group has committed the ends", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		left := maps.Clone(ends)
		for _, c := range l.h.Commits {
			if c.Offset >= ends[c.Partition] {
				delete(left, c.Partition)
			}
		}
		return len(left) == 0
	})
	l.stopReading()
	harness.Join(l.t, "the consumers end", &l.readers)
	from := make(map[int32]kgo.Offset)
	for p := range l.parts {
		from[p] = kgo.NewOffset().At(0)
	}
	cl := connect(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: from}))
	once := make(map[types.TopicPartition]int)
	ctx := harness.Context(l.t)
	for left := maps.Clone(ends); len(left) > 0 && ctx.Err() == nil; {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			l.read("final", "", once, r)
			if types.Offset(r.Offset)+1 >= left[partitionOf(r)] {
				delete(left, partitionOf(r))
			}
		})
	}
	l.h.Final = true
	for _, f := range l.h.Check() {
		l.t.Error(f)
	}
	l.t.Logf("%d records sent, %d reads, %d commits", len(l.h.Sends), len(l.h.Polls), len(l.h.Commits))
	return ends
}
