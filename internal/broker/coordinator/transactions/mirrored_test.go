package transactions

import (
	"testing"

	"tidemark/internal/await"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// mirrors makes an image in which partition 0 of topic "t" is a mirror with this record, and partition 1 is led by broker 2.
func (w *town) mirrors(m *meta.MirrorState) {
	w.lead(2, 2)
	image := w.image.Load()
	keys, id := meta.KeysOf(townCluster), types.TopicID{15: 1}
	rec, _ := image.Partition(id, 0)
	changed := rec.Clone()
	changed.Writable, changed.Mirror = false, m
	next, _ := image.Apply(meta.Events{Revision: 9, Events: []meta.Event{{KV: meta.KV{Key: keys.Partition(id, 0), Value: changed.Encode(), CreateRevision: 1, ModRevision: 9}}}})
	w.image.Store(next)
}

// A marker for a partition that has become a mirror counts as written once the start can't be taken back.
// Before, the partition may be written again with the transaction open in it, and then has the marker.
func TestMarkerForAMirror(t *testing.T) {
	before := timeline.List{{ID: "root"}}
	f := func(name string, m *meta.MirrorState, counts bool) {
		t.Run(name, func(t *testing.T) {
			w := &town{brought: map[types.TopicPartition][]types.BrokerID{}, answers: map[types.BrokerID][]wire.ErrCode{}}
			w.mirrors(m)
			told := deliver(t, w, part(0), part(1))
			if counts {
				await.True(t, "both are told", func() bool { return len(told()) == 2 })
				return
			}
			await.True(t, "the other one is told", func() bool { return len(told()) == 1 })
			w.lead(2, 2) // it goes back
			await.True(t, "both are told", func() bool { return len(told()) == 2 })
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.brought[part(0)]) != 1 {
				t.Errorf("the partition that is written again has %d markers", len(w.brought[part(0)]))
			}
		})
	}
	f("starting", &meta.MirrorState{Name: "m", State: meta.MirrorStarting}, false)
	f("aligning", &meta.MirrorState{Name: "m", State: meta.MirrorLogAlignment, Before: before}, false)
	f("failed before anything was copied", &meta.MirrorState{Name: "m", State: meta.MirrorFailed, Before: before}, false)
	f("mirroring", &meta.MirrorState{Name: "m", State: meta.MirrorMirroring, Copied: true}, true)
}
