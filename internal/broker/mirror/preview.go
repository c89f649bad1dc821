package mirror

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker/coordinator"
	"tidemark/internal/clock"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/source"
)

// Preview is what a failback would do, as `mirror preview` prints it.
type Preview struct {
	Mirror          string `json:"mirror"`
	SourceClusterID string `json:"sourceClusterId"`
	// Plan is to be quoted by the failback: it names the facts of all partitions,
	// and no longer holds once one of them is another (R24).
	Plan string `json:"plan"`
	// PlanNeeded: without the plan the failback is refused.
	PlanNeeded bool `json:"planNeeded"`
	// Records and Bytes are what would be cut from the leaders' logs, into their vaults;
	// of the records Markers are no data, but markers of transactions.
	Records    int64           `json:"records"`
	Markers    int64           `json:"markers,omitempty"`
	Bytes      int64           `json:"bytes"`
	Partitions []PartitionPlan `json:"partitions"`
	// NewTopics are the source's that aren't here: they would be made and copied whole.
	NewTopics []string `json:"newTopics,omitempty"`
	// Message says it in words, line by line.
	Message []string `json:"message,omitempty"`
}

// PartitionPlan is the dry run of a failback at one partition's leader.
type PartitionPlan struct {
	Topic     string         `json:"topic"`
	Partition int32          `json:"partition"`
	Node      types.BrokerID `json:"node"` // the leader: its vault keeps what is cut from it
	PlanID    string         `json:"planId"`
	// Relation of our timelines to the source's: equal, behind, ahead, fork, unrelated, empty.
	Relation string       `json:"relation"`
	LogEnd   types.Offset `json:"logEnd"`
	// CutAt is the first offset that would go, LogEnd if none does.
	CutAt types.Offset      `json:"cutAt"`
	Cuts  []core.PlannedCut `json:"cuts"`
	// Of what would go: records, how many of them are markers of transactions, bytes,
	// times (-1: none), and how many producers wrote it.
	Records      int64        `json:"records"`
	Markers      int64        `json:"markers,omitempty"`
	Bytes        int64        `json:"bytes"`
	MinTimestamp types.Millis `json:"minTimestamp"`
	MaxTimestamp types.Millis `json:"maxTimestamp"`
	Producers    int          `json:"producers"`
	// Gap: the source's log starts above what would be left here (R28).
	Gap bool `json:"gap,omitempty"`
	// Refused says why a failback would be refused with the plan in hand, empty if it would not.
	Refused string `json:"refused,omitempty"`
	// PlanNeeded: the partition asks for the plan.
	PlanNeeded bool `json:"planNeeded,omitempty"`
	// PlanWhy says why, empty if it doesn't.
	PlanWhy string `json:"planWhy,omitempty"`
	// Groups had read past CutAt.
	Groups []GroupPast `json:"groups,omitempty"`
}

// GroupPast is a group whose committed offset lies beyond a cut.
type GroupPast struct {
	Group  string       `json:"group"`
	Offset types.Offset `json:"offset"`
}

// PreviewRequest bounds a preview.
type PreviewRequest struct {
	// Topics are names; empty: all that the mirror's expressions fit.
	Topics []string `json:"topics,omitempty"`
	// Rollback gives up what this cluster was promoted to.
	Rollback bool `json:"rollback,omitempty"`
	// Failover previews a consistent failover instead.
	Failover bool `json:"failover,omitempty"`
}

// peerPatience is how long another broker's part of a verb may take.
const peerPatience = 60 * time.Second

// Preview plays a failback of a mirror's topics that exist here, or a consistent
// failover, and changes nothing.
func (m *Mirrors) Preview(ctx context.Context, name string, r PreviewRequest) (Preview, error) {
	if r.Failover {
		return m.PreviewConsistent(ctx, name, r.Topics)
	}
	e, ok := m.o.Node.Image().Mirror(name)
	if !ok {
		return Preview{}, fmt.Errorf("%w: %s", ErrUnknownMirror, name)
	}
	out := Preview{Mirror: name, SourceClusterID: e.Record.SourceClusterID, Partitions: []PartitionPlan{}}
	list, err := m.everywhere(ctx, partPreview, part{Mirror: name, Topics: r.Topics, Rollback: r.Rollback}, peerPatience)
	if err != nil {
		if sourceWayOut(e.Record, err) == "" {
			return out, fmt.Errorf("mirror %s: %w", name, err)
		}
		return out, m.needsSource(name, "a preview, and so a failback,", err)
	}
	var plans []string
	for _, o := range list {
		p := o.Plan
		if p == nil {
			p = &PartitionPlan{Topic: o.Topic, Partition: o.Partition, Node: types.NoBroker, LogEnd: types.NoOffset, CutAt: types.NoOffset, MinTimestamp: -1, MaxTimestamp: -1}
			p.Refused = fmt.Sprintf("%s: %s", o.Reason, o.Detail)
		}
		plans = append(plans, fmt.Sprintf("%s %s %s", o.TopicPartition, p.PlanID, p.Refused))
		out.PlanNeeded = out.PlanNeeded || p.PlanNeeded
		out.Records, out.Markers, out.Bytes = out.Records+p.Records, out.Markers+p.Markers, out.Bytes+p.Bytes
		out.Partitions = append(out.Partitions, *p)
	}
	out.Plan = core.CombinedID(plans)
	if len(plans) == 1 {
		out.Plan = list[0].planID()
	}
	if err := m.addPast(ctx, &out); err != nil {
		return out, err
	}
	out.NewTopics, err = m.newTopics(ctx, e.Record, r.Topics)
	out.Message = previewMessage(&out)
	return out, m.needsSource(name, "a preview, and so a failback,", err)
}

func (o outcome) planID() string {
	if o.Plan == nil {
		return ""
	}
	return o.Plan.PlanID
}

// addPast names the groups that had read past the cuts.
func (m *Mirrors) addPast(ctx context.Context, out *Preview) error {
	place := map[types.TopicPartition]*PartitionPlan{}
	var cuts []coordinator.Cut
	for i := range out.Partitions {
		p := &out.Partitions[i]
		if p.CutAt < 0 || p.CutAt >= p.LogEnd {
			continue
		}
		tp := types.TopicPartition{Topic: p.Topic, Partition: p.Partition}
		place[tp] = p
		cuts = append(cuts, coordinator.Cut{TopicPartition: tp, Offset: p.CutAt})
	}
	if len(cuts) == 0 {
		return nil
	}
	past, err := m.everywhere(ctx, partPast, part{Mirror: out.Mirror, Cuts: cuts}, peerPatience)
	for _, o := range past {
		if p := place[o.TopicPartition]; p != nil && o.Past != nil {
			p.Groups = append(p.Groups, *o.Past)
		}
	}
	return err
}

// newTopics lists the source's topics that the mirror fits and that aren't here.
func (m *Mirrors) newTopics(ctx context.Context, rec *meta.MirrorRecord, only []string) ([]string, error) {
	f, err := newFilter(rec)
	if err != nil {
		return nil, err
	}
	client, done, err := m.clientOf(rec)
	if err != nil {
		return nil, err
	}
	defer done()
	md, err := client.Metadata(ctx, nil)
	if err != nil {
		return nil, err
	}
	var fresh []string
	image := m.o.Node.Image()
	for i := range md.Topics {
		t := &md.Topics[i]
		if _, here := image.TopicByName(t.Name); !here && fits(f, md, t) && (len(only) == 0 || slices.Contains(only, t.Name)) {
			fresh = append(fresh, t.Name)
		}
	}
	slices.Sort(fresh)
	return fresh, nil
}

// fits reports whether a mirror copies a topic of its source.
func fits(f *filter, md *source.Metadata, t *source.Topic) bool {
	return t.Code == 0 && !t.Internal && len(t.Partitions) > 0 && f.topic(t.Name) && !f.leavesOut(md, t.Name)
}

// startable is what a start of a mirror may take of this node's partitions: those
// whose topic the source has and the mirror's expressions fit.
type startable struct {
	record   *meta.MirrorRecord
	settings *config.Mirror
	list     []led
	seen     *looks
	done     func()
}

// look looks at the source for the partitions led here that a start would take.
func (m *Mirrors) look(ctx context.Context, p part) (*startable, error) {
	image, e := m.awaitMirror(ctx, p.Mirror)
	if e == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownMirror, p.Mirror)
	}
	f, err := newFilter(e.Record)
	if err != nil {
		return nil, err
	}
	s, err := settingsOf(m.o.Config.Mirror, e.Record.Settings)
	if err != nil {
		return nil, err
	}
	client, done, err := m.clientOf(e.Record)
	if err != nil {
		return nil, err
	}
	md, err := client.Metadata(ctx, nil)
	if err != nil {
		done()
		return nil, err
	}
	there := map[string]bool{}
	for i := range md.Topics {
		there[md.Topics[i].Name] = fits(f, md, &md.Topics[i])
	}
	list := m.ledHere(image, func(t *meta.Topic, e *meta.Partition) bool {
		return there[t.Record.Name] && p.names(t.Record.Name) && !t.Record.Internal && !isRunningMirror(image, e.Record, p.Mirror)
	})
	return &startable{record: e.Record, settings: s, list: list, seen: lookAll(ctx, client, m.asksMirrored(s), md, list), done: done}, nil
}

// awaitMirror gives a mirror and the image that has it, nil if there is none. The node that asks
// for a part of a verb knows the mirror; this one's image may be a moment behind.
func (m *Mirrors) awaitMirror(ctx context.Context, name string) (*meta.Image, *meta.Mirror) {
	ctx, cancel := clock.WithTimeout(ctx, runPatience)
	defer cancel()
	for {
		image := m.o.Node.Image()
		e, ok := image.Mirror(name)
		switch {
		case ok:
			return image, e
		case !pause(ctx, 10*time.Millisecond):
			return image, nil
		}
	}
}

// isRunningMirror reports whether a partition follows this mirror in its present start already.
func isRunningMirror(image *meta.Image, rec *meta.PartitionRecord, name string) bool {
	e, ok := image.Mirror(name)
	return ok && rec.IsMirror() && rec.Mirror.Name == name && rec.Mirror.StartID == e.Record.StartID && rec.Mirror.State != meta.MirrorStarting
}

// previewHere plays the start at every partition that this node leads.
func (m *Mirrors) previewHere(ctx context.Context, p part) ([]outcome, error) {
	s, err := m.look(ctx, p)
	if err != nil {
		return nil, err
	}
	defer s.done()
	out := make([]outcome, len(s.list))
	return out, m.inParallel(ctx, s.list, out, func(i int, l led) {
		out[i] = m.previewOne(ctx, s, l, p)
	})
}

func (m *Mirrors) previewOne(ctx context.Context, s *startable, l led, p part) outcome {
	pol := m.policyOf(l, s.settings)
	plan, _, rec, _, err := m.dryRun(ctx, s.seen, l, pol)
	if err != nil {
		return refusedOutcome(l.tp, err)
	}
	pp := &PartitionPlan{Topic: l.tp.Topic, Partition: l.tp.Partition, Node: m.o.Node.NodeID(), PlanID: plan.ID, Relation: plan.Relation,
		LogEnd: plan.LogEnd, CutAt: plan.CutAt, Cuts: plan.Cuts, Gap: plan.Gap, MinTimestamp: types.NoTimestamp, MaxTimestamp: types.NoTimestamp}
	if pp.Cuts == nil {
		pp.Cuts = []core.PlannedCut{}
	}
	if err := survey(l.part.Log(), pp); err != nil {
		return refusedOutcome(l.tp, err)
	}
	req := core.StartRequest{Mirror: p.Mirror, StartID: "preview", Rollback: p.Rollback}
	if r := core.Judge(rec, req, pol, s.seen.at[l.tp].source, &plan); r.Reason != "" {
		pp.PlanNeeded, pp.PlanWhy = true, r.Error()
	}
	req.PlanID = plan.ID
	if r := core.Judge(rec, req, pol, s.seen.at[l.tp].source, &plan); r.Reason != "" {
		pp.Refused = r.Error()
	}
	return outcome{TopicPartition: l.tp, Plan: pp}
}

// survey counts what the cuts would take of the leader's log.
func survey(l *log.Log, p *PartitionPlan) error {
	producers := map[types.ProducerID]bool{}
	for _, c := range p.Cuts {
		for from := c.From; from < c.To; {
			raw, err := readLog(l, from, c.To, surveyBytes)
			if err != nil {
				return err
			}
			next := from
			for it := batch.Iterate(raw); it.Next(); {
				h := it.Header
				next = h.NextOffset()
				if next <= c.From {
					continue
				}
				p.Records += int64(h.RecordsCount)
				if h.IsControl() {
					p.Markers += int64(h.RecordsCount)
				}
				p.Bytes += int64(h.Size())
				if p.MinTimestamp < 0 || h.BaseTimestamp < p.MinTimestamp {
					p.MinTimestamp = h.BaseTimestamp
				}
				p.MaxTimestamp = max(p.MaxTimestamp, h.MaxTimestamp)
				if h.ProducerID >= 0 {
					producers[h.ProducerID] = true
				}
			}
			if next == from {
				break // a gap that compaction left reaches to the end
			}
			from = next
		}
	}
	p.Producers = len(producers)
	return nil
}

const surveyBytes = 1 << 20

// partsAtOnce bounds the partitions that a verb works on at one time on a node.
const partsAtOnce = 32

// inParallel runs f for each partition, some at a time, until ctx ends. f gives its outcome in
// out; one that panics is refused, and takes neither the node nor the others with it.
func (m *Mirrors) inParallel(ctx context.Context, list []led, out []outcome, f func(i int, l led)) error {
	return clock.Each(ctx, len(list), partsAtOnce, func(i int) {
		defer m.guard(list[i].tp, &out[i])
		f(i, list[i])
	})
}

// broken refuses what came upon a broken invariant.
const broken core.Reason = "INVARIANT_BROKEN"

// guard is deferred by work on one partition outside its shard, which has a guard of its own.
// out, if not nil, takes the outcome.
func (m *Mirrors) guard(tp types.TopicPartition, out *outcome) {
	p := recover()
	if p == nil {
		return
	}
	m.log.Error("work on a partition ended with a panic", "partition", tp.String(), "err", p, "stack", string(debug.Stack()))
	if out != nil {
		*out = outcome{TopicPartition: tp, Reason: broken, Detail: fmt.Sprintf("%v; the broker's log has the rest", p)}
	}
}

// amount says in words what would go.
func (p *Preview) amount() string {
	data := p.Records - p.Markers
	if p.Markers == 0 {
		return fmt.Sprintf("%d records (%d bytes)", data, p.Bytes)
	}
	return fmt.Sprintf("%d records and %d transaction markers (%d bytes)", data, p.Markers, p.Bytes)
}

// previewMessage says in words what would happen.
func previewMessage(p *Preview) []string {
	cut, refused := 0, 0
	groups := map[string]bool{}
	for _, pp := range p.Partitions {
		if len(pp.Cuts) > 0 {
			cut++
		}
		if pp.Refused != "" {
			refused++
		}
		for _, g := range pp.Groups {
			groups[g.Group] = true
		}
	}
	var lines []string
	switch {
	case len(p.Partitions) == 0:
		lines = append(lines, "No partition here would become a mirror.")
	case cut == 0:
		lines = append(lines, fmt.Sprintf("%d partitions would become mirrors; nothing would be cut from their leaders' logs.", len(p.Partitions)))
	default:
		lines = append(lines, fmt.Sprintf("%d partitions would become mirrors; %s of %d of them would be cut, into the vaults of their brokers.", len(p.Partitions), p.amount(), cut))
	}
	if len(groups) > 0 {
		lines = append(lines, fmt.Sprintf("%d groups had read past the cuts: their offsets would be taken back.", len(groups)))
	}
	if refused > 0 {
		lines = append(lines, fmt.Sprintf("%d partitions would be refused; their rows say why.", refused))
	}
	if i := slices.IndexFunc(p.Partitions, func(pp PartitionPlan) bool { return pp.PlanWhy != "" && pp.Refused == "" }); i >= 0 {
		lines = append(lines, fmt.Sprintf("A plan is needed, for %s-%d first: %s", p.Partitions[i].Topic, p.Partitions[i].Partition, p.Partitions[i].PlanWhy))
	}
	if len(p.NewTopics) > 0 {
		lines = append(lines, fmt.Sprintf("%d topics of the source aren't here: they would be made and copied whole.", len(p.NewTopics)))
	}
	return append(lines, "Replicas that are down make the same cuts when they return.")
}
