package scenario

import (
	"errors"
	"fmt"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

type timelineEntry = timeline.Entry

func (c *cluster) policy() core.Policy {
	me := c.leader().me()
	return core.Policy{ClusterID: c.id, TopicID: c.topic, Me: me.ID, BrokerEpoch: me.Epoch, EpochHeadroom: c.w.story.Params.EpochHeadroom,
		ContinueOverGaps: c.spec.GapPolicy == "continue", Rules: coreRules(c.w.mutation)}
}

// request is a start's part that doesn't come from the record.
func (c *cluster) request(s *step) core.StartRequest {
	r := core.StartRequest{Mirror: "m", StartID: fmt.Sprintf("start-%s-%d", c.name, len(c.starts)+1), Rollback: s.Mode == "rollback"}
	switch s.Plan {
	case "":
	case "last":
		r.PlanID = c.lastPlan
	default:
		r.PlanID = c.w.plans[s.Plan]
	}
	return r
}

// start makes the partition a mirror of another cluster's, in the order of R25.
func (c *cluster) start(s *step) {
	src := c.w.clusters[s.Source]
	if s.Phase == "end" {
		c.endStart(src)
		return
	}
	c.ensureMirror()
	r := c.request(s)
	if c.record() == nil {
		c.firstStart(src, r)
		return
	}
	if !c.begin(src, r) {
		return
	}
	if s.Phase != "begin" {
		c.endStart(src)
	}
}

// ensureMirror has the mirror's own record.
func (c *cluster) ensureMirror() {
	if _, ok := c.image.Mirror("m"); ok {
		return
	}
	plan, err := control.CreateMirror(c.image, meta.MirrorRecord{Name: "m", Bootstrap: []string{"source:9092"}, Want: meta.WantRunning}, c.anyUp().me())
	if err == nil {
		err = c.commit(plan)
	}
	if err != nil {
		panic(err)
	}
}

// firstStart is that of a topic which isn't here yet: its leader adopts the
// source's list.
func (c *cluster) firstStart(src *cluster, r core.StartRequest) {
	ids := make([]types.BrokerID, len(c.nodes))
	for i, n := range c.nodes {
		ids[i] = n.id
	}
	c.source, c.address = src, nil
	c.starts = append(c.starts, r.StartID)
	c.makeTopic(control.CreateTopicRequest{Name: topicName, ID: c.topic, Partitions: 1, Assignment: [][]types.BrokerID{ids}, MinISR: c.minISR,
		TimelineID: "unused", Mirrors: []meta.MirrorState{*core.NewMirrored("m", r.StartID)}})
	n := c.leader()
	n.see()
	n.stepper()
	n.feed(nil, nil)
	c.pumpUntilAdopted(n)
}

// pumpUntilAdopted stops before anything follows from the adoption.
func (c *cluster) pumpUntilAdopted(n *node) {
	for range 20 {
		if p, ok := n.asked.(mirror.Proposal); ok && p.Purpose == core.ForAdoption {
			rec := p.Record
			if c.w.mutation == "R18+R23" {
				rec.LeaderEpoch = c.record().LeaderEpoch + 1
			}
			c.adoptedBy = n.id
			if err := c.update(n, rec); err != nil {
				panic(err)
			}
			n.halt() // whoever leads shows itself the record at the next operation
			return
		}
		if !n.answer(types.NoOffset, true) {
			return
		}
	}
}

// plan is the dry run with a look at the source.
func (c *cluster) plan(src *cluster) (core.Source, core.Plan, core.Own, error) {
	n := c.leader()
	if n == nil {
		return core.Source{}, core.Plan{}, core.Own{}, &core.Refusal{Reason: core.SourceUnreachable, Detail: "no leader here"}
	}
	n.see()
	s, err := c.lookAt(src)
	if err != nil {
		return s, core.Plan{}, core.Own{}, err
	}
	own := n.own()
	p, err := core.DryRun(c.record(), c.policy(), s, &own, func(o types.Offset) types.Offset { return o }, c.askOf(src))
	return s, p, own, err
}

// begin is the first look, and the fence where one is needed; false: refused.
func (c *cluster) begin(src *cluster, r core.StartRequest) bool {
	look, plan, _, err := c.plan(src)
	if c.refused(src, c.record(), r, look, &plan, err) {
		return false
	}
	c.starting = r
	if !core.NeedsFence(c.record()) {
		return true
	}
	n := c.leader()
	if err := c.update(n, core.FenceForStart(c.record(), r)); err != nil {
		panic(err)
	}
	n.see()
	return true
}

// endStart is the second look, and the adoption or the way back.
func (c *cluster) endStart(src *cluster) {
	r := c.starting
	n := c.leader()
	n.see()
	look, plan, own, err := c.plan(src)
	fenced := c.record().Mirror != nil && c.record().Mirror.State == meta.MirrorStarting
	if c.w.mutation != "R25" || !fenced {
		if reason := c.judge(c.record(), r, look, &plan, err); reason.Reason != "" {
			c.tellRefused(src, reason, &plan, look)
			if rec, err := core.GoBack(c.record(), reason); err == nil {
				if err := c.update(n, rec); err != nil {
					panic(err)
				}
				n.see()
			}
			return
		}
	}
	rec, a := core.AdoptStart(c.record(), r, c.policy(), look, &own, c.w.now)
	if a.Refused.Reason != "" {
		c.tellRefused(src, a.Refused, &plan, look)
		return
	}
	if c.w.mutation == "R18+R23" {
		rec.LeaderEpoch = c.record().LeaderEpoch + 1
	}
	if err := c.update(n, rec); err != nil {
		panic(err)
	}
	c.source, c.address = src, nil
	c.starts = append(c.starts, r.StartID)
	c.adoptedBy = n.id
	n.halt()
	c.tell("ADOPTED", "relation", a.Relation, "epoch", rec.LeaderEpoch)
}

func (c *cluster) judge(rec *meta.PartitionRecord, r core.StartRequest, look core.Source, plan *core.Plan, err error) core.Refusal {
	var refusal *core.Refusal
	switch {
	case errors.As(err, &refusal):
		return *refusal
	case err != nil:
		return core.Refusal{Reason: core.SourceUnreachable, Detail: err.Error()}
	}
	return core.Judge(rec, r, c.policy(), look, plan)
}

func (c *cluster) refused(src *cluster, rec *meta.PartitionRecord, r core.StartRequest, look core.Source, plan *core.Plan, err error) bool {
	reason := c.judge(rec, r, look, plan, err)
	if reason.Reason == "" {
		return false
	}
	c.tellRefused(src, reason, plan, look)
	return true
}

func (c *cluster) tellRefused(src *cluster, r core.Refusal, plan *core.Plan, look core.Source) {
	if r.Reason == core.TopicIDMismatch {
		c.tell("FAILED", "reason", string(r.Reason))
		return
	}
	pairs := []any{"source", src.name, "reason", string(r.Reason)}
	switch r.Reason {
	case core.AheadOfSource:
		pairs = append(pairs, "first_unshared_epoch", plan.FirstUnshared)
	case core.PlanRequired, core.PlanStale, core.UnrelatedLogs:
		pairs = append(pairs, "relation", plan.Relation, "cut_offset", plan.CutAt, "records", c.recordsIn(plan.Cuts))
	case core.MirrorLoop:
		path := []any{src.name}
		for _, id := range look.Path {
			path = append(path, c.w.names[id])
		}
		pairs = append(pairs, "path", path)
	}
	c.tell("REFUSED", pairs...)
}

// recordsIn counts the leader's records in planned cuts.
func (c *cluster) recordsIn(cuts []core.PlannedCut) (n int) {
	for _, b := range c.leader().batches() {
		for _, cut := range cuts {
			if b.h.BaseOffset >= cut.From && b.h.BaseOffset < cut.To {
				n += int(b.h.RecordsCount)
			}
		}
	}
	return n
}

// preview is the dry run, told.
func (c *cluster) preview(s *step) {
	c.ensureMirror()
	src := c.w.clusters[s.Source]
	_, plan, _, err := c.plan(src)
	if err != nil {
		c.w.errorf("step %d: preview: %v", c.w.step, err)
		return
	}
	number := fmt.Sprintf("P%d", len(c.w.plans)+1)
	c.w.plans[number], c.lastPlan = plan.ID, plan.ID
	cuts := []any{}
	for _, cut := range plan.Cuts {
		cuts = append(cuts, []any{string(cut.Cause), []any{cut.From, cut.To - 1}, []any{cut.First, cut.Last}})
	}
	past := []any{}
	for g, o := range c.groups {
		if o > plan.CutAt {
			past = append(past, g)
		}
	}
	c.tell("PREVIEW", "plan", number, "cut_offset", plan.CutAt, "records", c.recordsIn(plan.Cuts), "cuts", cuts, "groups_past", past)
}

// startBoth is two starts against each other, both past their first look, then both past their fence.
func (w *world) startBoth(s *step) {
	a, b := w.clusters[s.Cluster], w.clusters[s.Other]
	ra, rb := a.request(&step{Plan: s.Plan}), b.request(&step{Plan: s.Plan2, Mode: "rollback"})
	a.ensureMirror()
	b.ensureMirror()
	la, pa, _, errA := a.plan(b)
	lb, pb, _, errB := b.plan(a)
	goA := !a.refused(b, a.record(), ra, la, &pa, errA)
	goB := !b.refused(a, b.record(), rb, lb, &pb, errB)
	for _, side := range []struct {
		c, src *cluster
		r      core.StartRequest
		goOn   bool
	}{{a, b, ra, goA}, {b, a, rb, goB}} {
		if !side.goOn {
			continue
		}
		side.c.starting = side.r
		side.c.source = side.src
		n := side.c.leader()
		if core.NeedsFence(side.c.record()) {
			if err := side.c.update(n, core.FenceForStart(side.c.record(), side.r)); err != nil {
				panic(err)
			}
			n.see()
		}
		side.c.tell("STARTING", "source", side.src.name, "epoch", side.c.record().LeaderEpoch)
	}
}

// abandon takes a start back.
func (c *cluster) abandon() {
	n := c.leader()
	n.see()
	n.halt()
	rec := c.record()
	start := ""
	if rec.Mirror != nil {
		start = rec.Mirror.StartID
	}
	if err := core.Abandonable(rec); err != nil {
		var refusal *core.Refusal
		errors.As(err, &refusal)
		c.tell("REFUSED", "reason", string(refusal.Reason))
		return
	}
	n.must(n.readBack(rec.Mirror.EndBefore))
	own := n.own()
	out, err := core.Abandon(rec, core.AbandonRequest{TimelineID: c.freshTimeline(), Step: c.w.story.Params.PromotionStep, Own: &own})
	n.must(err)
	n.must(c.update(n, out))
	n.see()
	c.tell("ABANDONED", "start", c.startNumber(start), "epoch", out.LeaderEpoch, "log_end", own.LogEnd)
	c.replicate(replicateAll())
}

// switchOver is the planned change of sides (DESIGN §6.4).
func (c *cluster) switchOver(s *step) {
	src := c.source
	l := src.leader()
	tidemark := src.spec.Kind == "tidemark"
	start := c.record().Mirror.StartID
	if tidemark {
		rec, err := core.CloseForSwitchover(src.record(), meta.Fence{ClusterID: c.id, StartID: start, At: c.w.now})
		l.must(err)
		l.must(src.update(l, rec))
		l.see()
		src.tell("FENCED", "epoch", rec.LeaderEpoch)
	}
	c.copy(&step{})
	if !tidemark && s.WriterStops != nil && !*s.WriterStops {
		c.tell("SWITCHOVER_TIMED_OUT", "why", "source end offset still moves", "source_end", l.view().hw)
		return
	}
	c.tell("DRAINED", "end", c.leader().view().end)
	end := c.leader().view().end
	c.failover(&step{})
	if s.Late > 0 {
		src.produce(&step{N: s.Late, Tag: src.lastTag})
	}
	if now := l.view().end; now > end {
		c.tell("SOURCE_MOVED", "offsets", []any{end, now - 1})
	}
}
