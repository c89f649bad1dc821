package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/core/types"
)

// target is the partition that is written to.
type target struct {
	client    *kgo.Client
	topic     string
	partition int32
	start     types.Offset
	end       types.Offset
}

func timeOf(ts types.Millis) time.Time { return time.UnixMilli(int64(ts)) }

// openTarget connects and finds the partition's ends.
func openTarget(ctx context.Context, r *Request) (*target, error) {
	client, err := kgo.NewClient(append(slices.Clone(r.Connect), kgo.SeedBrokers(r.Bootstrap...), kgo.ClientID("tidemark-replay"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.KeepControlRecords())...)
	if err != nil {
		return nil, err
	}
	t := &target{client: client, topic: r.Topic, partition: r.Partition}
	if err := t.findEnds(ctx); err != nil {
		client.Close()
		return nil, err
	}
	return t, nil
}

func (t *target) findEnds(ctx context.Context) error {
	adm := kadm.NewClient(t.client)
	for _, bound := range []struct {
		list func(context.Context, ...string) (kadm.ListedOffsets, error)
		into *types.Offset
	}{{adm.ListStartOffsets, &t.start}, {adm.ListEndOffsets, &t.end}} {
		listed, err := bound.list(ctx, t.topic)
		if err != nil {
			return fmt.Errorf("topic %s: %w", t.topic, err)
		}
		o, ok := listed.Lookup(t.topic, t.partition)
		switch {
		case !ok, errors.Is(o.Err, kerr.UnknownTopicOrPartition):
			return fmt.Errorf("topic %s has no partition %d: create the topic with enough partitions, or choose one with --partition", t.topic, t.partition)
		case o.Err != nil:
			return fmt.Errorf("topic %s, partition %d: %w", t.topic, t.partition, o.Err)
		}
		*bound.into = types.Offset(o.Offset)
	}
	return nil
}

// present reads the partition from an offset to its end and gives the records
// there that a replay wrote.
func (t *target) present(ctx context.Context, from types.Offset) (map[origin]bool, error) {
	found := map[origin]bool{}
	from = max(from, t.start)
	if from >= t.end {
		return found, nil
	}
	t.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{t.topic: {t.partition: kgo.NewOffset().At(int64(from))}})
	defer t.client.RemoveConsumePartitions(map[string][]int32{t.topic: {t.partition}})
	idle := time.Now()
	for at := from; at < t.end; {
		poll, cancel := context.WithTimeout(ctx, time.Second)
		fetches := t.client.PollFetches(poll)
		cancel()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.DeadlineExceeded) {
				return nil, e.Err
			}
		}
		before := at
		fetches.EachRecord(func(r *kgo.Record) {
			at = types.Offset(r.Offset) + 1
			if id, ok := originOf(r.Headers); ok {
				found[id] = true
			}
		})
		if at > before {
			idle = time.Now()
		} else if time.Since(idle) > presentPatience {
			// Going on without knowing what is there could write it twice.
			return nil, fmt.Errorf("%s-%d can't be read from offset %d on, and ends at %d", t.topic, t.partition, at, t.end)
		}
	}
	return found, nil
}

// presentPatience is how long a look for earlier replays waits for the next record.
const presentPatience = 30 * time.Second

// writer produces in order and keeps the first failure.
type writer struct {
	target *target
	out    *Result

	mu sync.Mutex
	// guards the following
	err error
}

func (w *writer) write(ctx context.Context, r *kgo.Record) error {
	w.mu.Lock()
	err := w.err
	w.mu.Unlock()
	if err != nil {
		return nil // flush tells it
	}
	w.target.client.Produce(ctx, r, func(r *kgo.Record, err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if err != nil {
			if w.err == nil {
				w.err = refused(r.Topic, r.Partition, err)
			}
			return
		}
		w.out.Replayed++
		if at := types.Offset(r.Offset); w.out.FirstOffset < 0 || at < w.out.FirstOffset {
			w.out.FirstOffset = at
		}
		w.out.LastOffset = max(w.out.LastOffset, types.Offset(r.Offset))
	})
	return nil
}

// refused says why a write failed. The client keeps the code of an answer and not its
// sentence, and a mirror's POLICY_VIOLATION alone tells nobody what to do.
func refused(topic string, partition int32, err error) error {
	if errors.Is(err, kerr.PolicyViolation) {
		return fmt.Errorf("write to %s-%d: %w: a topic that is being mirrored takes no records: replay into another topic (--topic NAME --create), or fail the mirror over first (mirror failover NAME --topic %s)", topic, partition, err, topic)
	}
	return fmt.Errorf("write to %s-%d: %w", topic, partition, err)
}

func (w *writer) flush(ctx context.Context) error {
	err := w.target.client.Flush(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.err, err)
}
