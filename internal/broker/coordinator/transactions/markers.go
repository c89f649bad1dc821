package transactions

import (
	"context"
	"slices"
	"sync"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// The time between two attempts to bring a marker to a broker that refuses it, or
// that nobody knows.
const (
	courierBackoff    = 10 * time.Millisecond
	courierBackoffMax = time.Second
)

// errand is one marker for one partition, as one life of a loop has decided it.
type errand struct {
	from *loop
	life int64
	m    transaction.Markers
	tp   types.TopicPartition
}

// isOver reports whether who sent the errand has ended. What it leaves is not brought,
// and what it brought isn't told: the log says what is decided, and the next life, or
// another coordinator, sends markers of its own. A second copy that comes when those
// have completed the transaction could end the producer's next one (KIP-98: it has the
// same epoch).
func (e errand) isOver() bool { return e.from.Context.Err() != nil || e.from.life.Load() != e.life }

// couriers bring markers to the leaders of their partitions: one for each broker
// that there is something for, with one request under way. Errands for partitions
// that nobody leads wait with NoBroker's. All end with the coordinator.
type couriers struct {
	c    *Coordinator
	work *sync.WaitGroup
	// written has a loop know that a partition has its marker.
	written func(errand)

	mu      *sync.Mutex // guards the following
	waiting map[types.BrokerID][]errand
	running map[types.BrokerID]bool
}

func newCouriers(c *Coordinator) couriers {
	return couriers{c: c, work: &sync.WaitGroup{}, written: errand.post, mu: &sync.Mutex{}, waiting: map[types.BrokerID][]errand{}, running: map[types.BrokerID]bool{}}
}

func (k *couriers) join() { clock.Join(k.c.o.Context, k.work) }

// send has the markers of a decision written; the loop is told of each.
func (k *couriers) send(from *loop, m transaction.Markers) {
	errands := make([]errand, 0, len(m.Partitions))
	for _, tp := range m.Partitions {
		errands = append(errands, errand{from: from, life: from.life.Load(), m: m, tp: tp})
	}
	k.assign(errands)
}

// assign gives each errand to the courier of its partition's leader.
func (k *couriers) assign(errands []errand) {
	for _, e := range errands {
		if e.isOver() {
			continue
		}
		leader, _ := k.c.leaderOf(e.tp)
		k.mu.Lock()
		k.waiting[leader] = append(k.waiting[leader], e)
		start := !k.running[leader] && k.c.ctx.Err() == nil
		if start {
			k.running[leader] = true
		}
		k.mu.Unlock()
		if start {
			clock.Go(k.c.o.Context, k.work, func() { k.run(leader) })
		}
	}
}

// take gives what waits for a broker; false: nothing does, and its courier has ended.
func (k *couriers) take(broker types.BrokerID) ([]errand, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := slices.DeleteFunc(k.waiting[broker], errand.isOver)
	delete(k.waiting, broker)
	if len(all) == 0 {
		delete(k.running, broker)
	}
	return all, len(all) > 0
}

func (k *couriers) run(broker types.BrokerID) {
	backoff := courierBackoff
	for k.c.ctx.Err() == nil {
		errands, some := k.take(broker)
		if !some {
			return
		}
		refused := k.deliver(broker, errands)
		if len(refused) == 0 {
			backoff = courierBackoff
			continue
		}
		if clock.Sleep(k.c.ctx, backoff) != nil {
			break
		}
		backoff = min(2*backoff, courierBackoffMax)
		k.assign(refused)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.running, broker)
}

// deliver brings errands to a broker and gives those that are to be brought again.
func (k *couriers) deliver(broker types.BrokerID, errands []errand) []errand {
	if broker == types.NoBroker {
		return k.wait(errands)
	}
	codes := make([]wire.ErrCode, len(errands))
	if broker == k.c.o.NodeID {
		_ = clock.Each(k.c.ctx, len(errands), deliverAtOnce, func(i int) {
			codes[i] = k.c.o.WriteMarker(k.c.ctx, errands[i].marker(), errands[i].tp)
		})
		if k.c.ctx.Err() != nil {
			return nil
		}
	} else if !k.ask(k.c.ctx, broker, errands, codes) {
		return errands
	}
	var again []errand
	for i, e := range errands {
		switch codes[i] {
		case wire.None:
			k.written(e)
		case wire.ErrTransactionCoordinatorFenced:
			// A later coordinator has written there already, and completes the transaction.
			k.c.o.Logger.Debug("a marker comes too late", "partition", e.tp, "transactionalId", e.m.ID, "err", codes[i])
		case wire.ErrInvalidProducerEpoch:
			// The log has the producer's later batches: what this marker ends isn't open there. It is a
			// later coordinator's doing, which fences the completion; or the coordinators' log has lost
			// what was written since, and the id must not wait for ever.
			k.c.o.Logger.Warn("a transaction's marker is older than its producer's batches", "partition", e.tp, "transactionalId", e.m.ID,
				"producerId", e.m.ProducerID, "producerEpoch", e.m.Epoch)
			k.written(e)
		default:
			again = append(again, e)
		}
	}
	return again
}

// wait keeps the errands of partitions that nobody leads, but for those that are gone.
func (k *couriers) wait(errands []errand) []errand {
	var left []errand
	for _, e := range errands {
		if _, gone := k.c.leaderOf(e.tp); gone {
			k.written(e)
			continue
		}
		left = append(left, e)
	}
	return left
}

// deliverAtOnce is how many markers are appended here at one time, so that they
// share the wait for their replication.
const deliverAtOnce = 64

func (e errand) marker() Marker {
	return Marker{ProducerID: e.m.ProducerID, Epoch: e.m.Epoch, Commit: e.m.Commit, CoordinatorEpoch: int32(e.from.Epoch), Bumped: e.m.Bumped, Partitions: []types.TopicPartition{e.tp}}
}

// ask brings errands to another broker, those of one decision together.
func (k *couriers) ask(ctx context.Context, broker types.BrokerID, errands []errand, codes []wire.ErrCode) bool {
	var markers []Marker
	var at [][]int // errands of each marker
	for i, e := range errands {
		n := len(markers)
		if n == 0 || e.from != errands[i-1].from || e.m.ID != errands[i-1].m.ID || e.m.Epoch != errands[i-1].m.Epoch {
			markers, at = append(markers, e.marker()), append(at, []int{i})
			continue
		}
		markers[n-1].Partitions = append(markers[n-1].Partitions, e.tp)
		at[n-1] = append(at[n-1], i)
	}
	answers, err := k.c.o.Peers.WriteTxnMarkers(ctx, broker, markers)
	if err != nil || len(answers) != len(markers) {
		k.c.o.Logger.Debug("markers can't be brought to a broker", "broker", broker, "markers", len(markers), "err", err)
		return false
	}
	for n := range markers {
		if len(answers[n]) != len(at[n]) {
			return false
		}
		for j, i := range at[n] {
			codes[i] = answers[n][j]
		}
	}
	return true
}

// post has the loop know that the partition has its marker. Only couriers call it: a
// loop that told itself could wait for room in its own queue.
func (e errand) post() {
	l := e.from
	l.inbox.Post(l.Context, func(transaction.RequestID) {
		if !e.isOver() {
			l.step(transaction.MarkerWritten{ID: e.m.ID, ProducerID: e.m.ProducerID, Epoch: e.m.Epoch, Partition: e.tp})
		}
	})
}
