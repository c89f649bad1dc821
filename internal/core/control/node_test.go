package control_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// registerWith registers a broker with the given folders, or gives the refusal.
func (c *cluster) registerWith(id types.BrokerID, folders []string, features meta.Features) (control.Me, meta.LeaseID, error) {
	c.t.Helper()
	lease, err := c.store.Grant(context.Background(), time.Minute)
	if err != nil {
		c.t.Fatal(err)
	}
	record := broker(id)
	record.DirectoryID, record.Directories, record.Features = folders[0], folders, features
	plans, err := control.RegisterBroker(c.image, record, lease)
	if err != nil {
		return control.Me{}, 0, err
	}
	c.commit(plans...)
	epoch, _ := c.image.BrokerEpoch(id)
	return control.Me{ID: id, Epoch: epoch}, lease, nil
}

func wantSentence(t *testing.T, err, want error, words string) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), words) {
		t.Errorf("%v, want one that matches %v and says %q", err, want, words)
	}
}

// TestReplaceNode: another folder takes a node's id only where nothing would be
// lost by a mistake, or where an operator says that the machine is gone.
func TestReplaceNode(t *testing.T) {
	c := newCluster(t)
	one, _, err := c.registerWith(1, []string{"d1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, lease, err := c.registerWith(2, []string{"d2", "d2b"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = c.registerWith(2, []string{"new"}, nil)
	wantSentence(t, err, control.ErrNodeIDInUse, "choose another node id")
	_, err = control.ReplaceNode(c.image, 2, one)
	wantSentence(t, err, control.ErrNodeIDInUse, "it is registered")

	// A node without replicas may come with a new folder; with one of several, it is the same node.
	c.store.ExpireLease(lease)
	c.sync()
	if _, lease, err = c.registerWith(2, []string{"other"}, nil); err != nil {
		t.Fatal(err)
	}
	c.store.ExpireLease(lease)
	c.sync()
	if _, lease, err = c.registerWith(2, []string{"other", "more"}, nil); err != nil {
		t.Fatal(err)
	}
	r := topicRequest("a", 1, 0)
	r.Assignment = [][]types.BrokerID{{1, 2}}
	c.create(one, r)
	r = topicRequest("b", 1, 0)
	r.Assignment = [][]types.BrokerID{{2}}
	c.create(one, r)
	c.store.ExpireLease(lease)
	c.sync()
	if _, lease, err = c.registerWith(2, []string{"more"}, nil); err != nil {
		t.Fatal(err)
	}
	c.store.ExpireLease(lease)
	c.sync()
	_, _, err = c.registerWith(2, []string{"new"}, nil)
	wantSentence(t, err, control.ErrOtherFolder, "tidemark cluster replace 2")
	wantSentence(t, err, control.ErrOtherFolder, "replicas of 2 partitions")
	_, err = control.ForgetNode(c.image, 2, one)
	wantSentence(t, err, control.ErrInvalidRequest, "cluster decommission 2")

	got, err := control.ReplaceNode(c.image, 2, one)
	if err != nil || got.Replicas != 2 || got.Only != 1 || got.Done {
		t.Fatalf("%+v, %v", got, err)
	}
	c.commit(got.Plan)
	if got, err = control.ReplaceNode(c.image, 2, one); err != nil || !got.Done {
		t.Fatalf("again: %+v, %v", got, err)
	}
	for _, old := range []string{"more", "other"} {
		_, _, err = c.registerWith(2, []string{old}, nil)
		wantSentence(t, err, control.ErrNodeReplaced, "before it was replaced")
	}
	if _, lease, err = c.registerWith(2, []string{"new"}, nil); err != nil {
		t.Fatal(err)
	}
	c.store.ExpireLease(lease)
	c.sync()
	_, _, err = c.registerWith(2, []string{"newer"}, nil)
	wantSentence(t, err, control.ErrOtherFolder, "tidemark cluster replace 2")
	_, err = control.ReplaceNode(c.image, 7, one)
	wantSentence(t, err, control.ErrUnknownNode, "cluster status")
}

// TestReplacedCountsForNothing (R11): the new machine's empty log is no in-sync
// replica, whatever the record said of its predecessor.
func TestReplacedCountsForNothing(t *testing.T) {
	c := newCluster(t)
	one, lease1, err := c.registerWith(1, []string{"d1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, lease2, err := c.registerWith(2, []string{"d2"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	boss := c.office(one, lease1)
	r := topicRequest("a", 1, 0)
	r.Assignment = [][]types.BrokerID{{2, 1}}
	id := c.create(one, r).ID
	two, _ := c.image.BrokerEpoch(2)
	c.update(id, control.Me{ID: 2, Epoch: two}, func(r *meta.PartitionRecord) { r.ISR = r.ISR[:1] }) // 1 fell behind
	c.store.ExpireLease(lease2)
	c.sync()
	c.settleAll(boss, control.Policy{})
	got, err := control.ReplaceNode(c.image, 2, one)
	if err != nil {
		t.Fatal(err)
	}
	c.commit(got.Plan)
	if _, _, err := c.registerWith(2, []string{"new"}, nil); err != nil {
		t.Fatal(err)
	}
	if changes := c.settleAll(boss, control.Policy{}); len(changes) != 0 {
		t.Fatalf("%+v: the only in-sync replica is gone, and its successor is empty", changes)
	}
}

func TestForgetNode(t *testing.T) {
	c := newCluster(t)
	one, _, err := c.registerWith(1, []string{"d1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, lease, err := c.registerWith(2, []string{"d2"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = control.ForgetNode(c.image, 2, one)
	wantSentence(t, err, control.ErrInvalidRequest, "stop it first")
	c.store.ExpireLease(lease)
	c.sync()
	plan, err := control.ForgetNode(c.image, 2, one)
	if err != nil {
		t.Fatal(err)
	}
	c.commit(plan)
	if _, ok := c.image.Node(2); ok {
		t.Error("node 2 is still known")
	}
	_, err = control.ForgetNode(c.image, 2, one)
	wantSentence(t, err, control.ErrUnknownNode, "broker 2")
}

// TestUpdateFeatures: a level is finalized only if every broker supports it, and
// no broker registers that doesn't support what is finalized.
func TestUpdateFeatures(t *testing.T) {
	c := newCluster(t)
	is := func(low, high int16) meta.Features { return meta.Features{meta.FeatureMetadata: {Min: low, Max: high}} }
	one, _, err := c.registerWith(1, []string{"d1"}, is(1, 3))
	if err != nil {
		t.Fatal(err)
	}
	_, lease, err := c.registerWith(2, []string{"d2"}, is(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	update := func(f control.FeatureChange) (bool, error) {
		plan, ok, err := control.UpdateFeatures(c.image, []control.FeatureChange{f}, is(1, 3), one)
		if err == nil && ok {
			c.commit(plan)
		}
		return ok, err
	}
	f := func(change control.FeatureChange, words string) {
		t.Helper()
		change.Name = meta.FeatureMetadata
		_, err := update(change)
		wantSentence(t, err, control.ErrFeatureLevel, words)
	}
	_, err = update(control.FeatureChange{Name: "metadata.version", Level: 20})
	wantSentence(t, err, control.ErrFeatureLevel, "no such feature")
	f(control.FeatureChange{Level: 4}, "supports 1 to 3")
	f(control.FeatureChange{Level: 0}, "can't be turned off")
	f(control.FeatureChange{Level: 3}, "broker 2 (")
	if ok, err := update(control.FeatureChange{Name: meta.FeatureMetadata, Level: 1}); ok || err != nil {
		t.Fatalf("the present level: %v, %v", ok, err)
	}
	if ok, err := update(control.FeatureChange{Name: meta.FeatureMetadata, Level: 2}); !ok || err != nil {
		t.Fatalf("level 2: %v, %v", ok, err)
	}
	f(control.FeatureChange{Level: 1}, "say so")
	f(control.FeatureChange{Level: 1, Down: true}, "unsafe")
	f(control.FeatureChange{Level: 3, Down: true}, "no downgrade")
	stale, _, err := control.UpdateFeatures(c.image, []control.FeatureChange{{Name: meta.FeatureMetadata, Level: 1, Down: true, Unsafe: true}}, is(1, 3), one)
	if err != nil {
		t.Fatal(err)
	}
	c.store.ExpireLease(lease)
	c.sync()
	c.refused(stale) // 2's registration was part of the decision
	if _, err := update(control.FeatureChange{Name: meta.FeatureMetadata, Level: 3}); err != nil {
		t.Fatal(err)
	}
	if got := c.image.FeatureLevel(meta.FeatureMetadata); got != 3 {
		t.Fatalf("level %d", got)
	}
	_, _, err = c.registerWith(2, []string{"d2"}, is(1, 2))
	wantSentence(t, err, control.ErrFeatureLevel, "too old for the cluster")
	_, _, err = c.registerWith(5, []string{"d5"}, is(4, 6))
	wantSentence(t, err, control.ErrFeatureLevel, "too new for the cluster")
}
