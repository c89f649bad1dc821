package broker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tidemark/internal/broker/ids"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// forkRequest asks for a fork of all that topic a's partition holds.
func forkRequest(t *testing.T, b *Broker, run string) mirror.ForkRequest {
	t.Helper()
	p := mustPartition(t, b, "a", 0)
	v, _ := p.View()
	last, _ := v.History.EpochForOffset(v.LogEnd - 1)
	return mirror.ForkRequest{
		Of: meta.PartitionID{Topic: p.id}, As: meta.PartitionID{Topic: ids.Source(ids.System).FreshTopic()}, Name: types.TopicPartition{Topic: "drill.d.a"},
		To: v.LogEnd, LeaderEpoch: 0, LastEpoch: last, Epoch: 65536, TimelineID: "fork", By: b.NodeID(), ByEpoch: b.me().Epoch, Run: run,
	}
}

// makeForkTopic writes the metadata of a fork that was made.
func makeForkTopic(t *testing.T, b *Broker, r mirror.ForkRequest) {
	t.Helper()
	rec := meta.PartitionRecord{
		Replicas: []types.BrokerID{b.NodeID()}, ISR: []meta.ISRMember{{ID: b.NodeID(), BrokerEpoch: r.ByEpoch}}, Leader: b.NodeID(), LeaderBrokerEpoch: r.ByEpoch,
		LeaderEpoch: r.Epoch, MinISR: 1, Timelines: timeline.FreshRoot(r.TimelineID), Writable: true,
		Promotions: []meta.PromotionRecord{{StartID: "drill/d/1", PromotedEpoch: r.Epoch, LogEnd: r.To}},
	}
	plans, err := control.CreateForks(b.Image(), []control.ForkedTopic{{Name: r.Name.Topic, ID: r.As.Topic, Partitions: []meta.PartitionRecord{rec}}}, b.me(), b.limits())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.commitAll(testContext(t), plans); err != nil {
		t.Fatal(err)
	}
}

// forksOnDisk lists what in a log dir is, or was to be, a fork.
func forksOnDisk(t *testing.T, fsys vfs.FS) []string {
	t.Helper()
	names, err := fsys.List("/data")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasSuffix(name, forkSuffix) && !strings.HasPrefix(name, "drill.") || strings.HasSuffix(name, deleteSuffix)
	})
}

func startForked(t *testing.T) (w *world, b *Broker) {
	t.Helper()
	w = newWorld(t)
	b = w.open()
	createTopic(t, b, "a", 1)
	mustAppend(t, mustPartition(t, b, "a", 0), "one", "two")
	mustAppend(t, mustPartition(t, b, "a", 0), "three")
	return w, b
}

// TestAForkBecomesAPartition: what a fork holds is there once its topic is, also if the
// power goes between the two.
func TestAForkBecomesAPartition(t *testing.T) {
	w, b := startForked(t)
	r := forkRequest(t, b, "run")
	if _, err := (mirrorNode{b}).Fork(testContext(t), r); err != nil {
		t.Fatal(err)
	}
	if err := (mirrorNode{b}).ForksMade(); err != nil {
		t.Fatal(err)
	}
	disk := w.fs.(*vfs.Mem).CrashClone(vfs.CrashConfig{})
	makeForkTopic(t, b, r)
	eventually(t, "the fork serves", func() bool {
		p, ok := b.PartitionByName("drill.d.a", 0)
		if !ok {
			return false
		}
		e, err := p.LeaderEpoch()
		return err == nil && e == r.Epoch
	})
	if err := (mirrorNode{b}).Prove(testContext(t), r.As, []byte("k"), []byte("v"), time.Minute); err != nil {
		t.Error(err)
	}
	if end := logEnd(t, mustPartition(t, b, "drill.d.a", 0)); end != r.To+1 {
		t.Errorf("the fork ends at %d", end)
	}
	if end := logEnd(t, mustPartition(t, b, "a", 0)); end != r.To {
		t.Errorf("the log ends at %d", end)
	}
	closeNode(t, b)
	crashed := w.with()
	crashed.fs = disk
	b = crashed.open()
	eventually(t, "the fork's log is open", func() bool {
		p, ok := b.PartitionByName("drill.d.a", 0)
		if !ok {
			return false
		}
		v, open := p.View()
		return open && v.LogEnd == r.To && v.HighWatermark == r.To
	})
	if left := forksOnDisk(t, disk); len(left) != 1 || left[0] != "drill.d.a-0" {
		t.Errorf("on the disk: %v", left)
	}
}

// TestForksThatComeToNothing are removed: by the drill that gives up, at the next start,
// and once the broker that asked for them is gone.
func TestForksThatComeToNothing(t *testing.T) {
	w, b := startForked(t)
	n := mirrorNode{b}
	f := func(what string, remove func()) {
		t.Helper()
		r := forkRequest(t, b, what)
		if _, err := n.Fork(testContext(t), r); err != nil {
			t.Fatal(what, err)
		}
		if left := forksOnDisk(t, w.fs); len(left) != 1 {
			t.Fatal(what, left)
		}
		remove()
		eventually(t, what+": nothing is left", func() bool { return len(forksOnDisk(t, w.fs)) == 0 })
		if m := b.dirs[0].checkpoints.Get(r.Name); m.RecoveryPoint != 0 {
			t.Errorf("%s: the checkpoint files still have %+v", what, m)
		}
	}
	f("given up", func() { n.DropForks(b.NodeID(), "") })
	f("the next drill", func() {
		n.DropForks(b.NodeID(), "the next drill") // its own
		n.DropForks(9, "")                        // another broker's
		if left := forksOnDisk(t, w.fs); len(left) != 1 {
			t.Error("a fork of another run was removed:", left)
		}
		n.DropForks(b.NodeID(), "a later one")
	})
	f("its broker is gone", func() { b.dropEndedForks(meta.Empty(b.ClusterID())) })

	r := forkRequest(t, b, "a lapsed registration")
	r.ByEpoch--
	if _, err := n.Fork(testContext(t), r); err == nil || !strings.Contains(err.Error(), "not registered any more") {
		t.Error(err)
	}
	if _, err := n.Fork(testContext(t), forkRequest(t, b, "a crash")); err != nil {
		t.Fatal(err)
	}
	if err := n.ForksMade(); err != nil {
		t.Fatal(err)
	}
	closeNode(t, b)
	b = w.open()
	eventually(t, "the start removes what is left", func() bool { return len(forksOnDisk(t, w.fs)) == 0 })
	if end := logEnd(t, mustPartition(t, b, "a", 0)); end != 3 {
		t.Errorf("the log ends at %d", end)
	}
}

// TestForkOfWhatIsNotCommittedIsRefused: another leader epoch, a replica that isn't in
// sync, offsets that the log lacks, another history.
func TestForkOfWhatIsNotCommittedIsRefused(t *testing.T) {
	w, b := startForked(t)
	n := mirrorNode{b}
	f := func(want string, change func(*mirror.ForkRequest)) {
		t.Helper()
		r := forkRequest(t, b, "run")
		change(&r)
		if _, err := n.Fork(testContext(t), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f("another leader epoch", func(r *mirror.ForkRequest) { r.LeaderEpoch = 1 })
	f("the fork ends at 4", func(r *mirror.ForkRequest) { r.To = 4 })
	f("of epoch 0 here and of 5", func(r *mirror.ForkRequest) { r.LastEpoch = 5 })
	f("doesn't hold", func(r *mirror.ForkRequest) { r.Of.Number = 7 })
	f("topic a exists", func(r *mirror.ForkRequest) { r.Name.Topic = "a" })
	f("inside the batch", func(r *mirror.ForkRequest) { r.To = 1 })
	eventually(t, "nothing is left", func() bool { return len(forksOnDisk(t, w.fs)) == 0 })
}

func TestForkFolders(t *testing.T) {
	id := meta.PartitionID{Topic: ids.Source(ids.System).FreshTopic(), Number: 12}
	if got, ok := parseForkFolder(forkFolder(id)); !ok || got != id {
		t.Errorf("%s: %v, %v", forkFolder(id), got, ok)
	}
	for _, name := range []string{"", ".fork", "a-0.fork", "a-0", forkFolder(id) + "x", strings.Replace(forkFolder(id), "12.", "012.", 1)} {
		if got, ok := parseForkFolder(name); ok {
			t.Errorf("%q is taken for %v", name, got)
		}
	}
	if _, ok := folderPartition(forkFolder(id)); ok {
		t.Error("a fork's folder is taken for a partition's")
	}
}
