package exhaust

import (
	"errors"
	"fmt"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/mirror"
	"tidemark/internal/core/modellog"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

type timelineEntry = timeline.Entry

// dryRun plays a start at the leader (broker/mirror/preview.go).
func (x *step) dryRun(c, i int) (mirror.Source, mirror.Plan, error) {
	s, ok := x.look(c)
	if !ok {
		return s, mirror.Plan{}, errors.New("the source has no leader")
	}
	ask := func(r replica.Request) (replica.Reply, error) {
		reply, _, _, ok := x.fetchFrom(c, r, true)
		if !ok {
			return reply, errors.New("the source has no leader")
		}
		if reply.Kind == replica.AnswerData && reply.LogStart >= r.Offset {
			reply.Vouch = replica.VouchNo
			if x.vouches(c, r.LastEpoch, r.Offset) {
				reply.Vouch = replica.VouchYes
			}
		}
		return reply, nil
	}
	n := x.s.c[c].nodes[i]
	plan, err := mirror.DryRun(n.rec, x.policy(c, i), s, n.own(), func(o types.Offset) types.Offset { return o }, ask)
	return s, plan, err
}

// preview is the operator's look at what a start would take.
func (x *step) preview(c int) bool {
	k := &x.s.c[c]
	i := k.server()
	if i < 0 {
		return false
	}
	_, plan, err := x.dryRun(c, i)
	if err != nil {
		return false
	}
	p := preview{plan.ID, plan.LogEnd, plan.CutAt}
	if p == k.quoted {
		return false
	}
	k.quoted = p
	x.note("the operator of %s previews a start: plan %s, %d of %d stays", clusterIDs[c], plan.ID, plan.CutAt, plan.LogEnd)
	return true
}

// begin is a start's first look and its fence (R25). It gives the request, and
// whether the start goes on.
func (x *step) begin(c int, quote bool) bool {
	k := &x.s.c[c]
	i := k.leaderIndex()
	if i < 0 || k.nodes[i].rev != k.rev || !k.nodes[i].serves() && !k.rec.IsMirror() {
		return false
	}
	if k.rec.IsMirror() && k.rec.Mirror.State != meta.MirrorStarting && k.rec.Mirror.State != meta.MirrorStopped {
		return false // it runs
	}
	if k.rec.IsMirror() {
		return false // finish goes on
	}
	req := mirror.StartRequest{Mirror: mirrorName, StartID: fmt.Sprintf("%s-start-%d", clusterIDs[c], k.rec.LeaderEpoch), Rollback: true}
	planned := preview{}
	if quote {
		planned = k.quoted
		req.PlanID = planned.id
	}
	s, plan, err := x.dryRun(c, i)
	if err != nil {
		return false
	}
	pol := x.policy(c, i)
	if r := mirror.Judge(k.rec, req, pol, s, &plan); r.Reason != "" {
		x.note("%s refuses the start: %s", name(c, i), r.Error())
		return false
	}
	k.planned = planned
	if !mirror.NeedsFence(k.rec) || x.w.rules.noFence {
		return x.adopt(c, i, req)
	}
	t, ok := x.write(c, i, mirror.FenceForStart(k.rec, req), forVerb, k.rev)
	if !ok {
		return false
	}
	x.note("%s closes the partition for %s", name(c, i), req.StartID)
	if x.hold(c, t) {
		return true
	}
	return x.commit(c, t, x.lagOf(c))
}

// finishStart is the second look, and the adoption or the way back (R18, R25).
func (x *step) finishStart(c int) bool {
	k := &x.s.c[c]
	i := k.leaderIndex()
	if i < 0 || k.nodes[i].rev != k.rev || !k.rec.IsMirror() || k.rec.Mirror.State != meta.MirrorStarting {
		return false
	}
	m := k.rec.Mirror
	return x.adopt(c, i, mirror.StartRequest{Mirror: m.Name, StartID: m.StartID, PlanID: m.PlanID, Rollback: m.Rollback})
}

func (x *step) adopt(c, i int, req mirror.StartRequest) bool {
	k := &x.s.c[c]
	pol := x.policy(c, i)
	s, plan, err := x.dryRun(c, i)
	var refusal mirror.Refusal
	var next meta.PartitionRecord
	if err != nil {
		refusal = mirror.Refusal{Reason: mirror.SourceUnreachable, Detail: err.Error()}
	} else {
		refusal = mirror.Judge(k.rec, req, pol, s, &plan)
	}
	if refusal.Reason == "" {
		var a mirror.Adoption
		next, a = mirror.AdoptStart(k.rec, req, pol, s, k.nodes[i].own(), now)
		refusal = a.Refused
	}
	if refusal.Reason != "" {
		x.note("%s takes the start back: %s", name(c, i), refusal.Error())
		if next, err = mirror.GoBack(k.rec, refusal); err != nil {
			return false
		}
	}
	t, ok := x.write(c, i, x.w.rules.adopting(next, k.rec), forVerb, k.rev)
	if !ok {
		return false
	}
	if refusal.Reason == "" {
		x.note("%s adopts %s", name(c, i), describe(&next))
		t.looked = k.nodes[i].log.End
		x.checkConsent(c, i, req)
	}
	if x.hold(c, t) {
		return true
	}
	return x.commit(c, t, x.lagOf(c))
}

// failover is R23 at the leader, its copier halted. retry quotes the start of the
// last promotion: the same request, come once more.
func (x *step) failover(c int, retry bool) bool {
	k := &x.s.c[c]
	i := k.leaderIndex()
	if i < 0 || k.nodes[i].rev != k.rev {
		return false
	}
	if !retry && k.rec.IsMirror() && k.rec.Mirror.State == meta.MirrorStarting {
		return x.takeBack(c, i)
	}
	n := x.node(c, i)
	own := n.own()
	req := mirror.PromoteRequest{TimelineID: fmt.Sprintf("%s%d", clusterIDs[c], k.rec.LeaderEpoch), Step: x.w.promotionStep, Now: now, Own: own}
	if n.machine != nil {
		f := n.machine.Facts()
		req.Facts = &f
	}
	if retry {
		if len(k.rec.Promotions) == 0 {
			return false
		}
		req.StartID = k.rec.Promotions[len(k.rec.Promotions)-1].StartID
	} else if k.rec.IsMirror() {
		req.StartID = k.rec.Mirror.StartID
	}
	done, err := x.w.rules.promote(k.rec, req, retry)
	if err != nil || done.Outcome == mirror.AlreadyPromoted {
		if err != nil {
			x.note("%s is not promoted: %v", name(c, i), err)
			return x.restartMachine(c, i)
		}
		return false
	}
	t, ok := x.write(c, i, x.w.rules.promoting(done.Record, k.rec), forVerb, k.rev)
	if !ok {
		return false
	}
	x.note("%s is promoted: %s", name(c, i), describe(t.record))
	n.held = false
	n.machine, n.ask, n.caught = nil, nil, nil // halted (I-141), also while the image lags behind the promotion
	if x.hold(c, t) {
		return true
	}
	if !x.commit(c, t, x.lagOf(c)) {
		return x.restartMachine(c, i)
	}
	if x.problem == nil {
		x.inSecond(c, i, &done.Record)
	}
	return true
}

// restartMachine gives a partition that was not promoted a machine anew.
func (x *step) restartMachine(c, i int) bool {
	n := x.node(c, i)
	n.machine, n.ask, n.caught, n.held, n.realigning, n.owing, n.machineRev, n.led = nil, nil, nil, false, false, false, 0, false
	x.showMachine(c, i, nil)
	return true
}

// abandon takes a start back (broker/mirror/abandon.go): a leader that has made its
// first cut reads the tail back from its vault.
func (x *step) abandon(c int) bool {
	k := &x.s.c[c]
	i := k.leaderIndex()
	if i < 0 || k.nodes[i].rev != k.rev || !k.rec.IsMirror() {
		return false
	}
	n := x.node(c, i)
	if k.rec.Mirror.State == meta.MirrorStarting {
		return x.takeBack(c, i)
	}
	if mirror.Abandonable(k.rec) != nil {
		return false
	}
	n.machine, n.ask, n.caught = nil, nil, nil
	if !x.readBack(c, i, k.rec) {
		return x.restartMachine(c, i)
	}
	next, err := mirror.Abandon(k.rec, mirror.AbandonRequest{TimelineID: fmt.Sprintf("%s%dx", clusterIDs[c], k.rec.LeaderEpoch), Step: x.w.promotionStep, Own: n.own()})
	if err != nil {
		return x.restartMachine(c, i)
	}
	t, ok := x.write(c, i, next, forVerb, k.rev)
	if !ok {
		return x.restartMachine(c, i)
	}
	x.note("%s abandons the start: %s", name(c, i), describe(&next))
	n.held = false
	if x.hold(c, t) {
		return true
	}
	return x.commit(c, t, x.lagOf(c))
}

// takeBack ends a start before its adoption (R25).
func (x *step) takeBack(c, i int) bool {
	k := &x.s.c[c]
	next, err := mirror.GoBack(k.rec, mirror.Refusal{Reason: mirror.StaleRequest})
	if err != nil {
		return false
	}
	t, ok := x.write(c, i, next, forVerb, k.rev)
	return ok && x.commit(c, t, x.lagOf(c))
}

// readBack appends what the first cut took from the newest entry of the vault that holds it.
func (x *step) readBack(c, i int, rec *meta.PartitionRecord) bool {
	n := x.node(c, i)
	from, to := n.log.End, rec.Mirror.EndBefore
	if from >= to {
		return true
	}
	for v := len(n.vault) - 1; v >= 0; v-- {
		k := n.vault[v]
		if k.from > from || k.to < to {
			continue
		}
		var list []modellog.Record
		for _, r := range k.records {
			if r.Offset >= from {
				list = append(list, r)
			}
		}
		v := n.view()
		if last, ok := v.LastEpoch(); ok && len(list) > 0 && list[0].Epoch < last {
			return false
		}
		if !x.w.rules.pointStays {
			n.point, n.hasPoint = mirror.BackTo(rec), true
		}
		x.appendCopied(c, i, list)
		n.synced = n.log.End
		return n.log.End >= to
	}
	return false
}

// elect makes a node the leader: cleanly, or as the best of the live ones (R11).
func (x *step) elect(c, i int, unclean bool) bool {
	k := &x.s.c[c]
	n := k.nodes[i]
	other := k.nodes[1-i]
	if !n.up || k.leaderIndex() == i {
		return false
	}
	if unclean && (k.leaderIndex() >= 0 || other.up && x.better(c, 1-i, i)) {
		return false
	}
	boss := n
	if !boss.up {
		boss = other
	}
	e, ok, err := control.Elect(k.image(c), topicID, 0, n.id, unclean, boss.me())
	if err != nil || !ok || unclean != (e.Kind == control.ElectedUnclean) {
		return false
	}
	if k.leaderIndex() >= 0 && e.Kind != control.ElectedInSync {
		return false // nobody elects an eligible replica beside a leader
	}
	t := &txn{plan: x.w.rules.compares(c, e.Plan.If), record: &e.Record, node: i, epoch: n.epoch, kind: forVerb}
	x.note("%s is elected (%s): %s", name(c, i), e.Kind, describe(&e.Record))
	if unclean {
		x.excuse(c, func(modellog.Record) bool { return true })
	}
	if x.hold(c, t) {
		return true
	}
	return x.commit(c, t, x.lagOf(c))
}

// better reports whether replica a has a better log than b, after the cuts that both owe (R11).
func (x *step) better(c, a, b int) bool {
	p, q := x.report(c, a), x.report(c, b)
	ea, _ := p.LastEpoch()
	eb, _ := q.LastEpoch()
	return ea > eb || ea == eb && p.LogEnd > q.LogEnd
}

// report is a replica's log after the cut that it owes to the record's list (R19).
func (x *step) report(c, i int) replica.Log {
	k := &x.s.c[c]
	n := k.nodes[i]
	v := n.view()
	owed := timeline.FirstCutUnder(x.w.rules.mirror.FirstCut, timeline.Replica{
		Applied: n.point, HasApplied: n.hasPoint, History: &n.log.History, LogStart: n.log.Start, LogEnd: n.log.End,
	}, k.rec.Timelines, k.rec.LeaderEpoch)
	switch owed.Kind {
	case timeline.CutAt:
		return v.CutTo(owed.At)
	case timeline.CutEverything, timeline.CutRefused:
		return v.CutTo(v.LogStart)
	}
	return v
}

// settle is the controller's turn where the leader stays: who is gone leaves the ISR (R15).
func (x *step) settle(c int) bool {
	k := &x.s.c[c]
	i := k.leaderIndex()
	if i < 0 {
		return false
	}
	image := k.image(c)
	t, _ := image.Topic(topicID)
	p, _ := image.PartitionEntry(topicID, 0)
	change, ok := control.Settle(image, t, p, control.Policy{}, k.nodes[i].me())
	if !ok || change.Kind != "" {
		return false
	}
	x.note("%s: the ISR becomes %v, the ELR %v", clusterIDs[c], change.Record.ISRIDs(), change.Record.ELRIDs())
	return x.commit(c, &txn{plan: change.Plan.If, record: &change.Record, node: i, epoch: k.nodes[i].epoch, kind: forVerb}, x.lagOf(c))
}

// late takes a follower that lags out of the ISR (R15).
func (x *step) shrink(c int) bool {
	k := &x.s.c[c]
	i := k.server()
	if i < 0 || !k.nodes[i].leads() || k.nodes[i].rev != k.rev || len(k.nodes[i].rec.ISR) < 2 {
		return false
	}
	change := x.leaderOf(c, i).Shrink(now + 1)
	if change == nil {
		return false
	}
	x.note("%s takes a follower that lags out of the ISR", name(c, i))
	x.changeISR(c, i, change)
	return true
}
