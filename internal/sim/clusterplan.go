package sim

import (
	"fmt"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
)

// clusterActions are those of the system of brokers.
var clusterActions actionKinds[*cluster]

func init() {
	clusterActions = actionKinds[*cluster]{
		{"write", 120, (*cluster).write},
		{"read", 60, (*cluster).read},
		{"crash", 2, (*cluster).crashOne},
		{"crash-in-write", 3, (*cluster).crashInWrite},
		{"crash-all", 0.3, (*cluster).crashAll},
		{"restart-cleanly", 1, (*cluster).restartCleanly},
		{"cut-link", 3, (*cluster).cutLink},
		{"cut-store", 2, (*cluster).cutStore},
		{"store-down", 0.5, (*cluster).storeDown},
		{"hold-watch", 1, (*cluster).holdWatch},
		{"expire-lease", 1, (*cluster).expireLease},
		{"disk-full", 0.5, (*cluster).diskFull},
		{"disk-error", 0.7, (*cluster).diskError},
		{"clock-jump", 0.5, (*cluster).clockJump},
		{"elect-preferred", 2, (*cluster).electPreferred},
		{"elect-unclean", 0.5, (*cluster).electUnclean},
		{"reassign", 1, (*cluster).reassign},
		{"min-isr", 0.7, (*cluster).changeMinISR},
		{"recreate", 0.15, (*cluster).recreate},
		{"crash-pair", 0.5, (*cluster).crashPair},
		{"crash-leader", 1, (*cluster).crashLeader},
		{"group-leave", 2, (*cluster).groupLeave},
		{"group-pause", 2, (*cluster).groupPause},
		{"crash-coordinator", 1, (*cluster).crashCoordinator},
		{"delete-records", 3, (*cluster).deleteRecords},
		{"backup", 0.6, (*cluster).takeBackup},
		{"restore", 0.2, (*cluster).restore},
		// Those without a rate are of profiles that name them.
		{"txn-die", 0, (*cluster).txnDie},
		{"txn-second", 0, (*cluster).txnSecond},
		{"txn-pause", 0, (*cluster).txnPause},
		{"txn-late", 0, (*cluster).txnLate},
		{"crash-txns", 0, (*cluster).crashTxns},
		{"consumer-leave", 0, (*cluster).consumerLeave},
		{"consumer-pause", 0, (*cluster).consumerPause},
		{"consumer-die", 0, (*cluster).consumerDie},
	}
}

func (c *cluster) act(kind string, d dice) string { return clusterActions.act(c, kind, d) }

func (c *cluster) write(d dice) string {
	l := c.lanes[d.IntN(len(c.lanes))]
	if len(l.queue) > 4 {
		return ""
	}
	n := 1 + d.IntN(3)
	l.write(n)
	return fmt.Sprintf("%s (acks %d) writes %d records", l.who(), l.acks, n)
}

func (c *cluster) read(d dice) string {
	if len(c.readers) > 0 {
		c.readers[d.IntN(len(c.readers))].poll()
	}
	return ""
}

func (c *cluster) crashOne(d dice) string { return c.anyMachine(d).crashed() }

// crashed crashes a machine and says which, "" if there is none or nothing runs there.
func (m *machine) crashed() string {
	if m == nil || !m.up() {
		return ""
	}
	m.crash()
	return m.name
}

func (c *cluster) crashInWrite(d dice) string {
	m := c.anyMachine(d)
	if !m.up() {
		return ""
	}
	m.disk.crashIn = d.IntN(pick(d, 3, 20, 100))
	return fmt.Sprintf("%s after %d more changes of its disk", m.name, m.disk.crashIn)
}

// leading is the machine that the store says leads a partition, nil if none does.
func (c *cluster) leading(d dice) *machine {
	id, ok := c.anyPartition(d)
	if r := c.check.ledger(id).record; ok && r != nil {
		return c.machine(r.Leader)
	}
	return nil
}

func (c *cluster) crashLeader(d dice) string { return c.leading(d).crashed() }

// crashPair stops a leader and another broker at the same moment.
func (c *cluster) crashPair(d dice) string {
	a, b := c.leading(d), c.anyMachine(d)
	if a == nil || a == b || !a.up() || !b.up() {
		return ""
	}
	a.crash()
	b.crash()
	return a.name + " and " + b.name
}

func (c *cluster) crashAll(dice) string {
	for _, m := range c.machines {
		m.crash()
	}
	return "all brokers at once"
}

func (c *cluster) restartCleanly(d dice) string {
	m := c.anyMachine(d)
	if !m.shutDown(d.between(50*time.Millisecond, 3*time.Second)) {
		return ""
	}
	return m.name + " is stopped and started"
}

// cutLink cuts the link between two brokers, or between a broker and clients, in one direction or both.
func (c *cluster) cutLink(d dice) string {
	a, b := c.anyMachine(d), c.anyMachine(d)
	if a == b {
		return ""
	}
	return c.cut(d, a.name, b.name)
}

func (c *cluster) cutStore(d dice) string { return c.cut(d, c.anyMachine(d).name, c.storeName()) }

func (c *cluster) cut(d dice, a, b string) string {
	return fmt.Sprintf("%s and %s %s", a, b, c.net.sever(d, 12*time.Second, []string{a}, []string{b}))
}

func (c *cluster) storeDown(d dice) string {
	if c.storeIsDown {
		return ""
	}
	span := d.between(200*time.Millisecond, 10*time.Second)
	c.storeIsDown = true
	c.store.SetDown(true)
	c.k.after(span, "store is back", func() {
		c.storeIsDown = false
		c.store.SetDown(false)
		c.pokeAll()
	})
	return fmt.Sprintf("for %v", span.Round(time.Millisecond))
}

// pokeAll has every watch look.
func (c *cluster) pokeAll() {
	c.storeChanged()
	for _, m := range c.machines {
		if m.link != nil {
			m.link.poke()
		}
	}
}

func (c *cluster) holdWatch(d dice) string {
	if c.storeIsDown {
		return ""
	}
	span := d.between(100*time.Millisecond, 5*time.Second)
	c.store.HoldWatches(true)
	if d.chance(0.2) {
		c.forgetPast()
	}
	c.k.after(span, "watch goes on", func() {
		if !c.storeIsDown {
			c.store.HoldWatches(false)
			c.pokeAll()
		}
	})
	return fmt.Sprintf("for %v", span.Round(time.Millisecond))
}

func (c *cluster) expireLease(d dice) string {
	m := c.anyMachine(d)
	if !m.up() || m.node.Lease() == 0 {
		return ""
	}
	if seen := c.check.leaseOf[m.id]; seen != nil {
		delete(c.check.leaseOf, m.id) // it ends before its time: no clock can know
	}
	c.store.ExpireLease(m.node.Lease())
	c.storeChanged()
	return "the registration of " + m.name + " ends"
}

func (c *cluster) diskFull(d dice) string {
	m := c.anyMachine(d)
	span, room := d.between(500*time.Millisecond, 15*time.Second), int64(d.IntN(3000))
	m.mem.SetCapacity(0)
	m.mem.SetCapacity(used(m.mem, "/") + room)
	c.k.probe("disk: full")
	c.k.after(span, "disk has room", func() { m.mem.SetCapacity(0) })
	return fmt.Sprintf("%s: %d bytes are left for %v", m.name, room, span.Round(time.Millisecond))
}

func (c *cluster) diskError(d dice) string {
	m := c.anyMachine(d)
	if !m.up() {
		return ""
	}
	k := m.disk
	k.failKinds = pick(d, opSync, opSyncDir, opWrite, opRename, opCreate|opRemove, opTruncate|opLink)
	k.failIn, k.failLate = d.IntN(pick(d, 2, 20)), d.chance(0.3)
	return fmt.Sprintf("%s: the %d. operation of kinds %b from now fails", m.name, k.failIn+1, k.failKinds)
}

func (c *cluster) clockJump(d dice) string {
	m := c.anyMachine(d)
	by := time.Duration(d.Int64N(int64(4*time.Hour))) - 2*time.Hour
	m.wall.offset += by
	return fmt.Sprintf("the wall clock of %s by %v", m.name, by.Round(time.Second))
}

// anyPartition picks a partition of the present topic, or now and then of the
// offsets; false if there is none.
func (c *cluster) anyPartition(d dice) (meta.PartitionID, bool) {
	if c.o.hasGroups() && d.chance(0.3) {
		return meta.PartitionID{Topic: c.offsetsTopic, Number: int32(d.IntN(offsetsPartitions))}, c.check.hasOffsets
	}
	if c.txns != nil && d.chance(0.4) {
		return meta.PartitionID{Topic: c.txns.topic, Number: int32(d.IntN(txnPartitions))}, c.check.hasTxns
	}
	n := int32(d.IntN(c.o.Partitions))
	return meta.PartitionID{Topic: c.topic, Number: n}, !c.topic.IsZero()
}

func (c *cluster) electPreferred(d dice) string { return c.elect(d, false) }

func (c *cluster) electUnclean(d dice) string { return c.elect(d, true) }

func (c *cluster) elect(d dice, unclean bool) string {
	id, ok := c.anyPartition(d)
	if !ok {
		return ""
	}
	return c.electFor(d, id, unclean)
}

// electFor is the operator who asks for an election.
func (c *cluster) electFor(d dice, id meta.PartitionID, unclean bool) string {
	what := fmt.Sprintf("elect (unclean %v) for partition %d", unclean, id.Number)
	if !c.operate(d, what, func(m *machine) error {
		ctx, cancel := m.p.WithTimeout(m.node.Context(), 5*time.Second)
		defer cancel()
		return m.node.Cluster().ElectLeaders(ctx, []meta.PartitionID{id}, unclean)[0]
	}) {
		return ""
	}
	return what
}

func (c *cluster) reassign(d dice) string {
	id, ok := c.anyPartition(d)
	var all []types.BrokerID
	for _, m := range c.machines {
		all = append(all, m.id)
	}
	d.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	target := all[:c.o.Replicas]
	if d.chance(0.1) {
		target = nil // take it back
	}
	what := fmt.Sprintf("reassign partition %d to %v", id.Number, target)
	if !ok || !c.operate(d, what, func(m *machine) error {
		return m.node.Cluster().Reassign(m.node.Context(), []api.Reassignment{{Partition: id, Replicas: target}})[0]
	}) {
		return ""
	}
	return what
}

// changeMinISR alters min.insync.replicas of the topic.
func (c *cluster) changeMinISR(d dice) string {
	topic, n := c.topic, 1+d.IntN(c.o.Replicas)
	if c.mutation.keepsELR {
		return c.lowerMinISR()
	}
	what := fmt.Sprintf("min.insync.replicas := %d", n)
	if topic.IsZero() || !c.operate(d, what, func(m *machine) error { return c.setMinISR(m, topic, n) }) {
		return ""
	}
	return what
}

func (c *cluster) setMinISR(m *machine, topic types.TopicID, n int) error {
	configs := c.o.topicConfigs()
	configs["min.insync.replicas"] = fmt.Sprint(n)
	return m.node.Plan(func(i *meta.Image) ([]meta.Plan, error) {
		if _, ok := i.Topic(topic); !ok {
			return nil, nil
		}
		return control.AlterTopicConfigs(i, topic, configs, n, m.node.Me(), m.node.Limits())
	})
}

// lowerMinISR is the mutation of R12: the field changes and the ELR stays.
func (c *cluster) lowerMinISR() string {
	out := ""
	for n := range int32(c.o.Partitions) {
		key := meta.KeysOf("cluster").Partition(c.topic, n)
		kv, _, err := c.store.Get(background, key)
		if err != nil || kv.ModRevision == 0 {
			continue
		}
		rec, err := meta.DecodePartition(key, kv.Value)
		if err != nil || len(rec.ELR) == 0 || rec.MinISR == 1 {
			continue
		}
		next := rec.Clone()
		next.MinISR = 1
		_, err = c.store.Txn(background, metastore.Txn{If: []meta.Compare{meta.ModRevisionIs(key, kv.ModRevision)}, Then: []meta.Op{meta.Put(key, next.Encode())}})
		if err == nil {
			out = "min ISR := 1, the ELR stays"
		}
	}
	c.storeChanged()
	return out
}

// recreate deletes the topic and makes it anew.
func (c *cluster) recreate(d dice) string {
	topic := c.topic
	if topic.IsZero() || c.wantTopic != topic {
		return ""
	}
	if !c.operate(d, "delete the topic", func(m *machine) error {
		return m.node.Plan(func(i *meta.Image) ([]meta.Plan, error) {
			if _, ok := i.Topic(topic); !ok {
				return nil, nil
			}
			p, err := control.DeleteTopic(i, topic, m.node.Me())
			return []meta.Plan{p}, err
		})
	}) {
		return ""
	}
	c.k.probe("operator: topic made again")
	c.wantTopic = types.TopicID{}
	c.orderTopic()
	return "the topic is deleted and made again"
}
