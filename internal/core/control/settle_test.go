package control_test

import (
	"slices"
	"testing"
	"time"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// office makes a broker the controller and gives it as a writer.
func (c *cluster) office(me control.Me, lease meta.LeaseID) control.Me {
	c.t.Helper()
	plans, free, err := control.TakeOffice(c.image, me, lease)
	if err != nil || !free {
		c.t.Fatalf("office of broker %d: free %v, %v", me.ID, free, err)
	}
	c.commit(plans...)
	boss, ok := control.InOffice(c.image, me)
	if !ok {
		c.t.Fatalf("broker %d isn't the controller", me.ID)
	}
	return boss
}

// settleAll carries out what the controller makes of the image now.
func (c *cluster) settleAll(boss control.Me, policy control.Policy) []control.Change {
	c.t.Helper()
	changes, plans := control.SettleAll(c.image, c.image.Partitions(), policy, boss, limits)
	c.commit(plans...)
	return changes
}

func TestOffice(t *testing.T) {
	c := newCluster(t)
	one, lease := c.registerLeased(1)
	two, leaseTwo := c.registerLeased(2)
	boss := c.office(one, lease)
	if _, free, err := control.TakeOffice(c.image, two, leaseTwo); free || err != nil {
		t.Fatalf("the office is held: free %v, %v", free, err)
	}
	if _, ok := control.InOffice(c.image, two); ok {
		t.Fatal("2 is in 1's office")
	}
	r := topicRequest("a", 1, 0)
	r.Assignment = [][]types.BrokerID{{2, 1}}
	c.create(one, r)
	// 2 goes; what 1 decided is refused once another holds the office, although 1 is still registered.
	c.store.ExpireLease(leaseTwo)
	c.sync()
	_, plans := control.SettleAll(c.image, c.image.Partitions(), control.Policy{}, boss, limits)
	if len(plans) != 1 {
		t.Fatalf("%d plans", len(plans))
	}
	key := c.image.Keys().Controller()
	c.commit(meta.Plan{Why: "another office", Then: []meta.Op{meta.Delete(key)}})
	c.refused(plans[0])

	// A holder whose registration has ended is put out: by a broker, and by its own next life.
	boss = c.office(one, lease)
	again, leaseAgain := c.registerLeased(1)
	if _, ok := control.InOffice(c.image, again); ok {
		t.Fatal("a new registration holds the old one's office")
	}
	if next := c.office(again, leaseAgain); next.Controller == boss.Controller {
		t.Fatal("the same office")
	}
	_, _, err := control.TakeOffice(c.image, one, lease)
	wantError(t, err, control.ErrNotRegistered)
}

// fourth is a topic of one partition on 1, 2, 3 with min ISR 2, and broker 4 as the controller.
func fourth(t *testing.T) (c *cluster, leases map[types.BrokerID]meta.LeaseID, mes map[types.BrokerID]control.Me, id types.TopicID, boss control.Me) {
	c, leases, mes, id = three(t)
	mes[4], leases[4] = c.registerLeased(4)
	return c, leases, mes, id, c.office(mes[4], leases[4])
}

func (c *cluster) wantRecord(id types.TopicID, leader types.BrokerID, epoch types.LeaderEpoch, isr, elr []types.BrokerID) {
	c.t.Helper()
	r := c.partition(id, 0)
	if r.Leader != leader || r.LeaderEpoch != epoch || !slices.Equal(r.ISRIDs(), isr) || !slices.Equal(r.ELRIDs(), elr) {
		c.t.Fatalf("leader %d epoch %d ISR %v ELR %v, want %d %d %v %v", r.Leader, r.LeaderEpoch, r.ISRIDs(), r.ELRIDs(), leader, epoch, isr, elr)
	}
}

type brokers = []types.BrokerID

// TestSettleWhenBrokersGo: the ISR without those who are gone, in the same
// leader epoch while the leader stays; eligible below min ISR (R15).
func TestSettleWhenBrokersGo(t *testing.T) {
	c, leases, mes, id, boss := fourth(t)
	if changes := c.settleAll(boss, control.Policy{}); len(changes) != 0 {
		t.Fatalf("%+v although nothing happened", changes)
	}
	c.end(leases, 3)
	c.settleAll(boss, control.Policy{})
	c.wantRecord(id, 1, 0, brokers{1, 2}, brokers{})
	c.end(leases, 2)
	c.settleAll(boss, control.Policy{})
	c.wantRecord(id, 1, 0, brokers{1}, brokers{2})
	// 2 comes back in order: its entry moves to its present registration.
	clean := mes[2].Epoch
	mes[2], leases[2] = c.registerLeased(2, func(b *meta.BrokerRecord) { b.CleanShutdownEpoch = clean })
	c.settleAll(boss, control.Policy{})
	if e := c.partition(id, 0).ELR[0].BrokerEpoch; e != mes[2].Epoch {
		t.Fatalf("eligible in registration %d, want %d", e, mes[2].Epoch)
	}
	c.end(leases, 1)
	c.settleAll(boss, control.Policy{})
	c.wantRecord(id, 2, 1, brokers{2}, brokers{1})
	// 2 restarts without the mark; nobody may lead now, and the record stays.
	mes[2] = c.register(2)
	if changes := c.settleAll(boss, control.Policy{}); len(changes) != 0 {
		t.Fatalf("%+v", changes)
	}
	// 1 was lost without the mark too: with it back, an unclean election alone helps.
	c.register(1)
	if changes := c.settleAll(boss, control.Policy{}); len(changes) != 0 {
		t.Fatalf("%+v", changes)
	}
}

// TestSettleWhenBrokersLeave: leaders move to who stays, a broker that leaves
// is in no ISR that can spare it, and a leader alone stays.
func TestSettleWhenBrokersLeave(t *testing.T) {
	c, leases, mes, id, boss := fourth(t)
	leave := func(b types.BrokerID) {
		t.Helper()
		plan, err := control.Drain(c.image, mes[b], leases[b])
		if err != nil {
			t.Fatal(err)
		}
		c.commit(plan)
	}
	leave(1)
	if control.Drained(c.image, 1) {
		t.Fatal("1 still leads what 2 could lead")
	}
	c.settleAll(boss, control.Policy{})
	c.wantRecord(id, 2, 1, brokers{2, 3}, brokers{})
	if !control.Drained(c.image, 1) {
		t.Fatal("1 leads nothing any more")
	}
	leave(3)
	c.settleAll(boss, control.Policy{})
	c.wantRecord(id, 2, 1, brokers{2}, brokers{3})
	leave(2)
	if changes := c.settleAll(boss, control.Policy{}); len(changes) != 0 || !control.Drained(c.image, 2) {
		t.Fatalf("%+v: nobody else can lead", changes)
	}
}

// TestUncleanTakesTheBest (R11): the highest last epoch, then the longest log;
// all live replicas must have reported on this record, unless patience has run out.
func TestUncleanTakesTheBest(t *testing.T) {
	c, leases, mes, id, boss := fourth(t)
	c.update(id, mes[1], func(r *meta.PartitionRecord) { r.ISR, r.MinISR = r.ISR[:1], 1 })
	c.end(leases, 1)
	allowed := control.Policy{Unclean: func(*meta.Topic) bool { return true }}
	topic, _ := c.image.Topic(id)
	report := func(b types.BrokerID, revision meta.Revision, epoch types.LeaderEpoch, end types.Offset) {
		t.Helper()
		plan, err := control.Report(c.image, []meta.LogReport{{Topic: id, Revision: revision, LastEpoch: epoch, LogEnd: end}}, mes[b], leases[b])
		if err != nil {
			t.Fatal(err)
		}
		c.commit(plan)
	}
	p, _ := c.image.PartitionEntry(id, 0)
	if !control.WantsReport(c.image, topic, p, 2, allowed) || control.WantsReport(c.image, topic, p, 4, allowed) || control.WantsReport(c.image, topic, p, 2, control.Policy{}) {
		t.Fatal("2 is to report where an unclean election is allowed, 4 holds no replica")
	}
	report(2, p.ModRevision, 3, 100)
	if changes := c.settleAll(boss, allowed); len(changes) != 0 {
		t.Fatalf("%+v although 3 has not reported", changes)
	}
	report(3, p.ModRevision-1, 9, 900)
	if changes := c.settleAll(boss, allowed); len(changes) != 0 {
		t.Fatalf("%+v on a report about an older record", changes)
	}
	report(3, p.ModRevision, 4, 10)
	if changes := c.settleAll(boss, control.Policy{}); len(changes) != 0 {
		t.Fatalf("%+v although it isn't allowed", changes)
	}
	changes := c.settleAll(boss, allowed)
	if len(changes) != 1 || changes[0].Kind != control.ElectedUnclean {
		t.Fatalf("%+v", changes)
	}
	c.wantRecord(id, 3, 1, brokers{3}, brokers{})

	// Asked for by an operator, once, with patience run out.
	c.end(leases, 3)
	mes[1], leases[1] = c.registerLeased(1)
	p, _ = c.image.PartitionEntry(id, 0)
	plan, err := control.AllowUnclean(c.image, p, mes[1])
	if err != nil {
		t.Fatal(err)
	}
	c.commit(plan)
	p, _ = c.image.PartitionEntry(id, 0)
	report(1, p.ModRevision, 4, 7)
	impatient := control.Policy{Impatient: func(meta.PartitionID) bool { return true }}
	c.settleAll(boss, impatient)
	c.wantRecord(id, 1, 2, brokers{1}, brokers{})
	if c.partition(id, 0).UncleanOnce {
		t.Fatal("the consent is still there")
	}
	_, err = control.AllowUnclean(c.image, mustEntry(c, id), mes[1])
	wantError(t, err, control.ErrElectionNotNeeded)
}

func mustEntry(c *cluster, id types.TopicID) *meta.Partition {
	c.t.Helper()
	p, ok := c.image.PartitionEntry(id, 0)
	if !ok {
		c.t.Fatal("no partition 0")
	}
	return p
}

func (c *cluster) reassign(id types.TopicID, me control.Me, target ...types.BrokerID) {
	c.t.Helper()
	plan, ok, err := control.Reassign(c.image, mustEntry(c, id), target, me)
	if err != nil || !ok {
		c.t.Fatalf("reassign to %v: %v, %v", target, ok, err)
	}
	c.commit(plan)
}

func TestReassign(t *testing.T) {
	c, _, mes, id, boss := fourth(t)
	c.reassign(id, mes[2], 4, 3)
	r := c.partition(id, 0)
	if !slices.Equal(r.Replicas, brokers{4, 3, 1, 2}) || !slices.Equal(r.Adding, brokers{4}) || !slices.Equal(r.Removing, brokers{1, 2}) || r.LeaderEpoch != 0 {
		t.Fatalf("%+v", r)
	}
	if changes := c.settleAll(boss, control.Policy{}); len(changes) != 0 {
		t.Fatalf("%+v before the new replica is in sync", changes)
	}
	// Another one replaces it, and is taken back.
	c.reassign(id, mes[2], 2, 4)
	if r := c.partition(id, 0); !slices.Equal(r.Replicas, brokers{2, 4, 3, 1}) || !slices.Equal(r.Removing, brokers{3, 1}) {
		t.Fatalf("%+v", r)
	}
	c.reassign(id, mes[2])
	if r := c.partition(id, 0); len(r.Adding)+len(r.Removing) != 0 || !slices.Contains(r.Replicas, 1) || slices.Contains(r.Replicas, 4) || r.LeaderEpoch != 1 {
		t.Fatalf("taken back: %+v", r)
	}
	_, _, err := control.Reassign(c.image, mustEntry(c, id), nil, mes[2])
	wantError(t, err, control.ErrNoReassignment)
	for _, bad := range []brokers{{}, {1, 1}, {1, 9}, {-1}} {
		_, _, err := control.Reassign(c.image, mustEntry(c, id), bad, mes[2])
		wantError(t, err, control.ErrInvalidAssignment)
	}

	// To the end: the leader is among those who go.
	c.reassign(id, mes[2], 4, 3)
	c.update(id, mes[1], func(r *meta.PartitionRecord) { r.ISR = append(r.ISR, meta.ISRMember{ID: 4, BrokerEpoch: mes[4].Epoch}) })
	c.settleAll(boss, control.Policy{})
	c.wantRecord(id, 4, 2, brokers{3, 4}, brokers{})
	if r := c.partition(id, 0); !slices.Equal(r.Replicas, brokers{4, 3}) || len(r.Adding)+len(r.Removing) != 0 {
		t.Fatalf("%+v", r)
	}
	// Another order needs nothing but a write; the preferred leader is then another.
	c.reassign(id, mes[4], 3, 4)
	c.wantRecord(id, 4, 2, brokers{3, 4}, brokers{})
	change, err := control.ElectPreferred(c.image, mustEntry(c, id), mes[1])
	if err != nil {
		t.Fatal(err)
	}
	c.commit(change.Plan)
	c.wantRecord(id, 3, 3, brokers{3, 4}, brokers{})
	_, err = control.ElectPreferred(c.image, mustEntry(c, id), mes[1])
	wantError(t, err, control.ErrElectionNotNeeded)
}

// A reassignment that ends at once, with another leader, holds only while that one is
// registered as it was: else nobody would lead until the controller has looked.
func TestReassignElectsWhoIsThere(t *testing.T) {
	c, leases, mes, id, _ := fourth(t)
	plan, ok, err := control.Reassign(c.image, mustEntry(c, id), brokers{2, 3}, mes[3])
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	c.end(leases, 2)
	c.registerLeased(2)
	c.refused(plan)
}

// A reassignment that takes the place of another one ends without what that one was adding.
func TestReassignInPlaceOfAnother(t *testing.T) {
	c, _, mes, id, _ := fourth(t)
	c.reassign(id, mes[2], 4, 3)
	c.reassign(id, mes[2], 2, 1)
	if r := c.partition(id, 0); !slices.Equal(r.Replicas, brokers{2, 1}) || len(r.Adding)+len(r.Removing) != 0 {
		t.Fatalf("%+v", r)
	}
}

func TestRebalance(t *testing.T) {
	c, leases, mes, id, boss := fourth(t)
	c.end(leases, 1)
	c.settleAll(boss, control.Policy{})
	mes[1], leases[1] = c.registerLeased(1)
	rebalance := func(percent int) int {
		changes, plans := control.Rebalance(c.image, percent, boss, limits)
		c.commit(plans...)
		return len(changes)
	}
	if rebalance(10) != 0 {
		t.Fatal("1 is not in sync yet")
	}
	c.update(id, mes[2], func(r *meta.PartitionRecord) { r.ISR = append(r.ISR, meta.ISRMember{ID: 1, BrokerEpoch: mes[1].Epoch}) })
	if rebalance(100) != 0 || rebalance(10) != 1 {
		t.Fatal("all of 1's partitions are led elsewhere: more than 10 %, not more than 100 %")
	}
	c.wantRecord(id, 1, 2, brokers{1, 2, 3}, brokers{})
}

// TestRacks: no rack holds two replicas of a partition while another holds none.
func TestRacks(t *testing.T) {
	c := newCluster(t)
	racks := map[types.BrokerID]string{1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 6: "c"}
	var me control.Me
	for id := types.BrokerID(1); id <= 6; id++ {
		me = c.register(id, func(b *meta.BrokerRecord) { b.Rack = racks[id] })
	}
	r := topicRequest("a", 60, 3)
	r.MinISR = 1
	topic := c.create(me, r)
	led := make(map[types.BrokerID]int)
	for p := range c.image.PartitionsOf(topic.ID) {
		seen := make(map[string]bool)
		for _, b := range p.Record.Replicas {
			if seen[racks[b]] {
				t.Fatalf("partition %d on %v: rack %s twice", p.ID.Number, p.Record.Replicas, racks[b])
			}
			seen[racks[b]] = true
		}
		led[p.Record.Leader]++
	}
	for id, n := range led {
		if n != 10 {
			t.Errorf("broker %d leads %d of 60", id, n)
		}
	}
	moves, left, err := control.Evacuate(c.image, 6)
	if err != nil || left != 60 || len(moves) != 60 {
		t.Fatalf("%d moves, %d left, %v: broker 6 is its rack's only one", len(moves), left, err)
	}
	for _, m := range moves {
		if slices.Contains(m.Target, 6) || len(m.Target) != 3 {
			t.Fatalf("%+v", m)
		}
	}
	small := newCluster(t)
	me = small.register(1)
	small.create(me, topicRequest("b", 1, 1))
	_, _, err = control.Evacuate(small.image, 1)
	wantError(t, err, control.ErrInvalidReplication)
	_, _, err = control.Evacuate(small.image, 9)
	wantError(t, err, control.ErrUnknownNode)
	small.register(2)
	if _, left, err = control.Evacuate(small.image, 2); left != 0 || err != nil {
		t.Errorf("a broker without a replica: %d left, %v", left, err)
	}
}

// TestRebootedReplica (G13): an entry that was proposed for a registration that
// has ended since makes nobody electable, and goes.
func TestRebootedReplica(t *testing.T) {
	c, leases, mes, id, boss := fourth(t)
	c.update(id, mes[1], func(r *meta.PartitionRecord) { r.ISR, r.MinISR = r.ISR[:1], 1 })
	late := meta.ISRMember{ID: 2, BrokerEpoch: mes[2].Epoch}
	c.register(2) // without the mark: it may have lost its tail
	c.update(id, mes[1], func(r *meta.PartitionRecord) { r.ISR = append(r.ISR, late) })
	c.end(leases, 1)
	if changes := c.settleAll(boss, control.Policy{}); len(changes) != 0 {
		t.Fatalf("%+v: 2 came back without the mark", changes)
	}
	mes[1] = c.register(1, func(b *meta.BrokerRecord) { b.CleanShutdownEpoch = mes[1].Epoch })
	c.settleAll(boss, control.Policy{})
	c.wantRecord(id, 1, 1, brokers{1}, brokers{})
}

// BenchmarkSettle10000 is what the loss of a broker of three costs the
// controller: 10,000 partitions, of which it led a third.
func BenchmarkSettle10000(b *testing.B) {
	t := &testing.T{}
	c := newCluster(t)
	leases := make(map[types.BrokerID]meta.LeaseID)
	mes := make(map[types.BrokerID]control.Me)
	for id := types.BrokerID(1); id <= 4; id++ {
		mes[id], leases[id] = c.registerLeased(id)
	}
	c.create(mes[4], topicRequest("a", 10_000, 3))
	boss := c.office(mes[4], leases[4])
	for b.Loop() {
		if changes, _ := control.SettleAll(c.image, c.image.Partitions(), control.Policy{}, boss, limits); len(changes) != 0 {
			b.Fatalf("%d changes", len(changes))
		}
	}
	from := time.Now()
	c.end(leases, 1)
	changes, plans := control.SettleAll(c.image, c.image.Partitions(), control.Policy{}, boss, control.Limits{Ops: 2048})
	b.ReportMetric(float64(time.Since(from).Microseconds())/1000, "ms/loss")
	b.ReportMetric(float64(len(changes)), "changes")
	b.ReportMetric(float64(len(plans)), "transactions")
}
