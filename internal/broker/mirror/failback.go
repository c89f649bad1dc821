package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
)

// FailbackRequest makes topics that exist here mirrors of another cluster.
type FailbackRequest struct {
	PreviewRequest
	// Plan is the preview's. It may be left out where nothing would be cut.
	Plan string `json:"plan,omitempty"`
	// DryRun gives the preview alone.
	DryRun bool `json:"dryRun,omitempty"`
}

// Failback starts a mirror on topics of its source that exist here and were
// written here: the old primary becomes a mirror of the new one (DESIGN §6.4). It is judged
// by a preview; a plan that is quoted must be that preview's, else nothing
// changes (R24). Topics that aren't here are made and copied as by a start.
func (m *Mirrors) Failback(ctx context.Context, name string, r FailbackRequest) (Preview, error) {
	p, err := m.Preview(ctx, name, r.PreviewRequest)
	if err != nil || r.DryRun {
		return p, err
	}
	if err := mayFailBack(&p, r); err != nil {
		return p, fmt.Errorf("mirror %s: %w", name, err)
	}
	start, err := m.orderStart(ctx, name)
	if err != nil {
		return p, err
	}
	plans := make(map[string]string, len(p.Partitions))
	for _, pp := range p.Partitions {
		if r.Plan != "" {
			plans[types.TopicPartition{Topic: pp.Topic, Partition: pp.Partition}.String()] = pp.PlanID
		}
	}
	list, err := m.everywhere(ctx, partStart, part{Mirror: name, Topics: r.Topics, StartID: start, Plans: plans, Rollback: r.Rollback}, peerPatience)
	p.Message = startMessage(list)
	if err != nil {
		return p, fmt.Errorf("mirror %s: %w; what was begun goes on, and the same command again begins the rest", name, err)
	}
	var refused []string
	for _, o := range list {
		if o.Reason != "" {
			refused = append(refused, o.sentence())
		}
	}
	left := m.unstarted(name, list)
	for _, tp := range left {
		refused = append(refused, fmt.Sprintf("%s: %s: no leader of it has answered, and it has not begun; the same command again begins it once it is led", tp, noLeader))
	}
	if len(refused) > 0 {
		return p, fmt.Errorf("mirror %s: %d of %d partitions were refused; nothing of them is cut, and one that was closed meanwhile goes on, or is opened again, by itself: %s: %w", name, len(refused), len(list)+len(left),
			strings.Join(refused[:min(len(refused), 5)], "; "), ErrRefusedParts)
	}
	return p, nil
}

// unstarted lists the partitions that a failback has left out, of topics of which it has begun
// others: nobody led them. Clients that write to those when they are led again write to half a mirror.
func (m *Mirrors) unstarted(name string, spoken []outcome) (left []types.TopicPartition) {
	topics, told := map[string]bool{}, map[types.TopicPartition]bool{}
	for _, o := range spoken {
		topics[o.Topic], told[o.TopicPartition] = true, true
	}
	image := m.o.Node.Image()
	for t := range image.TopicsByName() {
		if !topics[t.Record.Name] {
			continue
		}
		for p := range image.PartitionsOf(t.ID) {
			tp := types.TopicPartition{Topic: t.Record.Name, Partition: p.ID.Number}
			if !told[tp] && (p.Record == nil || !isRunningMirror(image, p.Record, name)) {
				left = append(left, tp)
			}
		}
	}
	return left
}

// mayFailBack judges a preview by the plan that was quoted.
func mayFailBack(p *Preview, r FailbackRequest) error {
	for _, pp := range p.Partitions {
		if pp.Refused != "" {
			return fmt.Errorf("%s-%d: %s: %w", pp.Topic, pp.Partition, pp.Refused, ErrRefusedParts)
		}
	}
	switch {
	case p.PlanNeeded && r.Plan == "":
		return fmt.Errorf("%s: it would cut %d records; look at the preview and quote its plan: %w", core.PlanRequired, p.Records, ErrPlan)
	case r.Plan != "" && r.Plan != p.Plan:
		return fmt.Errorf("%s: plan %s no longer holds; look at the preview again: %w", core.PlanStale, r.Plan, ErrPlan)
	}
	return nil
}

// orderStart has the mirror run in a new start, unless it runs in one that took nothing yet.
func (m *Mirrors) orderStart(ctx context.Context, name string) (start string, err error) {
	err = m.update(ctx, name, func(rec *meta.MirrorRecord) error {
		if rec.Want == meta.WantPaused {
			return fmt.Errorf("mirror %s is paused: %w; resume it", name, ErrState)
		}
		if rec.Want != meta.WantRunning {
			rec.Want, rec.StartID = meta.WantRunning, m.o.IDs.Fresh()
		}
		start, rec.Cut = rec.StartID, m.unspent(rec.Cut)
		return nil
	})
	return start, err
}

func startMessage(list []outcome) []string {
	begun := 0
	for _, o := range list {
		if o.Reason == "" {
			begun++
		}
	}
	return []string{fmt.Sprintf("%d of %d partitions mirror now; `mirror status` shows how far they are.", begun, len(list))}
}

// startHere starts the partitions that this node leads, in the order of R25:
// look, fence, look again, adopt or go back.
func (m *Mirrors) startHere(ctx context.Context, p part) ([]outcome, error) {
	m.starting.Add(1)
	defer m.starting.Add(-1)
	p.heard = m.awaitStart(ctx, p)
	s, err := m.look(ctx, p)
	if err != nil {
		return nil, err
	}
	defer s.done()
	out := make([]outcome, len(s.list))
	fences, err := m.settle(ctx, s.list, out, func(l led) (outcome, *awaited) { return m.beginOne(ctx, s, l, p) })
	if err != nil {
		return out, err
	}
	again, err := m.look(ctx, p) // in the fenced epochs
	if err != nil {
		// Nothing is known of the source any more: what was fenced goes back.
		m.goBackAll(ctx, s.list, out, fences, core.Refusal{Reason: reasonOf(err), Detail: err.Error()})
		return out, nil
	}
	defer again.done()
	_, err = m.settle(ctx, s.list, out, func(l led) (outcome, *awaited) { return m.adoptOne(ctx, again, l, p) })
	return out, err
}

// A part is often asked before this node's image shows the start that it is of.
const (
	startPause = 20 * time.Millisecond
	startTries = 250 // five seconds
)

// awaitStart waits, for a while, until this node has heard of the start that a part is of: an
// adoption compares the mirror's record, and would be refused for nothing. It reports whether
// the node has: an image that shows another start from then on shows a later one.
func (m *Mirrors) awaitStart(ctx context.Context, p part) bool {
	for range startTries {
		e, ok := m.o.Node.Image().Mirror(p.Mirror)
		switch heard := ok && e.Record.StartID == p.StartID; {
		case heard, p.StartID == "":
			return heard
		case !pause(ctx, startPause):
			return false
		}
	}
	return false
}

// settle decides about each of list that nothing was refused for yet, commits what was
// decided, and decides anew where that came too late: the record, or what the decision
// rests on, was written by another meanwhile (R8). changes are the last ones, by place, nil where
// there was nothing to change.
func (m *Mirrors) settle(ctx context.Context, list []led, out []outcome, decide func(led) (outcome, *awaited)) (changes []*awaited, err error) {
	changes = make([]*awaited, len(list))
	due := make([]bool, len(list))
	for i := range out {
		due[i] = out[i].Reason == ""
	}
	for try := 1; ; try++ {
		err := m.inParallel(ctx, list, out, func(i int, l led) {
			if due[i] {
				changes[i] = nil
				out[i], changes[i] = decide(l)
			}
		})
		if err != nil {
			return changes, err
		}
		late, err := m.writeDue(ctx, changes, due)
		if err != nil || len(late) == 0 {
			return changes, err
		}
		clear(due)
		for _, i := range late {
			due[i] = try < commitTries
			if !due[i] {
				out[i].Reason, out[i].Detail = core.StaleRequest, fmt.Sprintf("others wrote its record each of the %d times that this was tried; the same command again goes on from there", commitTries)
			}
		}
		if try == commitTries {
			return changes, nil
		}
	}
}

// writeDue commits the changes that are due and gives the places of those that came too late.
func (m *Mirrors) writeDue(ctx context.Context, changes []*awaited, due []bool) (late []int, err error) {
	var list []*awaited
	var place []int
	for i, c := range changes {
		if c != nil && due[i] {
			list, place = append(list, c), append(place, i)
		}
	}
	lost, err := m.writeEachOf(ctx, list)
	for _, i := range lost {
		late = append(late, place[i])
	}
	return late, err
}

// requestOf is what a start asks of one partition.
func (m *Mirrors) requestOf(p part, l led) core.StartRequest {
	return core.StartRequest{
		Mirror: p.Mirror, StartID: p.StartID, PlanID: p.Plans[l.tp.String()], Rollback: p.Rollback,
		CountBegun: m.o.Node.Image().FeatureLevel(meta.FeatureMetadata) >= meta.LevelDrills,
	}
}

// beginOne is the first look, and the fence where clients write.
func (m *Mirrors) beginOne(ctx context.Context, s *startable, l led, p part) (outcome, *awaited) {
	pol := m.policyOf(l, s.settings)
	plan, _, rec, rev, err := m.dryRun(ctx, s.seen, l, pol)
	if err != nil {
		return refusedOutcome(l.tp, err), nil
	}
	if p.StartID != "" && core.HasStarted(rec, p.StartID) {
		return outcome{TopicPartition: l.tp}, nil // another run of this start was first
	}
	if r := core.Judge(rec, m.requestOf(p, l), pol, s.seen.at[l.tp].source, &plan); r.Reason != "" {
		return refusedOutcome(l.tp, &r), nil
	}
	if !core.NeedsFence(rec) || m.o.Rules.NoStartFence {
		return outcome{TopicPartition: l.tp}, nil
	}
	unended, ended := m.standing(p, l, rec)
	if ended != nil {
		return refusedOutcome(l.tp, ended), nil
	}
	fence := newAwaited(l.id, rev, core.FenceForStart(rec, m.requestOf(p, l)))
	fence.beside = unended
	return outcome{TopicPartition: l.tp}, fence
}

// adoptOne is the second look, and the adoption or the way back (R18, R25).
func (m *Mirrors) adoptOne(ctx context.Context, s *startable, l led, p part) (outcome, *awaited) {
	pol := m.policyOf(l, s.settings)
	plan, own, rec, rev, err := m.dryRun(ctx, s.seen, l, pol)
	if rec == nil {
		_, rec, rev, _ = snapshot(ctx, l.part)
	}
	if rec != nil && core.HasStarted(rec, p.StartID) {
		return outcome{TopicPartition: l.tp}, nil
	}
	refusal := core.Refusal{}
	if err != nil {
		o := refusedOutcome(l.tp, err)
		refusal = core.Refusal{Reason: o.Reason, Detail: o.Detail}
	} else {
		refusal = core.Judge(rec, m.requestOf(p, l), pol, s.seen.at[l.tp].source, &plan)
	}
	if e, ok := m.o.Node.Image().Mirror(p.Mirror); ok && refusal.Reason == "" {
		if err := otherCluster(e.Record.SourceClusterID, s.seen.at[l.tp].source.ClusterID); err != nil {
			refusal = core.Refusal{Reason: core.OtherCluster, Detail: err.Error()}
		}
	}
	unended, ended := m.standing(p, l, rec)
	if refusal.Reason == "" && ended != nil {
		refusal = *ended
	}
	if refusal.Reason == "" {
		refusal = m.mayAdopt(l, rec, &own)
	}
	if refusal.Reason == "" {
		next, a := core.AdoptStart(rec, m.requestOf(p, l), pol, s.seen.at[l.tp].source, &own, m.o.Node.Now())
		if a.Refused.Reason == "" {
			adoption := newAwaited(l.id, rev, next)
			adoption.beside = unended
			adoption.tell = func() { m.tellStart(p.Mirror, l, a, &plan, next.LeaderEpoch) }
			return outcome{TopicPartition: l.tp}, adoption
		}
		refusal = a.Refused
	}
	o := outcome{TopicPartition: l.tp, Reason: refusal.Reason, Detail: refusal.Detail}
	if rec == nil {
		return o, nil
	}
	back, err := core.GoBack(rec, refusal)
	if err != nil {
		return o, nil // it needed no fence
	}
	return o, newAwaited(l.id, rev, back)
}

// mayAdopt asks core/mirror with what is open in the log by now.
func (m *Mirrors) mayAdopt(l led, rec *meta.PartitionRecord, own *core.Own) core.Refusal {
	at := l.part.Log()
	if m.o.Rules.NoStartFence || at == nil {
		return core.Refusal{}
	}
	open := len(at.OpenTransactions())
	if at.View().LogEnd != own.LogEnd {
		open = max(open, 1) // a marker has come since the look
	}
	return core.MayAdopt(rec, open)
}

// standing refuses what a start can no longer begin: it was ordered to end, or the mirror was
// deleted or started anew since. What began to follow it now would be no part of what was
// ordered, a cut that was found for the partitions that were there above all (I-260). What
// this node has yet to hear of is compared in the transaction: the mirror's record is
// still the one looked at.
func (m *Mirrors) standing(p part, l led, rec *meta.PartitionRecord) (holds []meta.Compare, ended *core.Refusal) {
	if m.o.Rules.MadeUnasked {
		return nil, nil
	}
	end := func(why string, args ...any) ([]meta.Compare, *core.Refusal) {
		return nil, &core.Refusal{Reason: core.StaleRequest, Detail: fmt.Sprintf(why, args...)}
	}
	image := m.o.Node.Image()
	key := image.Keys().Mirror(p.Mirror)
	e, ok := image.Mirror(p.Mirror)
	switch {
	case !ok && p.heard:
		return end("the mirror was deleted before this start had adopted anything")
	case !ok:
		return []meta.Compare{meta.Absent(key)}, nil
	case p.heard && e.Record.StartID != p.StartID:
		return end("the mirror was started anew, in start %s, before this start had adopted anything", e.Record.StartID)
	case p.StartID != "" && e.Record.StartID == p.StartID && e.Record.Want == meta.WantStopped:
		return end("the mirror was failed over before this start had adopted anything")
	case rec != nil && rec.Mirror != nil && rec.Writable && inCut(e.Record, l.id, rec.Mirror.StartID):
		return end("it was promoted at the consistent cut %s since this was ordered: order it anew", e.Record.Cut.ID)
	}
	return []meta.Compare{meta.ModRevisionIs(key, e.ModRevision)}, nil
}

// goBackAll opens what was fenced for a start that can't go on.
func (m *Mirrors) goBackAll(ctx context.Context, list []led, out []outcome, fences []*awaited, why core.Refusal) {
	var back []*awaited
	for i, l := range list {
		if out[i].Reason != "" {
			continue
		}
		out[i].Reason, out[i].Detail = why.Reason, why.Detail
		if fences[i] == nil {
			continue
		}
		if change := m.goBackOf(ctx, l, why); change != nil {
			back = append(back, change)
		}
	}
	if _, err := m.writeAll(ctx, back); err != nil {
		m.log.Error("partitions stay closed for a start that can't go on; the next look opens them", "err", err)
	}
}

// goBackOf is the change that opens one partition; nil if there is nothing to open, or it can't be read.
func (m *Mirrors) goBackOf(ctx context.Context, l led, why core.Refusal) *awaited {
	_, rec, rev, err := snapshot(ctx, l.part)
	if err != nil {
		return nil
	}
	next, err := core.GoBack(rec, why)
	if err != nil {
		return nil
	}
	return newAwaited(l.id, rev, next)
}

func (m *Mirrors) tellStart(mirror string, l led, a core.Adoption, plan *core.Plan, epoch types.LeaderEpoch) {
	m.events.add(m.log, Event{
		At: m.o.Node.Now(), Mirror: mirror, Kind: string(core.Adopted), Topic: l.tp.Topic, Partition: l.tp.Partition, From: plan.CutAt, To: plan.LogEnd,
		Message: fmt.Sprintf("%s: starts as a mirror in leader epoch %d: our timelines are %s to the source's, plan %s cuts at %d of %d", l.tp, epoch, a.Relation, plan.ID, plan.CutAt, plan.LogEnd),
	})
}

// finishLooks is how often the source is looked at for a start that a crash left: a minute,
// about. Then the partition is opened, as it would have been without the crash.
const finishLooks = 10

// finishStarts ends starts that a crash left between fence and adoption: with the
// plan that they quoted they go on, or back.
func (r *run) finishStarts(ctx context.Context) {
	for n := 1; ; n++ {
		image := r.m.o.Node.Image()
		left := r.m.ledHere(image, func(_ *meta.Topic, e *meta.Partition) bool {
			return e.Record.IsMirror() && e.Record.Mirror.Name == r.name && e.Record.Mirror.State == meta.MirrorStarting
		})
		if len(left) == 0 {
			return
		}
		for _, l := range left {
			rec, _ := image.Partition(l.id.Topic, l.id.Number)
			p := part{Mirror: r.name, Topics: []string{l.tp.Topic}, StartID: rec.Mirror.StartID, heard: true, Rollback: rec.Mirror.Rollback, Plans: map[string]string{l.tp.String(): rec.Mirror.PlanID}}
			if err := r.m.finishOne(ctx, l, p, n >= finishLooks); err != nil {
				r.m.log.Warn("a start that was begun can't be ended yet", "mirror", r.name, "partition", l.tp.String(), "err", err)
			}
		}
		if !pause(ctx, r.backoff(n)) {
			return
		}
	}
}

// finishOne ends one start; last: a source that can't be looked at ends it, too.
func (m *Mirrors) finishOne(ctx context.Context, l led, p part, last bool) error {
	var change *awaited
	s, err := m.look(ctx, p)
	switch {
	case err != nil && !last:
		return err
	case err != nil:
		m.log.Warn("a start that was begun goes back: its source can't be looked at", "mirror", p.Mirror, "partition", l.tp.String(), "err", err)
		change = m.goBackOf(ctx, l, core.Refusal{Reason: reasonOf(err), Detail: err.Error()})
	default:
		defer s.done()
		change = m.finishLooked(ctx, s, l, p)
	}
	if change == nil {
		return errors.New("its record can't be read")
	}
	_, err = m.writeAll(ctx, []*awaited{change})
	return err
}

func (m *Mirrors) finishLooked(ctx context.Context, s *startable, l led, p part) (change *awaited) {
	defer m.guard(l.tp, nil)
	if !slices.ContainsFunc(s.list, func(o led) bool { return o.id == l.id }) {
		s.seen.faults[l.tp] = &core.Refusal{Reason: core.SourceTopicGone, Detail: "the source doesn't show the topic"}
	}
	_, change = m.adoptOne(ctx, s, l, p)
	return change
}
