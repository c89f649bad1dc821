package mirror

import (
	"context"
	"log/slog"
	"testing"

	"tidemark/internal/clock"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// holder is a paper node that holds its partitions.
type holder struct{ *paperNode }

type heldOnPaper struct {
	Partition
	name types.TopicPartition
}

func (h heldOnPaper) Name() types.TopicPartition { return h.name }

func (h holder) Partition(_ types.TopicID, n int32) (Partition, bool) {
	return heldOnPaper{name: types.TopicPartition{Topic: "t", Partition: n}}, true
}

// TestWhoeverLeadsEndsAPause: a resumption that reached no leader is carried out by the one
// that comes to lead, and by nobody while the mirror is paused.
func TestWhoeverLeadsEndsAPause(t *testing.T) {
	n := holder{newPaperNode(t, 2)}
	n.put(t, meta.KeysOf(paperCluster).Name("t"), meta.NameRecord{ID: paperTopic}.Encode())
	n.write(t, n.paused(t, 0), n.paused(t, 1))
	ctx, cancel := context.WithCancel(t.Context())
	m := &Mirrors{o: Options{Node: n}, log: slog.New(slog.DiscardHandler), ctx: ctx}
	m.writer = newWriter(m)
	clock.Go(ctx, &m.work, m.writer.loop)
	defer m.work.Wait()
	defer cancel()
	r := &run{m: m, name: "m", ctx: ctx}
	s, err := settingsOf(config.Default().Mirror, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.settings.Store(s)
	for _, want := range []string{meta.WantPaused, meta.WantRunning} {
		r.record.Store(&meta.MirrorRecord{Name: "m", Want: want})
		r.finishResume(t.Context())
		for p := range int32(2) {
			if paused := n.state(p) == meta.MirrorPaused; paused != (want == meta.WantPaused) {
				t.Errorf("the mirror is to be %s, partition %d is %s", want, p, n.state(p))
			}
		}
	}
}
