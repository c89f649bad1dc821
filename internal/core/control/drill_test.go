package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
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

// raise finalizes the level from which there are drills.
func (c *cluster) raise(level int16) {
	c.t.Helper()
	_, revision := c.image.FinalizedFeatures()
	key := c.image.Keys().Features()
	c.commit(meta.Plan{Why: "raise", If: []meta.Compare{meta.ModRevisionIs(key, revision)},
		Then: []meta.Op{meta.Put(key, meta.FeaturesRecord{Levels: map[string]int16{meta.FeatureMetadata: level}}.Encode())}})
}

// drilling is a drill's making, plan by plan.
type drilling struct {
	run    meta.DrillMark
	topics []control.ForkedTopic
	me     control.Me
}

func newDrilling(me control.Me, run string, topics int, replicas ...control.Me) drilling {
	d := drilling{run: meta.DrillMark{Name: "d", Run: run}, me: me}
	for i := range topics {
		t := forked(fmt.Sprintf("drill.d.t%d", i), 0, 1+i%3, replicas...)
		copy(t.ID[:], fmt.Sprintf("%s/%04d", run, i))
		d.topics = append(d.topics, t)
	}
	return d
}

func (d drilling) begin(image *meta.Image) (meta.Plan, error) {
	return control.BeginDrill(image, meta.DrillRecord{Name: d.run.Name, Run: d.run.Run, Mirror: "m", At: 7}, d.me)
}

func (c *cluster) begin(d drilling) {
	c.t.Helper()
	plan, err := d.begin(c.image)
	if err != nil {
		c.t.Fatal(err)
	}
	c.commit(plan)
}

// writes are the plans of all topics.
func (c *cluster) writes(d drilling) []meta.Plan {
	c.t.Helper()
	plans, err := control.WriteForks(c.image, d.run, d.topics, d.me, limits)
	if err != nil {
		c.t.Fatal(err)
	}
	return plans
}

func (c *cluster) finish(d drilling) meta.Plan {
	c.t.Helper()
	plan, err := control.FinishDrill(c.image, d.run, d.topics, d.me, limits)
	if err != nil {
		c.t.Fatal(err)
	}
	return plan
}

func (c *cluster) make(d drilling) {
	c.t.Helper()
	c.begin(d)
	c.commit(c.writes(d)...)
	c.commit(c.finish(d))
}

func (c *cluster) drop(me control.Me) meta.Plan {
	c.t.Helper()
	d, _ := c.image.Drill("d")
	plan, ok, err := control.DropDrill(c.image, d, me)
	if !ok || err != nil {
		c.t.Fatal(ok, err)
	}
	return plan
}

// tidy plays the controller until it has nothing to do.
func (c *cluster) tidy(me control.Me) {
	c.t.Helper()
	for n := 0; ; n++ {
		plans := control.TidyDrills(c.image, me, limits)
		if len(plans) == 0 {
			return
		}
		if n > 10 {
			c.t.Fatalf("it doesn't come to an end: %s", plans[0].Why)
		}
		c.commit(plans...)
	}
}

// visible counts the topics and partitions of drills that are seen.
func (c *cluster) visible() (topics, partitions int) {
	for t := range c.image.Topics() {
		if t.Record.Drill != nil {
			topics++
			partitions += len(slices.Collect(c.image.PartitionsOf(t.ID)))
		}
	}
	return topics, partitions
}

// left lists the keys that speak of drills.
func (c *cluster) left() (left []string) {
	for _, e := range meta.Describe(c.image, "").Entries {
		for _, kind := range []string{"drills/", "topics/", "names/", "partitions/"} {
			if strings.HasPrefix(e.Key, kind) {
				left = append(left, e.Key)
			}
		}
	}
	return left
}

// TestADrillOfAnySize: 500 topics come to be at one revision, and go at one.
func TestADrillOfAnySize(t *testing.T) {
	c := newCluster(t)
	c.raise(meta.LevelDrills)
	me, other := c.register(1), c.register(2)
	d := newDrilling(me, "r", 500, me, other)
	c.begin(d)
	plans := c.writes(d)
	if len(plans) < 10 {
		t.Fatalf("%d plans: nothing to see", len(plans))
	}
	for _, p := range plans {
		if len(p.If) > limits.Ops || len(p.Then) > limits.Ops {
			t.Fatalf("%s: %d compares, %d operations", p.Why, len(p.If), len(p.Then))
		}
		c.commit(p)
		if n, _ := c.visible(); n > 0 {
			t.Fatalf("after %q %d topics are seen", p.Why, n)
		}
	}
	c.commit(c.finish(d))
	if topics, partitions := c.visible(); topics != 500 || partitions != 999 {
		t.Fatalf("%d topics, %d partitions", topics, partitions)
	}
	a, _ := c.image.TopicByName("drill.d.t1")
	if a == nil || a.Record.Configs["retention.ms"] != "7" || c.partition(a.ID, 1).Leader != 1 || !c.partition(a.ID, 1).Writable {
		t.Errorf("%+v", a)
	}
	c.commit(c.drop(other))
	if n, _ := c.visible(); n > 0 {
		t.Fatalf("%d topics are seen of a dropped drill", n)
	}
	c.tidy(other)
	if left := c.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestADrillsMakerDiesAtEveryStep: whatever it had written goes, and the name is free again.
func TestADrillsMakerDiesAtEveryStep(t *testing.T) {
	for steps := 0; ; steps++ {
		c := newCluster(t)
		c.raise(meta.LevelDrills)
		boss := c.register(2)
		me, lease := c.registerLeased(1)
		d := newDrilling(me, "r", 100, me, boss)
		plan, err := d.begin(c.image)
		if err != nil {
			t.Fatal(err)
		}
		c.commit(plan)
		rest := c.writes(d)
		did := min(steps, len(rest))
		c.commit(rest[:did]...)
		if c.tidy(boss); len(c.left()) == 0 {
			t.Fatal("a drill was dropped while it is made")
		}
		var last *meta.Plan
		if did == len(rest) {
			p := c.finish(d)
			last = &p
		}
		c.store.ExpireLease(lease)
		c.sync()
		c.tidy(boss)
		if left := c.left(); len(left) > 0 {
			t.Fatalf("after %d of %d steps these are left: %v", steps, len(rest), left)
		}
		// What the dead maker still has in flight comes to nothing, also beside a later drill of the name.
		again := newDrilling(boss, "again", 3, boss)
		c.make(again)
		for _, late := range rest[did:] {
			c.refused(late)
		}
		if last != nil {
			c.refused(*last)
		}
		if n, _ := c.visible(); n != 3 {
			t.Fatalf("%d topics of the later drill", n)
		}
		if last != nil {
			return
		}
	}
}

// TestDropWhileMaking fences the maker: from then on nothing of the drill is written.
func TestDropWhileMaking(t *testing.T) {
	c := newCluster(t)
	c.raise(meta.LevelDrills)
	me, boss := c.register(1), c.register(2)
	d := newDrilling(me, "r", 100, me)
	c.begin(d)
	plans := c.writes(d)
	c.commit(plans[0])
	c.commit(c.drop(boss))
	for _, p := range plans[1:] {
		c.refused(p)
	}
	c.tidy(boss)
	again := newDrilling(me, "again", 3, me)
	c.begin(again)
	c.commit(c.writes(again)...)
	show := c.finish(again)
	c.commit(c.drop(boss))
	c.refused(show)
	_, err := control.FinishDrill(c.image, d.run, d.topics, me, limits)
	wantError(t, err, control.ErrDrillOver)
	_, err = control.WriteForks(c.image, d.run, d.topics, me, limits)
	wantError(t, err, control.ErrDrillOver)
	dropped, _ := c.image.Drill("d")
	if _, ok, err := control.DropDrill(c.image, dropped, boss); ok || err != nil {
		t.Errorf("dropped twice: %v, %v", ok, err)
	}
	c.tidy(boss)
	if left := c.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestFinishNeedsTheRegistrations: a replica that has started anew since it made
// its fork has removed it, and must not be called in sync.
func TestFinishNeedsTheRegistrations(t *testing.T) {
	c := newCluster(t)
	c.raise(meta.LevelDrills)
	me := c.register(1)
	other, lease := c.registerLeased(2)
	d := newDrilling(me, "r", 2, me, other)
	c.begin(d)
	c.commit(c.writes(d)...)
	plan := c.finish(d)
	c.store.ExpireLease(lease)
	c.sync()
	c.register(2)
	c.refused(plan)
	c.refused(c.finish(d))
	if n, _ := c.visible(); n > 0 {
		t.Error("the fork was made")
	}
}

func TestDrillsThatAreRefused(t *testing.T) {
	c := newCluster(t)
	c.raise(meta.LevelDrills - 1)
	me, other := c.register(1), c.register(2)
	d := newDrilling(me, "r", 2, me)
	_, err := d.begin(c.image)
	wantSentence(t, err, control.ErrDrillLevel, "tidemark cluster upgrade")
	c.raise(meta.LevelDrills)
	c.create(me, topicRequest("drill.d.taken", 1, 1))
	stale := c.image
	c.begin(d)
	_, err = newDrilling(other, "r2", 1, other).begin(c.image)
	wantError(t, err, control.ErrDrillExists, "drill d")
	late, err := newDrilling(other, "r2", 1, other).begin(stale)
	if err != nil {
		t.Fatal(err)
	}
	c.refused(late)
	f := func(want error, words string, topics ...control.ForkedTopic) {
		t.Helper()
		_, err := control.WriteForks(c.image, d.run, topics, me, limits)
		wantError(t, err, want, words)
	}
	f(control.ErrTopicExists, "drill.d.taken", forked("drill.d.taken", 1, 1, me))
	f(control.ErrInvalidTopic, "differs from", forked("drill.d_taken", 1, 1, me))
	f(control.ErrInvalidTopic, "characters", forked("drill d", 1, 1, me))
	f(control.ErrInvalidPartitions, "with 0", forked("drill.d.a", 1, 0, me))
	few := forked("drill.d.a", 1, 1, me)
	few.Partitions[0].MinISR, few.Partitions[0].Replicas = 2, []types.BrokerID{1, 2}
	f(control.ErrInvalidReplication, "1 of 2", few)
	_, err = control.WriteForks(c.image, d.run, d.topics, other, limits)
	wantError(t, err, control.ErrNotRegistered, "made by broker 1")
	_, err = control.FinishDrill(c.image, d.run, d.topics, me, limits)
	wantError(t, err, control.ErrDrillOver, "0 of 2 topics")
	c.commit(c.writes(d)...)
	_, err = control.FinishDrill(c.image, d.run, d.topics, me, control.Limits{Ops: 1})
	wantError(t, err, control.ErrInvalidRequest, "fewer brokers")
	// Clients that want such a topic are told whose it is.
	_, err = control.CreateTopic(c.image, topicRequest("drill.d.t0", 1, 1), me, limits)
	wantError(t, err, control.ErrTopicExists, "drill d, which is being made")
}

// TestDrillsInAnyOrder: makers, droppers and controllers that act on images of any age.
// All topics of a run are seen or none, and only of one that was finished and not
// dropped; when everybody has gone nothing is left.
func TestDrillsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := newCluster(t)
		c.raise(meta.LevelDrills)
		var images []*meta.Image
		old := func() *meta.Image { return images[max(0, len(images)-1-rapid.IntRange(0, 4).Draw(r, "age"))] }
		// try commits plans as far as they are accepted.
		try := func(plans ...meta.Plan) bool {
			for _, p := range plans {
				_, err := metastore.Commit(context.Background(), c.store, p)
				if err != nil && !errors.Is(err, metastore.ErrRefused) {
					r.Fatal(err)
				}
				c.sync()
				images = append(images, c.image)
				if err != nil {
					return false
				}
			}
			return true
		}
		type maker struct {
			drilling
			lease meta.LeaseID
			rest  []meta.Plan
		}
		const topics = 27 // two transactions
		var makers []*maker
		for n := range 2 {
			me, lease := c.registerLeased(types.BrokerID(n + 1))
			makers = append(makers, &maker{drilling: newDrilling(me, fmt.Sprint("r", n), topics, me), lease: lease})
		}
		boss := c.register(9)
		images = append(images, c.image)
		finished := map[string]bool{}
		for range rapid.IntRange(5, 30).Draw(r, "steps") {
			m := makers[rapid.IntRange(0, 1).Draw(r, "maker")]
			switch rapid.IntRange(0, 11).Draw(r, "what") {
			case 0, 1, 2, 3, 4:
				if plan, err := m.begin(old()); err == nil && try(plan) {
					m.rest, _ = control.WriteForks(c.image, m.run, m.topics, m.me, limits)
				} else if len(m.rest) > 0 && try(m.rest[0]) {
					m.rest = m.rest[1:]
				}
			case 5, 6, 7:
				if plan, err := control.FinishDrill(old(), m.run, m.topics, m.me, limits); err == nil && try(plan) {
					finished[m.run.Run] = true
				}
			case 8, 9:
				image := old()
				if d, ok := image.Drill("d"); ok {
					if plan, due, err := control.DropDrill(image, d, boss); err == nil && due && try(plan) {
						delete(finished, d.Record.Run)
					}
				}
			case 10:
				try(control.TidyDrills(old(), boss, limits)...)
			case 11:
				c.store.ExpireLease(m.lease)
				c.sync()
			}
			want := topics * len(finished)
			if n, partitions := c.visible(); n != want || partitions != 2*want {
				r.Fatalf("%d topics and %d partitions are seen, %d were finished", n, partitions, want)
			}
		}
		for _, m := range makers {
			c.store.ExpireLease(m.lease)
		}
		c.sync()
		c.tidy(boss)
		if d, ok := c.image.Drill("d"); ok && finished[d.Record.Run] {
			c.commit(c.drop(boss))
			c.tidy(boss)
		}
		if left := c.left(); len(left) > 0 {
			r.Fatalf("left: %v", left)
		}
	})
}
