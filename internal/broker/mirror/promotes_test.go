package mirror

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
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

// TestACopierGoesOnAfterAPromotionThatCameToNothing: whoever ordered a failover, or an
// abandon, may be gone when it turns out that others wrote the record first. The copier that
// was halted for it stayed so, and the partition copied nothing any more.
func TestACopierGoesOnAfterAPromotionThatCameToNothing(t *testing.T) {
	n := holdingNode{newPaperNode(t, 1)}
	id := meta.PartitionID{Topic: paperTopic}
	m := &Mirrors{o: Options{Node: n}, ctx: t.Context(), changed: map[meta.PartitionID]bool{}, wake: make(chan struct{}, 1)}
	r := &run{m: m, name: "m", ctx: t.Context(), copiers: map[meta.PartitionID]*copier{}}
	r.record.Store(&meta.MirrorRecord{Name: "m", Want: meta.WantRunning})
	r.settings.Store(&config.Mirror{})
	m.runs = map[string]*run{"m": r}
	r.show(id)
	m.beginsPromotion(id)
	halted := r.halt(id)
	if halted == nil || !halted.halted.Load() {
		t.Fatal("it copies on beside the promotion")
	}
	r.show(id)
	if r.copier(id) != halted {
		t.Error("what the halted copier knows of the source is lost to the promotion")
	}
	m.settlesPromotion(id)
	r.show(id)
	if c := r.copier(id); c == nil || c.halted.Load() {
		t.Errorf("the promotion came to nothing, and the partition's copier is %+v", c)
	}
	if out, change := m.abandonOne(t.Context(), r, led{id: id, part: unready{n: &leadingNode{}}}, part{Mirror: "m"}); change != nil || out.Reason == "" || m.isUnsettled(id) {
		t.Errorf("refused, an abandon leaves %+v, unsettled %t", out, m.isUnsettled(id))
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = m.abandonOne(t.Context(), r, led{id: id}, part{Mirror: "m"}) // it has no partition: a panic
	}()
	if m.isUnsettled(id) {
		t.Error("a panic leaves the partition without a copier")
	}
	r.work.Wait()
}

// farNode is a paper node beside another one, which leads t-0.
type farNode struct {
	*paperNode
	asked  int
	body   string
	answer func(asked int) error
}

func (*farNode) NodeID() types.BrokerID { return 1 }

func (*farNode) Now() types.Millis { return 1 }

func (n *farNode) AskPeer(_ context.Context, _ types.BrokerID, _ string, body []byte, _ time.Duration) ([]byte, error) {
	n.asked++
	n.body = string(body)
	return []byte("[]"), n.answer(n.asked)
}

// TestAFailoverAsksAgainWhoDidNotAnswer: a broker that has just died is still registered.
// The failover of what it led ended at once, as an error, and nobody waited for the next leader.
func TestAFailoverAsksAgainWhoDidNotAnswer(t *testing.T) {
	n := &farNode{paperNode: newPaperNode(t, 1)}
	keys := meta.KeysOf(paperCluster)
	n.put(t, keys.Broker(2), meta.BrokerRecord{ID: 2, DirectoryID: "e", Incarnation: "j"}.Encode())
	epoch, _ := n.image.BrokerEpoch(2)
	n.put(t, keys.Name("t"), meta.NameRecord{ID: paperTopic}.Encode())
	n.put(t, keys.Mirror("m"), meta.MirrorRecord{Name: "m", Want: meta.WantRunning, StartID: "s", Bootstrap: []string{"h:1"}}.Encode())
	rec := meta.PartitionRecord{
		Replicas: []types.BrokerID{2}, ISR: []meta.ISRMember{{ID: 2, BrokerEpoch: epoch}}, Leader: 2, LeaderBrokerEpoch: epoch, MinISR: 1, Mirror: core.NewMirrored("m", "s"),
	}
	if _, err := n.commit(meta.Plan{Why: "led elsewhere", Then: []meta.Op{meta.Put(keys.Partition(paperTopic, 0), rec.Encode())}}); err != nil {
		t.Fatal(err)
	}
	n.answer = func(asked int) error {
		if asked < 3 {
			return errors.New("connection refused")
		}
		next := rec.Clone()
		next.Writable, next.LeaderEpoch, next.Timelines = true, 1, timeline.FreshRoot("x")
		next.Mirror.State = meta.MirrorStopped
		_, err := n.commit(meta.Plan{Why: "promote", Then: []meta.Op{meta.Put(keys.Partition(paperTopic, 0), next.Encode())}})
		return err
	}
	m := &Mirrors{o: Options{Node: n}, ctx: t.Context(), log: slog.New(slog.DiscardHandler)}
	r := &run{m: m, name: "m", ctx: t.Context(), promoting: make(chan struct{}, 1), copiers: map[meta.PartitionID]*copier{}}
	m.writer = newWriter(m)
	r.promoting <- struct{}{}
	m.runs = map[string]*run{"m": r}
	faults, err := m.promoteEverywhere(t.Context(), part{Mirror: "m", Topics: []string{"t"}, StartID: "s"})
	if err != nil || len(faults) > 0 || n.asked != 3 {
		t.Errorf("asked %d times: %v, %v", n.asked, faults, err)
	}
	tp := types.TopicPartition{Topic: "t"}
	for topics, want := range map[string]string{"": "goes on by itself", "t": "the same order once more"} {
		p := part{Mirror: "m"}
		if topics != "" {
			p.Topics = []string{topics}
		}
		if got := m.unpromotedWhy(tp, p, errors.New("no route")); !strings.Contains(got, want) || !strings.Contains(got, "broker 2") || !strings.Contains(got, "no route") {
			t.Errorf("of %q: %s", topics, got)
		}
	}
}

// TestAnAbandonNamesItsStart: an order that names none is for the present start, and says so to
// the brokers: one that hears of it late took a later start back.
func TestAnAbandonNamesItsStart(t *testing.T) {
	n := &farNode{paperNode: newPaperNode(t, 1), answer: func(int) error { return nil }}
	keys := meta.KeysOf(paperCluster)
	n.put(t, keys.Broker(2), meta.BrokerRecord{ID: 2, DirectoryID: "e", Incarnation: "j"}.Encode())
	n.put(t, keys.Mirror("m"), meta.MirrorRecord{Name: "m", Want: meta.WantRunning, StartID: "s7", Bootstrap: []string{"h:1"}}.Encode())
	m := &Mirrors{o: Options{Node: n}, ctx: t.Context()}
	m.writer = newWriter(m)
	for _, topics := range [][]string{nil, {"t"}} {
		n.body = ""
		if _, err := m.Abandon(t.Context(), "m", topics); err == nil || !strings.Contains(n.body, `"startId":"s7"`) {
			t.Errorf("of %v: asked %s, %v", topics, n.body, err)
		}
	}
}
