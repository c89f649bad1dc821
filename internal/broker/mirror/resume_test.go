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

// TestWhoeverLeadsPausesAndEndsAPause: a pause, or a resumption, that reached no leader is
// carried out by the one that comes to lead. A start that is under way stays one.
func TestWhoeverLeadsPausesAndEndsAPause(t *testing.T) {
	n := holder{newPaperNode(t, 3)}
	n.put(t, meta.KeysOf(paperCluster).Name("t"), meta.NameRecord{ID: paperTopic}.Encode())
	n.write(t, n.paused(t, 0), n.to(t, 2, meta.MirrorStarting))
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
	for _, c := range []struct {
		want string
		are  [3]string
	}{
		{meta.WantStopped, [3]string{meta.MirrorPaused, meta.MirrorLogAlignment, meta.MirrorStarting}},
		{meta.WantPaused, [3]string{meta.MirrorPaused, meta.MirrorPaused, meta.MirrorStarting}},
		{meta.WantRunning, [3]string{meta.MirrorLogAlignment, meta.MirrorLogAlignment, meta.MirrorStarting}},
	} {
		r.record.Store(&meta.MirrorRecord{Name: "m", Want: c.want})
		r.finishTurn(t.Context())
		if are := [3]string{n.state(0), n.state(1), n.state(2)}; are != c.are {
			t.Errorf("the mirror is to be %s, its partitions are %v, not %v", c.want, are, c.are)
		}
	}
}

// to is the change that puts a partition into a state.
func (n *paperNode) to(t *testing.T, partition int32, state string) *awaited {
	t.Helper()
	rec, rev := n.Image().Partition(paperTopic, partition)
	next := rec.Clone()
	next.Mirror.State = state
	return newAwaited(meta.PartitionID{Topic: paperTopic, Number: partition}, rev, next)
}

// TestAPausedMirrorsPartitionIsTurned: a mirrored partition that is shown to its leader
// under a paused mirror, in whichever state, is due to pause, but for one in a start.
func TestAPausedMirrorsPartitionIsTurned(t *testing.T) {
	for state, due := range map[string]bool{
		meta.MirrorMirroring: true, meta.MirrorLogAlignment: true, meta.MirrorFailed: true, meta.MirrorPaused: false, meta.MirrorStarting: false,
	} {
		rec := &meta.PartitionRecord{Mirror: &meta.MirrorState{State: state}}
		if got := isUnturned(meta.WantPaused, rec); got != due {
			t.Errorf("%s under a paused mirror: due %v, want %v", state, got, due)
		}
		rec.Writable = true
		if isUnturned(meta.WantPaused, rec) {
			t.Errorf("%s, and writable: due", state)
		}
	}
}
