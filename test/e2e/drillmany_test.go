package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/mem"
	"tidemark/test/e2e/harness"
)

const manyTopics = 205

// drillWatch replays every revision of a store and checks that all topics of a drill
// are seen at it, or none.
type drillWatch struct {
	t     *testing.T
	w     *mem.Watcher
	image *meta.Image
	shown int // revisions at which all of it appeared
}

func watchDrills(t *testing.T, c *harness.Cluster) *drillWatch {
	image := meta.Empty(c.Any().ClusterID())
	return &drillWatch{t: t, w: c.Store.NewWatcher(context.Background(), image.Keys().Root(), 0), image: image}
}

// check replays what came since, and gives how many topics of the drill are seen at last.
func (d *drillWatch) check() (seen int) {
	d.t.Helper()
	for {
		events, ok, err := d.w.Poll()
		if err != nil {
			d.t.Fatal(err)
		}
		if !ok {
			break
		}
		before := d.seen()
		d.image, _ = d.image.Apply(events)
		switch seen = d.seen(); {
		case seen == manyTopics && before == 0:
			d.shown++
		case seen != 0 && seen != manyTopics:
			d.t.Fatalf("revision %d shows %d of %d topics", events.Revision, seen, manyTopics)
		}
	}
	return d.seen()
}

func (d *drillWatch) seen() (n int) {
	for t := range d.image.TopicsByName() {
		if strings.HasPrefix(t.Record.Name, "drill.many.") {
			n++
		}
	}
	return n
}

// left lists the keys that speak of the drill.
func (d *drillWatch) left() (left []string) {
	for _, prefix := range []string{"drills/", "names/drill."} {
		for _, e := range meta.Describe(d.image, prefix).Entries {
			left = append(left, e.Key)
		}
	}
	for id := range d.image.Orphans() {
		left = append(left, fmt.Sprint(id))
	}
	return left
}

// ofDrill matches the n-th transaction, from 1 on, that writes topics of a drill; the
// last one, which shows them, for n = 0.
func ofDrill(n int) func(metastore.Txn) bool {
	count := 0
	return func(txn metastore.Txn) bool {
		for _, op := range txn.Then {
			switch {
			case n == 0 && strings.Contains(op.Key, "/drills/") && strings.Contains(string(op.Value), meta.DrillReady):
				return true
			case n > 0 && strings.Contains(op.Key, "/partitions/") && strings.Contains(string(op.Value), "drill/many/"):
				count++
				return count == n
			}
		}
		return false
	}
}

// TestADrillOfManyTopics: more topics than several transactions of the store can make.
// They are seen at one revision and gone at one; a drill that is dropped while it is
// made, and one whose node dies behind its last transaction's back, leave nothing.
func TestADrillOfManyTopics(t *testing.T) {
	names := make([]string, manyTopics)
	for i := range names {
		names[i] = fmt.Sprintf("t%03d", i)
	}
	src, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, names...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(src.Close)
	producer := harness.Connect(t, kgo.SeedBrokers(src.ListenAddrs()...))
	if err := producer.ProduceSync(harness.Context(t), &kgo.Record{Topic: "t007", Value: []byte("kept")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c := harness.StartCluster(t, 2, append([]harness.Option{harness.WithSetting("mirror.replication.factor", "2")}, quick...)...)
	mirrorOf(t, c.Nodes[1], mirror.Spec{Bootstrap: src.ListenAddrs()})
	allMirror := func(b *harness.Broker) {
		t.Helper()
		harness.Eventually(t, "every topic mirrors", func() bool {
			for _, name := range names {
				r := b.RecordOf(name, 0)
				if r == nil || r.Mirror == nil || r.Mirror.State != meta.MirrorMirroring || r.Leader == types.NoBroker {
					return false
				}
			}
			return true
		})
	}
	allMirror(c.Nodes[2])
	c.Store.SetMaxTxnOps(64)
	watch := watchDrills(t, c)
	nothing := func() {
		t.Helper()
		harness.Eventually(t, "nothing is left of the drill", func() bool {
			return watch.check() == 0 && len(watch.left()) == 0 && len(undeletedForks(t, c.Nodes[1]))+len(undeletedForks(t, c.Nodes[2])) == 0
		})
	}
	// begun runs a drill on node 1 that halts before a transaction of its own.
	begun := func(n int) (let func(), done chan error) {
		t.Helper()
		// A node plans a drill from its own image, which may be behind the store and the other node.
		allMirror(c.Nodes[1])
		harness.Eventually(t, "node 1 knows no drill", func() bool {
			list, err := c.Nodes[1].Mirrors().Drills(harness.Context(t))
			return err == nil && len(list) == 0
		})
		kept, let := c.Stores[1].Keep(ofDrill(n))
		done = make(chan error, 1)
		go func() {
			_, err := c.Nodes[1].Mirrors().Drill(context.Background(), "m", mirror.DrillRequest{Drill: "many"})
			done <- err
		}()
		harness.Eventually(t, "the drill is under way", func() bool {
			select {
			case err := <-done:
				t.Fatalf("the drill has ended before its transaction: %v", err)
			default:
			}
			return kept() == 1
		})
		if n := watch.check(); n != 0 {
			t.Fatalf("%d topics are seen of a drill that is being made", n)
		}
		return let, done
	}

	let, done := begun(3)
	harness.Eventually(t, "node 2 has heard of the drill and of topics of it", func() bool {
		list, err := c.Nodes[2].Mirrors().Drills(harness.Context(t))
		return err == nil && len(list) == 1 && len(list[0].Topics) > 0
	})
	if _, err := c.Nodes[2].Mirrors().Drill(harness.Context(t), "m", mirror.DrillRequest{Drill: "many"}); err == nil || !strings.Contains(err.Error(), "is being made through broker 1") {
		t.Errorf("the same name on another node: %v", err)
	}
	if err := c.Nodes[2].Client(t).ProduceSync(harness.Context(t), &kgo.Record{Topic: "drill.many.t000", Value: []byte("too early")}).FirstErr(); err == nil {
		t.Error("a topic of a drill that is being made takes records")
	}
	list, err := c.Nodes[2].Mirrors().Drills(harness.Context(t))
	if err != nil || len(list) != 1 || list[0].State != meta.DrillMaking || len(list[0].Topics) == 0 {
		t.Errorf("the list says %+v, %v", list, err)
	}
	words, err := c.Nodes[2].Mirrors().DeleteDrill(harness.Context(t), "many", false)
	if err != nil || !strings.Contains(strings.Join(words, "\n"), "made through broker 1: was given up") {
		t.Errorf("%q, %v", words, err)
	}
	let()
	if err, _ := harness.Receive(t, "the drill ends", done); err == nil || !strings.Contains(err.Error(), "given up meanwhile") {
		t.Errorf("a drill that was dropped: %v", err)
	}
	nothing()

	let, done = begun(0)
	c.Lapse(t, 1)
	harness.Eventually(t, "the other node has cleared it", func() bool { return watch.check() == 0 && len(watch.left()) == 0 })
	let()
	c.Stores[1].Cut(false)
	if err, _ := harness.Receive(t, "the drill ends", done); err == nil || watch.check() != 0 {
		t.Errorf("a drill whose node was gone: %v", err)
	}
	nothing()
	if watch.shown != 0 {
		t.Errorf("shown %d times", watch.shown)
	}

	allMirror(c.Nodes[2])
	report, err := c.Nodes[2].Mirrors().Drill(harness.Context(t), "m", mirror.DrillRequest{Drill: "many"})
	if err != nil {
		t.Fatal(err)
	}
	checkDrill(t, report, manyTopics)
	if n := watch.check(); n != manyTopics || watch.shown != 1 {
		t.Errorf("%d topics are seen, shown %d times", n, watch.shown)
	}
	harness.Eventually(t, "node 1 knows that it is ready", func() bool {
		list, err := c.Nodes[1].Mirrors().Drills(harness.Context(t))
		return err == nil && len(list) == 1 && list[0].State == meta.DrillReady
	})
	if got := values(t, c.Nodes[2], "drill.many.t007", 0, 2); got[0] != "kept" {
		t.Errorf("the fork holds %q", got)
	}
	if _, err := c.Nodes[1].Mirrors().DeleteDrill(harness.Context(t), "many", false); err != nil {
		t.Fatal(err)
	}
	if n := watch.check(); n != 0 || len(watch.left()) > 0 {
		t.Errorf("%d topics, left: %v", n, watch.left())
	}
	nothing()
	allMirror(c.Nodes[2])
}

// undeletedForks are the folders of drills that aren't on their way out.
func undeletedForks(t testing.TB, b *harness.Broker) (left []string) {
	for _, name := range forkFolders(t, b) {
		if !strings.HasSuffix(name, "-delete") {
			left = append(left, name)
		}
	}
	return left
}
