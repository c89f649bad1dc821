package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"tidemark/internal/await"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/mem"
)

func TestMain(m *testing.M) { await.NoLeaks(m) }

// fakeNode is a broker without partitions on a store in memory.
type fakeNode struct {
	t      *testing.T
	id     types.BrokerID
	store  *mem.Store
	watch  *mem.Watcher
	image  *meta.Image
	lease  meta.LeaseID
	before func() // runs before each commit
	errs   int    // so many commits fail
	done   int    // commits that succeeded
	log    meta.LogReport
	minISR int
}

func newFakeNode(t *testing.T, store *mem.Store, id types.BrokerID) *fakeNode {
	t.Helper()
	n := &fakeNode{t: t, id: id, store: store, image: meta.Empty("c"), log: meta.LogReport{Offline: true}}
	n.watch = store.NewWatcher(context.Background(), n.image.Keys().Root(), 0)
	n.sync()
	var err error
	if n.lease, err = store.Grant(context.Background(), time.Minute); err != nil {
		t.Fatal(err)
	}
	plans, err := control.RegisterBroker(n.image, meta.BrokerRecord{
		ID: id, DirectoryID: fmt.Sprint(id), Incarnation: fmt.Sprint(id), CleanShutdownEpoch: types.NoBrokerEpoch,
		Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 1, Security: "PLAINTEXT"}},
	}, n.lease)
	if err != nil {
		t.Fatal(err)
	}
	n.commit(plans...)
	return n
}

func (n *fakeNode) sync() {
	for {
		ev, ok, err := n.watch.Poll()
		if err != nil {
			n.t.Fatal(err)
		}
		if !ok {
			return
		}
		n.image, _ = n.image.Apply(ev)
	}
}

func (n *fakeNode) commit(plans ...meta.Plan) {
	n.t.Helper()
	for _, plan := range plans {
		if _, err := metastore.Commit(context.Background(), n.store, plan); err != nil {
			n.t.Fatal(err)
		}
	}
	n.sync()
}

func (n *fakeNode) Image() *meta.Image { n.sync(); return n.image }

func (n *fakeNode) Commit(ctx context.Context, plan meta.Plan) (meta.Revision, error) {
	if n.before != nil {
		n.before()
	}
	if n.errs > 0 {
		n.errs--
		return 0, metastore.ErrUnavailable
	}
	revision, err := metastore.Commit(ctx, n.store, plan)
	if err == nil {
		n.done++
	}
	n.sync()
	return revision, err
}

func (n *fakeNode) Me() control.Me {
	epoch, _ := n.Image().BrokerEpoch(n.id)
	return control.Me{ID: n.id, Epoch: epoch}
}
func (n *fakeNode) Lease() meta.LeaseID      { return n.lease }
func (n *fakeNode) Limits() control.Limits   { return control.Limits{Ops: 64} }
func (n *fakeNode) Unclean(*meta.Topic) bool { return false }
func (n *fakeNode) MinISR(*meta.Topic) int   { return n.minISR }
func (n *fakeNode) Report(context.Context, meta.PartitionID) meta.LogReport {
	return n.log
}

func (n *fakeNode) controller() *Controller {
	return New(Options{Node: n, Logger: slog.New(slog.DiscardHandler)})
}

func (n *fakeNode) create(partitions int32, replicas ...types.BrokerID) types.TopicID {
	n.t.Helper()
	assignment := make([][]types.BrokerID, partitions)
	for i := range assignment {
		assignment[i] = replicas
	}
	r := control.CreateTopicRequest{Name: "a", ID: types.TopicID{1}, Partitions: partitions, Assignment: assignment, TimelineID: "root"}
	plans, err := control.CreateTopic(n.Image(), r, n.Me(), n.Limits())
	if err != nil {
		n.t.Fatal(err)
	}
	n.commit(plans...)
	return r.ID
}

func step(t *testing.T, c *Controller) {
	t.Helper()
	if err := c.Step(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// TestContendedPartition: a record that others write at every turn doesn't hold
// up the other partitions of its transaction.
func TestContendedPartition(t *testing.T) {
	store := mem.New()
	boss, gone := newFakeNode(t, store, 1), newFakeNode(t, store, 2)
	c := boss.controller()
	step(t, c)
	id := boss.create(40, 2, 1)
	store.ExpireLease(gone.lease)
	key := boss.image.Keys().Partition(id, 7)
	boss.before = func() {
		r, rev := boss.Image().Partition(id, 7)
		boss.commit(meta.Plan{Why: "contend", If: []meta.Compare{meta.ModRevisionIs(key, rev)}, Then: []meta.Op{meta.Put(key, r.Encode())}})
	}
	c.all = true
	step(t, c)
	for p := range boss.Image().PartitionsOf(id) {
		if led := !control.NeedsLeader(boss.image, p.Record); led != (p.ID.Number != 7) {
			t.Errorf("partition %d has a leader: %v, %+v", p.ID.Number, led, p.Record)
		}
	}
	boss.before = nil
	step(t, c)
	if r, _ := boss.Image().Partition(id, 7); control.NeedsLeader(boss.image, r) {
		t.Errorf("partition 7 once it stands still: %+v", r)
	}
}

// TestFailedCommit: what could not be written is tried again at the next step.
func TestFailedCommit(t *testing.T) {
	store := mem.New()
	boss, gone := newFakeNode(t, store, 1), newFakeNode(t, store, 2)
	c := boss.controller()
	step(t, c)
	id := boss.create(3, 2, 1)
	store.ExpireLease(gone.lease)
	c.all, boss.errs = true, 1
	if err := c.Step(context.Background()); !errors.Is(err, metastore.ErrUnavailable) {
		t.Fatalf("%v", err)
	}
	step(t, c)
	for p := range boss.Image().PartitionsOf(id) {
		if control.NeedsLeader(boss.image, p.Record) {
			t.Errorf("partition %d: %+v", p.ID.Number, p.Record)
		}
	}
}

// TestOfficePasses: the second broker settles nothing while the first is in
// office, and takes over when that one's lease has ended.
func TestOfficePasses(t *testing.T) {
	store := mem.New()
	one, two, three := newFakeNode(t, store, 1), newFakeNode(t, store, 2), newFakeNode(t, store, 3)
	first, second := one.controller(), two.controller()
	step(t, first)
	id := one.create(1, 3, 2)
	store.ExpireLease(three.lease)
	step(t, second)
	if two.done != 0 {
		t.Errorf("2 wrote %d times and isn't in office", two.done)
	}
	store.ExpireLease(one.lease)
	step(t, second)
	if r, _ := two.Image().Partition(id, 0); r.Leader != 2 {
		t.Errorf("%+v", r)
	}
	// The first one is out of office and out of the cluster: it does nothing.
	step(t, first)
}

// TestSweep: partition records of no topic go when they have stood still for
// long, and not before.
func TestSweep(t *testing.T) {
	store := mem.New()
	boss := newFakeNode(t, store, 1)
	c := boss.controller()
	step(t, c)
	id := boss.create(2, 1)
	boss.commit(meta.Plan{Why: "a creation stops half-way", Then: []meta.Op{meta.Delete(boss.image.Keys().Topic(id))}})
	orphans := func() (n int) {
		for range boss.Image().Orphans() {
			n++
		}
		return n
	}
	now := time.Now()
	for _, at := range []struct {
		after time.Duration
		left  int
	}{{0, 2}, {orphanAge, 2}, {orphanAge + time.Second, 0}} {
		if err := c.sweep(context.Background(), now.Add(at.after)); err != nil {
			t.Fatal(err)
		}
		if orphans() != at.left {
			t.Errorf("after %v: %d orphans, want %d", at.after, orphans(), at.left)
		}
	}
}

// TestNobodyToElect: a partition whose unclean election has waited long enough and
// still finds nobody is looked at with each tick, and not over and over. One that has a
// leader waits no more: its next election is not impatient from the start (R11).
func TestNobodyToElect(t *testing.T) {
	store := mem.New()
	boss, other := newFakeNode(t, store, 1), newFakeNode(t, store, 9)
	c := boss.controller()
	step(t, c)
	id := meta.PartitionID{Topic: boss.create(1, 9), Number: 0}
	f := func(waits bool) {
		t.Helper()
		c.waiting[id] = time.Now().Add(-reportPatience - time.Minute)
		for len(c.poke) > 0 {
			<-c.poke
		}
		clear(c.dirty)
		step(t, c)
		if _, again := c.dirty[id]; again != waits || len(c.poke) != 0 {
			t.Errorf("looked at again: %v, not %v; at once: %v", again, waits, len(c.poke) != 0)
		}
		if c.impatient(time.Now(), id) != waits {
			t.Errorf("impatient: %v", !waits)
		}
	}
	f(false)
	store.ExpireLease(other.lease)
	f(true)
}

// TestReportsAreAskedAnew: a report is of one revision of the record. Whatever is written into it
// while an unclean election waits has the logs told again; what happens to partitions
// that are led costs nothing.
func TestReportsAreAskedAnew(t *testing.T) {
	c := New(Options{Logger: slog.New(slog.DiscardHandler)})
	old := meta.PartitionRecord{Replicas: []types.BrokerID{1, 2, 3}, ISR: []meta.ISRMember{{ID: 1, BrokerEpoch: 5}}, MinISR: 1, Leader: 1, LeaderBrokerEpoch: 5, LeaderEpoch: 3}
	f := func(what string, want bool, change func(*meta.PartitionRecord)) {
		t.Helper()
		next := old.Clone()
		change(&next)
		c.logsAsked = false
		c.ImageChanged(meta.Delta{Partitions: []meta.Change[meta.Partition]{{Old: &meta.Partition{Record: &old}, New: &meta.Partition{Record: &next}}}})
		if c.logsAsked != want {
			t.Errorf("%s: asked %v", what, c.logsAsked)
		}
	}
	f("consent", true, func(r *meta.PartitionRecord) { r.UncleanOnce = true })
	f("min ISR", true, func(r *meta.PartitionRecord) { r.MinISR = 2 })
	f("reassignment", true, func(r *meta.PartitionRecord) { r.Replicas = append(r.Replicas, 4) })
	f("ISR", false, func(r *meta.PartitionRecord) { r.ISR = append(r.ISR, meta.ISRMember{ID: 2, BrokerEpoch: 6}) })
	f("election", false, func(r *meta.PartitionRecord) { r.Leader, r.LeaderBrokerEpoch, r.LeaderEpoch = 2, 6, 4 })
}

// TestMoreThanOneReport: what one report doesn't hold is told once those that it holds
// have been elected, whatever else happens.
func TestMoreThanOneReport(t *testing.T) {
	const most, more = 8, 3
	boss := newFakeNode(t, mem.New(), 1)
	boss.log = meta.LogReport{LogEnd: 5, LastEpoch: 1, Restored: &meta.RestoredLog{EpochMax: 1}}
	c := boss.controller()
	c.reportsMost = most
	id := boss.create(2*most+more, 1)
	var plans []meta.Plan
	for p := range boss.Image().PartitionsOf(id) {
		r := p.Record.Clone()
		r.Leader, r.LeaderBrokerEpoch, r.ISR, r.Restored, r.Timelines = types.NoBroker, types.NoBrokerEpoch, []meta.ISRMember{}, true, nil
		r.Writable, r.Mirror = false, &meta.MirrorState{Name: "m", State: meta.MirrorPaused}
		plans = append(plans, meta.Plan{Why: "restore", Then: []meta.Op{meta.Put(boss.image.Keys().Partition(id, p.ID.Number), r.Encode())}})
	}
	boss.commit(control.Split(plans, boss.Limits())...)
	for range 3 {
		c.putBack(nil, true) // as the image of a report has it
		step(t, c)
	}
	for p := range boss.Image().PartitionsOf(id) {
		if p.Record.Restored {
			t.Errorf("partition %d has no leader", p.ID.Number)
		}
	}
}

// TestMinISRIsAligned: what the topics' settings come to reaches their partitions with the
// next office, and with each sweep.
func TestMinISRIsAligned(t *testing.T) {
	store := mem.New()
	boss := newFakeNode(t, store, 1)
	c := boss.controller()
	step(t, c)
	id := boss.create(100, 1) // more than a transaction holds
	f := func(want int) {
		t.Helper()
		step(t, c)
		for p := range boss.Image().PartitionsOf(id) {
			if p.Record.MinISR != want {
				t.Fatalf("partition %d: min ISR %d, want %d", p.ID.Number, p.Record.MinISR, want)
			}
		}
	}
	boss.minISR = 2
	f(1)
	c.swept = time.Now().Add(-sweepEvery - time.Minute)
	f(2)
	boss.minISR = 0
	c = boss.controller()
	f(1)
}
