package control_test

import (
	"math"
	"slices"
	"testing"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// TestElectAfterRestart (R10): a broker that came back leads nothing until it
// is elected anew, and every election raises the leader epoch.
func TestElectAfterRestart(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	c.create(me, topicRequest("a", 250, 1))
	c.create(me, topicRequest("b", 3, 1))
	if elections, plans := control.ElectAll(c.image, 1, nil, me, limits); len(elections) != 0 || len(plans) != 0 {
		t.Fatalf("%d elections although it leads everything", len(elections))
	}
	f := func(kind control.ElectionKind, change func(*meta.BrokerRecord)) {
		t.Helper()
		before := c.partition(topicRequest("a", 0, 0).ID, 0)
		me = c.register(1, change)
		for p := range c.image.Partitions() {
			if !control.NeedsLeader(c.image, p.Record) {
				t.Fatal("it leads in its new registration without an election")
			}
		}
		elections, plans := control.ElectAll(c.image, 1, nil, me, limits)
		if len(elections) != 253 || len(plans) != 3 {
			t.Fatalf("%d elections in %d plans", len(elections), len(plans))
		}
		c.commit(plans...)
		for p := range c.image.Partitions() {
			r := p.Record
			if r.Leader != 1 || r.LeaderBrokerEpoch != me.Epoch || r.LeaderEpoch != before.LeaderEpoch+1 || !slices.Equal(r.ISR, []meta.ISRMember{{ID: 1, BrokerEpoch: me.Epoch}}) {
				t.Fatalf("partition %d: %+v", p.ID.Number, r)
			}
		}
		for _, e := range elections {
			if e.Kind != kind {
				t.Fatalf("elected as %s, want %s", e.Kind, kind)
			}
		}
	}
	f(control.ElectedInSync, func(r *meta.BrokerRecord) { r.CleanShutdownEpoch = me.Epoch })
	f(control.ElectedSole, func(r *meta.BrokerRecord) {})
	// A clean mark of an older registration is none for the present entry.
	old := me.Epoch - 1
	f(control.ElectedSole, func(r *meta.BrokerRecord) { r.CleanShutdownEpoch = old })
}

// three is a topic of one partition on brokers 1, 2, 3, led by 1, with min ISR 2.
func three(t *testing.T) (c *cluster, leases map[types.BrokerID]meta.LeaseID, mes map[types.BrokerID]control.Me, id types.TopicID) {
	c = newCluster(t)
	leases, mes = make(map[types.BrokerID]meta.LeaseID), make(map[types.BrokerID]control.Me)
	for n := range types.BrokerID(3) {
		mes[n+1], leases[n+1] = c.registerLeased(n + 1)
	}
	r := topicRequest("a", 1, 0)
	r.Assignment, r.MinISR = [][]types.BrokerID{{1, 2, 3}}, 2
	return c, leases, mes, c.create(mes[1], r).ID
}

func (c *cluster) update(id types.TopicID, me control.Me, change func(*meta.PartitionRecord)) {
	c.t.Helper()
	next := c.partition(id, 0).Clone()
	change(&next)
	plan, err := control.UpdatePartition(c.image, id, 0, next, me)
	if err != nil {
		c.t.Fatal(err)
	}
	c.commit(plan)
}

func (c *cluster) elect(id types.TopicID, candidate types.BrokerID, unclean bool, me control.Me) (control.Election, bool) {
	c.t.Helper()
	e, ok, err := control.Elect(c.image, id, 0, candidate, unclean, me)
	if err != nil {
		c.t.Fatal(err)
	}
	if ok {
		c.commit(e.Plan)
	}
	return e, ok
}

func (c *cluster) end(leases map[types.BrokerID]meta.LeaseID, ids ...types.BrokerID) {
	for _, id := range ids {
		c.store.ExpireLease(leases[id])
	}
	c.sync()
}

func TestElectInSync(t *testing.T) {
	c, leases, mes, id := three(t)
	c.end(leases, 1)
	e, ok := c.elect(id, 2, false, mes[3])
	r := c.partition(id, 0)
	if !ok || e.Kind != control.ElectedInSync || r.Leader != 2 || r.LeaderBrokerEpoch != mes[2].Epoch || r.LeaderEpoch != 1 {
		t.Fatalf("%+v, %+v", e, r)
	}
	// 1 is out of the ISR, which is still large enough: nobody is eligible besides it.
	if !slices.Equal(r.ISRIDs(), []types.BrokerID{2, 3}) || len(r.ELR) != 0 {
		t.Fatalf("ISR %v, ELR %v", r.ISR, r.ELR)
	}
	if _, ok := c.elect(id, 2, false, mes[3]); ok {
		t.Fatal("elected although it leads")
	}
}

// TestElectEligible: what falls out below min ISR stays eligible, with the
// broker epoch of its entry (R11, R15).
func TestElectEligible(t *testing.T) {
	c, leases, mes, id := three(t)
	c.end(leases, 1, 2)
	if _, ok := c.elect(id, 3, false, mes[3]); !ok {
		t.Fatal("3 is in the ISR")
	}
	r := c.partition(id, 0)
	if !slices.Equal(r.ISRIDs(), []types.BrokerID{3}) || !slices.Equal(r.ELRIDs(), []types.BrokerID{1, 2}) {
		t.Fatalf("ISR %v, ELR %v", r.ISR, r.ELR)
	}
	entry := r.ELR[1]
	// Everybody stops. 2 comes back after an unclean stop, 1 after a clean one.
	c.end(leases, 3)
	mes[2], leases[2] = c.registerLeased(2)
	if _, ok := c.elect(id, 2, false, mes[2]); ok {
		t.Fatal("2 stopped uncleanly and was elected")
	}
	mes[1], leases[1] = c.registerLeased(1, func(b *meta.BrokerRecord) { b.CleanShutdownEpoch = mes[1].Epoch })
	e, ok := c.elect(id, 1, false, mes[1])
	r = c.partition(id, 0)
	if !ok || e.Kind != control.ElectedEligible || r.LeaderBrokerEpoch != mes[1].Epoch {
		t.Fatalf("%+v, %+v", e, r)
	}
	// 3 was in the ISR and is gone: alone below min ISR, 1 leaves it eligible. 2's
	// unclean stop has ended its entry for good.
	if !slices.Equal(r.ISRIDs(), []types.BrokerID{1}) || slices.Contains(r.ELR, entry) || !slices.Equal(r.ELRIDs(), []types.BrokerID{3}) {
		t.Fatalf("ISR %v, ELR %v", r.ISR, r.ELR)
	}
}

// TestUncleanElection: a replica that may lack records leads only if that is allowed, and alone.
func TestUncleanElection(t *testing.T) {
	c, leases, mes, id := three(t)
	c.update(id, mes[1], func(r *meta.PartitionRecord) { r.ISR, r.MinISR = r.ISR[:1], 1 })
	c.end(leases, 1)
	if _, ok := c.elect(id, 2, false, mes[2]); ok {
		t.Fatal("2 is not in sync and was elected")
	}
	e, ok := c.elect(id, 2, true, mes[2])
	r := c.partition(id, 0)
	if !ok || e.Kind != control.ElectedUnclean || !slices.Equal(r.ISR, []meta.ISRMember{{ID: 2, BrokerEpoch: mes[2].Epoch}}) || len(r.ELR) != 0 || r.LeaderEpoch != 1 {
		t.Fatalf("%+v, %+v", e, r)
	}
	c.end(leases, 2)
	_, ok, err := control.Elect(c.image, id, 0, 2, true, mes[3])
	if ok || err != nil {
		t.Fatalf("2 is not registered: elected %v, %v", ok, err)
	}
	c.register(4)
	if _, ok := c.elect(id, 4, true, mes[3]); ok {
		t.Fatal("4 is no replica and was elected")
	}
}

// TestSimultaneousUncleanStop: when all of ISR and ELR stopped uncleanly the
// partition is unavailable, not wrong.
func TestSimultaneousUncleanStop(t *testing.T) {
	c, leases, mes, id := three(t)
	c.end(leases, 1, 2, 3)
	for n := range types.BrokerID(3) {
		mes[n+1] = c.register(n + 1)
	}
	for n := range types.BrokerID(3) {
		if elections, _ := control.ElectAll(c.image, n+1, nil, mes[n+1], limits); len(elections) != 0 {
			t.Fatalf("%d was elected as %s", n+1, elections[0].Kind)
		}
	}
	elections, plans := control.ElectAll(c.image, 2, func(topic *meta.Topic) bool { return topic.Record.Name == "a" }, mes[2], limits)
	if len(elections) != 1 || elections[0].Kind != control.ElectedUnclean {
		t.Fatalf("%+v", elections)
	}
	c.commit(plans...)
	if control.NeedsLeader(c.image, c.partition(id, 0)) {
		t.Fatal("nobody leads")
	}
}

// TestElectionComparesCandidate: an election decided for a registration that
// has ended since is refused.
func TestElectionComparesCandidate(t *testing.T) {
	c, leases, mes, id := three(t)
	c.end(leases, 1)
	e, ok, err := control.Elect(c.image, id, 0, 2, false, mes[3])
	if !ok || err != nil {
		t.Fatal(err)
	}
	c.end(leases, 2)
	c.refused(e.Plan)
}

func TestElectRefuses(t *testing.T) {
	c, leases, mes, id := three(t)
	c.update(id, mes[1], func(r *meta.PartitionRecord) { r.LeaderEpoch = math.MaxInt32 })
	c.end(leases, 1)
	_, _, err := control.Elect(c.image, id, 0, 2, false, mes[3])
	wantError(t, err, control.ErrLeaderEpochExhausted)
	_, _, err = control.Elect(c.image, id, 7, 2, false, mes[3])
	wantError(t, err, control.ErrUnknownPartition)
	_, _, err = control.Elect(c.image, id, 0, 2, false, control.Me{ID: 1})
	wantError(t, err, control.ErrNotRegistered)
	c.commit(meta.Plan{Why: "damage", Then: []meta.Op{meta.Put(c.image.Keys().Partition(id, 0), []byte("{"))}})
	_, _, err = control.Elect(c.image, id, 0, 2, false, mes[3])
	wantError(t, err, control.ErrUnreadable)
	if elections, _ := control.ElectAll(c.image, 2, nil, mes[2], limits); len(elections) != 0 {
		t.Fatal("elected for a partition that can't be read")
	}
}
