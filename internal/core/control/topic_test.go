package control_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

func TestValidTopicName(t *testing.T) {
	ok := func(name string) {
		t.Helper()
		if err := control.ValidTopicName(name); err != nil {
			t.Error(err)
		}
	}
	bad := func(name string) {
		t.Helper()
		wantError(t, control.ValidTopicName(name), control.ErrInvalidTopic)
	}
	ok("a")
	ok("A.b_c-9")
	ok("...")
	ok(strings.Repeat("x", 249))
	bad("")
	bad(".")
	bad("..")
	bad(strings.Repeat("x", 250))
	bad("a b")
	bad("a/b")
	bad("ä")
	bad("a\n")
}

func TestCreateTopic(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	r := topicRequest("a", 3, 1)
	r.Configs, r.MinISR = map[string]string{"cleanup.policy": "compact"}, 2
	topic := c.create(me, r)
	if got := *topic.Record; got.ID != r.ID || got.Partitions != 3 || !maps.Equal(got.Configs, r.Configs) {
		t.Fatalf("%+v", got)
	}
	for n := range int32(3) {
		p, revision := c.image.Partition(topic.ID, n)
		first, _ := p.Timelines.Last()
		if p.Leader != 1 || p.LeaderBrokerEpoch != me.Epoch || p.LeaderEpoch != 0 || !p.Writable || p.MinISR != 2 || p.Mirror != nil ||
			!slices.Equal(p.ISR, []meta.ISRMember{{ID: 1, BrokerEpoch: me.Epoch}}) || len(p.Timelines) != 1 || first.ID != "tl-a" || first.FirstEpoch != 0 || first.FirstOffset != 0 {
			t.Fatalf("partition %d: %+v", n, p)
		}
		if revision != topic.ModRevision {
			t.Fatalf("partition %d is of revision %d, the topic of %d: not one transaction", n, revision, topic.ModRevision)
		}
	}
}

func TestCreateTopicRefuses(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	c.create(me, topicRequest("my.topic", 1, 1))
	f := func(want error, words string, change func(*control.CreateTopicRequest)) {
		t.Helper()
		r := topicRequest("new", 1, 1)
		change(&r)
		_, err := control.CreateTopic(c.image, r, me, limits)
		wantError(t, err, want, words)
	}
	type req = *control.CreateTopicRequest
	f(control.ErrInvalidTopic, "empty", func(r req) { r.Name = "" })
	f(control.ErrTopicExists, "my.topic", func(r req) { r.Name = "my.topic" })
	f(control.ErrInvalidTopic, "differs from the topic my.topic only in", func(r req) { r.Name = "my_topic" })
	f(control.ErrTopicExists, "is taken by my.topic", func(r req) { r.ID = topicRequest("my.topic", 1, 1).ID })
	f(control.ErrInvalidRequest, "no topic id", func(r req) { r.ID = types.TopicID{} })
	f(control.ErrInvalidPartitions, "0", func(r req) { r.Partitions = 0 })
	f(control.ErrInvalidPartitions, "-1", func(r req) { r.Partitions = -1 })
	f(control.ErrInvalidPartitions, "100001", func(r req) { r.Partitions = 100_001 })
	f(control.ErrInvalidReplication, "0", func(r req) { r.ReplicationFactor = 0 })
	f(control.ErrInvalidReplication, "with 1 brokers", func(r req) { r.ReplicationFactor = 2 })
	f(control.ErrInvalidRequest, "timeline", func(r req) { r.TimelineID = "" })
	f(control.ErrInvalidRequest, "2 mirror states for 1", func(r req) { r.Mirrors = make([]meta.MirrorState, 2) })
	f(control.ErrInvalidAssignment, "isn't registered", func(r req) { r.Assignment = [][]types.BrokerID{{2}} })
	f(control.ErrInvalidAssignment, "twice", func(r req) { r.Assignment = [][]types.BrokerID{{1, 1}} })
	f(control.ErrInvalidAssignment, "2 partitions are assigned", func(r req) { r.Assignment = [][]types.BrokerID{{1}, {1}} })
	f(control.ErrInvalidAssignment, "0 replicas", func(r req) { r.Assignment = [][]types.BrokerID{{}} })
}

// TestCreateTopicRace: of two topics with one name, or that take one id, one is made.
func TestCreateTopicRace(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	a, b := topicRequest("a", 1, 1), topicRequest("a", 1, 1)
	b.ID[15] = 9
	plansA, _ := control.CreateTopic(c.image, a, me, limits)
	plansB, _ := control.CreateTopic(c.image, b, me, limits)
	c.commit(plansA...)
	c.refused(plansB[0])
}

// TestCreateLargeTopic stops the creation at every step: nothing is visible
// until the last, trying again succeeds, and what was left can be swept.
func TestCreateLargeTopic(t *testing.T) {
	for stop := range 4 {
		c := newCluster(t)
		me := c.register(1)
		r := topicRequest("big", 250, 1)
		plans, err := control.CreateTopic(c.image, r, me, limits)
		if err != nil || len(plans) != 4 {
			t.Fatalf("%d plans, %v", len(plans), err)
		}
		for _, p := range plans {
			if len(p.If) > limits.Ops || len(p.Then) > limits.Ops {
				t.Fatalf("%s: %d compares, %d operations", p.Why, len(p.If), len(p.Then))
			}
		}
		c.commit(plans[:stop]...)
		if _, ok := c.image.TopicByName("big"); ok || len(slices.Collect(c.image.Partitions())) != 0 {
			t.Fatalf("visible after %d plans", stop)
		}
		if stop == 2 {
			c.commit(control.SweepOrphans(c.image, everything, me, limits)...)
			if n := len(slices.Collect(c.image.Orphans())); n != 0 {
				t.Fatalf("%d orphans after the sweep", n)
			}
			c.refused(plans[3]) // what was left of the creation is gone
		}
		c.create(me, r)
		if n := len(slices.Collect(c.image.Partitions())); n != 250 {
			t.Fatalf("%d partitions", n)
		}
		if sweep := control.SweepOrphans(c.image, everything, me, limits); len(sweep) != 0 {
			t.Fatalf("sweeps a topic that exists: %v", sweep)
		}
	}
}

func TestDeleteTopic(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	r := topicRequest("a", 250, 1)
	topic := c.create(me, r)
	c.create(me, topicRequest("b", 1, 1))
	plan, err := control.DeleteTopic(c.image, topic.ID, me)
	if err != nil {
		t.Fatal(err)
	}
	c.commit(plan)
	if _, ok := c.image.TopicByName("a"); ok || c.image.Known(topic.ID) {
		t.Fatal("still there")
	}
	if _, ok := c.image.TopicByName("b"); !ok {
		t.Fatal("the other one is gone")
	}
	_, err = control.DeleteTopic(c.image, topic.ID, me)
	wantError(t, err, control.ErrUnknownTopic)
	c.create(me, r)

	// A topic whose record can't be read can be deleted by its id.
	c.commit(meta.Plan{Why: "damage", Then: []meta.Op{meta.Put(c.image.Keys().Topic(topic.ID), []byte("{"))}})
	kvs, revision, _ := c.store.Range(context.Background(), c.image.Keys().Root())
	c.image, _ = meta.Load("c1", kvs, revision)
	if _, ok := c.image.TopicByName("a"); ok {
		t.Fatal("the damage did nothing")
	}
	plan, err = control.DeleteTopic(c.image, topic.ID, me)
	if err != nil {
		t.Fatal(err)
	}
	c.commit(plan)
	if _, taken := c.image.NameEntry("a"); taken || c.image.Known(topic.ID) {
		t.Fatal("still there")
	}
}

// TestDeletedThenRecreated: a deletion planned for one topic must not hit its successor.
func TestDeletedThenRecreated(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	topic := c.create(me, topicRequest("a", 1, 1))
	late, _ := control.DeleteTopic(c.image, topic.ID, me)
	c.commit(late)
	c.create(me, topicRequest("a", 1, 1))
	c.refused(late)
}

func TestCreatePartitions(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	topic := c.create(me, topicRequest("a", 2, 1))
	type req = control.CreatePartitionsRequest
	grow := func(r req) error {
		t.Helper()
		r.Topic, r.TimelineID = topic.ID, "grown"
		plans, err := control.CreatePartitions(c.image, r, me, limits)
		if err == nil {
			c.commit(plans...)
		}
		return err
	}
	if err := grow(req{Count: 5}); err != nil {
		t.Fatal(err)
	}
	if last, _ := c.partition(topic.ID, 4).Timelines.Last(); last.ID != "grown" {
		t.Fatalf("timeline %v", last)
	}
	if first, _ := c.partition(topic.ID, 1).Timelines.Last(); first.ID != "tl-a" {
		t.Fatalf("an old partition changed: %v", first)
	}
	if err := grow(req{Count: 300}); err != nil {
		t.Fatal(err)
	}
	if n := len(slices.Collect(c.image.PartitionsOf(topic.ID))); n != 300 {
		t.Fatalf("%d partitions", n)
	}
	wantError(t, grow(req{Count: 300}), control.ErrInvalidPartitions, "has 300 partitions, 300 are asked for")
	wantError(t, grow(req{Count: 2}), control.ErrInvalidPartitions)
	wantError(t, grow(req{Count: 301, Assignment: [][]types.BrokerID{{7}}}), control.ErrInvalidAssignment)
	wantError(t, grow(req{Count: 301, Mirrors: []meta.MirrorState{{}, {}}}), control.ErrInvalidRequest)
	_, err := control.CreatePartitions(c.image, req{Topic: types.TopicID{9}, Count: 2}, me, limits)
	wantError(t, err, control.ErrUnknownTopic)
}

func TestAlterTopicConfigs(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	c.register(2)
	r := topicRequest("a", 150, 0)
	for range 150 {
		r.Assignment = append(r.Assignment, []types.BrokerID{1, 2})
	}
	topic := c.create(me, r)
	shrunk := c.partition(topic.ID, 7).Clone()
	shrunk.ISR, shrunk.ELR = shrunk.ISR[:1], shrunk.ISR[1:]
	plan, err := control.UpdatePartition(c.image, topic.ID, 7, shrunk, me)
	if err != nil {
		t.Fatal(err)
	}
	c.commit(plan)

	plans, err := control.AlterTopicConfigs(c.image, topic.ID, map[string]string{"min.insync.replicas": "2"}, 2, me, limits)
	if err != nil || len(plans) < 2 {
		t.Fatalf("%d plans, %v", len(plans), err)
	}
	c.commit(plans[0]) // and stops half-way
	plans, _ = control.AlterTopicConfigs(c.image, topic.ID, map[string]string{"min.insync.replicas": "2"}, 2, me, limits)
	c.commit(plans...)
	for p := range c.image.PartitionsOf(topic.ID) {
		if p.Record.MinISR != 2 || len(p.Record.ELR) != 0 {
			t.Fatalf("partition %d: min ISR %d, ELR %v (R12)", p.ID.Number, p.Record.MinISR, p.Record.ELR)
		}
	}
	topic, _ = c.image.TopicByName("a")
	if topic.Record.Configs["min.insync.replicas"] != "2" || topic.Record.Partitions != 150 {
		t.Fatalf("%+v", topic.Record)
	}
	plans, _ = control.AlterTopicConfigs(c.image, topic.ID, map[string]string{"min.insync.replicas": "2", "retention.ms": "1"}, 2, me, limits)
	if len(plans) != 1 || len(plans[0].Then) != 1 {
		t.Fatalf("a change that touches no partition writes %d keys", len(plans[0].Then))
	}
	_, err = control.AlterTopicConfigs(c.image, types.TopicID{9}, nil, 1, me, limits)
	wantError(t, err, control.ErrUnknownTopic)
}

func TestAlterBrokerConfigs(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	for _, id := range []types.BrokerID{1, types.NoBroker} {
		for _, configs := range []map[string]string{{"a": "1"}, {"a": "2", "b": "3"}, nil} {
			plan, err := control.AlterBrokerConfigs(c.image, id, configs, me)
			if err != nil {
				t.Fatal(err)
			}
			c.commit(plan)
			got, ok := c.image.BrokerConfig(id)
			if ok != (configs != nil) || ok && !maps.Equal(got.Record.Configs, configs) {
				t.Fatalf("broker %d: %+v, want %v", id, got, configs)
			}
			if configs != nil {
				c.refused(plan)
			}
		}
	}
}

// TestPlacement: replicas are distinct, and leaders and replicas are spread evenly.
func TestPlacement(t *testing.T) {
	c := newCluster(t)
	var me control.Me
	for id := range types.BrokerID(5) {
		me = c.register(id)
	}
	topic := c.create(me, topicRequest("a", 100, 3))
	leaders, replicas, pairs := make(map[types.BrokerID]int), make(map[types.BrokerID]int), make(map[string]int)
	for p := range c.image.PartitionsOf(topic.ID) {
		r := p.Record
		leaders[r.Leader]++
		if len(r.Replicas) != 3 || len(r.ISR) != 3 || r.Replicas[0] != r.Leader {
			t.Fatalf("partition %d: %+v", p.ID.Number, r)
		}
		for _, id := range r.Replicas {
			replicas[id]++
		}
		pairs[fmt.Sprint(r.Replicas[0], r.Replicas[1])]++
	}
	for id := range types.BrokerID(5) {
		if leaders[id] != 20 || replicas[id] < 50 || replicas[id] > 70 {
			t.Errorf("broker %d leads %d and holds %d of 100 partitions with 3 replicas", id, leaders[id], replicas[id])
		}
	}
	if len(pairs) != 20 {
		t.Errorf("a broker's failure falls on few: %v", pairs)
	}
}

// TestSplit: merged plans keep the limits, touch no key twice, and do what the single ones do.
func TestSplit(t *testing.T) {
	shared := meta.Exists("/me")
	var plans []meta.Plan
	for i := range 1000 {
		key := fmt.Sprintf("/k/%d", i%900)
		plans = append(plans, meta.Plan{Why: "put " + key, If: []meta.Compare{shared, meta.ModRevisionIs(fmt.Sprintf("/c/%d", i), 0)},
			Then: []meta.Op{meta.Put(key, []byte(strings.Repeat("x", i%50)))}})
	}
	merged := control.Split(plans, control.Limits{Ops: 128, Bytes: 4000})
	ops := 0
	for _, p := range merged {
		seen, size := make(map[string]bool), 0
		for _, op := range p.Then {
			if seen[op.Key] {
				t.Fatalf("%s twice", op.Key)
			}
			seen[op.Key] = true
			size += len(op.Key) + len(op.Value)
		}
		if len(p.If) > 128 || len(p.Then) > 128 || size > 4000 || len(p.If) != len(p.Then)+1 {
			t.Fatalf("%d compares, %d operations, %d bytes", len(p.If), len(p.Then), size)
		}
		ops += len(p.Then)
	}
	if ops != 1000 || len(merged) > 20 {
		t.Fatalf("%d operations in %d plans", ops, len(merged))
	}
	contradiction := []meta.Plan{
		{Why: "a", If: []meta.Compare{meta.ModRevisionIs("/c", 1)}, Then: []meta.Op{meta.Put("/a", nil)}},
		{Why: "b", If: []meta.Compare{meta.ModRevisionIs("/c", 2)}, Then: []meta.Op{meta.Put("/b", nil)}},
	}
	if got := control.Split(contradiction, limits); len(got) != 2 {
		t.Fatalf("plans that contradict each other were merged: %+v", got)
	}
	huge := meta.Plan{Why: "huge", If: []meta.Compare{shared}, Then: []meta.Op{meta.Put("/h", make([]byte, 5000))}}
	if got := control.Split([]meta.Plan{plans[0], huge, plans[1]}, control.Limits{Bytes: 4000}); len(got) != 3 {
		t.Fatalf("%d plans", len(got))
	}
	if control.Split(nil, limits) != nil {
		t.Fatal("something of nothing")
	}
}

func everything(types.TopicID) bool { return true }
