package mirror

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// cutPaper is a mirror of partitions, with the consistent cut that its record says.
func cutPaper(t *testing.T, partitions int32, want string, cut *meta.ConsistentCut) *Mirrors {
	t.Helper()
	n := newPaperNode(t, partitions)
	keys := meta.KeysOf(paperCluster)
	n.put(t, keys.Mirror("m"), meta.MirrorRecord{Name: "m", Want: want, StartID: "s", Bootstrap: []string{"h:1"}, Cut: cut}.Encode())
	n.put(t, keys.Name("t"), meta.NameRecord{ID: paperTopic}.Encode())
	n.put(t, keys.Features(), meta.FeaturesRecord{Levels: map[string]int16{meta.FeatureMetadata: meta.LevelCuts}}.Encode())
	return &Mirrors{o: Options{Node: timedNode{n}}, ctx: t.Context()}
}

// timedNode is a paperNode with a clock that stands.
type timedNode struct{ *paperNode }

func (timedNode) Now() types.Millis { return 1 }

func cutAt(offsets ...types.Offset) *meta.ConsistentCut {
	return &meta.ConsistentCut{ID: "c", StartID: "s", Offsets: map[string][]types.Offset{paperTopic.String(): offsets}}
}

// TestAConsistentFailoverNeedsPartitions: of a running mirror that has made nothing yet, it
// would take at the log ends what is made while the order is under way.
func TestAConsistentFailoverNeedsPartitions(t *testing.T) {
	m := cutPaper(t, 0, meta.WantRunning, nil)
	_, err := m.FailoverConsistent(t.Context(), "m", nil, "")
	if !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "no partition yet") {
		t.Error(err)
	}
}

// TestACutSpeaksOfEveryPartition: one that was made since the cut was found is half of
// what transactions wrote into it, and so refuses the order.
func TestACutSpeaksOfEveryPartition(t *testing.T) {
	m := cutPaper(t, 2, meta.WantRunning, nil)
	c := &consistent{id: "c", facts: []core.TxnFacts{{TopicPartition: types.TopicPartition{Topic: "t"}}}, cuts: []types.Offset{0}}
	if err := m.writeCut(t.Context(), "m", nil, "s", c); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "t-1") {
		t.Error(err)
	}
	if e, _ := m.o.Node.Image().Mirror("m"); e.Record.Cut != nil || e.Record.Want != meta.WantRunning {
		t.Errorf("it was ordered: %+v", e.Record)
	}
}

// TestACutUnderWayStays: what is left of a consistent failover is promoted at its cut. A
// second order that found another one for the rest alone left transactions half there.
func TestACutUnderWayStays(t *testing.T) {
	m := cutPaper(t, 2, meta.WantStopped, cutAt(3, 4))
	c, err := m.underWay("m", nil)
	if err != nil || c == nil || c.id != "c" || !slices.Equal(c.cuts, []types.Offset{3, 4}) {
		t.Fatalf("%+v, %v", c, err)
	}
	if c, err = m.orderCut(t.Context(), "m", nil, "s", "c"); err != nil || c.id != "c" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err = m.orderCut(t.Context(), "m", nil, "s", "another"); !errors.Is(err, ErrPlan) {
		t.Errorf("another plan: %v", err)
	}

	m = cutPaper(t, 2, meta.WantStopped, cutAt(3))
	if _, err = m.underWay("m", nil); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "t-1") {
		t.Errorf("a partition that the cut doesn't speak of: %v", err)
	}
	m = cutPaper(t, 2, meta.WantRunning, &meta.ConsistentCut{ID: "c", StartID: "earlier", Offsets: cutAt(3, 4).Offsets})
	if c, err = m.underWay("m", nil); c != nil || err != nil {
		t.Errorf("of an earlier start: %+v, %v", c, err)
	}
}

// TestPromotedAtTheCutOrNotAtAll: who carries a consistent failover out takes nothing at its
// log end that the cut doesn't speak of.
func TestPromotedAtTheCutOrNotAtAll(t *testing.T) {
	cut := cutAt(3)
	cut.Compacted = map[string][]int32{paperTopic.String(): {0}}
	r := &run{m: cutPaper(t, 2, meta.WantStopped, cut), name: "m"}
	rec := &meta.PartitionRecord{Mirror: core.NewMirrored("m", "s")}
	var req core.PromoteRequest
	if err := r.atCut(&req, rec, meta.PartitionID{Topic: paperTopic}); err != nil || req.At == nil || *req.At != 3 || !req.Compacted {
		t.Errorf("%+v, %v", req, err)
	}
	var refusal *core.Refusal
	req = core.PromoteRequest{}
	if err := r.atCut(&req, rec, meta.PartitionID{Topic: paperTopic, Number: 1}); !errors.As(err, &refusal) || refusal.Reason != core.NotInCut {
		t.Errorf("made since: %v", err)
	}
	r.m = cutPaper(t, 2, meta.WantStopped, nil)
	if err := r.atCut(&req, rec, meta.PartitionID{Topic: paperTopic, Number: 1}); err != nil || req.At != nil {
		t.Errorf("a plain failover: %+v, %v", req, err)
	}
}

// TestACutBelowCompactionNeedsItsPlan: keys would be left without the values that they had
// at the cut (docs/adr/0027), so that the operator must have seen it.
func TestACutBelowCompactionNeedsItsPlan(t *testing.T) {
	c := &consistent{id: "c", cuts: []types.Offset{7, 10}, facts: []core.TxnFacts{
		{TopicPartition: types.TopicPartition{Topic: "t"}, End: 10, Cleaned: 8},
		{TopicPartition: types.TopicPartition{Topic: "t", Partition: 1}, End: 10, Cleaned: 10},
	}}
	if err := c.mayBegin(""); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), string(core.CutBelowCompaction)) || !strings.Contains(err.Error(), "t-0") {
		t.Errorf("without a plan: %v", err)
	}
	if err := c.mayBegin("c"); err != nil {
		t.Errorf("with its plan: %v", err)
	}
	m := cutPaper(t, 2, meta.WantRunning, nil)
	if err := m.writeCut(t.Context(), "m", nil, "s", c); err != nil {
		t.Fatal(err)
	}
	e, _ := m.o.Node.Image().Mirror("m")
	if got := e.Record.Cut.Compacted[paperTopic.String()]; !slices.Equal(got, []int32{0}) {
		t.Errorf("the record says %v", got)
	}
	c.facts[0].Cleaned = 7
	if err := c.mayBegin(""); err != nil {
		t.Errorf("at the cut: %v", err)
	}
}

// TestACutIsForOneBegin: a topic may be failed over, failed back and failed over again in one
// start of its mirror. The second consistent failover found the cut of the first, as one
// that was still under way, and took what had been copied since (I-312).
func TestACutIsForOneBegin(t *testing.T) {
	m := cutPaper(t, 2, meta.WantRunning, cutAt(3, 4))
	n := m.o.Node.(timedNode)
	promoted := func(partition int32) {
		t.Helper()
		rec, rev := n.Image().Partition(paperTopic, partition)
		next := rec.Clone()
		next.Writable, next.LeaderEpoch, next.Timelines = true, next.LeaderEpoch+1, timeline.FreshRoot("x")
		next.Mirror.State = meta.MirrorStopped
		if got := n.write(t, newAwaited(meta.PartitionID{Topic: paperTopic, Number: partition}, rev, next)); !got[0] {
			t.Fatal("not promoted")
		}
	}
	promoted(0)
	here := part{Mirror: "m", StartID: "s", heard: true}
	rec, _ := n.Image().Partition(paperTopic, 0)
	if _, ended := m.standing(here, led{id: meta.PartitionID{Topic: paperTopic}}, rec); ended == nil {
		t.Error("a partition begins to follow the start while it is in its cut")
	}
	if _, err := m.orderStart(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	e, _ := n.Image().Mirror("m")
	if cut := e.Record.Cut; cut == nil || cut.ID != "c" || !slices.Equal(cut.Offsets[paperTopic.String()], []types.Offset{-1, 4}) {
		t.Errorf("with one partition promoted and one left the cut is %+v", cut)
	}
	if _, ended := m.standing(here, led{id: meta.PartitionID{Topic: paperTopic}}, rec); ended != nil {
		t.Error(ended)
	}
	promoted(1)
	if _, err := m.orderStart(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	if e, _ = n.Image().Mirror("m"); e.Record.Cut != nil {
		t.Errorf("carried out, the cut is %+v", e.Record.Cut)
	}
}

// TestACutIsOfTheTopicThatWas: of a topic that is deleted here and made again with its
// source's id, a cut of before says nothing.
func TestACutIsOfTheTopicThatWas(t *testing.T) {
	m := cutPaper(t, 1, meta.WantRunning, cutAt(3))
	if err := m.endCutOf(t.Context(), "m", types.TopicID{9}); err != nil {
		t.Fatal(err)
	}
	if e, _ := m.o.Node.Image().Mirror("m"); e.Record.Cut == nil {
		t.Error("another topic's end ended it")
	}
	if err := m.endCutOf(t.Context(), "m", paperTopic); err != nil {
		t.Fatal(err)
	}
	if e, _ := m.o.Node.Image().Mirror("m"); e.Record.Cut != nil {
		t.Errorf("made again, its cut is %+v", e.Record.Cut)
	}
}
