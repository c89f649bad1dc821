package harness

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/await"
	"tidemark/internal/broker/api"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/mem"
	"tidemark/internal/metastore/storetest"
)

// Cluster is several nodes in this process on one metadata store in memory.
// Between them stand gates and severable stores, all open at first.
type Cluster struct {
	Store *mem.Store
	// Nodes are by node id, from 1; a stopped node stays in the list.
	Nodes map[types.BrokerID]*Broker
	// Stores are what each node sees of Store.
	Stores map[types.BrokerID]*storetest.Severed
	Gates  *Gates

	t    testing.TB
	opts []Option
	own  map[types.BrokerID][]Option // of one node, over opts

	mu        sync.Mutex // guards the following
	addresses map[string]types.BrokerID
}

// StartCluster starts n nodes that know each other, with ids from 1 on.
func StartCluster(t testing.TB, n int, opts ...Option) *Cluster {
	t.Helper()
	c := &Cluster{
		Store: mem.New(), Nodes: make(map[types.BrokerID]*Broker), Stores: make(map[types.BrokerID]*storetest.Severed),
		t: t, opts: opts, own: make(map[types.BrokerID][]Option), addresses: make(map[string]types.BrokerID),
	}
	c.Gates = newGates(c.nodeAt)
	t.Cleanup(func() { _ = c.Store.Close() })
	for i := range n {
		c.start(t, types.BrokerID(i+1), t.TempDir())
	}
	for _, b := range c.Nodes {
		Eventually(t, "the nodes know each other", func() bool {
			known := 0
			for range b.Image().Brokers() {
				known++
			}
			return known == n
		})
	}
	return c
}

// nodeAt finds a node by its address, NoBroker for one that is still starting.
func (c *Cluster) nodeAt(address string) types.BrokerID {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, ok := c.addresses[address]; ok {
		return id
	}
	return types.NoBroker
}

func (c *Cluster) start(t testing.TB, id types.BrokerID, dir string) {
	t.Helper()
	c.Stores[id] = &storetest.Severed{Store: c.Store}
	o := options{}
	for _, f := range append(slices.Concat(c.opts, c.own[id]), WithSetting("node.id", fmt.Sprint(id))) {
		f(&o)
	}
	if i := int(id) - 1; i < len(o.racks) {
		WithSetting("broker.rack", o.racks[i])(&o)
	}
	o.broker.Store, o.broker.DialPeer = c.Stores[id], c.Gates.dialer(id)
	b, err := Open(t, dir, o)
	if err != nil {
		t.Fatalf("start node %d: %v", id, err)
	}
	c.Nodes[id] = b
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addresses[b.Addr] = id
}

// Restart starts a node that was stopped on its folder again. The port may differ.
func (c *Cluster) Restart(t testing.TB, id types.BrokerID) *Broker {
	t.Helper()
	old := c.Nodes[id]
	old.Stop(t)
	c.start(t, id, old.Dir)
	return c.Nodes[id]
}

// RestartWith is Restart with settings of that node alone, which go over the cluster's from now on.
func (c *Cluster) RestartWith(t testing.TB, id types.BrokerID, opts ...Option) *Broker {
	t.Helper()
	c.own[id] = opts
	return c.Restart(t, id)
}

// AwaitKnown waits until a client has heard where the node is. A node comes back at another
// port: a client that lives through the restarts of several asks only those that it knows, and
// must hear of one before the next goes, or nobody is left whom it could ask.
func (b *Broker) AwaitKnown(t testing.TB, client *kgo.Client) {
	t.Helper()
	AwaitKnown(t, client, b.NodeID(), b.Addr)
}

// AwaitKnown is Broker.AwaitKnown for a node by its id and address.
func AwaitKnown(t testing.TB, client *kgo.Client, id types.BrokerID, addr string) {
	t.Helper()
	ctx := Context(t)
	Eventually(t, fmt.Sprintf("the client knows where node %d is", id), func() bool {
		req := kmsg.NewPtrMetadataRequest() // kadm's would be answered from the client's cache
		req.Topics = []kmsg.MetadataRequestTopic{}
		m, err := req.RequestWith(ctx, client)
		return err == nil && slices.ContainsFunc(m.Brokers, func(n kmsg.MetadataResponseBroker) bool {
			return n.NodeID == int32(id) && net.JoinHostPort(n.Host, fmt.Sprint(n.Port)) == addr
		})
	})
}

// Any gives a node that serves. A machine that stood still for longer than the nodes' leases
// leaves none until they have renewed them: they are waited for.
func (c *Cluster) Any() (any *Broker) {
	c.t.Helper()
	Eventually(c.t, "a node serves", func() bool {
		for id := types.BrokerID(1); int(id) <= len(c.Nodes); id++ {
			if any = c.Nodes[id]; any.Ready() == nil {
				return true
			}
		}
		return false
	})
	return any
}

// Lapse cuts a node off from the metadata and ends its lease, as its death does in
// time. It still runs, and serves nothing.
func (c *Cluster) Lapse(t testing.TB, id types.BrokerID) {
	t.Helper()
	c.Stores[id].Cut(true)
	lease := c.Nodes[id].LeaseID()
	c.Store.ExpireLease(lease)
}

// Stop stops every node that still runs.
func (c *Cluster) Stop(t testing.TB) {
	t.Helper()
	for id, b := range c.Nodes {
		c.Stores[id].Cut(false)
		b.Stop(t)
	}
}

// Client connects a client that knows every node.
func (c *Cluster) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	var seeds []string
	for id := types.BrokerID(1); int(id) <= len(c.Nodes); id++ {
		seeds = append(seeds, c.Nodes[id].Addr)
	}
	return c.Any().Client(t, append([]kgo.Opt{kgo.SeedBrokers(seeds...)}, opts...)...)
}

// CreateTopic makes a topic of one partition on the given replicas; the first leads.
func (c *Cluster) CreateTopic(t testing.TB, name string, replicas []types.BrokerID, configs map[string]string) types.TopicID {
	t.Helper()
	b := c.Any()
	id := b.createAssigned(t, name, replicas, configs)
	for _, r := range replicas {
		Eventually(t, fmt.Sprintf("node %d has heard of %s", r, name), func() bool {
			_, ok := c.Nodes[r].PartitionByName(name, 0)
			return ok || c.Nodes[r].Ready() != nil
		})
	}
	return id
}

// Record is the partition's record as a live node sees it.
func (c *Cluster) Record(topic string, partition int32) *meta.PartitionRecord {
	return c.Any().RecordOf(topic, partition)
}

// RecordOf is the partition's record as this node sees it; nil if it knows none.
func (b *Broker) RecordOf(topic string, partition int32) *meta.PartitionRecord {
	t, ok := b.Image().TopicByName(topic)
	if !ok {
		return nil
	}
	r, _ := b.Image().Partition(t.ID, partition)
	return r
}

// AwaitISR waits until the ISR of a partition is the given one.
func (c *Cluster) AwaitISR(t testing.TB, topic string, want ...types.BrokerID) *meta.PartitionRecord {
	t.Helper()
	var r *meta.PartitionRecord
	Eventually(t, fmt.Sprintf("the ISR of %s is %v", topic, want), func() bool {
		if r = c.Record(topic, 0); r == nil {
			return false
		}
		got := r.ISRIDs()
		slices.Sort(got)
		return slices.Equal(got, want)
	})
	return r
}

// Elect writes the record of a clean election by hand, as the controller would:
// the leader epoch rises. change may change the record further. The node must be in
// the ISR in its present registration, which is waited for: else the election is unclean.
func (c *Cluster) Elect(t testing.TB, topic string, leader types.BrokerID, change func(*meta.PartitionRecord)) {
	t.Helper()
	await.NoError(t, Patience, fmt.Sprintf("node %d is elected to lead %s", leader, topic), func() error {
		b := c.Any()
		tp, _ := b.Image().TopicByName(topic)
		e, ok := b.Image().PartitionEntry(tp.ID, 0)
		if !ok {
			return errors.New("the node that is asked knows no such partition")
		}
		next := e.Record.Clone()
		epoch, ok := b.Image().BrokerEpoch(leader)
		if !ok || !slices.Contains(next.ISR, meta.ISRMember{ID: leader, BrokerEpoch: epoch}) {
			return fmt.Errorf("its registration is %d, the ISR %v", epoch, next.ISR)
		}
		next.Leader, next.LeaderBrokerEpoch, next.LeaderEpoch = leader, epoch, next.LeaderEpoch+1
		if change != nil {
			change(&next)
		}
		key := b.Image().Keys().Partition(tp.ID, 0)
		_, err := b.Commit(Context(t), meta.Plan{
			Why: "elect by hand", If: []meta.Compare{meta.ModRevisionIs(key, e.ModRevision)}, Then: []meta.Op{meta.Put(key, next.Encode())},
		})
		return err
	})
}

// AwaitServed waits until a node serves the partition as its leader.
func (b *Broker) AwaitServed(t testing.TB, topic string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("node %d serves %s", b.NodeID(), topic), func() bool {
		p, ok := b.PartitionByName(topic, 0)
		if !ok {
			return false
		}
		_, err := p.LeaderEpoch()
		return err == nil
	})
}

// AwaitEnd waits until a node's replica ends at an offset.
func (b *Broker) AwaitEnd(t testing.TB, topic string, end types.Offset) {
	t.Helper()
	Eventually(t, fmt.Sprintf("node %d's replica of %s ends at %d", b.NodeID(), topic, end), func() bool {
		p, ok := b.PartitionByName(topic, 0)
		if !ok {
			return false
		}
		v, ok := p.View()
		return ok && v.LogEnd == end
	})
}

// createAssigned makes a topic of one partition on given replicas.
func (b *Broker) createAssigned(t testing.TB, name string, replicas []types.BrokerID, configs map[string]string) types.TopicID {
	t.Helper()
	made, err := b.Topics().Create(Context(t), assigned(name, replicas, configs))
	if err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	return made.ID
}

// LogBytes is what a partition's segment files hold, one behind the other.
func (b *Broker) LogBytes(t testing.TB, topic string, partition int32) []byte {
	t.Helper()
	all, err := b.logBytes(topic, partition)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (b *Broker) logBytes(topic string, partition int32) ([]byte, error) {
	folder := filepath.Join(b.Dir, fmt.Sprintf("%s-%d", topic, partition))
	names, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, n := range names { // sorted by name: by offset
		if strings.HasSuffix(n.Name(), ".log") {
			data, err := os.ReadFile(filepath.Join(folder, n.Name()))
			if err != nil {
				return nil, err
			}
			all = append(all, data...)
		}
	}
	return all, nil
}

// AwaitEqual waits until the partition's log files hold the same bytes on all nodes. A folder
// may not be there yet, and a file may go while it is read.
func (c *Cluster) AwaitEqual(t testing.TB, topic string, nodes ...types.BrokerID) {
	t.Helper()
	await.NoError(t, Patience, fmt.Sprintf("the replicas of %s are byte-equal on %v", topic, nodes), func() error {
		first, err := c.Nodes[nodes[0]].logBytes(topic, 0)
		for _, id := range nodes[1:] {
			if err != nil {
				return err
			}
			var other []byte
			if other, err = c.Nodes[id].logBytes(topic, 0); err == nil && !bytes.Equal(first, other) {
				err = fmt.Errorf("node %d holds %d bytes, node %d %d", nodes[0], len(first), id, len(other))
			}
		}
		return err
	})
}

// Values makes n distinct values.
func Values(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return out
}

// ProduceAll writes values to partition 0 one batch each with acks=all, or with the leader's alone.
func (c *Cluster) ProduceAll(t testing.TB, topic string, acks kgo.Acks, values ...string) {
	t.Helper()
	opts := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(acks)}
	if acks != kgo.AllISRAcks() {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	client := c.Client(t, opts...)
	for _, v := range values {
		if err := client.ProduceSync(Context(t), &kgo.Record{Topic: topic, Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatalf("produce %q: %v", v, err)
		}
	}
	client.Close()
}

func assigned(name string, replicas []types.BrokerID, configs map[string]string) api.CreateTopic {
	values := make(map[string]*string, len(configs))
	for k, v := range configs {
		values[k] = &v
	}
	return api.CreateTopic{
		Name: name, Partitions: -1, ReplicationFactor: -1, Assignments: map[int32][]types.BrokerID{0: replicas}, Configs: values,
	}
}
