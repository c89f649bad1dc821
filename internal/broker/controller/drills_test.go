package controller

import (
	"fmt"
	"testing"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/mem"
)

// TestDrillsThatNobodyMakes: what a broker had written of a drill goes when its
// registration is over, however much it is, by whoever is in office then.
func TestDrillsThatNobodyMakes(t *testing.T) {
	store := mem.New()
	boss, next, maker := newFakeNode(t, store, 1), newFakeNode(t, store, 2), newFakeNode(t, store, 3)
	key := boss.image.Keys().Features()
	boss.commit(meta.Plan{Why: "raise", If: []meta.Compare{meta.Absent(key)},
		Then: []meta.Op{meta.Put(key, meta.FeaturesRecord{Levels: map[string]int16{meta.FeatureMetadata: meta.LevelDrills}}.Encode())}})
	first, second := boss.controller(), next.controller()
	step(t, first)
	run := meta.DrillMark{Name: "d", Run: "r"}
	begin, err := control.BeginDrill(maker.Image(), meta.DrillRecord{Name: run.Name, Run: run.Run, Mirror: "m"}, maker.Me())
	if err != nil {
		t.Fatal(err)
	}
	maker.commit(begin)
	var topics []control.ForkedTopic
	for i := range 600 {
		f := control.ForkedTopic{Name: fmt.Sprintf("drill.d.t%d", i), Partitions: []meta.PartitionRecord{{
			Replicas: []types.BrokerID{3}, ISR: []meta.ISRMember{{ID: 3, BrokerEpoch: maker.Me().Epoch}}, Leader: 3, LeaderBrokerEpoch: maker.Me().Epoch, LeaderEpoch: 9, MinISR: 1,
			Writable: true, Timelines: timeline.FreshRoot("f"), Promotions: []meta.PromotionRecord{{StartID: "drill/d/r", PromotedEpoch: 9}},
		}}}
		copy(f.ID[:], f.Name[len("drill."):])
		topics = append(topics, f)
	}
	writes, err := control.WriteForks(maker.Image(), run, topics, maker.Me(), maker.Limits())
	if err != nil {
		t.Fatal(err)
	}
	maker.commit(writes...)
	drilled := func() (n int) {
		for range boss.Image().DrillTopics(run) {
			n++
		}
		return n
	}
	for range 3 {
		step(t, first)
	}
	if n := drilled(); n != len(topics) {
		t.Fatalf("%d topics are left while the drill is made", n)
	}
	store.ExpireLease(maker.lease)
	step(t, first)
	step(t, first)
	if n := drilled(); n == 0 || n == len(topics) {
		t.Fatalf("%d topics are left: nothing to see", n)
	}
	store.ExpireLease(boss.lease)
	for n := 0; ; n++ {
		step(t, second)
		if _, ok := next.Image().DrillEntry("d"); !ok {
			break
		}
		if n == 100 {
			t.Fatalf("%d topics are left", drilled())
		}
	}
	if n := drilled(); n > 0 || len(meta.Describe(next.Image(), "partitions/").Entries)+len(meta.Describe(next.Image(), "names/").Entries) > 0 {
		t.Errorf("%d topics are left without their drill", n)
	}
}
