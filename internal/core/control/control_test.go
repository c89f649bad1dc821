package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tidemark/internal/assert"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/mem"
)

// cluster carries plans out on a store in memory and keeps the image of it.
type cluster struct {
	t     *testing.T
	store *mem.Store
	watch *mem.Watcher
	image *meta.Image
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, store: mem.New(), image: meta.Empty("c1")}
	c.watch = c.store.NewWatcher(context.Background(), c.image.Keys().Root(), 0)
	return c
}

// sync moves the image to what the store holds.
func (c *cluster) sync() {
	c.t.Helper()
	for {
		events, ok, err := c.watch.Poll()
		if err != nil {
			c.t.Fatal(err)
		}
		if !ok {
			return
		}
		c.image, _ = c.image.Apply(events)
	}
}

func (c *cluster) commit(plans ...meta.Plan) {
	c.t.Helper()
	if _, _, err := metastore.CommitAll(context.Background(), c.store, plans); err != nil {
		c.t.Fatal(err)
	}
	c.sync()
}

func (c *cluster) refused(plan meta.Plan) {
	c.t.Helper()
	if _, err := metastore.Commit(context.Background(), c.store, plan); !errors.Is(err, metastore.ErrRefused) {
		c.t.Fatalf("%s: %v, want it refused", plan.Why, err)
	}
	c.sync()
}

func broker(id types.BrokerID) meta.BrokerRecord {
	return meta.BrokerRecord{
		ID: id, Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 9092, Security: "PLAINTEXT"}},
		DirectoryID: fmt.Sprintf("folder-%d", id), Incarnation: fmt.Sprintf("inc-%d", id), CleanShutdownEpoch: types.NoBrokerEpoch,
	}
}

// register registers a broker and gives what it writes as; change may edit its record.
func (c *cluster) register(id types.BrokerID, change ...func(*meta.BrokerRecord)) control.Me {
	c.t.Helper()
	me, _ := c.registerLeased(id, change...)
	return me
}

func (c *cluster) registerLeased(id types.BrokerID, change ...func(*meta.BrokerRecord)) (control.Me, meta.LeaseID) {
	c.t.Helper()
	record := broker(id)
	for _, f := range change {
		f(&record)
	}
	lease, err := c.store.Grant(context.Background(), time.Minute)
	if err != nil {
		c.t.Fatal(err)
	}
	plans, err := control.RegisterBroker(c.image, record, lease)
	if err != nil {
		c.t.Fatal(err)
	}
	c.commit(plans...)
	epoch, ok := c.image.BrokerEpoch(id)
	if !ok {
		c.t.Fatalf("broker %d is not registered", id)
	}
	return control.Me{ID: id, Epoch: epoch}, lease
}

var limits = control.Limits{Ops: 100}

func topicRequest(name string, partitions int32, replication int) control.CreateTopicRequest {
	id := types.TopicID{1}
	copy(id[1:], name)
	return control.CreateTopicRequest{Name: name, ID: id, Partitions: partitions, ReplicationFactor: replication, TimelineID: "tl-" + name}
}

func (c *cluster) create(me control.Me, r control.CreateTopicRequest) *meta.Topic {
	c.t.Helper()
	plans, err := control.CreateTopic(c.image, r, me, limits)
	if err != nil {
		c.t.Fatal(err)
	}
	c.commit(plans...)
	t, ok := c.image.TopicByName(r.Name)
	if !ok {
		c.t.Fatalf("topic %s isn't there", r.Name)
	}
	return t
}

func (c *cluster) partition(id types.TopicID, n int32) *meta.PartitionRecord {
	c.t.Helper()
	rec, _ := c.image.Partition(id, n)
	if rec == nil {
		c.t.Fatalf("no partition %d", n)
	}
	return rec
}

func wantError(t *testing.T, err, want error, words ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want one that matches %v", err, want)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("error %q doesn't say %q", err, w)
		}
	}
}

func TestRegister(t *testing.T) {
	c := newCluster(t)
	me, lease := c.registerLeased(1)
	if record, ok := c.image.Cluster(); !ok || record.Record.ID != "c1" {
		t.Fatal("the first broker didn't write the cluster's record")
	}

	// Another folder with the same id is refused, by name.
	other := broker(1)
	other.DirectoryID = "elsewhere"
	_, err := control.RegisterBroker(c.image, other, lease)
	wantError(t, err, control.ErrNodeIDInUse, "node id 1", "h:9092", "folder-1", "choose another node id")

	// The same folder again is the same broker restarted: a new epoch, the old one can't write any more.
	again := c.register(1, func(r *meta.BrokerRecord) { r.Incarnation = "inc-1b" })
	if again.Epoch <= me.Epoch {
		t.Fatalf("epoch %d after %d", again.Epoch, me.Epoch)
	}
	_, err = control.CreateTopic(c.image, topicRequest("a", 1, 1), me, limits)
	wantError(t, err, control.ErrNotRegistered)

	// The lease of the first registration ends without touching the second.
	c.store.ExpireLease(lease)
	c.sync()
	if epoch, ok := c.image.BrokerEpoch(1); !ok || epoch != again.Epoch {
		t.Fatalf("epoch %d, %v", epoch, ok)
	}

	// A registration that ended is made anew.
	plan, err := control.UnregisterBroker(c.image, again)
	if err != nil {
		t.Fatal(err)
	}
	c.commit(plan)
	if _, ok := c.image.Broker(1); ok {
		t.Fatal("still registered")
	}
	if third := c.register(1); third.Epoch <= again.Epoch {
		t.Fatalf("epoch %d after %d", third.Epoch, again.Epoch)
	}
	c.refused(plan) // the old registration's end is not the new one's
	if _, ok := c.image.Broker(1); !ok {
		t.Fatal("unregistered by an old plan")
	}

	bad := broker(2)
	bad.Endpoints = nil
	_, err = control.RegisterBroker(c.image, bad, 0)
	wantError(t, err, control.ErrInvalidRequest)
}

// TestRegisterRace: of two brokers with one id that start at once, one wins.
func TestRegisterRace(t *testing.T) {
	c := newCluster(t)
	one, two := broker(1), broker(1)
	two.DirectoryID = "elsewhere"
	plansOne, _ := control.RegisterBroker(c.image, one, 0)
	plansTwo, _ := control.RegisterBroker(c.image, two, 0)
	c.commit(plansOne...)
	c.refused(plansTwo[0])
}

func TestRegisterOverUnreadable(t *testing.T) {
	c := newCluster(t)
	c.commit(meta.Plan{Why: "damage", Then: []meta.Op{meta.Put(c.image.Keys().Broker(1), []byte("{"))}})
	_, err := control.RegisterBroker(c.image, broker(1), 0)
	wantError(t, err, control.ErrNodeIDInUse, "can't be read")
}

// TestWritesCompareRegistration (R7): whatever a broker planned before its
// registration ended is refused by the store, although its image didn't know.
func TestWritesCompareRegistration(t *testing.T) {
	c := newCluster(t)
	me, lease := c.registerLeased(1)
	topic := c.create(me, topicRequest("a", 2, 1))
	record := c.partition(topic.ID, 0).Clone()
	record.LeaderEpoch++

	plans := map[string]func() ([]meta.Plan, error){
		"create topic": func() ([]meta.Plan, error) {
			return control.CreateTopic(c.image, topicRequest("b", 1, 1), me, limits)
		},
		"create large topic": func() ([]meta.Plan, error) {
			return control.CreateTopic(c.image, topicRequest("c", 300, 1), me, limits)
		},
		"delete topic": func() ([]meta.Plan, error) { return one(control.DeleteTopic(c.image, topic.ID, me)) },
		"create partitions": func() ([]meta.Plan, error) {
			return control.CreatePartitions(c.image, control.CreatePartitionsRequest{Topic: topic.ID, Count: 3, TimelineID: "x"}, me, limits)
		},
		"alter topic": func() ([]meta.Plan, error) {
			return control.AlterTopicConfigs(c.image, topic.ID, map[string]string{"a": "b"}, 2, me, limits)
		},
		"alter broker": func() ([]meta.Plan, error) {
			return one(control.AlterBrokerConfigs(c.image, 1, map[string]string{"a": "b"}, me))
		},
		"update partition": func() ([]meta.Plan, error) {
			return one(control.UpdatePartition(c.image, topic.ID, 0, record, me))
		},
		"producer ids": func() ([]meta.Plan, error) {
			plan, _, err := control.AllocateProducerIDs(c.image, 5, 1000, me)
			return []meta.Plan{plan}, err
		},
		"create mirror": func() ([]meta.Plan, error) {
			return one(control.CreateMirror(c.image, meta.MirrorRecord{Name: "m", Bootstrap: []string{"x:1"}, Want: meta.WantCreated}, me))
		},
		"unregister": func() ([]meta.Plan, error) { return one(control.UnregisterBroker(c.image, me)) },
	}
	planned := make(map[string][]meta.Plan)
	for name, plan := range plans {
		p, err := plan()
		if err != nil || len(p) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		planned[name] = p
	}
	c.store.ExpireLease(lease)
	for name, p := range planned {
		for _, plan := range p {
			if _, err := metastore.Commit(context.Background(), c.store, plan); !errors.Is(err, metastore.ErrRefused) {
				t.Errorf("%s: %v, want it refused", name, err)
			}
		}
	}
	c.sync()
	for name, plan := range plans {
		if name == "unregister" {
			continue
		}
		if _, err := plan(); !errors.Is(err, control.ErrNotRegistered) {
			t.Errorf("%s: %v, want ErrNotRegistered", name, err)
		}
	}
}

func one(plan meta.Plan, err error) ([]meta.Plan, error) { return []meta.Plan{plan}, err }

func TestUpdatePartition(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	other := c.register(2)
	topic := c.create(me, func() control.CreateTopicRequest {
		r := topicRequest("a", 1, 0)
		r.Assignment = [][]types.BrokerID{{1, 2}}
		return r
	}())
	next := c.partition(topic.ID, 0).Clone()
	next.ISR = next.ISR[:1]

	plan, err := control.UpdatePartition(c.image, topic.ID, 0, next, me)
	if err != nil {
		t.Fatal(err)
	}
	_, err = control.UpdatePartition(c.image, topic.ID, 0, next, other)
	wantError(t, err, control.ErrNotLeader, "led by broker 1")
	_, err = control.UpdatePartition(c.image, topic.ID, 1, next, me)
	wantError(t, err, control.ErrUnknownPartition)
	_, err = control.UpdatePartition(c.image, types.TopicID{9}, 0, next, me)
	wantError(t, err, control.ErrUnknownPartition)
	_, err = control.UpdatePartition(c.image, topic.ID, 0, next, control.Me{ID: 1, Epoch: me.Epoch + 1})
	wantError(t, err, control.ErrNotRegistered)
	c.commit(plan)
	if got := c.partition(topic.ID, 0).ISRIDs(); len(got) != 1 {
		t.Fatalf("ISR %v", got)
	}
	c.refused(plan) // the record changed since

	// The leader's earlier registration is not the present one.
	again := c.register(1)
	_, err = control.UpdatePartition(c.image, topic.ID, 0, next, again)
	wantError(t, err, control.ErrNotLeader)
	c.commit(meta.Plan{Why: "damage", Then: []meta.Op{meta.Put(c.image.Keys().Partition(topic.ID, 0), []byte("{"))}})
	_, err = control.UpdatePartition(c.image, topic.ID, 0, next, again)
	wantError(t, err, control.ErrUnreadable)
}

// TestUpdatePartitionAsserts: a record that breaks an invariant never reaches the store.
func TestUpdatePartitionAsserts(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	topic := c.create(me, topicRequest("a", 1, 1))
	f := func(invariant string, change func(*meta.PartitionRecord)) {
		t.Helper()
		defer func() {
			t.Helper()
			broken, ok := recover().(*assert.Error)
			if !ok || !strings.HasPrefix(broken.Message, invariant) {
				t.Fatalf("recovered %v, want %s", broken, invariant)
			}
		}()
		next := c.partition(topic.ID, 0).Clone()
		change(&next)
		control.UpdatePartition(c.image, topic.ID, 0, next, me)
	}
	raised := c.partition(topic.ID, 0).Clone()
	raised.LeaderEpoch += 5
	plan, err := control.UpdatePartition(c.image, topic.ID, 0, raised, me)
	if err != nil {
		t.Fatal(err)
	}
	c.commit(plan)
	f("I-50", func(r *meta.PartitionRecord) { r.LeaderEpoch-- })
	f("I-51", func(r *meta.PartitionRecord) { r.Timelines = timeline.List{{ID: "other"}} })
	f("I-53", func(r *meta.PartitionRecord) { r.Writable = false; r.LeaderEpoch++ })
}

func TestProducerIDs(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	take := func(random uint32, size int) control.ProducerIDBlock {
		t.Helper()
		plan, block, err := control.AllocateProducerIDs(c.image, random, size, me)
		if err != nil {
			t.Fatal(err)
		}
		c.commit(plan)
		c.refused(plan) // not twice
		return block
	}
	f := func(got control.ProducerIDBlock, high, count int64, size int) {
		t.Helper()
		if want := types.ProducerID(high<<32 | count); got.First != want || got.Size != size || got.First <= 0 {
			t.Fatalf("block %+v, want %d from %d", got, size, want)
		}
	}
	f(take(77, 1000), 77, 0, 1000)
	f(take(99, 500), 77, 1000, 500) // the range stays
	f(take(99, 1<<31), 77, 1500, 1<<31)
	f(take(99, 1<<31-1500), 77, 1<<31+1500, 1<<31-1500) // used up to the last
	f(take(0xffff_ffff, 10), 1<<31-1, 0, 10)            // the next range, positive
	_, _, err := control.AllocateProducerIDs(c.image, 1, 0, me)
	wantError(t, err, control.ErrInvalidRequest)

	zero := newCluster(t)
	me = zero.register(1)
	_, block, err := control.AllocateProducerIDs(zero.image, 0, 1, me)
	if err != nil {
		t.Fatal(err)
	}
	f(block, 1, 0, 1)
}

func TestMirrorRecords(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	record := meta.MirrorRecord{Name: "m", Bootstrap: []string{"x:1"}, Want: meta.WantCreated}
	plan, err := control.CreateMirror(c.image, record, me)
	if err != nil {
		t.Fatal(err)
	}
	c.commit(plan)
	_, err = control.CreateMirror(c.image, record, me)
	wantError(t, err, control.ErrMirrorExists)
	for _, name := range []string{"", "a/b", "a b", strings.Repeat("x", 101)} {
		_, err = control.CreateMirror(c.image, meta.MirrorRecord{Name: name, Bootstrap: record.Bootstrap, Want: meta.WantCreated}, me)
		wantError(t, err, control.ErrInvalidRequest)
	}
	_, err = control.CreateMirror(c.image, meta.MirrorRecord{Name: "n", Want: meta.WantCreated}, me)
	wantError(t, err, control.ErrInvalidRequest, "source address")

	record.Want, record.SourceClusterID, record.StartID = meta.WantRunning, "src", "s1"
	plan, err = control.UpdateMirror(c.image, record, me)
	if err != nil {
		t.Fatal(err)
	}
	c.commit(plan)
	c.refused(plan)
	record.SourceClusterID = "other"
	_, err = control.UpdateMirror(c.image, record, me)
	wantError(t, err, control.ErrInvalidRequest, "follows cluster src")
	record.Name = "none"
	_, err = control.UpdateMirror(c.image, record, me)
	wantError(t, err, control.ErrUnknownMirror)
	_, err = control.DeleteMirror(c.image, "none", me)
	wantError(t, err, control.ErrUnknownMirror)

	// A mirror that a partition follows stays.
	r := topicRequest("a", 1, 1)
	r.Mirrors = []meta.MirrorState{{Name: "m", State: meta.MirrorLogAlignment, StartID: "s1"}}
	topic := c.create(me, r)
	p := c.partition(topic.ID, 0)
	if p.Writable || len(p.Timelines) != 0 || p.Mirror.StartID != "s1" {
		t.Fatalf("a mirror's partition begins as %+v", p)
	}
	_, err = control.DeleteMirror(c.image, "m", me)
	wantError(t, err, control.ErrMirrorInUse, "fail over first")
	promoted := p.Clone()
	promoted.LeaderEpoch += 65536
	promoted.Timelines = timeline.List{{ID: "root"}, {ID: "mine", FirstEpoch: promoted.LeaderEpoch}}
	promoted.Writable, promoted.Mirror = true, nil
	plan, err = control.UpdatePartition(c.image, topic.ID, 0, promoted, me)
	if err != nil {
		t.Fatal(err)
	}
	c.commit(plan)
	plan, err = control.DeleteMirror(c.image, "m", me)
	if err != nil {
		t.Fatal(err)
	}
	c.commit(plan)
	if _, ok := c.image.Mirror("m"); ok {
		t.Fatal("still there")
	}
}
