package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/compare"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// record is a partition's record as a node's image shows it, an empty one if there is none.
func record(t testing.TB, node *harness.Broker, topic string, partition int32) meta.PartitionRecord {
	t.Helper()
	image := node.Image()
	named, ok := image.TopicByName(topic)
	if !ok {
		return meta.PartitionRecord{}
	}
	rec, _ := image.Partition(named.ID, partition)
	if rec == nil {
		return meta.PartitionRecord{}
	}
	return rec.Clone()
}

// awaitLineage waits until a mirror carries its source's list, and gives it.
func awaitLineage(t testing.TB, source, standby *harness.Broker, topic string, partition int32) timeline.List {
	t.Helper()
	var theirs, ours meta.PartitionRecord
	harness.Eventually(t, fmt.Sprintf("%s-%d has its source's timelines", topic, partition), func() bool {
		theirs, ours = record(t, source, topic, partition), record(t, standby, topic, partition)
		return len(theirs.Timelines) > 0 && ours.Timelines.Equal(theirs.Timelines)
	})
	if ours.LeaderEpoch <= theirs.LeaderEpoch {
		t.Errorf("leader epoch %d is not above the source's %d (R18)", ours.LeaderEpoch, theirs.LeaderEpoch)
	}
	return ours.Timelines
}

// chain starts A, a mirror B of A, and a mirror C of B, with a topic "t" of two partitions.
func chain(t testing.TB) (a, b, c *harness.Broker) {
	t.Helper()
	a, b, c = harness.StartBroker(t), startStandby(t), startStandby(t)
	a.CreateTopic(t, "t", 2, nil)
	mirrorOf(t, b, mirror.Spec{Bootstrap: []string{a.Addr}})
	mirrorOf(t, c, mirror.Spec{Bootstrap: []string{b.Addr}})
	for p := range int32(2) {
		a.Produce(t, "t", p, "1", "2")
		awaitEnd(t, c, "t", p, 2)
	}
	return a, b, c
}

func TestLineageOfATidemarkSource(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "t", 3, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	var ids []string
	for p := range int32(3) {
		list := awaitLineage(t, source, standby, "t", p)
		if len(list) != 1 || list[0].FirstEpoch != 0 || list[0].FirstOffset != 0 || strings.HasPrefix(list[0].ID, "derived-") {
			t.Errorf("partition %d: list %v", p, list)
		}
		ids = append(ids, list[0].ID)
		if rec := record(t, standby, "t", p); rec.Mirror.SourceClusterID != source.ClusterID() || len(rec.Mirror.SourcePath) != 0 {
			t.Errorf("partition %d copies from %s, which copies from %v", p, rec.Mirror.SourceClusterID, rec.Mirror.SourcePath)
		}
	}
	source.Produce(t, "t", 1, "x")
	awaitEnd(t, standby, "t", 1, 1)
	again := standby.Restart(t)
	source.Produce(t, "t", 1, "y")
	awaitEnd(t, again, "t", 1, 2)
	for p := range int32(3) {
		if list := record(t, again, "t", p).Timelines; list[0].ID != ids[p] {
			t.Errorf("after a restart partition %d has the list %v, root %s before", p, list, ids[p])
		}
	}
}

func TestLineageOfAnotherSourceIsDerived(t *testing.T) {
	source, client := newKfake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: source.ListenAddrs()})
	produceTo(t, client, "t", 0, "x")
	awaitEnd(t, standby, "t", 0, 1)
	topic, _ := standby.Image().TopicByName("t")
	rec := record(t, standby, "t", 0)
	if want := (timeline.List{timeline.Root(rec.Mirror.SourceClusterID, topic.ID)}); !rec.Timelines.Equal(want) {
		t.Errorf("list %v, want %v", rec.Timelines, want)
	}
}

func TestMirrorBehindAMirror(t *testing.T) {
	a, b, c := chain(t)
	for p := range int32(2) {
		root := awaitLineage(t, a, b, "t", p)
		if list := awaitLineage(t, b, c, "t", p); !list.Equal(root) {
			t.Errorf("partition %d: list %v, at the first source %v", p, list, root)
		}
		rec := record(t, c, "t", p)
		if rec.Mirror.SourceClusterID != b.ClusterID() || !slices.Equal(rec.Mirror.SourcePath, []string{a.ClusterID()}) {
			t.Errorf("partition %d copies from %s, which copies from %v", p, rec.Mirror.SourceClusterID, rec.Mirror.SourcePath)
		}
		for i := range 20 {
			a.Produce(t, "t", p, fmt.Sprint(i))
		}
		awaitEnd(t, c, "t", p, 22)
	}
	checkEqual(t, a.Client(t), c.Client(t), compare.Options{}, "t")
	checkVerify(t, c)
}

func TestLineageAfterTheMiddleIsPromoted(t *testing.T) {
	a, b, c := chain(t)
	a.Stop(t)
	failover(t, b)
	for p := range int32(2) {
		b.Produce(t, "t", p, "3", "4", "5")
		list := awaitLineage(t, b, c, "t", p)
		promoted := record(t, b, "t", p).Promotions[0]
		if len(list) != 2 || list[1].FirstEpoch != promoted.PromotedEpoch || list[1].FirstOffset != types.Offset(2) {
			t.Errorf("partition %d: list %v, promotion %+v", p, list, promoted)
		}
		awaitEnd(t, c, "t", p, 5)
		if rec := record(t, c, "t", p); len(rec.Mirror.SourcePath) != 0 {
			t.Errorf("partition %d: the source copies from %v", p, rec.Mirror.SourcePath)
		}
	}
	checkEqual(t, b.Client(t), c.Client(t), compare.Options{}, "t")
	failover(t, c)
	if list := record(t, c, "t", 0).Timelines; len(list) != 3 {
		t.Errorf("after a second promotion: list %v", list)
	}
}

// A is to copy from C, which copies from B, which copies from A: that is refused
// before anything is made, and nobody cuts anything.
func TestMirrorLoopIsRefused(t *testing.T) {
	a, b, c := chain(t)
	c.CreateTopic(t, "own", 1, nil)
	if _, err := a.Admin(t).DeleteTopics(harness.Context(t), "t"); err != nil {
		t.Fatal(err)
	}
	awaitReason(t, b, "t", 0, core.SourceTopicGone)
	mirrorOf(t, a, mirror.Spec{Bootstrap: []string{c.Addr}})
	want := fmt.Sprintf("t: MIRROR_LOOP: the source copies from this cluster (it mirrors %s, which mirrors %s)", b.ClusterID(), a.ClusterID())
	harness.Eventually(t, "the loop is told", func() bool { return strings.Contains(status(t, a).Reason, want) })
	c.Produce(t, "own", 0, "x")
	awaitEnd(t, a, "own", 0, 1) // what makes no loop is mirrored
	if _, made := a.Image().TopicByName("t"); made {
		t.Errorf("the topic was made in the first cluster")
	}
	for p := range int32(2) {
		for _, node := range []*harness.Broker{b, c} {
			if got := node.Consume(t, "t", p, 0, 2); !slices.Equal(got, []string{"1", "2"}) {
				t.Errorf("partition %d reads %q", p, got)
			}
		}
	}
	failover(t, c, "t")
	awaitEnd(t, a, "t", 0, 2) // the way out: C is a source of its own now
	if list := awaitLineage(t, c, a, "t", 1); len(list) != 2 {
		t.Errorf("list %v", list)
	}
}
