package sim

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/mem"
)

// cluster is a run of one cluster: brokers that replicate, the metadata store,
// clients and operators.
type cluster struct {
	k         *kernel
	o         *ClusterOptions
	mutation  *clusterMutation
	net       *network
	store     *mem.Store
	machines  []*machine
	lanes     []*lane
	readers   []*reader
	members   []*member
	consumers []*consumerMember
	clients   *process  // of readers that use the wire; nil where none does
	txns      *txnWorld // nil: there are no transactions
	check     *judge
	site      // where there are several clusters; the zero value where it is the only one

	storeIsDown   bool
	lastAdvance   time.Duration
	topicsMade    int
	wantTopic     types.TopicID // the present topic's id; zero while it is deleted
	topic         types.TopicID // as the store has it, zero if there is none
	clientWork    sync.WaitGroup
	offsetsTopic  types.TopicID // of __consumer_offsets; zero without groups
	backup        *metadataBackup
	restores      restores
	stopped       bool // no process starts: an operator restores the metadata
	pids          types.ProducerID
	manual        bool // a script starts what has stopped
	healed        bool
	healedAt      time.Duration
	lastPush      time.Duration
	registrations map[string]life // registrations that were sent, by their bytes
	quiet         *slog.Logger
}

// life is one process of a machine.
type life struct {
	m *machine
	n int
}

const clusterTopic = "orders"

func newCluster(seed uint64, o *ClusterOptions, m *Mutation, s *story) *cluster {
	k := newKernel(seed, s)
	k.buggify = o.Buggify
	c := &cluster{k: k, o: o, mutation: m.Cluster, store: mem.New(), pids: 1000, registrations: map[string]life{}}
	if c.mutation == nil {
		c.mutation = &clusterMutation{}
	}
	c.quiet = slog.New(slog.DiscardHandler)
	c.net = newNetwork(k, &o.Messages)
	c.check = newJudge(c)
	c.site = site{id: "cluster"}
	for i := range o.Brokers {
		c.machines = append(c.machines, newMachine(c, types.BrokerID(i+1)))
	}
	for i, m := range c.machines {
		k.after(time.Duration(i)*time.Millisecond, "boot", m.boot)
	}
	if o.Wire {
		c.clients = newProcess(k, "clients", 1)
	}
	for p := range o.Partitions {
		for i := range o.Producers {
			acks := int16(-1)
			if i > 0 && i%2 == 0 {
				acks = 1
			}
			c.lanes = append(c.lanes, newLane(c, i, p, acks))
		}
		for i := range o.Consumers {
			c.readers = append(c.readers, newReader(c, i, p))
		}
	}
	c.advanceStore()
	c.orderTopic()
	c.orderGroups()
	c.orderTxns()
	return c
}

// clusterStepsMost bounds a run: an ordinary one has some ten thousand steps, one
// that takes all of the liveness phase a few hundred thousand.
const clusterStepsMost = 600_000

func (c *cluster) kernel() *kernel { return c.k }

func (c *cluster) bounds() (time.Duration, time.Duration, int) {
	return c.o.Length, c.o.Calm, clusterStepsMost
}

func (c *cluster) end() {
	for _, m := range c.machines {
		if m.p != nil && !m.p.dead {
			m.p.current = nil // the run may have ended inside a task, by what it found there
			m.p.kill()
		}
	}
	if c.clients != nil {
		c.clients.current = nil
		c.clients.kill()
	}
	if c.txns != nil {
		c.txns.p.current = nil
		c.txns.p.kill()
	}
}

func (c *cluster) machine(id types.BrokerID) *machine {
	if id < 1 || int(id) > len(c.machines) {
		return nil
	}
	return c.machines[id-1]
}

func (c *cluster) anyMachine(d dice) *machine { return c.machines[d.IntN(len(c.machines))] }

// advanceStore moves the store's clock now and then, so that leases end of which nobody asks.
func (c *cluster) advanceStore() {
	c.storeNow()
	c.storeChanged()
	c.k.after(250*time.Millisecond, "store clock", c.advanceStore)
}

// storeNow moves the store's clock, by which leases end, to the present moment: a lease that is
// granted or kept alive lives for all of its time from then on, as its holder counts.
func (c *cluster) storeNow() {
	c.store.Advance(c.k.now - c.lastAdvance)
	c.lastAdvance = c.k.now
}

// storeChanged looks at what was written, and has the watches see it.
func (c *cluster) storeChanged() {
	if !c.eye().stored() {
		return
	}
	for _, m := range c.machines {
		if m.p != nil && m.link != nil {
			m.link.poke()
		}
	}
}

// txnFault draws what happens to a transaction at the store.
func (c *cluster) txnFault() mem.Fault {
	d := c.k.dice("transactions")
	if c.net.calm || !d.chance(c.o.TxnFault) {
		return mem.NoFault
	}
	f := []mem.Fault{mem.UnknownApplied, mem.UnknownNotApplied, mem.UnknownLate, mem.Unavailable}[d.IntN(4)]
	c.k.note("store", "a transaction's fate: %s", [...]string{"", "unknown, applied", "unknown, not applied", "unknown, applied late", "unavailable"}[f])
	if f == mem.UnknownLate {
		c.k.after(d.around(2*time.Second), "late transaction", func() {
			if c.store.ReleaseLate() > 0 {
				c.k.probe("store: late transaction applied")
			}
			c.storeChanged()
		})
	}
	return f
}

// image is what some broker that runs believes; nil if none does.
func (c *cluster) image(d dice) *meta.Image {
	m := c.anyMachine(d)
	if !m.serves() {
		return nil
	}
	return m.node.Image()
}

// operate has some broker do an operator's request as a task; said tells the outcome.
func (c *cluster) operate(d dice, what string, do func(m *machine) error) bool {
	at := d.IntN(len(c.machines))
	for i := range c.machines {
		m := c.machines[(at+i)%len(c.machines)]
		if !m.serves() {
			continue
		}
		m.task(func() {
			err := do(m)
			if err != nil {
				c.k.note("operator", "%s: %v", what, err)
			} else {
				c.k.note("operator", "%s: done", what)
			}
		})
		return true
	}
	return false
}

// orderTopic has the topic made, until it is there.
func (c *cluster) orderTopic() {
	d := c.k.dice("topic")
	if c.wantTopic.IsZero() {
		c.topicsMade++
		var id types.TopicID
		for i := range id {
			id[i] = byte(d.IntN(256))
		}
		c.wantTopic = id
	}
	want := c.wantTopic
	c.k.after(200*time.Millisecond, "topic ordered", func() {
		if c.wantTopic != want || c.topic == want {
			return
		}
		c.operate(d, "create the topic", func(m *machine) error { return c.createTopic(m, want) })
		c.k.after(time.Second, "topic ordered", c.orderTopic)
	})
}

func (c *cluster) createTopic(m *machine, id types.TopicID) error {
	assignment := make([][]types.BrokerID, c.o.Partitions)
	for p := range assignment {
		for i := range c.o.Replicas {
			assignment[p] = append(assignment[p], types.BrokerID((p+i)%c.o.Brokers+1))
		}
	}
	r := control.CreateTopicRequest{
		Name: clusterTopic, ID: id, Partitions: int32(c.o.Partitions), ReplicationFactor: c.o.Replicas, Assignment: assignment,
		Configs: c.o.topicConfigs(), MinISR: c.o.MinISR, TimelineID: "timeline-" + id.String(),
	}
	return m.node.Plan(func(i *meta.Image) ([]meta.Plan, error) {
		switch t, ok := i.TopicByName(clusterTopic); {
		case ok && t.ID == id:
			return nil, nil
		case ok: // its deletion came to nothing
			p, err := control.DeleteTopic(i, t.ID, m.node.Me())
			return []meta.Plan{p}, err
		}
		return control.CreateTopic(i, r, m.node.Me(), m.node.Limits())
	})
}

// heal ends all faults.
func (c *cluster) heal() {
	c.k.note("PLAN", "all faults end")
	c.healed, c.healedAt = true, c.k.now
	c.net.calm = true
	clear(c.net.cut)
	c.k.buggify = false
	c.storeIsDown = false
	c.store.SetDown(false)
	c.store.HoldWatches(false)
	c.store.ReleaseLate()
	for _, m := range c.machines {
		m.heal()
	}
	for _, g := range c.members {
		if g.away {
			g.back()
		}
	}
	for _, g := range c.consumers {
		g.back()
	}
	c.raiseVaults()
	if c.txns != nil {
		c.txns.heal()
	}
	if c.wantTopic.IsZero() {
		c.orderTopic()
	}
	c.storeChanged()
	c.push()
}

// push has clients go on after the faults: a record and a read each, now and then, and
// an operator who elects where only that helps.
func (c *cluster) push() {
	for _, l := range c.lanes {
		if len(l.queue) == 0 {
			l.write(1)
		}
	}
	for _, r := range c.readers {
		r.poll()
	}
	c.electStuck()
	c.k.after(2*time.Second, "clients go on", c.push)
}

// electStuck is the operator who allows an unclean election where all replicas are back and none may lead (R11).
func (c *cluster) electStuck() {
	if c.k.now-c.healedAt < 20*time.Second {
		return
	}
	image := c.image(c.k.dice("heal"))
	if image == nil {
		return
	}
	for p := range image.Partitions() {
		if p.Record != nil && control.NeedsLeader(image, p.Record) && !p.Record.UncleanOnce {
			c.k.probe("operator: unclean election after the faults")
			id := p.ID
			c.operate(c.k.dice("heal"), fmt.Sprintf("elect uncleanly for partition %d", id.Number), func(m *machine) error {
				ctx, cancel := m.p.WithTimeout(m.node.Context(), 10*time.Second)
				defer cancel()
				return m.node.Cluster().ElectLeaders(ctx, []meta.PartitionID{id}, true)[0]
			})
		}
	}
}

// unfinished says what has not converged, "" if everything has.
func (c *cluster) unfinished() string {
	for _, m := range c.machines {
		if !m.serves() {
			return m.name + " doesn't serve"
		}
	}
	if c.wantTopic.IsZero() || c.topic != c.wantTopic {
		return "the topic isn't there"
	}
	image := c.machines[0].node.Image()
	parts := 0
	for p := range image.PartitionsOf(c.topic) {
		parts++
		if why := c.behind(p); why != "" {
			return fmt.Sprintf("partition %d: %s", p.ID.Number, why)
		}
	}
	if parts != c.o.Partitions {
		return fmt.Sprintf("%d partitions", parts)
	}
	for _, l := range c.lanes {
		if l.topic != c.topic || l.ackedSince < c.healedAt {
			return l.who() + " has no record acknowledged since the faults ended"
		}
	}
	for _, r := range c.readers {
		if why := r.behind(); why != "" {
			return why
		}
	}
	if why := c.groupsUnfinished(image); why != "" {
		return why
	}
	return c.txnsUnfinished(image)
}

// behind says what one partition lacks.
func (c *cluster) behind(p *meta.Partition) string {
	r := p.Record
	if r == nil {
		return "its record can't be read"
	}
	if len(r.ISR) != len(r.Replicas) || len(r.Adding)+len(r.Removing) > 0 {
		return fmt.Sprintf("in sync are %v of %v (adding %v, removing %v), leader %d", r.ISRIDs(), r.Replicas, r.Adding, r.Removing, r.Leader)
	}
	var end types.Offset
	for i, id := range r.Replicas {
		part, ok := c.machine(id).node.Broker().Partition(p.ID.Topic, p.ID.Number)
		if !ok {
			return fmt.Sprintf("broker %d doesn't hold it", id)
		}
		v, ok := part.View()
		if !ok || v.Offline != nil {
			return fmt.Sprintf("broker %d: not open, or offline: %v", id, v.Offline)
		}
		if i == 0 {
			end = v.LogEnd
		}
		if v.LogEnd != end || v.HighWatermark != v.LogEnd {
			return fmt.Sprintf("broker %d: [%d, %d) hw %d, the first replica ends at %d", id, v.LogStart, v.LogEnd, v.HighWatermark, end)
		}
	}
	return ""
}

// final reads everything once more and compares the replicas byte for byte.
func (c *cluster) final() { c.check.final() }

var background = context.Background()
