//go:build chaos && linux

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/core/types"
	"tidemark/test/chaos/harm"
)

// scratch is the topic that comes and goes.
const scratch = "scratch"

// reassign moves one partition to three nodes, in the order of the step.
func reassign(n *nemesis, ctx context.Context, s step) {
	tp := n.w.c.partitions[s.x%uint64(len(n.w.c.partitions))]
	if s.x>>62 == 0 { // the groups' offsets move as well
		tp = types.TopicPartition{Topic: offsetsTopic, Partition: int32(s.x % 3)}
	}
	req := kadm.AlterPartitionAssignmentsReq{}
	var to []int32
	for _, id := range s.victims[:3] {
		to = append(to, int32(id))
	}
	req.Assign(tp.Topic, tp.Partition, to)
	ask, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := n.w.adm.AlterPartitionAssignments(ask, req)
	if err == nil {
		err = resp.Error()
	}
	n.answered("reassignment", err)
	n.Log("  %s to %v: %v", tp, to, err)
	harm.Pause(ctx, s.hold)
}

// answered counts what became of an administrator's request: in the midst of other faults it may fail.
func (n *nemesis) answered(what string, err error) {
	if err == nil {
		n.Saw(what+": accepted", 1)
	} else {
		n.Saw(what+": refused or not answered", 1)
	}
}

func electPreferred(n *nemesis, ctx context.Context, s step) {
	ask, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	results, err := n.w.adm.ElectLeaders(ask, kadm.ElectPreferredReplica, nil)
	n.answered("election of preferred leaders", err)
	for _, ps := range results {
		for _, r := range ps {
			if r.Err == nil {
				n.Saw("leaders changed by request", 1)
			}
		}
	}
	harm.Pause(ctx, s.hold)
}

// changeMinISR sets another minimum of a topic for a while.
func changeMinISR(n *nemesis, ctx context.Context, s step) {
	topic := n.w.c.topics[s.x%uint64(len(n.w.c.topics))]
	value := fmt.Sprint(1 + s.x>>8%3)
	n.Log("  min.insync.replicas of %s is %s", topic, value)
	n.answered("min ISR", n.w.setMinISR(ctx, topic, value))
	harm.Pause(ctx, s.hold)
	n.answered("min ISR", n.w.setMinISR(context.WithoutCancel(ctx), topic, "2"))
}

func (w *world) setMinISR(ctx context.Context, topic, value string) error {
	return w.configure(ctx, topic, "min.insync.replicas", value)
}

func (w *world) configure(ctx context.Context, topic, name, value string) error {
	ask, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := w.adm.AlterTopicConfigs(ask, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, topic)
	if err != nil {
		return err
	}
	for _, r := range resp {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// replaceTopic makes the topic that comes and goes, writes to it, and deletes it
// while it is written to. Any of it may fail in the midst of other faults.
func replaceTopic(n *nemesis, ctx context.Context, s step) {
	w := n.w
	w.incarnation++
	ask, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := w.adm.CreateTopic(ask, 2, 3, nil, scratch)
	n.answered("creation", err)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return
	}
	cl, err := kgo.NewClient(w.c.options(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(scratch))...)
	if err != nil {
		n.T.Error(err)
		return
	}
	defer cl.Close() // gives up what it still holds
	writing, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(sendEvery)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
				cl.TryProduce(writing, &kgo.Record{Partition: int32(i % 2), Value: fmt.Appendf(nil, "scratch-%d-%d", w.incarnation, i)}, func(_ *kgo.Record, err error) {
					if err == nil {
						n.Saw("writes to the topic that comes and goes", 1)
					}
				})
			case <-writing.Done():
				return
			}
		}
	}()
	harm.Pause(ctx, s.hold)
	n.answered("deletion", w.delete(ctx, scratch))
	harm.Pause(ctx, time.Second) // writes go on
	stop()
	<-stopped
}

func (w *world) delete(ctx context.Context, topic string) error {
	ask, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := w.adm.DeleteTopics(ask, topic)
	if err != nil {
		return err
	}
	return resp.Error()
}

// finalTopic makes the topic that comes and goes for the last time. It must be
// empty, take writes and give them back, and no node may keep an older one.
func (w *world) finalTopic() {
	t := w.t
	t.Helper()
	eventually(t, healLimit, "the topic that comes and goes is gone", func() error {
		if err := w.delete(t.Context(), scratch); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return err
		}
		return nil
	})
	for _, b := range w.n.nodes {
		eventually(t, healLimit, fmt.Sprintf("node %d keeps nothing of deleted topics", b.ID), func() error {
			entries, err := os.ReadDir(b.Folder())
			if err != nil {
				return err
			}
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), scratch) {
					return fmt.Errorf("folder %s", e.Name())
				}
			}
			return nil
		})
	}
	eventually(t, healLimit, "the topic is made anew", func() error {
		ask, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		_, err := w.adm.CreateTopic(ask, 2, 3, nil, scratch)
		if errors.Is(err, kerr.TopicAlreadyExists) { // by an attempt that was not answered
			return nil
		}
		return err
	})
	cl, err := kgo.NewClient(w.c.options(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(scratch), kgo.UnknownTopicRetries(-1))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), healLimit)
	defer cancel()
	for i := range 20 {
		r := &kgo.Record{Partition: int32(i % 2), Value: fmt.Appendf(nil, "last-%d", i)}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Errorf("a write to a topic made anew: %v", err)
			return
		}
		if r.Offset != int64(i/2) {
			t.Errorf("the first writes to a topic made anew: record %d of %s-%d lies at offset %d", i, scratch, r.Partition, r.Offset)
		}
	}
}
