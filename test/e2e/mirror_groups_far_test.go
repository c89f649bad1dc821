package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// farGroups are enough for some to be coordinated by each of three nodes.
const farGroups = 9

// startFarStandby starts three nodes of which one alone holds each mirrored partition.
func startFarStandby(t testing.TB, addrs ...string) *harness.Cluster {
	t.Helper()
	c := harness.StartCluster(t, 3, append([]harness.Option{harness.WithSetting("mirror.replication.factor", "1")}, quick...)...)
	mirrorOf(t, c.Nodes[1], mirror.Spec{Bootstrap: addrs})
	return c
}

// awaitFarEnd waits until the node that leads a partition has it up to an offset.
func awaitFarEnd(t testing.TB, c *harness.Cluster, topic string, partition int32, end types.Offset) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%s-%d is mirrored up to %d", topic, partition, end), func() bool {
		r := c.Record(topic, partition)
		if r == nil || r.Mirror == nil || r.Mirror.State != meta.MirrorMirroring || c.Nodes[r.Leader] == nil {
			return false
		}
		p, ok := c.Nodes[r.Leader].PartitionByName(topic, partition)
		if !ok {
			return false
		}
		v, open := p.View()
		return open && v.LogEnd == end && v.HighWatermark == end
	})
}

// awaitFarGroups waits until every group has every partition's offset.
func awaitFarGroups(t testing.TB, adm *kadm.Client, topic string, partitions int32, want int64) {
	t.Helper()
	for g := range farGroups {
		for p := range partitions {
			var at int64
			harness.Eventually(t, fmt.Sprintf("group g%d has offset %d of %s-%d (it has %d)", g, want, topic, p, at), func() bool {
				at = committed(t, adm, fmt.Sprintf("g%d", g), topic, p)
				return at == want
			})
		}
	}
}

// Coordinators that hold no replica of a partition learn from its leader how far its log
// goes: while it mirrors, and at a failover, where what waited is clamped.
func TestGroupsOfPartitionsElsewhere(t *testing.T) {
	const partitions = 3
	src := harness.StartBroker(t)
	src.CreateTopic(t, "t", partitions, nil)
	ahead, level := make([]int64, partitions), make([]int64, partitions)
	for p := range int32(partitions) {
		src.Produce(t, "t", p, "a", "b", "c", "d")
		ahead[p], level[p] = 1000, 3
	}
	for g := range farGroups {
		commit(t, src.Admin(t), fmt.Sprintf("g%d", g), "t", level...)
	}
	c := startFarStandby(t, src.Addr)
	for p := range int32(partitions) {
		awaitFarEnd(t, c, "t", p, 4)
	}
	adm := kadm.NewClient(c.Client(t))
	awaitFarGroups(t, adm, "t", partitions, 3)
	for g := range farGroups {
		commit(t, src.Admin(t), fmt.Sprintf("g%d", g), "t", ahead...)
	}
	harness.Eventually(t, "the groups wait for data", func() bool {
		waiting := map[string]bool{}
		for _, n := range c.Nodes {
			list, err := n.Mirrors().Groups(harness.Context(t), "m")
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range list {
				if s.Reason == "PENDING" && s.Source == 1000 && s.Standby == 3 {
					waiting[fmt.Sprint(s.Group, s.Partition)] = true
				}
			}
		}
		return len(waiting) == farGroups*partitions
	})
	if _, err := c.Nodes[2].Mirrors().Failover(harness.Context(t), "m", nil); err != nil {
		t.Fatal(err)
	}
	awaitFarGroups(t, adm, "t", partitions, 4)
}

// A cut of a leader takes offsets back at coordinators that hold nothing of the partition.
func TestACutReachesCoordinatorsElsewhere(t *testing.T) {
	src := harness.StartBroker(t)
	way := newProxy(t, src.Addr)
	src.CreateTopic(t, "t", 1, nil)
	src.Produce(t, "t", 0, "0", "1")
	c := startFarStandby(t, way.ln.Addr().String())
	awaitFarEnd(t, c, "t", 0, 2)
	again := func(change func(folder string)) {
		src.Stop(t)
		change(filepath.Join(src.Dir, "t-0"))
		src = src.Restart(t)
		way.setTarget(src.Addr)
	}
	before := t.TempDir()
	again(func(folder string) { copyTree(t, folder, before) })
	src.Produce(t, "t", 0, "2 lost", "3 lost")
	awaitFarEnd(t, c, "t", 0, 4)
	for g := range farGroups {
		commit(t, src.Admin(t), fmt.Sprintf("g%d", g), "t", 4)
	}
	adm := kadm.NewClient(c.Client(t))
	awaitFarGroups(t, adm, "t", 1, 4)
	again(func(folder string) {
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		copyTree(t, before, folder)
	})
	src.Produce(t, "t", 0, "2 new")
	awaitFarEnd(t, c, "t", 0, 3)
	awaitFarGroups(t, adm, "t", 1, 2)
}
