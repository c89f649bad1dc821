package mirror

import (
	"context"
	"testing"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
)

// startedPart is a partition that its leader holds, in a start that has adopted nothing.
type startedPart struct {
	Partition
	owned startedOwned
}

func (startedPart) Name() types.TopicPartition { return types.TopicPartition{Topic: "t"} }

func (p startedPart) Do(_ context.Context, f func(Owned) error) error { return f(p.owned) }

type startedOwned struct {
	Owned
	record  *meta.PartitionRecord
	leading bool
}

func (o startedOwned) Record() (*meta.PartitionRecord, meta.Revision) { return o.record, 7 }

func (o startedOwned) Leading() bool { return o.leading }

func (startedOwned) Log() *log.Log { return nil }

func (startedOwned) CutOwed() (types.Offset, uint64, bool) { return 0, 0, false }

// TestAFailoverTakesAStartBack: a start that a crash left between its fence and its
// adoption is ended by the mirror's failover, by whoever leads the partition.
func TestAFailoverTakesAStartBack(t *testing.T) {
	r := &run{m: &Mirrors{o: Options{Node: newPaperNode(t, 1)}}, name: "m", copiers: map[meta.PartitionID]*copier{}}
	rec := &meta.PartitionRecord{LeaderEpoch: 4, Mirror: &meta.MirrorState{Name: "m", StartID: "s", State: meta.MirrorStarting}}
	p := promoting{id: meta.PartitionID{Topic: paperTopic}, tp: types.TopicPartition{Topic: "t"}, part: startedPart{owned: startedOwned{record: rec, leading: true}}}
	c, err := r.preparePromotion(t.Context(), &p)
	if err != nil || c == nil {
		t.Fatalf("%v, %v", c, err)
	}
	if next := c.record; !next.Writable || next.LeaderEpoch != 5 || len(next.Promotions) > 0 || c.from != 7 {
		t.Errorf("the record becomes %+v, from revision %d", next, c.from)
	}
}

// TestAFailoverLeavesAnotherMirrorsPartition: between the moment when a failover lists
// its partitions and their promotion, a failback may have given one to another mirror.
func TestAFailoverLeavesAnotherMirrorsPartition(t *testing.T) {
	r := &run{m: &Mirrors{o: Options{Node: newPaperNode(t, 1)}}, name: "m", copiers: map[meta.PartitionID]*copier{}}
	for _, state := range []string{meta.MirrorStarting, meta.MirrorMirroring} {
		rec := &meta.PartitionRecord{LeaderEpoch: 4, Mirror: &meta.MirrorState{Name: "another", StartID: "s", State: state}}
		p := promoting{id: meta.PartitionID{Topic: paperTopic}, part: startedPart{owned: startedOwned{record: rec, leading: true}}}
		if c, err := r.preparePromotion(t.Context(), &p); c != nil || err != nil {
			t.Errorf("%s of another mirror: %v, %v", state, c, err)
		}
	}
}

// TestAHaltedCopierStepsNoMore is I-141: halted, no step comes to the log or to whoever serves it.
func TestAHaltedCopierStepsNoMore(t *testing.T) {
	stepped := func(halted bool) (reached bool) {
		c := &copier{}
		c.halted.Store(halted)
		defer func() { reached = recover() != nil }()
		c.onShard(untouchable{}, nil, nil)
		return false
	}
	if !stepped(false) {
		t.Error("a step that is not halted comes to nothing")
	}
	if stepped(true) {
		t.Error("a halted step goes on")
	}
}

// untouchable is a partition of which a step may see that it is there.
type untouchable struct{ Owned }

func (untouchable) Record() (*meta.PartitionRecord, meta.Revision) {
	return &meta.PartitionRecord{}, 1
}

func (untouchable) Log() *log.Log { return &log.Log{} }

// TestNoCopierBesideAPromotion is I-251: an alteration that connects elsewhere replaces the
// mirror's run, and the new one makes no copier for a partition whose promotion may have
// happened. It appended beyond the promoted end.
func TestNoCopierBesideAPromotion(t *testing.T) {
	n := holdingNode{newPaperNode(t, 1)}
	id := meta.PartitionID{Topic: paperTopic}
	m := &Mirrors{o: Options{Node: n}, ctx: t.Context(), changed: map[meta.PartitionID]bool{}, wake: make(chan struct{}, 1)}
	r := &run{m: m, name: "m", ctx: t.Context(), copiers: map[meta.PartitionID]*copier{}}
	r.record.Store(&meta.MirrorRecord{Name: "m", Want: meta.WantRunning})
	m.beginsPromotion(id)
	r.show(id)
	if r.copier(id) != nil {
		t.Error("a copier goes on beside the promotion")
	}
	if out, change := m.abandonOne(t.Context(), r, led{id: id}, part{Mirror: "m"}); change != nil || out.Reason != core.StaleRequest {
		t.Errorf("an abandon goes on beside the promotion: %+v", out)
	}
	m.settlesPromotion(id)
	if !m.changed[id] {
		t.Error("the partition isn't looked at again")
	}
	r.show(id)
	if r.copier(id) == nil {
		t.Error("there is no copier once the outcome is known")
	}
	r.work.Wait()
}

// holdingNode is a paperNode that holds the partition.
type holdingNode struct{ *paperNode }

func (holdingNode) Partition(types.TopicID, int32) (Partition, bool) {
	return startedPart{owned: startedOwned{}}, true
}

func (holdingNode) NodeID() types.BrokerID { return 1 }

func (holdingNode) Now() types.Millis { return 1 }

// TestAnAbandonWaitsForAPromotion: while a promotion isn't known to have happened, or not,
// its copiers stay halted (I-141). A refused abandon had them go on, and what they
// appended lay beyond the promoted end, though clients had read it.
func TestAnAbandonWaitsForAPromotion(t *testing.T) {
	r := &run{name: "m", promoting: make(chan struct{}, 1), copiers: map[meta.PartitionID]*copier{}}
	m := &Mirrors{o: Options{Node: newPaperNode(t, 1)}, ctx: t.Context(), runs: map[string]*run{"m": r}}
	m.writer = newWriter(m)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.abandonHere(ctx, part{Mirror: "m"}); err == nil {
		t.Error("it goes on beside the promotion")
	}
	r.promoting <- struct{}{}
	if _, err := m.abandonHere(t.Context(), part{Mirror: "another"}); err != nil {
		t.Error(err)
	}
}
