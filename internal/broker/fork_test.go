package broker

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidemark/internal/broker/ids"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
)

// beginDrill writes the record of a drill d that is being made.
func beginDrill(t *testing.T, b *Broker, run string) *meta.Drill {
	t.Helper()
	if e, ok := b.Image().Drill("d"); ok {
		if e.Record.Run == run {
			return e
		}
		endDrill(t, b)
	}
	plan, err := control.BeginDrill(b.Image(), meta.DrillRecord{Name: "d", Run: run, Mirror: "m"}, b.me())
	if err == nil {
		err = b.commitAll(testContext(t), []meta.Plan{plan})
	}
	if err != nil {
		t.Fatal(err)
	}
	e, _ := b.Image().Drill("d")
	return e
}

// endDrill drops the drill d and waits until the controller has deleted it.
func endDrill(t *testing.T, b *Broker) {
	t.Helper()
	e, ok := b.Image().Drill("d")
	if !ok {
		t.Fatal("there is no drill to drop")
	}
	plan, _, err := control.DropDrill(b.Image(), e, b.me())
	if err == nil {
		err = b.commitAll(testContext(t), []meta.Plan{plan})
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the drill is deleted", func() bool { _, there := b.Image().DrillEntry("d"); return !there })
}

// forkRequest asks for a fork of all that topic a's partition holds.
func forkRequest(t *testing.T, b *Broker, run string) mirror.ForkRequest {
	t.Helper()
	d := beginDrill(t, b, run)
	p := mustPartition(t, b, "a", 0)
	v, _ := p.View()
	last, _ := v.History.EpochForOffset(v.LogEnd - 1)
	return mirror.ForkRequest{
		Of: meta.PartitionID{Topic: p.id}, As: meta.PartitionID{Topic: ids.Source(ids.System).FreshTopic()}, Name: types.TopicPartition{Topic: "drill.d.a"},
		To: v.LogEnd, LeaderEpoch: 0, LastEpoch: last, Epoch: 65536, TimelineID: "fork", Run: d.Record.Mark(), Begun: d.ModRevision,
	}
}

// makeForkTopic writes the metadata of a fork that was made.
func makeForkTopic(t *testing.T, b *Broker, r mirror.ForkRequest) {
	t.Helper()
	rec := meta.PartitionRecord{
		Replicas: []types.BrokerID{b.NodeID()}, ISR: []meta.ISRMember{{ID: b.NodeID(), BrokerEpoch: b.me().Epoch}}, Leader: b.NodeID(), LeaderBrokerEpoch: b.me().Epoch,
		LeaderEpoch: r.Epoch, MinISR: 1, Timelines: timeline.FreshRoot(r.TimelineID), Writable: true,
		Promotions: []meta.PromotionRecord{{StartID: "drill/d/1", PromotedEpoch: r.Epoch, LogEnd: r.To}},
	}
	topics := []control.ForkedTopic{{Name: r.Name.Topic, ID: r.As.Topic, Partitions: []meta.PartitionRecord{rec}}}
	plans, err := control.WriteForks(b.Image(), r.Run, topics, b.me(), b.limits())
	if err == nil {
		err = b.commitAll(testContext(t), plans)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := b.PartitionByName(r.Name.Topic, 0); ok {
		t.Error("the fork is a partition before its drill is ready")
	}
	show, err := control.FinishDrill(b.Image(), r.Run, topics, b.me(), b.limits())
	if err == nil {
		err = b.commitAll(testContext(t), []meta.Plan{show})
	}
	if err != nil {
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

// startWithFork is startForked, and a fork that is made.
func startWithFork(t *testing.T) (w *world, b *Broker, r mirror.ForkRequest) {
	t.Helper()
	w, b = startForked(t)
	r = forkRequest(t, b, "run")
	if _, err := (mirrorNode{b}).Fork(testContext(t), r); err != nil {
		t.Fatal(err)
	}
	if err := (mirrorNode{b}).ForksMade(); err != nil {
		t.Fatal(err)
	}
	return w, b, r
}

// awaitFork waits until a fork is a partition that is served.
func awaitFork(t *testing.T, b *Broker, r mirror.ForkRequest) {
	t.Helper()
	eventually(t, "the fork serves", func() bool {
		p, ok := b.PartitionByName("drill.d.a", 0)
		if !ok {
			return false
		}
		e, err := p.LeaderEpoch()
		return err == nil && e == r.Epoch
	})
}

// TestAForkBecomesAPartition: what a fork holds is there once its topic is, also if the
// power goes between the two.
func TestAForkBecomesAPartition(t *testing.T) {
	w, b, r := startWithFork(t)
	disk := w.fs.(*vfs.Mem).CrashClone(vfs.CrashConfig{})
	makeForkTopic(t, b, r)
	awaitFork(t, b, r)
	if list, err := b.Mirrors().Drills(testContext(t)); err != nil || len(list) != 1 || list[0].Offline != 0 || len(list[0].Faults) > 0 {
		t.Errorf("drills: %+v, %v", list, err)
	}
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

// TestForksThatComeToNothing are removed: with their drill's record, and at the next start.
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
	f("given up", func() { endDrill(t, b) })
	f("other drills end", func() {
		b.dropEndedForks(b.Image())
		if left := forksOnDisk(t, w.fs); len(left) != 1 {
			t.Error("the fork of a drill that is being made was removed:", left)
		}
		endDrill(t, b)
	})
	late := forkRequest(t, b, "late")
	endDrill(t, b)
	if _, err := n.Fork(testContext(t), late); err == nil || !strings.Contains(err.Error(), "was given up") {
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

// TestADiskThatRefusesAFork leaves the mirror's log as it is and says what helps.
func TestADiskThatRefusesAFork(t *testing.T) {
	w := newWorld(t)
	faults := faultfs.New(w.fs)
	w.fs = faults
	b := w.open()
	createTopic(t, b, "a", 1)
	mustAppend(t, mustPartition(t, b, "a", 0), "one", "two")
	p := mustPartition(t, b, "a", 0)
	if err := p.Do(testContext(t), func(o *Owned) error { return o.Log().Roll() }); err != nil {
		t.Fatal(err)
	}
	for _, refusal := range []struct {
		kind faultfs.Kind
		err  error
		says string
	}{
		{faultfs.Link, syscall.EMLINK, "delete earlier drills"},
		{faultfs.Link, syscall.EMFILE, "raise the limit"},
		{faultfs.Link, syscall.ENOSPC, "make some"},
		{faultfs.Link, &os.LinkError{Op: "link", Err: syscall.EOPNOTSUPP}, "delete earlier drills"},
		{faultfs.Create, syscall.ENFILE, "raise the limit"},
	} {
		fault := faults.Inject(faultfs.Rule{Kinds: refusal.kind, Pattern: "/*/*.fork/*", Err: refusal.err})
		_, err := (mirrorNode{b}).Fork(testContext(t), forkRequest(t, b, "run"))
		if !errors.Is(err, refusal.err) || !strings.Contains(err.Error(), refusal.says) || fault.Fired() == 0 {
			t.Errorf("%v, want one that says %q", err, refusal.says)
		}
		fault.Remove()
		if err := b.dirs[0].failure(); err != nil {
			t.Fatalf("%v takes the log dir offline: %v", refusal.err, err)
		}
		mustAppend(t, p, "more")
		eventually(t, "nothing is left", func() bool { return len(forksOnDisk(t, w.fs)) == 0 })
	}
}

// TestAForkIsAskedForTwice: a request that a broker gets twice has one answer, and the
// second doesn't take away what the first was told is there.
func TestAForkIsAskedForTwice(t *testing.T) {
	w, b := startForked(t)
	p := mustPartition(t, b, "a", 0)
	if err := p.Do(testContext(t), func(o *Owned) error { return o.Log().Roll() }); err != nil {
		t.Fatal(err)
	}
	r := forkRequest(t, b, "run")
	ctx, answers := testContext(t), make(chan error)
	for range 4 {
		go func() {
			_, err := (mirrorNode{b}).Fork(ctx, r)
			answers <- err
		}()
	}
	for range 4 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if _, err := (mirrorNode{b}).Fork(ctx, r); err != nil {
		t.Error("later:", err)
	}
	if left := forksOnDisk(t, w.fs); len(left) != 1 {
		t.Errorf("on the disk: %v", left)
	}
	makeForkTopic(t, b, r)
	awaitFork(t, b, r)
	if end := logEnd(t, mustPartition(t, b, "drill.d.a", 0)); end != r.To {
		t.Errorf("the fork ends at %d, expected %d", end, r.To)
	}
	dir := p.dir
	if _, err := dir.forks.claim(r.As, waitingFork{}); err == nil {
		t.Error("a fork that became a partition may be made again")
	}
	other := meta.DrillMark{Name: "none", Run: "gone"}
	dir.forks.put(meta.PartitionID{Number: 9}, waitingFork{run: other})
	dir.forks.take(meta.PartitionID{Number: 9})
	dir.forks.ended(b.Image(), func(meta.PartitionID) bool { return false })
	if _, here := dir.forks.spent[r.As]; !here || len(dir.forks.spent) != 1 {
		t.Errorf("remembered: %v", dir.forks.spent)
	}
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
