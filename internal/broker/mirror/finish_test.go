package mirror

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
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
	tried func(tries int) // nil or called at each try
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
	if u.n.tries++; u.n.tried != nil {
		u.n.tried(u.n.tries)
	}
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
		r := &run{m: m, name: "m", ctx: ctx, closed: true, promoting: make(chan struct{}, 1), copiers: map[meta.PartitionID]*copier{}, health: newHealthBook(ctx)}
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

// TestAFailoverThatCantEndSaysWhy: once in the log for each reason, and in the status, with the
// partitions' own words.
func TestAFailoverThatCantEndSaysWhy(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	n := &leadingNode{paperNode: newPaperNode(t, 1)}
	n.put(t, meta.KeysOf(paperCluster).Name("t"), meta.NameRecord{ID: paperTopic}.Encode())
	var text bytes.Buffer
	m := &Mirrors{o: Options{Node: n}, log: slog.New(slog.NewTextHandler(&text, nil)), ctx: ctx}
	r := &run{m: m, name: "m", ctx: ctx, promoting: make(chan struct{}, 1), copiers: map[meta.PartitionID]*copier{}, health: newHealthBook(ctx), closed: true}
	m.runs, m.writer = map[string]*run{"m": r}, newWriter(m)
	r.promoting <- struct{}{}
	r.settings.Store(&config.Mirror{RetryBackoffMs: 1, RetryBackoffMaxMs: 1})
	rec := &meta.MirrorRecord{Name: "m", Want: meta.WantStopped}
	r.record.Store(rec)
	n.tried = func(tries int) {
		if tries == 3 { // the rounds before it have told what there is
			end()
		}
	}
	r.finishFailover(ctx)
	if lines := strings.Count(text.String(), "\n"); lines != 1 || !strings.Contains(text.String(), "t-0: it owes a cut") {
		t.Errorf("it logs:\n%s", text.String())
	}
	st := Status{Partitions: []PartitionStatus{{Topic: "t"}}}
	if m.summarize(&st, rec); st.State != stateStopping || st.Reason != "t-0: it owes a cut" {
		t.Errorf("its status: %+v", st)
	}
	if got := unfinished(map[types.TopicPartition]string{{Topic: "b"}: "x", {Topic: "a", Partition: 1}: "y", {Topic: "a"}: "z", {Topic: "c"}: "w", {Topic: "d"}: "w"}, errors.New("no time")).Error(); got != "no time; a-0: z; a-1: y; b-0: x; and 2 more partitions" {
		t.Errorf("of many: %q", got)
	}
}
