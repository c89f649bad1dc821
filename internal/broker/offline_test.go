package broker

import (
	"errors"
	"strings"
	"testing"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
	"tidemark/internal/wire"
)

// TestAFileThatCannotBeRead: one bad file takes one partition offline, for as long as it
// can't be read: the disk takes writes, so that the others go on.
func TestAFileThatCannotBeRead(t *testing.T) {
	for _, kind := range []faultfs.Kind{faultfs.Open, faultfs.Read, faultfs.List} {
		w := newWorld(t)
		b := w.open()
		createTopic(t, b, "a", 2)
		for n := range int32(2) {
			mustAppend(t, mustPartition(t, b, "a", n), "x", "y")
		}
		closeNode(t, b)
		faults := faultfs.New(w.fs)
		pattern := "/data/a-0/*"
		if kind == faultfs.List {
			pattern = "/data/a-0"
		}
		bad := faults.Inject(faultfs.Rule{Kinds: kind, Pattern: pattern})
		hurt := w.with()
		hurt.fs = faults
		b = hurt.open()
		p, whole := mustPartition(t, b, "a", 0), mustPartition(t, b, "a", 1)
		eventually(t, "the partition is offline", p.down.Load)
		_, err := appendTo(t, p, 1, "z")
		wantCode(t, "append to a partition whose file can't be read", err, wire.ErrKafkaStorageError)
		if !strings.Contains(err.Error(), "a-0") || !strings.Contains(err.Error(), "input/output error") {
			t.Errorf("%v names neither the file nor what is wrong", err)
		}
		if o := mustAppend(t, whole, "z"); o != 2 {
			t.Errorf("the other partition appends at %d", o)
		}
		tried := bad.Fired()
		eventually(t, "it was tried again", func() bool { return bad.Fired() > tried })
		if err := p.dir.failure(); err != nil || b.Ready() != nil {
			t.Errorf("kind %b: dir %v, node %v", kind, err, b.Ready())
		}
		if _, err := faults.Stat("/data/" + diskProbeFile); err == nil {
			t.Error("the probe is left on the disk")
		}
		bad.Remove()
		eventually(t, "it is served again", func() bool { _, err := p.LeaderEpoch(); return err == nil })
		if o := mustAppend(t, p, "z"); o != 2 || p.down.Load() {
			t.Errorf("kind %b: the partition that could be read again appends at %d, still offline: %v", kind, o, p.down.Load())
		}
		closeNode(t, b)
	}
}

// TestADiskThatIsNeitherReadNorWritten is offline as a whole, the node's other one isn't.
func TestADiskThatIsNeitherReadNorWritten(t *testing.T) {
	w := newWorld(t, "log.dirs=/data,/other")
	b := w.open()
	createTopic(t, b, "a", 4)
	bad := mustPartition(t, b, "a", 0).dir.path
	closeNode(t, b)
	faults := faultfs.New(w.fs)
	faults.Inject(faultfs.Rule{Kinds: faultfs.Open | faultfs.Read, Pattern: bad + "/a-0/*"})
	faults.Inject(faultfs.Rule{Kinds: faultfs.Mutating, Pattern: bad + "/" + diskProbeFile + "*"})
	w = w.with()
	w.fs = faults
	b = w.open()
	p := mustPartition(t, b, "a", 0)
	eventually(t, "the dir is offline", func() bool { return p.dir.failure() != nil })
	if err := p.dir.failure(); !errors.Is(err, log.ErrOffline) || !strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), "nor is one written") {
		t.Errorf("the dir is offline because of %v", err)
	}
	for n := range int32(4) {
		p := mustPartition(t, b, "a", n)
		if p.dir.path == bad {
			eventually(t, "its partitions are offline", p.down.Load)
		} else {
			mustAppend(t, p, "x")
		}
	}
}

// TestALeaderThatIsOfflineIsFollowed: another replica in sync leads a partition that its leader can't use.
func TestALeaderThatIsOfflineIsFollowed(t *testing.T) {
	w := newWorld(t, "node.id=1")
	first, second := w.open(), w.with("node.id=2", "log.dirs=/second").open()
	eventually(t, "the first node knows the second", func() bool { _, ok := first.Image().Broker(2); return ok })
	id := createAssigned(t, first, "a", 1)
	p := mustPartition(t, first, "a", 0)
	changeRecord(t, first, id, func(r *meta.PartitionRecord) { // as after the second has caught up
		epoch, _ := first.Image().BrokerEpoch(2)
		r.Replicas, r.ISR = []types.BrokerID{1, 2}, append(r.ISR, meta.ISRMember{ID: 2, BrokerEpoch: epoch})
	})
	first.tell(p, func() { p.goOffline(errors.New("it is broken")) })
	eventually(t, "the second node serves it", func() bool {
		r, _ := second.Image().Partition(id, 0)
		q, ok := second.PartitionByName("a", 0)
		if r == nil || r.Leader != 2 || !ok {
			return false
		}
		_, err := q.LeaderEpoch()
		return err == nil
	})
	if _, err := appendTo(t, mustPartition(t, second, "a", 0), 1, "x"); err != nil {
		t.Error(err)
	}
}

func createAssigned(t *testing.T, b *Broker, name string, replicas ...types.BrokerID) types.TopicID {
	t.Helper()
	made, err := b.Topics().Create(testContext(t), api.CreateTopic{Name: name, Partitions: -1, ReplicationFactor: -1, Assignments: map[int32][]types.BrokerID{0: replicas}})
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// TestAnOfflineFollowerLeavesTheISR: acks=all waits for nobody whose replica is known to
// be unusable, however long replica.lag.time.max.ms is; the others of the node stay in sync.
func TestAnOfflineFollowerLeavesTheISR(t *testing.T) {
	f := newFleet(t, 2, "log.dirs=/data,/other", "replica.lag.time.max.ms=600000")
	id := f.create("a", oneOf(1, 2))
	other := f.create("b", oneOf(1, 2))
	both := func(r *meta.PartitionRecord) bool { return len(r.ISR) == 2 }
	f.record(id, 0, "both are in sync", both)
	eventually(t, "the second node has both partitions", func() bool {
		_, a := f.nodes[2].PartitionByName("a", 0)
		_, b := f.nodes[2].PartitionByName("b", 0)
		return a && b
	})
	bad := mustPartition(t, f.nodes[2].Broker, "a", 0)
	if good := mustPartition(t, f.nodes[2].Broker, "b", 0); good.dir == bad.dir {
		t.Fatal("both partitions are in one dir")
	}
	bad.dir.fail(errors.New("the disk is gone"))
	r := f.record(id, 0, "it has left", func(r *meta.PartitionRecord) bool { return len(r.ISR) == 1 })
	if r.Leader != 1 || r.LeaderEpoch != 0 || len(r.ELR) != 0 {
		t.Errorf("%+v", r)
	}
	if _, err := appendTo(t, mustPartition(t, f.nodes[1].Broker, "a", 0), -1, "x"); err != nil {
		t.Error(err)
	}
	f.record(other, 0, "the other dir's stays", both)
}

// TestAFollowerThatIsReadAgainJoinsAgain: also where its leader has nothing new for it.
func TestAFollowerThatIsReadAgainJoinsAgain(t *testing.T) {
	f := newFleet(t, 2, "replica.lag.time.max.ms=600000")
	id := f.create("a", oneOf(1, 2))
	both := func(r *meta.PartitionRecord) bool { return len(r.ISR) == 2 }
	f.record(id, 0, "both are in sync", both)
	mustAppend(t, mustPartition(t, f.nodes[1].Broker, "a", 0), "x")
	closeNode(t, f.nodes[2].Broker)
	var bad *faultfs.Injected
	f.over = func(fs vfs.FS) vfs.FS {
		faults := faultfs.New(fs)
		bad = faults.Inject(faultfs.Rule{Kinds: faultfs.Open, Pattern: "/data/a-0/*"})
		return faults
	}
	f.start(2)
	eventually(t, "its replica is offline", func() bool {
		p, ok := f.nodes[2].PartitionByName("a", 0)
		return ok && p.down.Load()
	})
	bad.Remove()
	f.record(id, 0, "it has joined again", both)
}
