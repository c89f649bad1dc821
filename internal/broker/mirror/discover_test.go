package mirror

import (
	"log/slog"
	"testing"

	"tidemark/internal/broker/ids"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/source"
)

// TestATopicThatIsFailedOverGrowsNoMore: a topic is failed over while its growth is on the
// way. The new partition followed the source in a topic that clients write to.
func TestATopicThatIsFailedOverGrowsNoMore(t *testing.T) {
	for _, races := range []bool{false, true} {
		n := newPaperNode(t, 2)
		n.put(t, meta.KeysOf(paperCluster).Mirror("m"), meta.MirrorRecord{Name: "m", Want: meta.WantRunning, StartID: "s", Bootstrap: []string{"h:1"}}.Encode())
		m := &Mirrors{o: Options{Node: n, Config: config.Default(), IDs: ids.System}, log: slog.New(slog.DiscardHandler), ctx: t.Context()}
		r := &run{m: m, name: "m"}
		r.record.Store(&meta.MirrorRecord{Name: "m", StartID: "s"})
		n.refuse = func(meta.Plan) error {
			n.refuse = nil
			if !races {
				return nil
			}
			rec, _ := n.Image().Partition(paperTopic, 1)
			next := rec.Clone()
			next.Writable, next.LeaderEpoch, next.Timelines, next.Mirror.State = true, 1, timeline.FreshRoot("x"), meta.MirrorStopped
			_, err := n.commit(meta.Plan{Why: "promote", Then: []meta.Op{meta.Put(meta.KeysOf(paperCluster).Partition(paperTopic, 1), next.Encode())}})
			return err
		}
		here, _ := n.Image().Topic(paperTopic)
		if err := r.addPartitions(t.Context(), here, &source.Topic{Name: "t", Partitions: make([]source.Partition, 3)}); err != nil {
			t.Fatal(err)
		}
		if now, _ := n.Image().Topic(paperTopic); (now.Record.Partitions == 3) == races {
			t.Errorf("failed over %t: it has %d partitions", races, now.Record.Partitions)
		}
	}
}
