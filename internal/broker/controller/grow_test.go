package controller

import (
	"log/slog"
	"slices"
	"testing"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/mem"
)

// grower is a controller of a fresh cluster, whose records may tell of growth.
func (n *fakeNode) grower(want int) *Controller {
	n.t.Helper()
	if _, ok := n.Image().Features(); !ok {
		levels := meta.FreshFeatures(meta.SupportedFeatures())
		n.commit(meta.Plan{Why: "levels", Then: []meta.Op{meta.Put(n.image.Keys().Features(), levels.Encode())}})
	}
	return New(Options{Node: n, Logger: slog.New(slog.DiscardHandler), Grow: map[string]int{"a": want}})
}

// syncAdded brings the replicas that are being added into the ISR, as their leader would.
func (n *fakeNode) syncAdded(id types.TopicID) {
	n.t.Helper()
	image := n.Image()
	for p := range image.PartitionsOf(id) {
		next := p.Record.Clone()
		for _, b := range next.Adding {
			epoch, _ := image.BrokerEpoch(b)
			next.ISR = append(next.ISR, meta.ISRMember{ID: b, BrokerEpoch: epoch})
		}
		key := image.Keys().Partition(id, p.ID.Number)
		n.commit(meta.Plan{Why: "join", If: []meta.Compare{meta.ModRevisionIs(key, p.ModRevision)}, Then: []meta.Op{meta.Put(key, next.Encode())}})
	}
}

// look is a step after every partition was said to have changed.
func look(t *testing.T, c *Controller) {
	t.Helper()
	c.all = true
	step(t, c)
}

func (n *fakeNode) reassign(id types.TopicID, partition int32, target ...types.BrokerID) {
	n.t.Helper()
	p, _ := n.Image().PartitionEntry(id, partition)
	plan, _, err := control.Reassign(n.image, p, target, n.Me())
	if err != nil {
		n.t.Fatal(err)
	}
	n.commit(plan)
}

func (n *fakeNode) replicas(id types.TopicID) (counts []int, adding int) {
	for p := range n.Image().PartitionsOf(id) {
		if p.Record == nil {
			n.t.Fatal(p.Fault)
		}
		counts, adding = append(counts, len(p.Record.Target())), adding+len(p.Record.Adding)
	}
	return counts, adding
}

func TestOwnTopicsGrowWithTheCluster(t *testing.T) {
	store := mem.New()
	one := newFakeNode(t, store, 1)
	c := one.grower(3)
	id := one.create(3, 1)
	want := func(what string, adding int, counts ...int) {
		t.Helper()
		got, under := one.replicas(id)
		if !slices.Equal(got, counts) || under != adding {
			t.Errorf("%s: replicas %v, %d being added; want %v, %d", what, got, under, counts, adding)
		}
	}
	look(t, c)
	want("one broker", 0, 1, 1, 1)
	newFakeNode(t, store, 2)
	look(t, c)
	want("a second broker", 3, 2, 2, 2)
	newFakeNode(t, store, 3)
	look(t, c)
	want("a third one, while the second catches up", 3, 2, 2, 2)
	one.syncAdded(id)
	for range 3 {
		look(t, c) // the first reassignments end, the next begin
	}
	want("the second is in sync", 3, 3, 3, 3)
	one.syncAdded(id)
	look(t, c)
	want("all are in sync", 0, 3, 3, 3)
	if topic, _ := one.Image().Topic(id); topic.Record.GrownTo != 3 {
		t.Errorf("grown to %d", topic.Record.GrownTo)
	}

	one.reassign(id, 1, 1)
	newFakeNode(t, store, 4)
	look(t, c)
	look(t, one.grower(3)) // also another controller lets the operator have it so
	want("an operator takes replicas away", 0, 3, 1, 3)
	look(t, one.grower(4))
	want("the setting asks for more than ever", 5, 4, 4, 4)
}

// TestGrowthWaits: a reassignment under way is left alone, and a partition that
// others write holds nobody else up.
func TestGrowthWaits(t *testing.T) {
	store := mem.New()
	one := newFakeNode(t, store, 1)
	id := one.create(4, 1)
	newFakeNode(t, store, 2)
	newFakeNode(t, store, 3)
	one.reassign(id, 2, 3)
	c := one.grower(2)
	look(t, c)
	before, _ := one.Image().Partition(id, 2)
	if got, adding := one.replicas(id); !slices.Equal(got, []int{2, 2, 1, 2}) || adding != 4 {
		t.Errorf("replicas %v, %d being added", got, adding)
	}
	if topic, _ := one.Image().Topic(id); topic.Record.GrownTo != 0 {
		t.Errorf("grown to %d before all partitions are", topic.Record.GrownTo)
	}
	look(t, c)
	if after, _ := one.Image().Partition(id, 2); !slices.Equal(after.Replicas, before.Replicas) || !slices.Equal(after.Adding, before.Adding) {
		t.Errorf("an operator's reassignment became %v adding %v", after.Replicas, after.Adding)
	}
	one.syncAdded(id)
	for range 3 {
		look(t, c)
	}
	got, adding := one.replicas(id)
	topic, _ := one.Image().Topic(id)
	if !slices.Equal(got, []int{2, 2, 2, 2}) || adding != 1 || topic.Record.GrownTo != 2 {
		t.Errorf("in the end: replicas %v, %d being added, grown to %d", got, adding, topic.Record.GrownTo)
	}
}

// TestGrowthContended: a partition whose record others write at every turn doesn't hold up the rest.
func TestGrowthContended(t *testing.T) {
	store := mem.New()
	one := newFakeNode(t, store, 1)
	id := one.create(5, 1)
	newFakeNode(t, store, 2)
	c := one.grower(3)
	look(t, c)
	one.syncAdded(id)
	newFakeNode(t, store, 3)
	key := one.Image().Keys().Partition(id, 3)
	one.before = func() {
		r, rev := one.Image().Partition(id, 3)
		one.commit(meta.Plan{Why: "contend", If: []meta.Compare{meta.ModRevisionIs(key, rev)}, Then: []meta.Op{meta.Put(key, r.Encode())}})
	}
	look(t, c)
	look(t, c)
	if got, _ := one.replicas(id); !slices.Equal(got, []int{3, 3, 3, 2, 3}) {
		t.Errorf("replicas %v", got)
	}
	one.before = nil
	for range 3 {
		look(t, c)
	}
	if got, _ := one.replicas(id); !slices.Equal(got, []int{3, 3, 3, 3, 3}) {
		t.Errorf("in the end: replicas %v", got)
	}
}
