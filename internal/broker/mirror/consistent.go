package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
)

// A consistent failover promotes every partition at an offset of one cut, at
// which no transaction is half committed (docs/adr/0011). The node that is asked
// collects what all leaders know, decides, and writes the cut into the mirror's
// record: whoever promotes a partition of it, now or after a crash, does so at the
// cut's offset. Each replica then makes the cut as its first cut (R19), the vault first (R1).

// sinceMost is how long before the last complete sight markers are looked at.
const sinceMost = types.Millis(600_000)

// cutsMax bounds the partitions of one consistent failover: the cut is one metadata record.
const cutsMax = 50_000

// consistent is a cut that was found.
type consistent struct {
	id    string
	facts []core.TxnFacts
	cuts  []types.Offset
}

// PreviewConsistent finds the cut of a consistent failover of the topics, all if none are
// named, and what it would leave behind. It changes nothing.
func (m *Mirrors) PreviewConsistent(ctx context.Context, name string, topics []string) (Preview, error) {
	c, err := m.underWay(name, topics)
	if err == nil && c == nil {
		c, err = m.findCut(ctx, name, topics)
	}
	if err != nil {
		return Preview{}, err
	}
	return m.previewCut(ctx, name, topics, c)
}

// FailoverConsistent is Failover at a consistent cut. A plan that is quoted must
// be the preview's; an empty one takes what is found now.
func (m *Mirrors) FailoverConsistent(ctx context.Context, name string, topics []string, plan string) (Status, error) {
	return m.FailoverOf(ctx, name, FailoverOrder{Topics: topics, Consistent: true, Plan: plan})
}

func (m *Mirrors) failoverConsistent(ctx context.Context, name string, order FailoverOrder) (Status, error) {
	topics, plan := order.Topics, order.Plan
	if err := m.mayFailOver(name, order); err != nil {
		return Status{}, err
	}
	start := m.startOf(name)
	if level := m.o.Node.Image().FeatureLevel(meta.FeatureMetadata); level < meta.LevelCuts {
		return Status{}, fmt.Errorf("a consistent failover needs %s %d, the cluster is at %d: tidemark cluster upgrade, or fail over without --consistent: %w",
			meta.FeatureMetadata, meta.LevelCuts, level, ErrState)
	}
	left := m.unpromotedOf(name, topics)
	if e, ok := m.o.Node.Image().Mirror(name); ok && len(left) == 0 && len(topics) == 0 && e.Record.Want == meta.WantRunning {
		// What it makes while it is being ordered to end would be promoted at its log ends.
		return Status{}, fmt.Errorf("mirror %s has no partition yet that a cut could be found for: wait until its topics are there, or fail over without --consistent: %w", name, ErrState)
	}
	if len(left) > 0 {
		c, err := m.orderCut(ctx, name, topics, start, plan)
		if err != nil {
			return Status{}, err
		}
		plan = c.id
	}
	p := order.part(name, start)
	if len(left) > 0 {
		p.CutID = plan // what was promoted at it already waits for no cut
	}
	return m.failover(ctx, p)
}

// orderCut has the record say the cut that the topics are promoted at: the one that is
// under way, or one that is found now.
func (m *Mirrors) orderCut(ctx context.Context, name string, topics []string, start, plan string) (*consistent, error) {
	c, err := m.underWay(name, topics)
	if err != nil {
		return nil, err
	}
	begun := c != nil
	if !begun {
		if c, err = m.findCut(ctx, name, topics); err != nil {
			return nil, err
		}
	}
	if err := c.mayBegin(plan); err != nil || begun {
		return c, err
	}
	return c, m.writeCut(ctx, name, topics, start, c)
}

// mayBegin judges a cut by the plan that was quoted; one below compaction needs it.
func (c *consistent) mayBegin(plan string) error {
	if plan != "" && plan != c.id {
		return fmt.Errorf("%s: plan %s no longer holds, now it is %s; look at the preview again: %w", core.PlanStale, plan, c.id, ErrPlan)
	}
	for i := range c.facts {
		if below := c.below(i); below != nil && plan == "" {
			return fmt.Errorf("%s: %s: %w; leave its topic out, fail over without --consistent, or look at the preview and quote its plan: %w",
				core.PlanRequired, c.facts[i].TopicPartition, below, ErrPlan)
		}
	}
	return nil
}

// below says that a partition's cut lies below what its compaction has reached; nil if it doesn't.
func (c *consistent) below(i int) *core.Refusal {
	return core.BelowCompaction(c.cuts[i], c.facts[i].End, c.facts[i].Cleaned)
}

// underWay gives the cut of a consistent failover that has begun, for what is left of it:
// at another one, its transactions would be half there. Nil if none is under way.
func (m *Mirrors) underWay(name string, topics []string) (*consistent, error) {
	image := m.o.Node.Image()
	e, ok := image.Mirror(name)
	if !ok || e.Record.Cut == nil || e.Record.Cut.StartID != e.Record.StartID {
		return nil, nil
	}
	c, pending := &consistent{id: e.Record.Cut.ID}, false
	var late []string // asked for, and not in the cut
	for t := range image.TopicsByName() {
		for p := range image.PartitionsOf(t.ID) {
			if p.Record == nil || !(part{Mirror: name}).isOf(t, p) {
				continue
			}
			tp := types.TopicPartition{Topic: t.Record.Name, Partition: p.ID.Number}
			at, in := cutOf(e.Record, p.ID, p.Record.Mirror.StartID)
			pending = pending || in
			switch asked := (part{Topics: topics}).names(t.Record.Name); {
			case in && asked:
				c.facts, c.cuts = append(c.facts, core.TxnFacts{TopicPartition: tp}), append(c.cuts, at)
			case asked:
				late = append(late, tp.String())
			}
		}
	}
	switch whole := e.Record.Want == meta.WantStopped; {
	case !pending && !whole:
		return nil, nil // it has ended
	case len(late) > 0:
		return nil, fmt.Errorf("mirror %s: the consistent failover at cut %s has begun, and %s isn't in it: end that one first, with the same order once more, and fail this over without --consistent, or both: %w",
			name, e.Record.Cut.ID, late[0], ErrState)
	}
	return c, nil
}

// findCut asks all leaders twice: when the source was seen complete, then for the transactions since.
func (m *Mirrors) findCut(ctx context.Context, name string, topics []string) (*consistent, error) {
	p := part{Mirror: name, Topics: topics, StartID: m.startOf(name), Since: -1}
	before := m.o.Node.Now()
	seen, err := m.askTxns(ctx, p)
	if err != nil {
		return nil, err
	}
	after := m.o.Node.Now()
	ahead := m.clocksAhead(seen, before, after)
	p.Since = lookBack(shifted(seen, ahead))
	looks, err := m.askTxns(ctx, p)
	if err != nil {
		return nil, err
	}
	c := &consistent{facts: shifted(looks, ahead)}
	if len(c.facts) > cutsMax {
		return nil, fmt.Errorf("mirror %s: a consistent failover takes %d partitions at a time, these are %d: name topics: %w", name, cutsMax, len(c.facts), ErrSpec)
	}
	cuts, refusal := core.ConsistentCuts(c.facts)
	if refusal != nil {
		return nil, fmt.Errorf("mirror %s: %w: %w", name, refusal, ErrState)
	}
	c.cuts, c.id = cuts, core.CutsID(c.facts, cuts)
	return c, nil
}

// askTxns has every leader say what it knows; all partitions must be spoken for.
func (m *Mirrors) askTxns(ctx context.Context, p part) ([]txnLook, error) {
	list, err := m.everywhere(ctx, partTxns, p, peerPatience)
	if err != nil {
		return nil, fmt.Errorf("mirror %s: %w; a consistent failover needs every leader: try again, name topics, or fail over without --consistent", p.Mirror, err)
	}
	told := map[types.TopicPartition]bool{}
	var looks []txnLook
	for _, o := range list {
		if o.Reason != "" || o.Detail != "" {
			return nil, fmt.Errorf("mirror %s: %s: %w", p.Mirror, o.sentence(), ErrState)
		}
		if o.Txns != nil {
			told[o.TopicPartition] = true
			looks = append(looks, *o.Txns)
		}
	}
	for _, tp := range m.unpromotedOf(p.Mirror, p.Topics) {
		if !told[tp] {
			return nil, fmt.Errorf("mirror %s: no broker leads %s at the moment: try again, leave its topic out, or fail over without --consistent: %w", p.Mirror, tp, ErrState)
		}
	}
	return looks, nil
}

// ahead is how far a node's clock is ahead of this one's, at least and at most, in ms.
type ahead struct{ least, most types.Millis }

// clocksAhead bounds the clocks of the nodes that answered between two times of this one's.
func (m *Mirrors) clocksAhead(looks []txnLook, before, after types.Millis) map[types.BrokerID]ahead {
	out := map[types.BrokerID]ahead{m.o.Node.NodeID(): {}}
	for _, l := range looks {
		a := ahead{least: l.Now - after - 1, most: l.Now - before + 1}
		if b, known := out[l.Node]; known { // of this node itself: the same clock
			a = ahead{least: max(a.least, b.least), most: min(a.most, b.most)}
		}
		out[l.Node] = a
	}
	return out
}

// shifted puts all facts on this node's clock. A node that has not answered before
// says nothing of use: its times are unknown.
func shifted(looks []txnLook, by map[types.BrokerID]ahead) []core.TxnFacts {
	facts := make([]core.TxnFacts, len(looks))
	for i, l := range looks {
		facts[i] = l.TxnFacts
		a, known := by[l.Node]
		if !known {
			a = ahead{least: -core.Never / 4, most: core.Never / 4}
		}
		if a != (ahead{}) {
			facts[i].Shift(a.least, a.most)
		}
	}
	return facts
}

// lookBack is how far back transactions matter: to when the last partition was
// seen complete, and to when the oldest open transaction had not begun.
func lookBack(facts []core.TxnFacts) types.Millis {
	complete, since := core.Never, core.Never
	for i := range facts {
		complete = min(complete, facts[i].CompleteAt)
		for _, o := range facts[i].Open {
			since = min(since, o.FirstAbsent) // unknown: as far back as there is
		}
	}
	return max(min(since, complete), complete-sinceMost, 0)
}

// writeCut puts the cut into the mirror's record, with the order to fail over if it is for the whole mirror.
func (m *Mirrors) writeCut(ctx context.Context, name string, topics []string, start string, c *consistent) error {
	image := m.o.Node.Image()
	cut := &meta.ConsistentCut{ID: c.id, At: m.o.Node.Now(), Offsets: map[string][]types.Offset{}}
	for i := range c.facts {
		tp := c.facts[i].TopicPartition
		t, ok := image.TopicByName(tp.Topic)
		if !ok {
			return fmt.Errorf("topic %s was deleted meanwhile: %w", tp.Topic, ErrState)
		}
		key := t.Record.ID.String()
		if cut.Offsets[key] == nil {
			cut.Offsets[key] = slices.Repeat([]types.Offset{types.NoOffset}, int(t.Record.Partitions))
		}
		if int(tp.Partition) < len(cut.Offsets[key]) {
			cut.Offsets[key][tp.Partition] = c.cuts[i]
		}
		if c.below(i) != nil {
			if cut.Compacted == nil {
				cut.Compacted = map[string][]int32{}
			}
			cut.Compacted[key] = append(cut.Compacted[key], tp.Partition)
		}
	}
	return m.update(ctx, name, func(rec *meta.MirrorRecord) error {
		if err := isPresent(rec, start); err != nil {
			return err // the cut was found in that start
		}
		for _, tp := range m.unpromotedOf(name, topics) {
			if !slices.ContainsFunc(c.facts, func(f core.TxnFacts) bool { return f.TopicPartition == tp }) {
				return fmt.Errorf("mirror %s has %s since the cut was found: try again: %w", name, tp, ErrState)
			}
		}
		if rec.Cut != nil && rec.Cut.StartID == rec.StartID {
			if other, err := m.underWay(name, topics); other != nil || err != nil {
				return fmt.Errorf("mirror %s: another consistent failover has begun meanwhile, at cut %s: try again: %w", name, rec.Cut.ID, ErrState)
			}
		}
		cut.StartID, rec.Cut = rec.StartID, cut
		if len(topics) == 0 {
			rec.Want = meta.WantStopped
		}
		return nil
	})
}

// previewCut surveys what the cut would take.
func (m *Mirrors) previewCut(ctx context.Context, name string, topics []string, c *consistent) (Preview, error) {
	e, ok := m.o.Node.Image().Mirror(name)
	if !ok {
		return Preview{}, fmt.Errorf("%w: %s", ErrUnknownMirror, name)
	}
	out := Preview{Mirror: name, SourceClusterID: e.Record.SourceClusterID, Plan: c.id, Partitions: []PartitionPlan{}}
	at := make(map[string]types.Offset, len(c.facts))
	why := map[types.TopicPartition]string{}
	for i := range c.facts {
		at[c.facts[i].TopicPartition.String()] = c.cuts[i]
		if below := c.below(i); below != nil {
			why[c.facts[i].TopicPartition] = below.Error()
		}
	}
	list, err := m.everywhere(ctx, partCutSurvey, part{Mirror: name, Topics: topics, Cut: at}, peerPatience)
	if err != nil {
		return out, fmt.Errorf("mirror %s: %w", name, err)
	}
	cut := 0
	for _, o := range list {
		if o.Plan == nil {
			return out, fmt.Errorf("mirror %s: %s: %w", name, o.sentence(), ErrState)
		}
		if len(o.Plan.Cuts) > 0 {
			cut++
		}
		if o.Plan.PlanWhy = why[o.TopicPartition]; o.Plan.PlanWhy != "" {
			o.Plan.PlanNeeded, out.PlanNeeded = true, true
		}
		out.Records, out.Markers, out.Bytes = out.Records+o.Plan.Records, out.Markers+o.Plan.Markers, out.Bytes+o.Plan.Bytes
		out.Partitions = append(out.Partitions, *o.Plan)
	}
	if err := m.addPast(ctx, &out); err != nil {
		return out, err
	}
	head := fmt.Sprintf("%d partitions would be promoted as they are: no transaction is half mirrored.", len(list))
	if cut > 0 {
		head = fmt.Sprintf("%d partitions would be promoted; %d of them would be cut so that no transaction is half mirrored: %s would go to the vaults of their brokers.",
			len(list), cut, out.amount())
	}
	out.Message = append(out.Message, head, "Transactions that are open then are aborted.")
	if i := slices.IndexFunc(out.Partitions, func(pp PartitionPlan) bool { return pp.PlanWhy != "" }); i >= 0 {
		out.Message = append(out.Message, fmt.Sprintf("A plan is needed, for %d partitions, %s-%d first: %s. Without the plan: leave the topic out, or fail over without --consistent.",
			len(why), out.Partitions[i].Topic, out.Partitions[i].Partition, out.Partitions[i].PlanWhy))
	}
	return out, nil
}

// surveyHere counts what a consistent cut would take of the partitions led here.
func (m *Mirrors) surveyHere(ctx context.Context, p part) ([]outcome, error) {
	list := slices.DeleteFunc(m.ledHere(m.o.Node.Image(), p.isOf), func(l led) bool { _, asked := p.Cut[l.tp.String()]; return !asked })
	out := make([]outcome, len(list))
	return out, m.inParallel(ctx, list, out, func(i int, l led) {
		v, open := l.part.View()
		if !open {
			out[i] = refusedOutcome(l.tp, errors.New("the log isn't open"))
			return
		}
		at := min(p.Cut[l.tp.String()], v.LogEnd)
		pp := &PartitionPlan{Topic: l.tp.Topic, Partition: l.tp.Partition, Node: m.o.Node.NodeID(), LogEnd: v.LogEnd, CutAt: at,
			Cuts: []core.PlannedCut{}, MinTimestamp: types.NoTimestamp, MaxTimestamp: types.NoTimestamp}
		if at < v.LogEnd {
			first, _ := v.History.EpochForOffset(at)
			pp.Cuts = append(pp.Cuts, core.PlannedCut{Cause: core.CauseConsistent, From: at, To: v.LogEnd, First: first, Last: v.LastEpoch})
		}
		if err := survey(l.part.Log(), pp); err != nil {
			out[i] = refusedOutcome(l.tp, err)
			return
		}
		out[i] = outcome{TopicPartition: l.tp, Plan: pp}
	})
}

// cutOf is where a consistent failover under way promotes a partition.
func cutOf(rec *meta.MirrorRecord, id meta.PartitionID, startID string) (types.Offset, bool) {
	if rec == nil || rec.Cut == nil || rec.Cut.StartID != startID {
		return 0, false
	}
	list := rec.Cut.Offsets[id.Topic.String()]
	if int(id.Number) >= len(list) || list[id.Number] < 0 {
		return 0, false
	}
	return list[id.Number], true
}

func inCut(rec *meta.MirrorRecord, id meta.PartitionID, startID string) bool {
	_, in := cutOf(rec, id, startID)
	return in
}

// unspent is a cut without the partitions that it has promoted; nil if no other is left.
// They may be begun anew in the same start of the mirror. What is copied then lies above
// the cut, and the next consistent failover would have taken it away, as what is left of the earlier one.
//
// Invariant I-312: a partition that begins to follow a start is in no cut of that start.
func (m *Mirrors) unspent(cut *meta.ConsistentCut) *meta.ConsistentCut {
	image := m.o.Node.Image()
	pending := map[string]map[int32]bool{}
	for t := range image.TopicsByName() {
		for p := range image.PartitionsOf(t.ID) {
			if p.Record == nil || p.Record.Writable {
				continue
			}
			if key := t.ID.String(); pending[key] == nil {
				pending[key] = map[int32]bool{p.ID.Number: true}
			} else {
				pending[key][p.ID.Number] = true
			}
		}
	}
	return cutWithout(cut, func(topic string, n int32) bool { return !pending[topic][n] })
}

// cutWithout is a cut without some partitions, by topic id and number; nil if none is left.
func cutWithout(cut *meta.ConsistentCut, gone func(topic string, n int32) bool) *meta.ConsistentCut {
	if cut == nil {
		return nil
	}
	left, some := *cut, false
	left.Offsets = make(map[string][]types.Offset, len(cut.Offsets))
	for topic, list := range cut.Offsets {
		list = slices.Clone(list)
		for n := range list {
			if gone(topic, int32(n)) {
				list[n] = types.NoOffset
			}
			some = some || list[n] >= 0
		}
		left.Offsets[topic] = list
	}
	if !some {
		return nil
	}
	return &left
}

// endCutOf takes a topic that is about to be made again out of the cut: what that says is
// of the one that was deleted.
func (m *Mirrors) endCutOf(ctx context.Context, name string, id types.TopicID) error {
	speaks := func(cut *meta.ConsistentCut) bool { return cut != nil && len(cut.Offsets[id.String()]) > 0 }
	if e, ok := m.o.Node.Image().Mirror(name); !ok || !speaks(e.Record.Cut) {
		return nil
	}
	return m.update(ctx, name, func(rec *meta.MirrorRecord) error {
		if rec.Want == meta.WantRunning && speaks(rec.Cut) { // else what is made is told as NOT_IN_CUT, or isn't made
			rec.Cut = cutWithout(rec.Cut, func(topic string, _ int32) bool { return topic == id.String() })
		}
		return nil
	})
}

// atCut has a partition promoted at the cut of a consistent failover under way. One that such
// a failover of the whole mirror doesn't speak of was made after its cut was found: taken at
// its log end, it could hold half of a transaction.
func (r *run) atCut(req *core.PromoteRequest, rec *meta.PartitionRecord, id meta.PartitionID) error {
	e, ok := r.m.o.Node.Image().Mirror(r.name)
	if !ok || rec == nil || !rec.IsMirror() {
		return nil
	}
	if at, ok := cutOf(e.Record, id, rec.Mirror.StartID); ok {
		req.At, req.Compacted = &at, slices.Contains(e.Record.Cut.Compacted[id.Topic.String()], id.Number)
		return nil
	}
	if cut := e.Record.Cut; e.Record.Want == meta.WantStopped && cut != nil && cut.StartID == e.Record.StartID {
		return &core.Refusal{Reason: core.NotInCut, Detail: fmt.Sprintf("it was made after the consistent cut %s was found: fail it over without --consistent", cut.ID)}
	}
	return nil
}

// followCut lowers what groups coordinated here have committed beyond the cut of
// a consistent failover, wherever the partitions are led: before anybody reads there.
func (r *run) followCut(ctx context.Context) error {
	image := r.m.o.Node.Image()
	e, ok := image.Mirror(r.name)
	if !ok || e.Record.Cut == nil || e.Record.Cut.StartID != e.Record.StartID {
		return nil
	}
	var cuts []coordinator.Cut
	for p := range image.Partitions() {
		if p.Record == nil || !p.Record.IsMirror() || p.Record.Mirror.Name != r.name {
			continue
		}
		t, known := image.Topic(p.ID.Topic)
		if at, ok := cutOf(e.Record, p.ID, p.Record.Mirror.StartID); ok && known {
			cuts = append(cuts, coordinator.Cut{TopicPartition: types.TopicPartition{Topic: t.Record.Name, Partition: p.ID.Number}, Offset: at})
		}
	}
	if len(cuts) == 0 {
		return nil
	}
	lowered, err := r.m.o.Groups.ClampAll(ctx, cuts)
	r.groups.tellLowered(lowered)
	if err != nil {
		return fmt.Errorf("committed offsets beyond the consistent cut can't be lowered yet: %w", err)
	}
	return nil
}

// awaitCut waits until this node's image shows the cut that a failover is at.
func (m *Mirrors) awaitCut(ctx context.Context, name, id string) error {
	for n := 1; ; n++ {
		e, ok := m.o.Node.Image().Mirror(name)
		if ok && e.Record.Cut != nil && e.Record.Cut.ID == id {
			return nil
		}
		if n == awaitCutTries || !pause(ctx, awaitCutPause) {
			return fmt.Errorf("mirror %s: this broker does not know of the cut %s yet; try again", name, id)
		}
	}
}

// A broker's image follows within moments; five seconds in all.
const (
	awaitCutTries = 200
	awaitCutPause = 25 * time.Millisecond
)
