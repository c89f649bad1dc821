package control_test

import (
	"testing"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// forked is a topic whose partitions were forked by all given replicas, the first one leading.
func forked(name string, id byte, partitions int, replicas ...control.Me) control.ForkedTopic {
	t := control.ForkedTopic{Name: name, ID: types.TopicID{id}, Configs: map[string]string{"retention.ms": "7"}}
	for range partitions {
		rec := meta.PartitionRecord{
			Leader: replicas[0].ID, LeaderBrokerEpoch: replicas[0].Epoch, LeaderEpoch: 65536, MinISR: 1, Writable: true,
			Timelines: timeline.FreshRoot("fresh"), Promotions: []meta.PromotionRecord{{StartID: "drill/d/1", PromotedEpoch: 65536, LogEnd: 9}},
		}
		for _, r := range replicas {
			rec.Replicas = append(rec.Replicas, r.ID)
			rec.ISR = append(rec.ISR, meta.ISRMember{ID: r.ID, BrokerEpoch: r.Epoch})
		}
		t.Partitions = append(t.Partitions, rec)
	}
	return t
}

// TestCreateForks: all topics of a drill come to be at one revision.
func TestCreateForks(t *testing.T) {
	c := newCluster(t)
	me, other := c.register(1), c.register(2)
	plans, err := control.CreateForks(c.image, []control.ForkedTopic{forked("drill.d.a", 1, 2, me, other), forked("drill.d.b", 2, 1, other)}, me, limits)
	if err != nil || len(plans) != 1 {
		t.Fatalf("%d plans, %v", len(plans), err)
	}
	c.commit(plans...)
	a, _ := c.image.TopicByName("drill.d.a")
	b, _ := c.image.TopicByName("drill.d.b")
	if a == nil || b == nil || a.ModRevision != b.ModRevision || a.Record.Partitions != 2 || a.Record.Configs["retention.ms"] != "7" {
		t.Fatalf("%+v, %+v", a, b)
	}
	if p := c.partition(b.ID, 0); p.Leader != 2 || len(p.ISR) != 1 || !p.Writable {
		t.Errorf("%+v", p)
	}
}

// TestCreateForksNeedsTheRegistrations: a replica that has started anew since it made
// its fork has removed it, and must not be called in sync.
func TestCreateForksNeedsTheRegistrations(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	other, lease := c.registerLeased(2)
	topics := []control.ForkedTopic{forked("drill.d.a", 1, 1, me, other)}
	plans, err := control.CreateForks(c.image, topics, me, limits)
	if err != nil {
		t.Fatal(err)
	}
	c.store.ExpireLease(lease)
	c.sync()
	c.register(2)
	c.refused(plans[0])
	if _, ok := c.image.TopicByName("drill.d.a"); ok {
		t.Error("the fork was made")
	}
}

// TestCreateManyForks stops at every plan: nothing is visible before the last one.
func TestCreateManyForks(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	plans, err := control.CreateForks(c.image, []control.ForkedTopic{forked("drill.d.a", 1, 200, me), forked("drill.d.b", 2, 100, me)}, me, limits)
	if err != nil || len(plans) < 3 {
		t.Fatalf("%d plans, %v", len(plans), err)
	}
	for i, p := range plans {
		if len(p.If) > limits.Ops || len(p.Then) > limits.Ops {
			t.Fatalf("%s: %d compares, %d operations", p.Why, len(p.If), len(p.Then))
		}
		c.commit(p)
		_, a := c.image.TopicByName("drill.d.a")
		_, b := c.image.TopicByName("drill.d.b")
		if last := i == len(plans)-1; a != last || b != last {
			t.Fatalf("after plan %d of %d: a is there %v, b %v", i+1, len(plans), a, b)
		}
	}
}

func TestCreateForksRefuses(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	c.create(me, topicRequest("drill.d.taken", 1, 1))
	f := func(want error, words string, topics ...control.ForkedTopic) {
		t.Helper()
		_, err := control.CreateForks(c.image, topics, me, limits)
		wantError(t, err, want, words)
	}
	f(control.ErrTopicExists, "drill.d.taken", forked("drill.d.taken", 1, 1, me))
	f(control.ErrInvalidTopic, "differs from", forked("drill.d_taken", 1, 1, me))
	f(control.ErrInvalidTopic, "characters", forked("drill d", 1, 1, me))
	f(control.ErrInvalidPartitions, "with 0", forked("drill.d.a", 1, 0, me))
	few := forked("drill.d.a", 1, 1, me)
	few.Partitions[0].MinISR, few.Partitions[0].Replicas = 2, []types.BrokerID{1, 2}
	f(control.ErrInvalidReplication, "1 of 2", few)
	var many []control.ForkedTopic
	for i := range 80 {
		many = append(many, forked("drill.d."+string(rune('A'+i%26))+string(rune('A'+i/26)), byte(i+1), 1, me))
	}
	f(control.ErrInvalidRequest, "choose fewer", many...)
	_, err := control.CreateForks(c.image, []control.ForkedTopic{forked("drill.d.a", 1, 1, control.Me{ID: 1, Epoch: me.Epoch + 1})}, me, limits)
	wantError(t, err, control.ErrNotRegistered)
}
