package mirror

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// leadingNode is a paper node that leads its one partition, which can't be promoted.
type leadingNode struct {
	*paperNode
	tries int
}

func (n *leadingNode) NodeID() types.BrokerID { return 1 }

func (n *leadingNode) Now() types.Millis { return 1 }

func (n *leadingNode) Partition(types.TopicID, int32) (Partition, bool) { return unready{n: n}, true }

type unready struct {
	Partition
	n *leadingNode
}

func (unready) Name() types.TopicPartition { return types.TopicPartition{Topic: "t"} }

func (u unready) Do(context.Context, func(Owned) error) error {
	u.n.tries++
	return errors.New("it owes a cut")
}

// TestAnEndedRunFinishesNoFailover: what can't be promoted is shown again, which asks for
// the failover's end once more. Once the run ends nothing of it is tried, so that the node can stop.
func TestAnEndedRunFinishesNoFailover(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	end()
	for range 50 { // an ended context doesn't win each race
		n := &leadingNode{paperNode: newPaperNode(t, 1)}
		n.put(t, meta.KeysOf(paperCluster).Name("t"), meta.NameRecord{ID: paperTopic}.Encode())
		m := &Mirrors{o: Options{Node: n}, log: slog.New(slog.DiscardHandler), ctx: ctx}
		r := &run{m: m, name: "m", ctx: ctx, closed: true, promoting: make(chan struct{}, 1), copiers: map[meta.PartitionID]*copier{}}
		m.writer = newWriter(m)
		r.promoting <- struct{}{}
		r.settings.Store(&config.Mirror{RetryBackoffMs: 1, RetryBackoffMaxMs: 1})
		r.record.Store(&meta.MirrorRecord{Name: "m", Want: meta.WantStopped})
		var work sync.WaitGroup
		r.finishing.ask(func(f func()) { work.Go(f) }, func() { r.finishFailover(ctx) })
		work.Wait()
		if n.tries > 0 {
			t.Fatalf("%d promotions were tried after the run had ended", n.tries)
		}
	}
}
