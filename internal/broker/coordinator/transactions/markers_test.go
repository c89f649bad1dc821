package transactions

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tidemark/internal/await"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

func TestMain(m *testing.M) { await.NoLeaks(m) }

// town is a cluster as couriers see it: who leads which partition of topic "t", and
// what their brokers say.
type town struct {
	image atomic.Pointer[meta.Image]

	mu      sync.Mutex
	answers map[types.BrokerID][]wire.ErrCode // in turn; then None
	down    map[types.BrokerID]bool
	brought map[types.TopicPartition][]types.BrokerID
}

const townCluster = "cluster0cluster0cluste"

// lead makes an image in which the brokers lead partitions 0, 1 ... of topic "t".
func (w *town) lead(leaders ...types.BrokerID) {
	keys, id := meta.KeysOf(townCluster), types.TopicID{15: 1}
	kvs := []meta.KV{
		{Key: keys.Topic(id), Value: meta.TopicRecord{ID: id, Name: "t", Partitions: int32(len(leaders))}.Encode(), CreateRevision: 1, ModRevision: 1},
		{Key: keys.Name("t"), Value: meta.NameRecord{ID: id}.Encode(), CreateRevision: 1, ModRevision: 1},
	}
	for i, b := range leaders {
		rec := meta.PartitionRecord{Replicas: []types.BrokerID{1, 2, 3}, ISR: []meta.ISRMember{{ID: 1, BrokerEpoch: 1}}, Leader: b, LeaderBrokerEpoch: 1,
			LeaderEpoch: 1, MinISR: 1, Writable: true, Timelines: timeline.List{{ID: "root"}}}
		kvs = append(kvs, meta.KV{Key: keys.Partition(id, int32(i)), Value: rec.Encode(), CreateRevision: 1, ModRevision: 1})
	}
	image, _ := meta.Load(townCluster, kvs, 5)
	w.image.Store(image)
}

func (w *town) answer(b types.BrokerID, tp types.TopicPartition) wire.ErrCode {
	w.brought[tp] = append(w.brought[tp], b)
	code := wire.None
	if list := w.answers[b]; len(list) > 0 {
		code, w.answers[b] = list[0], list[1:]
	}
	return code
}

func (w *town) WriteTxnMarkers(_ context.Context, b types.BrokerID, markers []Marker) ([][]wire.ErrCode, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down[b] {
		return nil, errors.New("nobody answers")
	}
	var all [][]wire.ErrCode
	for _, m := range markers {
		var codes []wire.ErrCode
		for _, tp := range m.Partitions {
			codes = append(codes, w.answer(b, tp))
		}
		all = append(all, codes)
	}
	return all, nil
}

func (w *town) AddPartitionsToTxn(context.Context, types.BrokerID, transaction.Add) (errcode.Code, error) {
	return errcode.None, nil
}

func part(n int32) types.TopicPartition { return types.TopicPartition{Topic: "t", Partition: n} }

// deliver has markers for all partitions of topic "t" and one more brought, and gives
// a loop's end of it: the partitions that it was told of.
func deliver(t *testing.T, w *town, partitions ...types.TopicPartition) (told func() []types.TopicPartition) {
	t.Helper()
	c, told := office(t, w)
	l := newLoop(c, 0, 7)
	t.Cleanup(l.Stop)
	c.send(l, markersFor(partitions...))
	return told
}

func markersFor(partitions ...types.TopicPartition) transaction.Markers {
	return transaction.Markers{ID: "id", ProducerID: 5, Epoch: 2, Commit: true, Partitions: partitions}
}

// office is a coordinator in a town, and the partitions whose markers its loops were told of.
func office(t *testing.T, w *town) (c *Coordinator, told func() []types.TopicPartition) {
	t.Helper()
	c = New(Options{
		Node: statelog.Node{NodeID: 1, Image: w.image.Load, Logger: slog.New(slog.DiscardHandler), Now: func() types.Millis { return 1 }}, Peers: w,
		WriteMarker: func(_ context.Context, _ Marker, tp types.TopicPartition) wire.ErrCode {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.answer(1, tp)
		},
	})
	t.Cleanup(c.Close)
	var mu sync.Mutex
	var all []types.TopicPartition
	c.written = func(e errand) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, e.tp)
	}
	return c, func() []types.TopicPartition {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// Each marker goes to its partition's leader, here or elsewhere, until it is there: a
// broker that refuses, or doesn't answer, is asked again, and so is the next leader.
func TestCouriers(t *testing.T) {
	w := &town{answers: map[types.BrokerID][]wire.ErrCode{
		1: {wire.ErrNotEnoughReplicas}, 2: {wire.ErrNotLeaderOrFollower, wire.ErrRequestTimedOut},
	}, down: map[types.BrokerID]bool{3: true}, brought: map[types.TopicPartition][]types.BrokerID{}}
	w.lead(1, 2, 3, types.NoBroker)
	told := deliver(t, w, part(0), part(1), part(2), part(3), types.TopicPartition{Topic: "deleted"})
	await.True(t, "all but those that nobody serves are told", func() bool { return len(told()) == 3 })
	w.mu.Lock()
	w.down[3] = false
	w.mu.Unlock()
	w.lead(1, 2, 3, 2)
	await.True(t, "all are told", func() bool { return len(told()) == 5 })
	for _, tp := range []types.TopicPartition{part(0), part(1), part(2), part(3), {Topic: "deleted"}} {
		if !slices.Contains(told(), tp) {
			t.Errorf("%s wasn't told: %v", tp, told())
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.brought[part(0)]) != 2 || len(w.brought[part(1)]) != 3 || !slices.Equal(w.brought[part(3)], []types.BrokerID{2}) {
		t.Errorf("brought %v", w.brought)
	}
}

// A marker that a later coordinator's has overtaken is brought no more, and not told.
func TestMarkerOfALateCoordinator(t *testing.T) {
	w := &town{answers: map[types.BrokerID][]wire.ErrCode{2: {wire.ErrTransactionCoordinatorFenced}}, brought: map[types.TopicPartition][]types.BrokerID{}}
	w.lead(2, 2)
	told := deliver(t, w, part(0), part(1))
	await.True(t, "the other one is told", func() bool { return len(told()) == 1 })
	if got := told(); got[0] != part(1) {
		t.Errorf("told of %v", got)
	}
}

// A marker whose partition has later batches of the producer ends nothing there, and
// doesn't hold the transaction up.
func TestMarkerBehindItsProducer(t *testing.T) {
	w := &town{answers: map[types.BrokerID][]wire.ErrCode{2: {wire.ErrInvalidProducerEpoch}}, brought: map[types.TopicPartition][]types.BrokerID{}}
	w.lead(2, 2)
	told := deliver(t, w, part(0), part(1))
	await.True(t, "both are told", func() bool { return len(told()) == 2 })
}

// A loop that begins anew sends its markers anew: those of the life before are brought no
// more, since they could come when the producer's next transaction has begun.
func TestMarkersOfAnEarlierLife(t *testing.T) {
	w := &town{answers: map[types.BrokerID][]wire.ErrCode{}, brought: map[types.TopicPartition][]types.BrokerID{}}
	w.lead(types.NoBroker, 2, types.NoBroker)
	c, told := office(t, w)
	l := newLoop(c, 0, 7)
	t.Cleanup(l.Stop)
	c.send(l, markersFor(part(0), part(1)))
	await.True(t, "the marker of a partition with a leader is told", func() bool { return len(told()) == 1 })
	l.life.Add(1)
	c.send(l, markersFor(part(2)))
	w.lead(2, 2, 2)
	await.True(t, "the marker of this life is told", func() bool { return slices.Contains(told(), part(2)) })
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.brought[part(0)]; len(got) != 0 {
		t.Errorf("a marker of an earlier life was brought to %v", got)
	}
}

// What a marker of an earlier life came to isn't counted: the present life's own is still
// to be brought, and would come after the transaction was complete.
func TestMarkersWrittenForAnEarlierLife(t *testing.T) {
	w := &town{}
	w.lead(2)
	c, _ := office(t, w)
	l := newLoop(c, 0, 7)
	t.Cleanup(l.Stop)
	l.clock = statelog.NewSteady(l.Context, c.o.Now)
	l.table = transaction.NewTable(transaction.Config{})
	l.table.Replay(transaction.Record{ID: "id", Value: &transaction.Metadata{ProducerID: 5, Epoch: 2, PrevProducerID: types.NoProducer, NextProducerID: types.NoProducer,
		LastEpoch: transaction.NoEpoch, Timeout: 1000, State: transaction.PrepareCommit, Partitions: []types.TopicPartition{part(0)}}})
	l.table.Loaded(l.now(), &l.effects)
	e := errand{from: l, life: l.life.Load(), m: markersFor(part(0)), tp: part(0)}
	f := func(completes bool) {
		t.Helper()
		e.post()
		l.inbox.Work()
		if got := len(l.effects.Appends) > 0; got != completes {
			t.Errorf("the transaction is complete: %v", got)
		}
	}
	l.life.Add(1)
	f(false)
	e.life = l.life.Load()
	f(true)
}

// Before the cluster's level says that every node serves transactions, there is no coordinator.
func TestNoCoordinatorBeforeTheUpgrade(t *testing.T) {
	w := &town{}
	w.lead(1)
	c := New(Options{Node: statelog.Node{NodeID: 1, Image: w.image.Load, Logger: slog.New(slog.DiscardHandler)}, Peers: w})
	defer c.Close()
	_, err := c.FindCoordinator(context.Background(), "id")
	if wire.CodeOf(err) != wire.ErrCoordinatorNotAvailable || !strings.Contains(err.Error(), "tidemark cluster upgrade") {
		t.Errorf("%v", err)
	}
}

// A write of unknown outcome is told from one that was refused.
func TestOutcome(t *testing.T) {
	f := func(err error, code errcode.Code, known bool) {
		t.Helper()
		if got, err := outcome(err); got != code || (err == nil) != known {
			t.Errorf("%v, %v", got, err)
		}
	}
	f(nil, errcode.None, true)
	f(wire.ErrNotEnoughReplicas, errcode.CoordinatorNotAvailable, true)
	f(wire.ErrNotEnoughReplicasAfterAppend, 0, false)
	f(wire.ErrRequestTimedOut, 0, false)
	f(wire.ErrNotLeaderOrFollower, 0, false)
}
