package broker

import (
	"testing"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// changeFence writes what change makes of a partition's record, and waits until it is served in that epoch.
func changeFence(t *testing.T, b *Broker, p *Partition, id types.TopicID, change func(*meta.PartitionRecord) (meta.PartitionRecord, error)) {
	t.Helper()
	rec, _ := b.Image().Partition(id, p.tp.Partition)
	next, err := change(rec)
	if err != nil {
		t.Fatal(err)
	}
	err = b.plan(testContext(t), func(i *meta.Image) ([]meta.Plan, error) {
		plan, err := control.UpdatePartition(i, id, p.tp.Partition, next, b.me())
		return []meta.Plan{plan}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the partition is served in its new epoch", func() bool {
		e, err := p.LeaderEpoch()
		return err == nil && e == next.LeaderEpoch
	})
}

// openTransaction has a producer write one record of a transaction that isn't ended.
func openTransaction(t *testing.T, p *Partition, id types.ProducerID) {
	t.Helper()
	guard, open, err := p.Guard(testContext(t), id, 0)
	if err != nil || open {
		t.Fatalf("guard of producer %d: open %v, %v", id, open, err)
	}
	bld := batch.NewBuilder(batch.BuilderOptions{Transactional: true, Producer: &batch.Producer{ID: id}})
	bld.Append(types.Millis(time.Now().UnixMilli()), nil, []byte("v"))
	raw, err := bld.Build()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Append(testContext(t), raw, api.AppendRequest{Acks: -1, Timeout: time.Minute, LeaderEpoch: types.NoLeaderEpoch, Guard: guard}); err != nil {
		t.Fatal(err)
	}
}

func marker(t *testing.T, p *Partition, id types.ProducerID, coordinatorEpoch int32) wire.ErrCode {
	t.Helper()
	m := api.TxnMarker{ProducerID: id, Commit: true, CoordinatorEpoch: coordinatorEpoch}
	_, err := p.Append(testContext(t), m.Batch(1), api.AppendRequest{Acks: -1, Timeout: time.Minute, LeaderEpoch: types.NoLeaderEpoch, Origin: api.OriginCoordinator})
	return api.CodeOf(err)
}

// Behind a switchover's fence a log takes the markers of transactions that are open in
// it and nothing else, so that without any its end is final, also for later leaders; a
// marker that would end nothing is answered as written.
func TestMarkersPassTheFence(t *testing.T) {
	for _, acks := range []string{"false", "true"} {
		w := newWorld(t, "log.flush.acks="+acks)
		b := w.open()
		id := createTopic(t, b, "a", 1)
		p := mustPartition(t, b, "a", 0)
		mustAppend(t, p, "x")
		openTransaction(t, p, 5)
		openTransaction(t, p, 6)
		changeFence(t, b, p, id, func(rec *meta.PartitionRecord) (meta.PartitionRecord, error) {
			return mirror.CloseForSwitchover(rec, meta.Fence{ClusterID: "another", StartID: "s", At: 1})
		})
		refused := func() {
			t.Helper()
			_, err := appendTo(t, p, -1, "y")
			wantCode(t, "a client's write", err, wire.ErrPolicyViolation)
			_, _, err = p.Guard(testContext(t), 7, 0)
			wantCode(t, "a transaction that begins", err, wire.ErrPolicyViolation)
			_, err = p.Append(testContext(t), oneBatch(t, "y"), api.AppendRequest{Acks: -1, Timeout: time.Minute, LeaderEpoch: types.NoLeaderEpoch, Origin: api.OriginCoordinator})
			wantCode(t, "a coordinator's records", err, wire.ErrPolicyViolation)
		}
		f := func(what string, producer types.ProducerID, coordinatorEpoch int32, want wire.ErrCode, end types.Offset, open int) {
			t.Helper()
			if code := marker(t, p, producer, coordinatorEpoch); code != want {
				t.Errorf("%s: %s, want %s", what, code, want)
			}
			v, _ := p.View()
			if n := len(p.Log().OpenTransactions()); v.LogEnd != end || v.HighWatermark != end || n != open {
				t.Errorf("%s: the log ends at %d (high watermark %d) with %d open, want %d with %d", what, v.LogEnd, v.HighWatermark, n, end, open)
			}
		}
		refused()
		f("a marker of nothing", 8, 3, wire.None, 3, 2)
		f("a decided transaction's", 5, 3, wire.None, 4, 1)
		f("the same once more", 5, 3, wire.None, 4, 1)
		closeNode(t, b)
		b = w.open()
		p = mustPartition(t, b, "a", 0)
		refused()
		f("the other one's, at another leader", 6, 3, wire.None, 5, 0)
		f("once more", 6, 4, wire.None, 5, 0)
		changeFence(t, b, p, id, func(rec *meta.PartitionRecord) (meta.PartitionRecord, error) { return mirror.Reopen(rec, "s") })
		if at := mustAppend(t, p, "z"); at != 5 {
			t.Errorf("after the fence records begin at %d", at)
		}
		f("open again, a marker is a record", 8, 3, wire.None, 7, 0)
		closeNode(t, b)
	}
}

// No transaction takes in a partition that a mirror writes.
func TestNoTransactionInAMirror(t *testing.T) {
	b := newWorld(t).open()
	id := createTopic(t, b, "a", 1)
	p := mustPartition(t, b, "a", 0)
	changeFence(t, b, p, id, func(rec *meta.PartitionRecord) (meta.PartitionRecord, error) {
		next := rec.Clone()
		next.Writable, next.Mirror, next.LeaderEpoch = false, &meta.MirrorState{Name: "m", State: meta.MirrorMirroring, StartID: "s", Copied: true}, rec.LeaderEpoch+1
		return next, nil
	})
	_, _, err := p.Guard(testContext(t), 7, 0)
	wantCode(t, "a transaction that begins", err, wire.ErrPolicyViolation)
}

// A batch that isn't a marker may not get past the fence, whatever led it there.
func TestDataBehindAFence(t *testing.T) {
	b := newWorld(t).open()
	createTopic(t, b, "a", 1)
	p := mustPartition(t, b, "a", 0)
	openTransaction(t, p, 5)
	m := api.TxnMarker{ProducerID: 5, CoordinatorEpoch: 1}
	err := p.Do(testContext(t), func(o *Owned) error {
		op := &appendOp{raw: m.Batch(1), reply: make(chan struct{}, 2)}
		if p.stopsAtFence(op) || op.err != nil {
			t.Errorf("a marker of what is open is stopped: %v", op.err)
		}
		op = &appendOp{raw: oneBatch(t, "x"), reply: make(chan struct{}, 2)}
		if !p.stopsAtFence(op) || api.CodeOf(op.err) != wire.ErrPolicyViolation {
			t.Errorf("records pass the fence: %v", op.err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
