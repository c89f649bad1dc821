package exhaust

import (
	"fmt"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/mirror"
	"tidemark/internal/core/modellog"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
)

// policy is what a mirror's machine is told.
func (x *step) policy(c, i int) mirror.Policy {
	n := x.s.c[c].nodes[i]
	return mirror.Policy{
		ClusterID: clusterIDs[c], TopicID: topicID, Me: n.id, BrokerEpoch: n.epoch,
		EpochHeadroom: x.w.headroom, Rules: x.w.rules.mirror,
	}
}

// showMachine shows the record to the node's machine, then an event (broker/mirror/copier.go, onShard).
func (x *step) showMachine(c, i int, ev mirror.Event) {
	n := x.node(c, i)
	if n.rec == nil || !n.rec.IsMirror() {
		n.machine, n.ask, n.caught, n.held, n.realigning, n.owing = nil, nil, nil, false, false, false
		return
	}
	if n.machine == nil {
		if !n.leading {
			return
		}
		n.machine, x.mineMachine[c][i] = mirror.New(x.policy(c, i)), true
		n.held, n.machineRev, n.led = false, 0, false
	}
	all := n.leads() && n.leader.HasFetchedAll()
	if n.machineRev != n.rev || n.led != n.leading || n.allFetched != all {
		n.machineRev, n.led, n.allFetched = n.rev, n.leading, all
		x.feed(c, i, mirror.RecordShown{Record: n.rec, Leading: n.leading, AllFetched: all || len(n.rec.ISR) == 1}, nil)
	}
	if ev != nil && !x.isDown(c, i) && x.problem == nil {
		x.feed(c, i, ev, nil)
	}
	x.release(c, i)
}

// showAllFetched tells the machine of a leader whose followers have all fetched.
func (x *step) showAllFetched(c, i int) {
	n := x.s.c[c].nodes[i]
	if n.machine != nil && n.leads() && n.allFetched != n.leader.HasFetchedAll() {
		x.showMachine(c, i, nil)
	}
}

// release lets clients read again once nothing is in the way.
func (x *step) release(c, i int) {
	n := x.node(c, i)
	if n.up && n.held && !n.realigning && !n.owing {
		n.held = false
		x.seen(c, i)
	}
}

// feed steps the machine and carries its log effects out, until none are left.
func (x *step) feed(c, i int, ev mirror.Event, data []modellog.Record) {
	var out mirror.Effects
	for ev != nil && !x.isDown(c, i) && x.problem == nil {
		m := x.machineOf(c, i)
		own := x.node(c, i).own()
		out.Reset()
		m.Step(now, own, ev, &out)
		ev = x.carry(c, i, out.List, data)
	}
}

// carry carries one step's effects out (broker/mirror/carry.go).
func (x *step) carry(c, i int, list []mirror.Effect, data []modellog.Record) mirror.Event {
	n := x.node(c, i)
	var group []mirror.Effect
	var ticket mirror.Ticket
	for _, e := range list {
		switch e := e.(type) {
		case mirror.Cut:
			group, ticket = append(group, e), e.Ticket
		case mirror.Restart:
			group, ticket = append(group, e), e.Ticket
		case mirror.RaiseLogStart:
			group, ticket = append(group, e), e.Ticket
		case mirror.SetCheckpoint:
			group, ticket = append(group, e), e.Ticket
		case mirror.Append:
			group, ticket = append(group, e), e.Ticket
		case mirror.Tell:
			x.note("%s tells %s: %s", name(c, i), e.Code, e.Detail)
		case mirror.StopFetching:
		case mirror.Propose:
			if e.Purpose == mirror.ForRealign {
				n.realigning, n.held = true, true
			}
			n.ask, n.askFrom = e, n.rev
		case mirror.Fetch:
			if !e.Peek {
				n.owing = false
			}
			n.ask = e
		default:
			n.ask = e
		}
	}
	if len(group) == 0 {
		return nil
	}
	for at, e := range group {
		x.onLog(c, i, e, checkpointAfter(group[at+1:]), data)
		if x.isDown(c, i) || x.problem != nil {
			return nil
		}
	}
	return mirror.LogDone{Ticket: ticket}
}

func checkpointAfter(rest []mirror.Effect) *mirror.SetCheckpoint {
	for _, e := range rest {
		if s, ok := e.(mirror.SetCheckpoint); ok {
			return &s
		}
	}
	return nil
}

// onLog carries one log effect out.
func (x *step) onLog(c, i int, e mirror.Effect, point *mirror.SetCheckpoint, data []modellog.Record) {
	n := x.node(c, i)
	switch e := e.(type) {
	case mirror.Cut:
		how := cutting{at: e.At, cause: e.Cause}
		if e.Cause == mirror.CauseTimeline {
			how.checkpoint = point
		}
		x.cut(c, i, how)
		if !x.isDown(c, i) {
			x.refresh(c, i)
		}
	case mirror.Restart:
		x.checkGap(c, i, e.At)
		x.cut(c, i, cutting{at: e.At, restart: true, cause: e.Cause})
		if !x.isDown(c, i) {
			x.refresh(c, i)
		}
	case mirror.RaiseLogStart:
		x.raiseStart(c, i, e.At, e.Vouched)
		x.refresh(c, i)
	case mirror.SetCheckpoint:
		n.point, n.hasPoint = e.Checkpoint, true
	case mirror.Append:
		for _, r := range data[:e.Batches] {
			if r.Epoch > e.MaxEpoch {
				x.problemf("EpochCovers", "%s appends %v above %d (R21)", name(c, i), r, e.MaxEpoch)
			}
		}
		x.appendCopied(c, i, data[:e.Batches])
		x.s.c[c].branched = types.NoOffset
		x.checkCopied(c, i, x.copied)
		x.refresh(c, i)
	}
}

// look is a look at the source's partition (R18): record and log of the leader
// that its cluster shows, read together.
func (x *step) look(c int) (mirror.Source, bool) {
	k := &x.s.c[1-c]
	j := k.server()
	if j < 0 {
		return mirror.Source{}, false
	}
	l := k.nodes[j]
	v := l.view()
	last, _ := v.LastEpoch()
	s := mirror.Source{ClusterID: clusterIDs[1-c], TopicID: topicID, LeaderEpoch: l.rec.LeaderEpoch, LogStart: l.log.Start,
		LogEnd: max(l.log.HighWatermark, l.log.Start), Timelines: l.rec.Timelines, LastEpoch: last}
	if s.Timelines == nil {
		s.Timelines = []timelineEntry{}
	}
	if l.rec.IsMirror() && l.rec.Mirror.State != meta.MirrorStopped {
		s.IsMirror = true
		s.Path = append([]string{clusterIDs[c]}, l.rec.Mirror.SourcePath...)
	}
	if l.leader != nil && l.log.HighWatermark < l.leader.EpochStart() {
		return mirror.Source{}, false // OFFSET_NOT_AVAILABLE (KIP-207)
	}
	return x.w.rules.looked(s, x.s.c[c].rec), true
}

// fetchFrom is a fetch, or a peek, at the source's leader; records up to its high
// watermark.
func (x *step) fetchFrom(c int, r replica.Request, peek bool) (replica.Reply, []modellog.Record, types.Offset, bool) {
	k := &x.s.c[1-c]
	j := k.server()
	if j < 0 {
		return replica.Reply{}, nil, 0, false
	}
	l := k.nodes[j]
	v := l.view()
	a := x.w.rules.answer(&v, l.rec.LeaderEpoch, r)
	reply := replica.Reply{To: r, Kind: a.Kind, Diverging: a.Diverging, LogStart: l.log.Start, HighWatermark: l.log.HighWatermark}
	if a.Kind == replica.AnswerOutOfRange {
		reply.LogStart = types.NoOffset // as Kafka
	}
	var sent []modellog.Record
	if a.Kind == replica.AnswerData && !peek {
		to := l.log.Index(max(l.log.HighWatermark, r.Offset))
		sent, reply.Batches = batchesOf(l.log.Records[l.log.Index(r.Offset):to])
	}
	return reply, sent, l.log.HighWatermark, true
}

// vouches is AskVouch's question, as the product asks it.
func (x *step) vouches(c int, e types.LeaderEpoch, o types.Offset) bool {
	k := &x.s.c[1-c]
	j := k.server()
	if j < 0 {
		return false
	}
	l := k.nodes[j]
	if l.rec.LeaderEpoch == e && !l.rec.IsMirror() {
		return true
	}
	end := func(asked types.LeaderEpoch) (types.LeaderEpoch, types.Offset) {
		if asked > l.rec.LeaderEpoch {
			return types.NoLeaderEpoch, types.NoOffset
		}
		return l.log.History.EndOffsetFor(asked, l.log.Start, l.log.End)
	}
	if found, to := end(e); found == e && to > o {
		return true
	}
	found, _ := end(e + 1)
	return found == e
}

// copyOn has the leader's machine of a mirror go on with what it waits for: until
// nothing is left, or, with once, until it has changed something. It reports
// whether anything happened.
func (x *step) copyOn(c, i int, once bool) bool {
	moved := false
	tries := 0
	for range 100 {
		n := x.s.c[c].nodes[i]
		if x.isDown(c, i) || x.problem != nil || !n.up || n.machine == nil || n.ask == nil || !n.machine.Waits(ticketOf(n.ask)) {
			return moved
		}
		if _, waits := n.ask.(mirror.Backoff); waits {
			if tries++; tries > 1 && moved {
				return moved
			}
			if tries > 4 {
				return moved
			}
		}
		end, rev, records := n.log.End, x.s.c[c].rev, len(n.log.Records)
		if !x.answerOne(c, i) {
			return moved
		}
		moved = true
		after := x.s.c[c].nodes[i]
		if once && (after.log.End != end || x.s.c[c].rev != rev || len(after.log.Records) != records) {
			return moved
		}
	}
	x.problemf("Convergence", "%s copies without end", name(c, i))
	return moved
}

// ticketOf is the ticket of what a machine asks.
func ticketOf(e mirror.Effect) mirror.Ticket {
	switch e := e.(type) {
	case mirror.LookUp:
		return e.Ticket
	case mirror.Fetch:
		return e.Ticket
	case mirror.AskVouch:
		return e.Ticket
	case mirror.Probe:
		return e.Ticket
	case mirror.Propose:
		return e.Ticket
	case mirror.Backoff:
		return e.Ticket
	}
	return 0
}

// answers has the source answer a look-up or a fetch; the answer is on its way then.
func (x *step) answers(c, i int) bool {
	n := x.s.c[c].nodes[i]
	if n.caught != nil || !n.machine.Waits(ticketOf(n.ask)) {
		return false
	}
	a, ok := x.sourceAnswer(c, i)
	if !ok || a == nil {
		return false
	}
	x.node(c, i).caught = a
	return true
}

// sourceAnswer is the source's answer to a look-up or a fetch; false if there is
// nobody to answer, nil if the question is another.
func (x *step) sourceAnswer(c, i int) (*caught, bool) {
	n := x.s.c[c].nodes[i]
	j := x.s.c[1-c].server()
	if j < 0 {
		return nil, false
	}
	log := x.s.c[1-c].nodes[j].log
	switch e := n.ask.(type) {
	case mirror.LookUp:
		s, ok := x.look(c)
		return &caught{ticket: e.Ticket, event: mirror.SourceShown{Ticket: e.Ticket, Source: s}, source: &log}, ok
	case mirror.Fetch:
		reply, sent, end, ok := x.fetchFrom(c, e.Request, e.Peek)
		return &caught{ticket: e.Ticket, event: mirror.Fetched{Ticket: e.Ticket, Reply: reply, SourceEnd: end}, sent: sent, source: &log}, ok
	}
	return nil, true
}

// takeAnswer delivers a source's answer.
func (x *step) takeAnswer(c, i int, a *caught) {
	x.copied = a.source
	x.deliver(c, i, a.event, a.sent)
}

// answerOne answers what the machine waits for; false if it has to go on waiting.
func (x *step) answerOne(c, i int) bool {
	n := x.s.c[c].nodes[i]
	if a := n.caught; a != nil {
		x.node(c, i).caught = nil
		if a.ticket == ticketOf(n.ask) {
			x.takeAnswer(c, i, a)
			return true
		}
		n = x.s.c[c].nodes[i]
	}
	unreachable := func(t mirror.Ticket) bool {
		x.showMachine(c, i, mirror.SourceFailed{Ticket: t, Reason: mirror.SourceUnreachable, Detail: "no leader"})
		return true
	}
	switch e := n.ask.(type) {
	case mirror.LookUp:
		a, ok := x.sourceAnswer(c, i)
		if !ok {
			return unreachable(e.Ticket)
		}
		x.takeAnswer(c, i, a)
	case mirror.Fetch:
		a, ok := x.sourceAnswer(c, i)
		if !ok {
			return unreachable(e.Ticket)
		}
		if f := a.event.(mirror.Fetched); !e.Peek && f.Reply.Kind == replica.AnswerData && len(a.sent) == 0 && f.Reply.LogStart <= n.log.Start {
			return false // the source holds the fetch
		}
		x.takeAnswer(c, i, a)
	case mirror.AskVouch:
		x.showMachine(c, i, mirror.Vouched{Ticket: e.Ticket, Yes: x.vouches(c, e.Epoch, e.Offset)})
	case mirror.Probe:
		p, ok := x.probe(c, i, e)
		if !ok {
			return unreachable(e.Ticket)
		}
		x.showMachine(c, i, p)
	case mirror.Propose:
		return x.propose(c, i, e)
	case mirror.Backoff:
		x.showMachine(c, i, mirror.BackoffOver{Ticket: e.Ticket})
	default:
		return false
	}
	return true
}

// deliver gives the machine an answer with its records.
func (x *step) deliver(c, i int, ev mirror.Event, sent []modellog.Record) {
	x.showMachine(c, i, nil)
	if x.isDown(c, i) || x.problem != nil {
		return
	}
	x.feed(c, i, ev, sent)
	if !x.isDown(c, i) {
		x.release(c, i)
	}
}

// probe compares the last own record below with the source's (R26).
func (x *step) probe(c, i int, e mirror.Probe) (mirror.Probed, bool) {
	k := &x.s.c[1-c]
	j := k.server()
	if j < 0 {
		return mirror.Probed{}, false
	}
	n := x.s.c[c].nodes[i]
	p := mirror.Probed{Ticket: e.Ticket, Result: mirror.ProbeMissing}
	at := n.log.Index(e.Below)
	if at == 0 {
		return p, true
	}
	ours := n.log.Records[at-1]
	p.Base, p.Last = ours.Offset, ours.Offset
	theirs, ok := k.nodes[j].log.At(ours.Offset)
	switch {
	case ok && theirs == ours:
		p.Result = mirror.ProbeSame
	case ok:
		p.Result = mirror.ProbeDifferent
	}
	return p, true
}

// propose writes the machine's transaction: at once, or late.
func (x *step) propose(c, i int, e mirror.Propose) bool {
	k := &x.s.c[c]
	for _, t := range k.late {
		if t.node == i && t.kind == forMachine && t.ticket == e.Ticket {
			return false // on its way
		}
	}
	n := x.s.c[c].nodes[i]
	if n.askFrom != n.rev { // it was made from a record that is another one by now
		x.answerProposal(c, i, e.Ticket, false)
		return true
	}
	t, ok := x.write(c, i, x.w.rules.proposed(e, k.rec), forMachine, n.rev)
	if !ok {
		if n.rev != k.rev {
			return false // its image shows it first (R8)
		}
		x.answerProposal(c, i, e.Ticket, false)
		return true
	}
	t.ticket = e.Ticket
	x.note("%s writes %s: %s", name(c, i), e.Purpose, describe(t.record))
	if x.hold(c, t) {
		return true
	}
	lag := x.lagOf(c)
	if !x.commit(c, t, lag) {
		x.answerProposal(c, i, e.Ticket, false)
		return true
	}
	if lag == lagging(i) {
		k.late = append(k.late[:len(k.late):len(k.late)], t) // until its image shows it (R8)
		return true
	}
	if !x.isDown(c, i) && x.problem == nil {
		x.answerProposal(c, i, e.Ticket, true)
	}
	return true
}

// answerProposal says what became of a machine's transaction; its image has shown the record before.
func (x *step) answerProposal(c, i int, t mirror.Ticket, applied bool) {
	n := x.node(c, i)
	if n.machine == nil || !n.machine.Waits(t) {
		return
	}
	if n.realigning {
		n.owing = n.owing || applied
		n.realigning = false
	}
	x.showMachine(c, i, mirror.Proposed{Ticket: t, Applied: applied})
}

// recordLine is a record in words, made only if it is told.
type recordLine struct{ *meta.PartitionRecord }

func describe(r *meta.PartitionRecord) recordLine { return recordLine{r} }

// String is the record in a line.
func (r recordLine) String() string {
	mode := "read-only"
	if r.Writable {
		mode = "writable"
	}
	s := fmt.Sprintf("leader %d, epoch %d, %s, ISR %v, ELR %v, list %s", r.Leader, r.LeaderEpoch, mode, r.ISRIDs(), r.ELRIDs(), describeList(r.Timelines))
	if r.Mirror != nil {
		s += ", " + r.Mirror.State
		if r.Mirror.Reason != "" {
			s += " " + r.Mirror.Reason
		}
	}
	return s
}
