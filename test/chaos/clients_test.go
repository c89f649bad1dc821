//go:build chaos && linux

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/test/chaos/links"
)

// Load: enough that every fault hits records in flight, little enough that the brokers and not the machine decide.
const (
	sendEvery      = 10 * time.Millisecond // of each producer, unless the run is very long
	outstandingMax = 400                   // records of a producer that await their outcome
	callTimeout    = 5 * time.Second
)

// clients runs the load and writes down what it sees.
type clients struct {
	t          testing.TB
	net        links.Network
	seeds      []string
	rec        *recorder
	partitions []types.TopicPartition // of the topics
	topics     []string
	deals      []types.TopicPartition // of the topic of transactions
	seed       uint64
	every      time.Duration // between two records of a producer

	producers, consumers sync.WaitGroup
}

// load is a stream of values for one producer: partition, size and text are drawn from the seed.
type load struct {
	name string
	n    int
	r    *rand.Rand
}

func (c *clients) load(name string) *load {
	return &load{name: name, r: rand.New(rand.NewPCG(c.seed, uint64(len(name))<<32+uint64(name[len(name)-1])))}
}

func (l *load) next(c *clients) (types.TopicPartition, string) {
	l.n++
	tp := c.partitions[l.r.IntN(len(c.partitions))]
	return tp, fmt.Sprintf("%s-%06d-%s", l.name, l.n, strings.Repeat("x", l.r.IntN(1500)))
}

// options are those of every kgo client: impatient, so that a fault is noticed within the run.
func (c *clients) options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(c.seeds...), kgo.Dialer(c.dial), kgo.MetadataMinAge(200 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }), kgo.RetryTimeout(healLimit),
		kgo.RequestTimeoutOverhead(3 * time.Second),
	}, more...)
}

// dial connects from the clients' place, impatiently too.
func (c *clients) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return c.net.Dial(ctx, network, address)
}

// produceWeakly is produce with acks=1 and without idempotence.
func (c *clients) produceWeakly(stop, kill context.Context, name string) {
	c.produceWith(stop, kill, name, true, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
}

// produce sends idempotently with acks=all until stop ends; then it waits for what is outstanding, at most until kill ends.
func (c *clients) produce(stop, kill context.Context, name string) {
	c.produceWith(stop, kill, name, false, kgo.RequiredAcks(kgo.AllISRAcks()))
}

func (c *clients) produceWith(stop, kill context.Context, name string, weak bool, opts ...kgo.Opt) {
	cl, err := kgo.NewClient(c.options(append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProduceRequestTimeout(3*time.Second), kgo.UnknownTopicRetries(-1))...)...)
	if err != nil {
		c.t.Error(err)
		return
	}
	c.producers.Go(func() {
		defer cl.Close()
		l, outstanding := c.load(name), make(chan struct{}, outstandingMax)
		tick := time.NewTicker(c.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-stop.Done():
				if err := cl.Flush(kill); err != nil {
					c.t.Errorf("%s: records still have no outcome: %v", name, err)
				}
				return
			}
			select {
			case outstanding <- struct{}{}:
			case <-stop.Done():
				continue
			}
			tp, value := l.next(c)
			i := c.rec.sending(history.Send{Producer: name, Partition: tp, Value: value, Weak: weak})
			cl.Produce(context.Background(), &kgo.Record{Topic: tp.Topic, Partition: tp.Partition, Value: []byte(value)}, func(r *kgo.Record, err error) {
				<-outstanding
				if err == nil {
					c.rec.ackedAt(i, r.Offset)
				} else {
					c.rec.failed(name, err)
				}
			})
		}
	})
}

// assignments counts how often a consumer was given each partition.
type assignments struct {
	mu sync.Mutex
	n  map[types.TopicPartition]int
}

func (a *assignments) assigned(_ context.Context, _ *kgo.Client, given map[string][]int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for topic, ps := range given {
		for _, p := range ps {
			a.n[types.TopicPartition{Topic: topic, Partition: p}]++
		}
	}
}

func (a *assignments) of(tp types.TopicPartition) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n[tp]
}

// consume is a member of a group until stop ends; it commits after each poll.
func (c *clients) consume(stop context.Context, group, name string) {
	c.consumeWith(stop, group, name, kgo.ConsumeTopics(c.topics...))
}

func (c *clients) consumeWith(stop context.Context, group, name string, opts ...kgo.Opt) {
	a := &assignments{n: map[types.TopicPartition]int{}}
	cl, err := kgo.NewClient(c.options(append(opts,
		kgo.ConsumerGroup(group), kgo.BlockRebalanceOnPoll(), kgo.DisableAutoCommit(), kgo.OnPartitionsAssigned(a.assigned),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.FetchMaxWait(500*time.Millisecond))...)...)
	if err != nil {
		c.t.Error(err)
		return
	}
	c.consumers.Go(func() {
		defer cl.CloseAllowingRebalance()
		for stop.Err() == nil {
			fetches := cl.PollRecords(stop, 500)
			next := map[string]map[int32]kgo.EpochOffset{}
			fetches.EachRecord(func(r *kgo.Record) {
				tp := types.TopicPartition{Topic: r.Topic, Partition: r.Partition}
				c.rec.polled(history.Poll{Consumer: name, Assignment: a.of(tp), Partition: tp, Offset: types.Offset(r.Offset), Value: string(r.Value), Group: group})
				if next[r.Topic] == nil {
					next[r.Topic] = map[int32]kgo.EpochOffset{}
				}
				next[r.Topic][r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
			})
			if len(next) > 0 {
				c.commit(cl, group, next)
			}
			cl.AllowRebalance()
		}
	})
}

// commit commits and writes down what was acknowledged.
func (c *clients) commit(cl *kgo.Client, group string, next map[string]map[int32]kgo.EpochOffset) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	began := c.rec.tick()
	cl.CommitOffsetsSync(ctx, next, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			return // unknown: it binds nobody
		}
		ended := c.rec.tick()
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				if kerr.ErrorForCode(p.ErrorCode) == nil {
					tp := types.TopicPartition{Topic: topic.Topic, Partition: p.Partition}
					c.rec.committed(history.Commit{Group: group, Partition: tp, Offset: types.Offset(next[topic.Topic][p.Partition].Offset), Began: began, Ended: ended})
				}
			}
		}
	})
}

// list asks for a group's offsets once, and writes down the answer.
func (c *clients) list(ctx context.Context, adm *kadm.Client, group string) (map[types.TopicPartition]types.Offset, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := c.rec.tick()
	offsets, err := adm.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	if err := offsets.Error(); err != nil {
		return nil, err
	}
	ended, out := c.rec.tick(), map[types.TopicPartition]types.Offset{}
	for _, tp := range c.partitions {
		out[tp] = types.NoOffset
		if o, ok := offsets.Lookup(tp.Topic, tp.Partition); ok {
			out[tp] = types.Offset(o.At)
		}
		c.rec.committed(history.Commit{Group: group, Partition: tp, Offset: out[tp], Listed: true, Began: began, Ended: ended})
	}
	return out, nil
}

// watch lists the groups' offsets until stop ends.
func (c *clients) watch(stop context.Context, adm *kadm.Client, groups ...string) {
	c.consumers.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-stop.Done():
				return
			}
			for _, g := range groups {
				_, _ = c.list(stop, adm, g) // no answer during a fault says nothing
			}
		}
	})
}

// readAll reads partitions from their starts to the ends given.
func (c *clients) readAll(ctx context.Context, partitions []types.TopicPartition, starts, ends map[types.TopicPartition]types.Offset, opts ...kgo.Opt) error {
	from, left := map[string]map[int32]kgo.Offset{}, map[types.TopicPartition]types.Offset{}
	for _, tp := range partitions {
		if from[tp.Topic] == nil {
			from[tp.Topic] = map[int32]kgo.Offset{}
		}
		from[tp.Topic][tp.Partition] = kgo.NewOffset().At(int64(starts[tp]))
		if ends[tp] > starts[tp] {
			left[tp] = ends[tp]
		}
	}
	cl, err := kgo.NewClient(c.options(append(opts, kgo.ConsumePartitions(from), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.KeepControlRecords())...)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("the final phase lacks %v", left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			tp := types.TopicPartition{Topic: r.Topic, Partition: r.Partition}
			if !r.Attrs.IsControl() {
				c.rec.polled(history.Poll{Consumer: "final", Assignment: 1, Partition: tp, Offset: types.Offset(r.Offset), Value: string(r.Value)})
			}
			if types.Offset(r.Offset)+1 >= left[tp] {
				delete(left, tp)
			}
		})
	}
	return nil
}
