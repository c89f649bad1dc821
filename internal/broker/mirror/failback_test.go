package mirror

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/source"
)

// awaySource is a source that can't be reached.
type awaySource struct{ Source }

func (awaySource) Metadata(context.Context, []string) (*source.Metadata, error) {
	return nil, errors.New("no route")
}

func (awaySource) Close() {}

// loggedOwned is a partition with a log, which its leader holds.
type loggedOwned struct {
	startedOwned
	log *log.Log
	rev meta.Revision
}

func (o loggedOwned) Log() *log.Log { return o.log }

func (o loggedOwned) Record() (*meta.PartitionRecord, meta.Revision) { return o.record, o.rev }

// loggedPart is it as its node has it.
type loggedPart struct {
	Partition
	owned loggedOwned
}

func (loggedPart) Name() types.TopicPartition { return types.TopicPartition{Topic: "t"} }

func (p loggedPart) Do(_ context.Context, f func(Owned) error) error { return f(p.owned) }

// TestAStartWhoseSourceIsAwayGoesBack: what a crash left closed between fence and adoption
// waits for its source for a while, and then takes clients' writes again (R25). It stayed
// closed as long as the source was away.
func TestAStartWhoseSourceIsAwayGoesBack(t *testing.T) {
	n := newPaperNode(t, 1)
	n.put(t, meta.KeysOf(paperCluster).Mirror("m"), meta.MirrorRecord{Name: "m", Want: meta.WantRunning, StartID: "s", Bootstrap: []string{"h:1"}}.Encode())
	closed := n.to(t, 0, meta.MirrorStarting)
	closed.record.Timelines, closed.record.LeaderEpoch = timeline.FreshRoot("x"), 1
	if got := n.write(t, closed); !got[0] {
		t.Fatal("not closed")
	}
	ctx, end := context.WithCancel(t.Context())
	m := &Mirrors{log: slog.New(slog.DiscardHandler), ctx: ctx, o: Options{
		Node: n, Config: config.Default(), Connect: func(*source.Config, string) Source { return awaySource{} },
	}}
	m.writer = newWriter(m)
	var work sync.WaitGroup
	work.Go(m.writer.loop)
	defer func() { end(); work.Wait(); m.work.Wait() }()
	rec, rev := n.Image().Partition(paperTopic, 0)
	l := led{id: meta.PartitionID{Topic: paperTopic}, part: loggedPart{owned: loggedOwned{startedOwned{record: rec, leading: true}, logOf(t), rev}}}
	p := part{Mirror: "m", StartID: "s", heard: true}
	if err := m.finishOne(ctx, l, p, false); err == nil || n.state(0) != meta.MirrorStarting {
		t.Errorf("at first: %s, %v", n.state(0), err)
	}
	if err := m.finishOne(ctx, l, p, true); err != nil {
		t.Fatal(err)
	}
	after, _ := n.Image().Partition(paperTopic, 0)
	if reason, _ := core.ReasonOf(after.Mirror.Reason); !after.Writable || reason != core.SourceUnreachable {
		t.Errorf("at last: %+v, %+v", after, after.Mirror)
	}
}

// TestAPanicIsOnePartitions: what one partition's record or its source's answer leads to is its
// own: the others of a start are decided, and the node lives.
func TestAPanicIsOnePartitions(t *testing.T) {
	n := newPaperNode(t, 2)
	ctx, end := context.WithCancel(t.Context())
	m := &Mirrors{o: Options{Node: n}, log: slog.New(slog.DiscardHandler), ctx: ctx}
	m.writer = newWriter(m)
	var work sync.WaitGroup
	work.Go(m.writer.loop)
	defer func() { end(); work.Wait(); m.work.Wait() }()
	list := []led{{id: meta.PartitionID{Topic: paperTopic}}, {id: meta.PartitionID{Topic: paperTopic, Number: 1}}}
	out := make([]outcome, 2)
	changes, err := m.settle(ctx, list, out, func(l led) (outcome, *awaited) {
		if l.id.Number == 0 {
			panic("I-0: broken")
		}
		return outcome{}, n.paused(t, 1)
	})
	if err != nil || changes[0] != nil || !changes[1].applied || out[0].Reason != broken || out[1].Reason != "" {
		t.Errorf("%v: %+v", err, out)
	}
}

// TestAFailbackTellsWhatNobodyLed: such a partition isn't begun, and nobody said so: clients
// went on writing to it once it was led again.
func TestAFailbackTellsWhatNobodyLed(t *testing.T) {
	n := newPaperNode(t, 3)
	keys := meta.KeysOf(paperCluster)
	n.put(t, keys.Name("t"), meta.NameRecord{ID: paperTopic}.Encode())
	n.put(t, keys.Mirror("m"), meta.MirrorRecord{Name: "m", Want: meta.WantRunning, StartID: "s", Bootstrap: []string{"h:1"}}.Encode())
	rec, rev := n.Image().Partition(paperTopic, 2)
	own := rec.Clone()
	own.Writable, own.LeaderEpoch, own.Timelines, own.Mirror = true, 1, timeline.FreshRoot("x"), nil
	if got := n.write(t, newAwaited(meta.PartitionID{Topic: paperTopic, Number: 2}, rev, own)); !got[0] {
		t.Fatal("not written")
	}
	m := &Mirrors{o: Options{Node: n}}
	begun := outcome{TopicPartition: types.TopicPartition{Topic: "t"}}
	if left := m.unstarted("m", []outcome{begun}); len(left) != 1 || left[0].Partition != 2 {
		t.Errorf("left out: %v", left)
	}
	if left := m.unstarted("m", nil); len(left) != 0 {
		t.Errorf("of topics that the mirror doesn't fit: %v", left)
	}
}
