package control_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/mem"
)

// restored is one partition from a backup on brokers 1 to 3, with broker 4 as the controller.
type restored struct {
	*cluster
	id     types.TopicID
	mes    map[types.BrokerID]control.Me
	leases map[types.BrokerID]meta.LeaseID
	boss   control.Me
}

func newRestored(t *testing.T, epoch types.LeaderEpoch, list timeline.List, live ...types.BrokerID) *restored {
	t.Helper()
	c := newCluster(t)
	r := &restored{cluster: c, mes: make(map[types.BrokerID]control.Me), leases: make(map[types.BrokerID]meta.LeaseID)}
	r.mes[4], r.leases[4] = c.registerLeased(4)
	for _, id := range live {
		r.mes[id], r.leases[id] = c.registerLeased(id)
	}
	record := meta.PartitionRecord{
		Replicas: []types.BrokerID{1, 2, 3}, ISR: []meta.ISRMember{}, Leader: types.NoBroker, LeaderBrokerEpoch: types.NoBrokerEpoch,
		LeaderEpoch: epoch, MinISR: 2, Timelines: list, Writable: true, Restored: true,
	}
	r.id = types.TopicID{9}
	keys := c.image.Keys()
	c.commit(meta.Plan{Why: "restore", Then: []meta.Op{
		meta.Put(keys.Topic(r.id), meta.TopicRecord{ID: r.id, Name: "a", Partitions: 1}.Encode()),
		meta.Put(keys.Name("a"), meta.NameRecord{ID: r.id}.Encode()),
		meta.Put(keys.Partition(r.id, 0), record.Encode()),
	}})
	r.boss = c.office(r.mes[4], r.leases[4])
	return r
}

func (r *restored) tell(id types.BrokerID, log meta.LogReport) {
	r.t.Helper()
	log.Topic, log.Revision = r.id, mustEntry(r.cluster, r.id).ModRevision
	plan, err := control.Report(r.image, []meta.LogReport{log}, r.mes[id], r.leases[id])
	if err != nil {
		r.t.Fatal(err)
	}
	r.commit(plan)
}

func held(last types.LeaderEpoch, end types.Offset, most types.LeaderEpoch, list timeline.List) meta.LogReport {
	return meta.LogReport{LastEpoch: last, LogEnd: end, Restored: &meta.RestoredLog{EpochMax: most, Timelines: list}}
}

// TestRestoredWaitsForAll (R19): nobody leads before all replicas have told; then
// the best log, above every epoch, in a history of its own.
func TestRestoredWaitsForAll(t *testing.T) {
	root := timeline.FreshRoot("r")
	r := newRestored(t, 5, root, 1, 2)
	topic, _ := r.image.Topic(r.id)
	if !control.WantsReport(r.image, topic, mustEntry(r.cluster, r.id), 1, control.Policy{}) {
		t.Fatal("1 is to report")
	}
	r.tell(1, held(8, 100, 9, root))
	r.tell(2, held(9, 40, 12, root))
	impatient := control.Policy{Impatient: func(meta.PartitionID) bool { return true }, Unclean: func(*meta.Topic) bool { return true }}
	if changes := r.settleAll(r.boss, impatient); len(changes) != 0 {
		t.Fatalf("%+v without 3", changes)
	}
	if got := control.Awaiting(r.image, mustEntry(r.cluster, r.id)); !slices.Equal(got, []types.BrokerID{3}) {
		t.Fatalf("it waits for %v", got)
	}
	r.mes[3], r.leases[3] = r.registerLeased(3)
	r.tell(3, held(9, 41, 9, root))
	changes := r.settleAll(r.boss, control.Policy{})
	if len(changes) != 1 || changes[0].Kind != control.ElectedRestored {
		t.Fatalf("%+v", changes)
	}
	got := r.partition(r.id, 0)
	last, _ := got.Timelines.Last()
	if got.Leader != 3 || got.LeaderEpoch != 12+control.RestoredStep || !slices.Equal(got.ISRIDs(), []types.BrokerID{3}) || got.Restored ||
		len(got.Timelines) != 2 || last.FirstEpoch != got.LeaderEpoch || last.FirstOffset != 41 {
		t.Fatalf("%+v", got)
	}
	if more := r.settleAll(r.boss, control.Policy{}); len(more) != 0 {
		t.Fatalf("again: %+v", more)
	}
}

// TestRestoredWithConsent: where a replica is lost, an operator may do without it.
func TestRestoredWithConsent(t *testing.T) {
	root := timeline.FreshRoot("r")
	r := newRestored(t, 5, root, 1, 2)
	plan, err := control.AllowUnclean(r.image, mustEntry(r.cluster, r.id), r.mes[4])
	if err != nil {
		t.Fatal(err)
	}
	r.commit(plan)
	r.tell(1, held(8, 100, 9, root))
	if changes := r.settleAll(r.boss, control.Policy{}); len(changes) != 0 {
		t.Fatalf("%+v although 2 lives and has not told", changes)
	}
	r.tell(2, meta.LogReport{Offline: true})
	if changes := r.settleAll(r.boss, control.Policy{}); len(changes) != 0 {
		t.Fatalf("%+v although 2 may yet tell", changes)
	}
	changes := r.settleAll(r.boss, control.Policy{Impatient: func(meta.PartitionID) bool { return true }})
	if len(changes) != 1 || changes[0].Kind != control.ElectedUnclean || changes[0].Record.Leader != 1 || changes[0].Record.UncleanOnce {
		t.Fatalf("%+v", changes)
	}
}

// TestRestoredTakesTheLatestHistory: a promotion since the backup is known to the
// replicas alone. Whoever has applied it goes before a longer log that has not.
func TestRestoredTakesTheLatestHistory(t *testing.T) {
	root := timeline.FreshRoot("r")
	promoted, err := root.Extend(timeline.Entry{ID: "p", FirstEpoch: 70000, FirstOffset: 50})
	if err != nil {
		t.Fatal(err)
	}
	f := func(name string, leader types.BrokerID, end types.Offset, logs ...meta.LogReport) {
		t.Helper()
		r := newRestored(t, 5, root, 1, 2, 3)
		for i, log := range logs {
			r.tell(types.BrokerID(i+1), log)
		}
		r.settleAll(r.boss, control.Policy{})
		got := r.partition(r.id, 0)
		last, _ := got.Timelines.Last()
		if got.Leader != leader || last.FirstOffset != end || len(got.Timelines) != 3 {
			t.Errorf("%s: %+v, want leader %d and log end %d", name, got, leader, end)
		}
	}
	f("applied, and behind", 1, 50, held(4, 50, 70000, promoted), held(4, 90, 6, root), held(4, 90, 6, root))
	f("of those that applied, the best", 2, 60, held(4, 50, 70000, promoted), held(70000, 60, 70000, promoted), held(4, 90, 6, root))
	f("applied and empty: what the list lets stand", 2, 50, held(-1, 0, 70000, promoted), held(4, 90, 6, root), held(4, 80, 6, root))
	f("another history altogether", 1, 0, held(-1, 0, 70000, promoted), held(4, 90, 6, timeline.FreshRoot("x")), held(4, 90, 6, timeline.FreshRoot("y")))
}

// TestRestoredMirrorPromotesNothing: its list stays its source's.
func TestRestoredMirrorPromotesNothing(t *testing.T) {
	root := timeline.FreshRoot("r")
	r := newRestored(t, 5, root, 1, 2, 3)
	record := r.partition(r.id, 0).Clone()
	record.Writable, record.Mirror = false, &meta.MirrorState{Name: "m", State: meta.MirrorPaused}
	r.commit(meta.Plan{Why: "a mirror", Then: []meta.Op{meta.Put(r.image.Keys().Partition(r.id, 0), record.Encode())}})
	for id := types.BrokerID(1); id <= 3; id++ {
		r.tell(id, held(8, types.Offset(id), 9, root))
	}
	r.settleAll(r.boss, control.Policy{})
	if got := r.partition(r.id, 0); got.Leader != 3 || !got.Timelines.Equal(root) || got.LeaderEpoch <= 9 {
		t.Fatalf("%+v", got)
	}
}

// TestRestoresKeepCommittedRecords: whatever happened between a backup and its
// restore, the election after it takes a log that holds as much as any, in an
// epoch that nobody has ever seen.
func TestRestoresKeepCommittedRecords(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newElectionModel(t)
		epochs := make(map[types.BrokerID]types.LeaderEpoch) // the highest that each broker knows
		highest := types.LeaderEpoch(0)
		var backup meta.PartitionRecord
		note := func() {
			if me, r, ok := m.leader(); ok {
				epochs[me.ID] = max(epochs[me.ID], r.LeaderEpoch)
				highest = max(highest, r.LeaderEpoch)
			}
		}
		anyone := rapid.Int32Range(1, modelBrokers)
		who := func() types.BrokerID { return types.BrokerID(anyone.Draw(rt, "broker")) }
		backup = m.c.partition(m.id, 0).Clone()
		rt.Repeat(map[string]func(*rapid.T){
			"produce": func(*rapid.T) { m.produce() },
			"crash":   func(rt *rapid.T) { m.stop(who(), false, rapid.IntRange(0, 3).Draw(rt, "lost")) },
			"stop":    func(*rapid.T) { m.stop(who(), true, 0) },
			"start":   func(*rapid.T) { m.start(who()) },
			"join":    func(*rapid.T) { m.join(who()) },
			"lag":     func(*rapid.T) { m.lag(who()) },
			"settle":  func(rt *rapid.T) { m.settle(rt); note() },
			"backup":  func(*rapid.T) { backup = m.c.partition(m.id, 0).Clone() },
		})
		most := 0
		for _, n := range m.holds {
			most = max(most, n)
		}
		after := afterRestore(t, m, backup, epochs)
		got := after.partition(m.id, 0)
		if m.holds[got.Leader] < most || got.LeaderEpoch <= highest {
			rt.Fatalf("broker %d with %d of %d records leads in epoch %d, %d was seen", got.Leader, m.holds[got.Leader], most, got.LeaderEpoch, highest)
		}
	})
}

// afterRestore starts the model's brokers on a new store that holds an old record.
func afterRestore(t *testing.T, m *electionModel, backup meta.PartitionRecord, epochs map[types.BrokerID]types.LeaderEpoch) *cluster {
	c := &cluster{t: t, store: mem.New(), image: meta.Empty("c1")}
	c.watch = c.store.NewWatcher(context.Background(), c.image.Keys().Root(), 0)
	topic, _ := m.c.image.Topic(m.id)
	backup.Leader, backup.LeaderBrokerEpoch, backup.ISR, backup.ELR, backup.Restored, backup.UncleanOnce = types.NoBroker, types.NoBrokerEpoch, nil, nil, true, false
	keys := c.image.Keys()
	c.commit(meta.Plan{Why: "restore", Then: []meta.Op{
		meta.Put(keys.Topic(m.id), topic.Record.Encode()), meta.Put(keys.Name("a"), meta.NameRecord{ID: m.id}.Encode()),
		meta.Put(keys.Partition(m.id, 0), backup.Encode()),
	}})
	var boss control.Me
	for id := types.BrokerID(1); id <= modelBrokers; id++ {
		lease, _ := c.store.Grant(context.Background(), time.Minute)
		record := broker(id)
		record.CleanShutdownEpoch = m.mark[id] // of the other store: it must count for nothing
		plans, err := control.RegisterBroker(c.image, record, lease)
		if err != nil {
			t.Fatal(err)
		}
		c.commit(plans...)
		epoch, _ := c.image.BrokerEpoch(id)
		me := control.Me{ID: id, Epoch: epoch}
		if id == 1 {
			boss = c.office(me, lease)
		}
		if changes := c.settleAll(boss, control.Policy{}); len(changes) != 0 {
			t.Fatalf("%+v before all have told", changes)
		}
		log := held(0, types.Offset(m.holds[id]), epochs[id], backup.Timelines)
		log.Topic, log.Revision = m.id, mustEntry(c, m.id).ModRevision
		plan, err := control.Report(c.image, []meta.LogReport{log}, me, lease)
		if err != nil {
			t.Fatal(err)
		}
		c.commit(plan)
	}
	if changes := c.settleAll(boss, control.Policy{}); len(changes) != 1 {
		t.Fatalf("%+v", changes)
	}
	return c
}
