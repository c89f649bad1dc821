package control_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/mem"
)

// electionModel is one partition on three brokers whose logs are numbers: how
// many committed records each one holds. Whatever the order of stops, losses,
// joins and elections, a leader that was elected cleanly holds all of them.
type electionModel struct {
	c         *cluster
	id        types.TopicID
	up        map[types.BrokerID]control.Me
	leases    map[types.BrokerID]meta.LeaseID
	mark      map[types.BrokerID]types.BrokerEpoch // the clean-shutdown mark on its disk
	holds     map[types.BrokerID]int
	committed int
}

const modelBrokers = 3

func newElectionModel(t *testing.T) *electionModel {
	c := &cluster{t: t, store: mem.New(), image: meta.Empty("c1")}
	c.watch = c.store.NewWatcher(context.Background(), c.image.Keys().Root(), 0)
	m := &electionModel{
		c: c, up: make(map[types.BrokerID]control.Me), leases: make(map[types.BrokerID]meta.LeaseID),
		mark: make(map[types.BrokerID]types.BrokerEpoch), holds: make(map[types.BrokerID]int),
	}
	for id := types.BrokerID(1); id <= modelBrokers; id++ {
		m.mark[id] = types.NoBrokerEpoch
		m.start(id)
	}
	r := topicRequest("a", 1, 0)
	r.Assignment, r.MinISR = [][]types.BrokerID{{1, 2, 3}}, 2
	m.id = c.create(m.up[1], r).ID
	return m
}

func (m *electionModel) start(id types.BrokerID) {
	if _, running := m.up[id]; running {
		return
	}
	record := broker(id)
	record.CleanShutdownEpoch = m.mark[id]
	m.mark[id] = types.NoBrokerEpoch // taken by the start
	m.leases[id], _ = m.c.store.Grant(context.Background(), time.Minute)
	plans, err := control.RegisterBroker(m.c.image, record, m.leases[id])
	if err != nil {
		m.c.t.Fatal(err)
	}
	m.c.commit(plans...)
	epoch, _ := m.c.image.BrokerEpoch(id)
	m.up[id] = control.Me{ID: id, Epoch: epoch}
}

// stop ends a broker: in order, with its mark, or losing what it had not synced.
func (m *electionModel) stop(id types.BrokerID, clean bool, lost int) {
	me, running := m.up[id]
	if !running {
		return
	}
	if clean {
		m.mark[id] = me.Epoch
	} else {
		m.holds[id] -= min(lost, m.holds[id])
	}
	delete(m.up, id)
	m.c.store.ExpireLease(m.leases[id])
	m.c.sync()
}

// leader gives the broker that leads now (R10).
func (m *electionModel) leader() (control.Me, *meta.PartitionRecord, bool) {
	r := m.c.partition(m.id, 0)
	me, running := m.up[r.Leader]
	return me, r, running && me.Epoch == r.LeaderBrokerEpoch
}

// produce commits a record if the leader may: min ISR, and every member of the ISR answers.
func (m *electionModel) produce() {
	_, r, ok := m.leader()
	if !ok || len(r.ISR) < r.MinISRNow() {
		return
	}
	for _, member := range r.ISR {
		if me, running := m.up[member.ID]; !running || me.Epoch != member.BrokerEpoch {
			return
		}
	}
	m.committed++
	for _, member := range r.ISR {
		m.holds[member.ID] = m.committed
	}
}

// join has a follower catch up and the leader take it into the ISR (R15).
func (m *electionModel) join(id types.BrokerID) {
	me, r, ok := m.leader()
	follower, running := m.up[id]
	if !ok || !running || r.InISR(id) {
		return
	}
	if b, _ := m.c.image.Broker(id); b.Record.Draining {
		return
	}
	m.holds[id] = m.holds[me.ID]
	m.propose(me, func(next *meta.PartitionRecord) {
		next.ISR = append(next.ISR, meta.ISRMember{ID: id, BrokerEpoch: follower.Epoch})
		next.ELR = slices.DeleteFunc(next.ELR, func(e meta.ISRMember) bool { return e.ID == id })
		if len(next.ISR) >= next.MinISRNow() {
			next.ELR = nil
		}
	})
}

// lag has the leader take a follower out (R15).
func (m *electionModel) lag(id types.BrokerID) {
	me, r, ok := m.leader()
	i := slices.IndexFunc(r.ISR, func(e meta.ISRMember) bool { return e.ID == id })
	if !ok || id == me.ID || i < 0 {
		return
	}
	m.propose(me, func(next *meta.PartitionRecord) {
		out := next.ISR[i]
		next.ISR = slices.Delete(next.ISR, i, i+1)
		if len(next.ISR) < next.MinISRNow() {
			next.ELR = append(next.ELR, out)
		}
	})
}

func (m *electionModel) propose(me control.Me, change func(*meta.PartitionRecord)) {
	m.c.update(m.id, me, change)
}

func (m *electionModel) drain(id types.BrokerID) {
	me, running := m.up[id]
	if !running {
		return
	}
	plan, err := control.Drain(m.c.image, me, m.leases[id])
	if err != nil {
		m.c.t.Fatal(err)
	}
	m.c.commit(plan)
}

// settle is the controller's turn, on any broker that lives.
func (m *electionModel) settle(t *rapid.T) {
	for id, me := range m.up {
		plans, free, err := control.TakeOffice(m.c.image, me, m.leases[id])
		if err != nil {
			t.Fatal(err)
		}
		if free {
			m.c.commit(plans...)
		}
	}
	for _, me := range m.up {
		boss, ok := control.InOffice(m.c.image, me)
		if !ok {
			continue
		}
		for _, change := range m.c.settleAll(boss, control.Policy{}) {
			if change.Kind != "" && m.holds[change.Record.Leader] < m.committed {
				t.Fatalf("broker %d is elected as %s and holds %d of %d committed records: %+v after %+v",
					change.Record.Leader, change.Kind, m.holds[change.Record.Leader], m.committed, change.Record, *change.Old)
			}
		}
		if more := m.c.settleAll(boss, control.Policy{}); len(more) > 0 {
			t.Fatalf("settled twice: %+v", more)
		}
		m.checkSettled(t)
	}
}

// checkSettled: somebody leads if anybody holds everything and is there, and
// nobody else is in the ISR but who is there and stays.
func (m *electionModel) checkSettled(t *rapid.T) {
	_, r, led := m.leader()
	for _, e := range slices.Concat(r.ISR, r.ELR) {
		b, registered := m.c.image.Broker(e.ID)
		if !registered {
			if led && r.InISR(e.ID) {
				t.Fatalf("broker %d is gone and in the ISR: %+v", e.ID, *r)
			}
			continue
		}
		asThen := types.BrokerEpoch(b.CreateRevision) == e.BrokerEpoch
		switch {
		case !led && (asThen || b.Record.CleanShutdownEpoch == e.BrokerEpoch):
			t.Fatalf("nobody leads although broker %d could: %+v", e.ID, *r)
		case led && r.InISR(e.ID) && e.ID != r.Leader && (!asThen || b.Record.Draining):
			t.Fatalf("broker %d is in the ISR and came back or leaves: %+v", e.ID, *r)
		}
	}
}

// TestElectionsKeepCommittedRecords: no order of events elects a leader, cleanly, that lacks a committed record.
func TestElectionsKeepCommittedRecords(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newElectionModel(t)
		anyone := rapid.Int32Range(1, modelBrokers)
		who := func() types.BrokerID { return types.BrokerID(anyone.Draw(rt, "broker")) }
		rt.Repeat(map[string]func(*rapid.T){
			"produce": func(*rapid.T) { m.produce() },
			"crash":   func(rt *rapid.T) { m.stop(who(), false, rapid.IntRange(0, 3).Draw(rt, "lost")) },
			"stop":    func(*rapid.T) { m.stop(who(), true, 0) },
			"start":   func(*rapid.T) { m.start(who()) },
			"join":    func(*rapid.T) { m.join(who()) },
			"lag":     func(*rapid.T) { m.lag(who()) },
			"drain":   func(*rapid.T) { m.drain(who()) },
			"settle":  func(rt *rapid.T) { m.settle(rt) },
		})
		// Everybody starts in order: if an entry is intact, somebody leads.
		for id := types.BrokerID(1); id <= modelBrokers; id++ {
			m.start(id)
		}
		m.settle(rt)
	})
}
