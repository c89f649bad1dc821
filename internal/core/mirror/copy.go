package mirror

import (
	"fmt"

	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
)

var (
	probeRebase    = probe.New("mirror: the source's log start lies within its first batch")
	probeUnvouched = probe.New("mirror: a log start that the source doesn't vouch for")
)

// fetch asks for the next records: the logs agree. From here on clients may read
// what is held, in this leader epoch, so that another cut needs another one (R20).
func (p *Partition) fetch(own *Own, out *Effects) {
	p.realignedAt = types.NoLeaderEpoch
	out.add(Fetch{Ticket: p.ask(fetching), Request: p.follower.Next(&own.Log)})
}

// fetched takes an answer, whatever the request was for.
func (p *Partition) fetched(now types.Millis, own *Own, ev Fetched, out *Effects) {
	switch {
	case p.isDue(ev.Ticket, comparing):
		if s, _ := p.follower.Session(); ev.Reply.To != p.follower.Next(&p.look) || s.Generation != p.generation {
			p.compare(out)
			return
		}
		p.compared(now, own, ev.Reply, out)
	case p.isDue(ev.Ticket, fetching):
		p.judge(now, own, ev, out)
	}
}

// judge does what the follower says about an answer to a fetch (R13).
func (p *Partition) judge(now types.Millis, own *Own, ev Fetched, out *Effects) {
	if p.vouch.known && p.vouch.at == own.LogEnd {
		ev.Reply.Vouch = p.vouch.answer
	}
	v := p.follower.Receive(&own.Log, ev.Reply)
	switch v.Kind {
	case replica.VerdictStale:
		p.fetch(own, out)
	case replica.VerdictRealign, replica.VerdictCut, replica.VerdictRestart:
		// Where exactly, and whether the source is still the one it was, is
		// looked at before anything is cut (R26).
		p.look, p.probed = own.Log, false
		p.compared(now, own, ev.Reply, out)
	case replica.VerdictRaise:
		if v.Epoch > epochMost { // a source that says no leader epoch of its own bounds its batches' by none
			r := noEpochLeft(v.Epoch)
			p.fail(r.Reason, r.Detail, out)
			return
		}
		rec := raise(p.rec, p.policy, v.Epoch)
		out.add(Tell{Code: EpochFencing, Epoch: rec.LeaderEpoch,
			Detail: fmt.Sprintf("leader epoch %d to %d before a batch of epoch %d", p.rec.LeaderEpoch, rec.LeaderEpoch, v.Epoch)})
		p.propose(ForRaise, rec, out)
	case replica.VerdictVouch:
		out.add(AskVouch{Ticket: p.ask(vouching), Epoch: v.Epoch, Offset: own.LogEnd})
	case replica.VerdictEnd:
		if ev.Reply.Kind == replica.AnswerOutOfRange {
			p.look = own.Log
			p.compared(now, own, ev.Reply, out)
			return
		}
		p.sessionOver(v.Why, out)
	case replica.VerdictBroken:
		p.insist(CorruptSource, v.Why, out)
	case replica.VerdictAccept:
		p.accept(now, own, ev, v, out)
	}
}

// vouched keeps the answer for the fetch that is sent once more: nobody holds
// on to records meanwhile.
func (p *Partition) vouched(own *Own, yes bool, out *Effects) {
	p.vouch = vouchFor{known: true, at: own.LogEnd, answer: replica.VouchNo}
	if yes {
		p.vouch.answer = replica.VouchYes
	}
	p.fetch(own, out)
}

// accept carries out an accepted answer: log start before data, then the batches.
func (p *Partition) accept(now types.Millis, own *Own, ev Fetched, v replica.Verdict, out *Effects) {
	p.see(now, own, types.NoLeaderEpoch, ev.Reply.LogStart, ev.SourceEnd)
	if m := p.rec.Mirror; !m.Copied || m.GivenUpFrom != nil || m.GapAccepted || len(m.Before) > 0 || m.WasWritable {
		// The record must not excuse a later gap (R28), nor an abandon: first it
		// forgets, then the fetch counts. Nor may a log that a cut empties later pass for
		// one that never held a record, at a leader that hasn't seen this fetch.
		p.facts.Copied = true
		p.propose(ForSeen, withFacts(p.rec, p.facts), out)
		return
	}
	p.accepted(own, ev, v)
	p.contact = now
	if v.Append == 0 && v.RaiseLogStart <= own.LogStart {
		p.next(now, own, out)
		return
	}
	t := p.ask(appending)
	if v.HasRebase {
		probeRebase.Reached()
		out.add(Restart{Ticket: t, At: v.Rebase, Cause: CauseRestart})
	}
	if v.RaiseLogStart > own.LogStart {
		if !v.Vouched {
			probeUnvouched.Reached()
		}
		out.add(RaiseLogStart{Ticket: t, At: v.RaiseLogStart, Vouched: v.Vouched})
	}
	if v.Append > 0 {
		out.add(Append{Ticket: t, Batches: v.Append, MaxEpoch: v.MaxEpoch})
	}
}

// accepted takes note of an accepted fetch: the next cut needs a transaction of
// its own (R20), and what the adoption gave up is behind us (R28).
func (p *Partition) accepted(own *Own, ev Fetched, v replica.Verdict) {
	p.realignedAt, p.vouch = types.NoLeaderEpoch, vouchFor{}
	p.copied, p.facts.Copied, p.givenUp = true, true, givenUp{}
	p.trouble, p.contradictions = trouble{}, 0
	end := own.LogEnd
	if v.Append > 0 {
		end, p.rounds.copied = ev.Reply.Batches[v.Append-1].Next, true
		p.lag.copied(ev.Bytes, int64(end-own.LogEnd))
	}
	if p.rounds.mayForgetAttempts(end) {
		p.attempt = 0
	}
}

func (p *Partition) appended(now types.Millis, own *Own, out *Effects) {
	p.lag.reached(own.LogEnd)
	p.next(now, own, out)
}

// next writes changed facts if that is due, or fetches on.
func (p *Partition) next(now types.Millis, own *Own, out *Effects) {
	if p.seenDue(now) {
		p.propose(ForSeen, withFacts(p.rec, p.facts), out)
		return
	}
	p.fetch(own, out)
}

// see keeps what was seen of the source; arguments below 0 say nothing.
func (p *Partition) see(now types.Millis, own *Own, epoch types.LeaderEpoch, start, end types.Offset) {
	p.facts.LeaderEpoch = max(p.facts.LeaderEpoch, epoch)
	if start >= 0 {
		p.facts.Start = start
	}
	if end >= 0 {
		p.facts.End = end
		p.lag.seen(now, end, own.LogEnd)
	}
	p.facts.SeenAt = now
}

// Facts are what was last seen of the source, for a promotion.
func (p *Partition) Facts() Facts { return p.facts }

// tick writes changed facts of a partition that gets no answers because nothing
// happens. The fetch that is on its way is asked again afterwards.
func (p *Partition) tick(now types.Millis, out *Effects) {
	if p.phase == fetching && p.seenDue(now) {
		p.propose(ForSeen, withFacts(p.rec, p.facts), out)
	}
}

// seenDue reports whether the record's facts of the source are old enough to be
// written again. A compacted topic's are also if nothing changed: by their
// time an absence is told (R28).
func (p *Partition) seenDue(now types.Millis) bool {
	age := now - p.persisted.SeenAt
	if p.policy.SeenEvery <= 0 || age < p.policy.SeenEvery {
		return false
	}
	changed := p.facts
	changed.SeenAt = p.persisted.SeenAt
	return changed != p.persisted || p.policy.Compacted && p.policy.DeleteRetention > 0 && age >= p.policy.DeleteRetention/4
}

// refreshed compares a look that was made for many partitions with the session.
func (p *Partition) refreshed(now types.Millis, own *Own, s Source, out *Effects) {
	if p.rec == nil || p.rec.Mirror == nil || !p.hasSource {
		return
	}
	switch p.phase {
	case comparing, probing, fetching, vouching:
	default:
		return
	}
	if t := p.identify(s); t.reason == OtherCluster || t.reason == TopicIDMismatch {
		p.failWith(t, out)
		return
	}
	if s.LeaderEpoch > p.source.LeaderEpoch {
		p.sessionOver(fmt.Sprintf("the source's leader epoch rose from %d to %d", p.source.LeaderEpoch, s.LeaderEpoch), out)
		return
	}
	p.see(now, own, types.NoLeaderEpoch, s.LogStart, s.LogEnd)
	if p.phase == fetching {
		p.contact = now // its long poll would have answered
	}
}
