package api

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// mirrorWorld is a broker with a mirror "m" of cluster B: topic "copied" runs, "taken" was promoted.
func mirrorWorld(t *testing.T, on bool) *world {
	t.Helper()
	w := newWorld(t)
	w.server.ClusterMirrors = on
	deps := w.server.Deps
	w.server = NewServer(deps)
	w.topic("copied", topicOptions{epoch: 9, mirror: "m"})
	w.topic("taken", topicOptions{epoch: 9, mirror: "m"})
	w.topic("own", topicOptions{epoch: 1})
	w.apply(map[string][]byte{meta.KeysOf(testCluster).Mirror("m"): meta.MirrorRecord{
		Name: "m", Bootstrap: []string{"b:1", "b:2"}, Want: meta.WantRunning, StartID: "s", SourceClusterID: "B"}.Encode()})
	w.change("copied", func(rec *meta.PartitionRecord) { rec.Mirror.SourceEnd = 40 })
	w.change("taken", func(rec *meta.PartitionRecord) {
		rec.Mirror.State, rec.Writable = meta.MirrorStopped, true
		rec.Promotions = []meta.PromotionRecord{
			{SourceClusterID: "B", StartID: "r", LastMirroredEpoch: 5, LogEnd: 70, HighWatermark: 69, PromotedEpoch: 8},
			{SourceClusterID: "C", StartID: "q", LastMirroredEpoch: 8, LogEnd: 99, HighWatermark: 99, PromotedEpoch: 9},
		}
	})
	return w
}

func TestListClusterMirrors(t *testing.T) {
	w := mirrorWorld(t, true)
	m := wire.ListedClusterMirror{Name: "m", SourceBootstrap: "b:1,b:2", SourceClusterID: "B", TopicCount: 2}
	if diff := cmp.Diff([]wire.ListedClusterMirror{m}, ask[*wire.ListClusterMirrorsResponse](w, &wire.ListClusterMirrorsRequest{}, 0).Mirrors); diff != "" {
		t.Error(diff)
	}
	m.TopicNames = []string{"copied", "taken"}
	if diff := cmp.Diff([]wire.ListedClusterMirror{m}, ask[*wire.ListClusterMirrorsResponse](w, &wire.ListClusterMirrorsRequest{TopicNames: true}, 0).Mirrors); diff != "" {
		t.Error(diff)
	}
}

func TestDescribeClusterMirrors(t *testing.T) {
	w := mirrorWorld(t, true)
	running := wire.DescribedMirrorTopic{Name: "copied", Partitions: []wire.DescribedMirrorPartition{
		{SourceOffset: 40, DestinationOffset: -1, LastMirrorEpoch: -1, LastMirrorOffset: -1}}}
	taken := wire.DescribedMirrorTopic{Name: "taken", Partitions: []wire.DescribedMirrorPartition{
		{State: meta.MirrorStopped, DestinationOffset: 70, LastMirrorEpoch: 5, LastMirrorOffset: 69}}}
	rec, _ := w.server.Image().Partition(topicIDOf("copied"), 0)
	running.Partitions[0].State = rec.Mirror.State
	rec, _ = w.server.Image().Partition(topicIDOf("taken"), 0)
	taken.Partitions[0].SourceOffset = rec.Mirror.SourceEnd
	b, other := "B", "C"
	f := func(name string, in wire.DescribeClusterMirrorsRequest, topics ...wire.DescribedMirrorTopic) {
		t.Helper()
		out := ask[*wire.DescribeClusterMirrorsResponse](w, &in, 0)
		var want []wire.DescribedClusterMirror
		if topics != nil {
			want = []wire.DescribedClusterMirror{{Name: "m", SourceBootstrap: "b:1,b:2", SourceClusterID: "B", AuthorizedOperations: wire.AuthorizedOperationsUnknown, Topics: topics}}
		}
		if diff := cmp.Diff(want, out.Mirrors, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	look := func(topic string, partitions ...int32) []wire.MirrorLookup {
		return []wire.MirrorLookup{{TopicID: topicIDOf(topic), Partitions: partitions}}
	}
	f("all", wire.DescribeClusterMirrorsRequest{}, running, taken)
	f("by name", wire.DescribeClusterMirrorsRequest{Names: []string{"m"}}, running, taken)
	f("another name", wire.DescribeClusterMirrorsRequest{Names: []string{"x"}})
	f("no name", wire.DescribeClusterMirrorsRequest{Names: []string{}})
	f("of another source", wire.DescribeClusterMirrorsRequest{ClusterID: &other})
	f("what the old source asks", wire.DescribeClusterMirrorsRequest{ClusterID: &b, Lookups: look("taken", 0, 5)}, taken)
	f("of what isn't mirrored", wire.DescribeClusterMirrorsRequest{ClusterID: &b, Lookups: look("own", 0)})
	f("of a topic that isn't there", wire.DescribeClusterMirrorsRequest{ClusterID: &b, Lookups: []wire.MirrorLookup{{TopicID: types.TopicID{9, 9}, Partitions: []int32{0}}}})
	f("of a partition that isn't there", wire.DescribeClusterMirrorsRequest{ClusterID: &b, Lookups: look("taken", -1)})
}

// TestClusterMirrorsSwitch: without it nobody is told of the two, or answered.
func TestClusterMirrorsSwitch(t *testing.T) {
	shown := func(w *world) (n int) {
		for _, k := range ask[*kmsg.ApiVersionsResponse](w, kmsg.NewPtrApiVersionsRequest(), 0).ApiKeys {
			if k.ApiKey == int16(wire.KeyListClusterMirrors) || k.ApiKey == int16(wire.KeyDescribeClusterMirrors) {
				n++
			}
		}
		return n
	}
	off := mirrorWorld(t, false)
	if n := shown(off); n != 0 {
		t.Errorf("%d of them are listed", n)
	}
	if _, ok := off.server.byKey[wire.KeyListClusterMirrors]; ok {
		t.Error("it is answered")
	}
	if n := shown(mirrorWorld(t, true)); n != 2 {
		t.Errorf("switched on, %d are listed", n)
	}
}
