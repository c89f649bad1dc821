package broker

import (
	"context"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"tidemark/internal/config"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
	"tidemark/internal/wire"
)

// TestALeaderIsPreparedAgain: what must come before a leader's first answer and
// finds a full disk, as after a promotion, is done when there is room: the entry of the
// leader epoch (R3).
func TestALeaderIsPreparedAgain(t *testing.T) {
	w := newWorld(t, "broker.session.timeout.ms=1000")
	faults := faultfs.New(w.fs)
	w.fs = faults
	b := w.open()
	id := createTopic(t, b, "a", 1)
	p := mustPartition(t, b, "a", 0)
	mustAppend(t, p, "x")
	faults.SetSpace(0)
	changeRecord(t, b, id, func(r *meta.PartitionRecord) { r.LeaderEpoch += 2 })
	eventually(t, "the partition waits for room", p.isUnprepared)
	_, err := appendTo(t, p, 1, "y")
	wantCode(t, "append before the leader is ready", err, wire.ErrNotLeaderOrFollower)
	// A try without room changes nothing.
	b.prepareAgain()
	if !p.isUnprepared() || p.dir.failure() != nil {
		t.Fatalf("after a try on a full disk: unprepared %v, dir %v", p.isUnprepared(), p.dir.failure())
	}
	faults.SetSpace(-1)
	eventually(t, "the partition is served", func() bool { _, err := p.LeaderEpoch(); return err == nil })
	if o := mustAppend(t, p, "z"); o != 1 {
		t.Errorf("offset %d after the disk had room again", o)
	}
	epoch, _ := p.LeaderEpoch()
	if last, _ := p.Log().View().History.Latest(); last.Epoch != epoch || last.Start != 1 {
		t.Errorf("history ends with %v in leader epoch %d", last, epoch)
	}
}

// TestAFullDiskDelaysOpening: a partition that finds no room when its log is
// opened waits for it, as a node does that is started again on a full disk; it
// took it for good for a disk that is broken.
func TestAFullDiskDelaysOpening(t *testing.T) {
	w := newWorld(t, "log.flush.acks=true")
	b := w.open()
	createTopic(t, b, "a", 1)
	if _, err := appendTo(t, mustPartition(t, b, "a", 0), -1, "x"); err != nil {
		t.Fatal(err)
	}
	crashed := w.with()
	faults := faultfs.New(w.fs.(*vfs.Mem).CrashClone(vfs.CrashConfig{}))
	closeNode(t, b)
	if err := faults.Remove("/data/a-0/partition.metadata"); err != nil { // so that opening has something to write
		t.Fatal(err)
	}
	crashed.fs = faults
	full := faults.Inject(faultfs.Rule{Kinds: faultfs.Create | faultfs.Write, Pattern: "/*/a-0/*", Err: syscall.ENOSPC})
	b = crashed.open()
	p := mustPartition(t, b, "a", 0)
	eventually(t, "opening was tried again", func() bool { return full.Fired() > 3 })
	if _, err := appendTo(t, p, 1, "y"); err == nil || p.dir.failure() != nil {
		t.Fatalf("append to a partition that isn't open: %v, dir %v", err, p.dir.failure())
	}
	wantCode(t, "work on a partition that isn't open", p.Do(testContext(t), func(*Owned) error { return nil }), wire.ErrNotLeaderOrFollower)
	full.Remove()
	eventually(t, "the partition is served", func() bool { _, err := p.LeaderEpoch(); return err == nil })
	if o := mustAppend(t, p, "z"); o != 1 {
		t.Errorf("offset %d after the disk had room again", o)
	}
}

// changeRecord commits a changed record of a topic's first partition.
func changeRecord(t *testing.T, b *Broker, id types.TopicID, change func(*meta.PartitionRecord)) {
	t.Helper()
	r, _ := b.Image().Partition(id, 0)
	next := r.Clone()
	change(&next)
	plan, err := control.UpdatePartition(b.Image(), id, 0, next, b.me())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Commit(testContext(t), plan); err != nil {
		t.Fatal(err)
	}
}

// refusingStore refuses a number of registrations, each after its lease was granted.
type refusingStore struct {
	metastore.Store
	refuse, refused atomic.Int32
}

func (s *refusingStore) Txn(ctx context.Context, txn metastore.Txn) (metastore.TxnResult, error) {
	if slices.ContainsFunc(txn.Then, func(o metastore.Op) bool { return o.Lease != 0 }) && s.refuse.Add(-1) >= 0 {
		s.refused.Add(1)
		return metastore.TxnResult{}, metastore.ErrUnavailable
	}
	return s.Store.Txn(ctx, txn)
}

// TestAFailedRegistrationIsTriedAgain: a lease that no registration came to is
// not the one that is kept alive; else the node would never register again.
func TestAFailedRegistrationIsTriedAgain(t *testing.T) {
	w := newWorld(t, "broker.session.timeout.ms=1000")
	cfg, _, err := config.Resolve(w.set)
	if err != nil {
		t.Fatal(err)
	}
	store := &refusingStore{Store: w.store}
	b, err := Open(testContext(t), cfg, Options{FS: w.fs, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	createTopic(t, b, "a", 1)
	p := mustPartition(t, b, "a", 0)
	old, _ := b.BrokerEpoch()
	lease := b.lease.id()
	store.refuse.Store(2)
	w.store.ExpireLease(lease)
	eventually(t, "two registrations fail", func() bool { return store.refused.Load() == 2 })
	eventually(t, "the node is registered anew", func() bool {
		r, ok := b.BrokerEpoch()
		return ok && r > old
	})
	eventually(t, "it leads again", func() bool { _, err := p.LeaderEpoch(); return err == nil && !b.lease.over() })
	if b.lease.id() == lease {
		t.Error("the lease that ended is still kept")
	}
	mustAppend(t, p, "x")
}
