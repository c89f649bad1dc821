package mirror

import (
	"fmt"
	"slices"
	"strings"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
)

var (
	probeFresh   = probe.New("mirror: a log that never held a record joins above its end")
	probeAnew    = probe.New("mirror: a cut below its own compaction takes the whole log")
	probeGivenUp = probe.New("mirror: a gap lies in what the adoption gave up")
)

// sourceShown takes the look at the source that a session stands on (R18).
func (p *Partition) sourceShown(now types.Millis, own *Own, s Source, out *Effects) {
	t := p.identify(s)
	if t.reason == SourceEpochRegressed {
		p.regressed++
	} else {
		p.regressed = 0
	}
	if t.reason.isLasting() {
		p.refuse(Refusal{t.reason, t.detail}, out)
		return
	}
	if t.reason != "" {
		p.failWith(t, out)
		return
	}
	p.source, p.hasSource = s, true
	p.list = listFor(p.rec, p.policy, s, own)
	p.see(now, own, s.LeaderEpoch, s.LogStart, s.LogEnd)
	p.begun(now, own, out)
}

// begun goes on with a look at the source in hand.
func (p *Partition) begun(now types.Millis, own *Own, out *Effects) {
	if isAdopted(p.rec) && p.list.Equal(p.rec.Timelines) {
		if !slices.Equal(p.source.Path, p.rec.Mirror.SourcePath) {
			p.propose(ForPath, withPath(p.rec, p.policy, p.source.Path), out)
			return
		}
		p.begin(own, out)
		return
	}
	rec, a := Adopt(p.rec, p.policy, p.source, own, now)
	if a.Refused.Reason != "" {
		p.refuse(a.Refused, out)
		return
	}
	out.add(Tell{Code: Adopted, Epoch: rec.LeaderEpoch, Detail: fmt.Sprintf("%s, leader epoch %d", a.Relation, rec.LeaderEpoch)})
	p.propose(ForAdoption, rec, out)
}

// refuse ends an adoption that may not be. A partition that was writable and is
// fenced for the start becomes writable again (R25); any other fails.
func (p *Partition) refuse(r Refusal, out *Effects) {
	if isAdopted(p.rec) || len(p.rec.Timelines) == 0 {
		p.failWith(trouble{reason: r.Reason, detail: r.Detail}, out)
		return
	}
	p.trouble = trouble{reason: r.Reason, detail: r.Detail}
	out.add(Tell{Code: Failed, Reason: r.Reason, Detail: r.Detail})
	p.propose(ForFailure, goBack(p.rec, r), out)
}

// identify compares who answers with who should (R26). Nothing is touched before.
func (p *Partition) identify(s Source) trouble {
	r := Identify(p.rec, p.policy, s)
	if r.Reason == "" && !p.policy.Rules.NoEpochMemory && s.LeaderEpoch >= 0 && s.LeaderEpoch < p.facts.LeaderEpoch && isAdopted(p.rec) {
		r = regressed(s.LeaderEpoch, p.facts.LeaderEpoch)
	}
	return trouble{reason: r.Reason, detail: r.Detail}
}

// Identify compares a look at a source with what the partition's record knows of
// it (R26), and refuses a source that copies from this cluster (R25). SourceNotReady
// passes by itself.
func Identify(rec *meta.PartitionRecord, pol Policy, s Source) Refusal {
	m := rec.Mirror
	switch {
	case !pol.Rules.NoIdentity && m.SourceClusterID != "" && s.ClusterID != "" && s.ClusterID != m.SourceClusterID:
		return Refusal{OtherCluster, fmt.Sprintf("cluster %s answers, this mirror copies from %s", s.ClusterID, m.SourceClusterID)}
	case isOtherTopic(pol, s).Reason != "":
		return isOtherTopic(pol, s)
	case !pol.Rules.NoEpochMemory && s.LeaderEpoch >= 0 && s.LeaderEpoch < m.SourceEpochMax && isAdopted(rec):
		return regressed(s.LeaderEpoch, m.SourceEpochMax)
	case s.ClusterID == pol.ClusterID:
		return Refusal{MirrorLoop, "the source is this cluster itself"}
	case slices.Contains(s.Path, pol.ClusterID) && !pol.Rules.NoPath:
		return Refusal{MirrorLoop, fmt.Sprintf("the source copies from this cluster (it mirrors %s): fail the partition over there, or leave the topic out here", strings.Join(s.Path, ", which mirrors "))}
	case s.LeaderEpoch > epochMost:
		return noEpochLeft(s.LeaderEpoch)
	case s.Timelines != nil && len(s.Timelines) == 0:
		return Refusal{SourceNotReady, "the source is a mirror itself, and has not taken over its own source's timelines yet"}
	}
	return s.Mirrored.refusal(rec, pol, &s)
}

// epochMost is the highest leader epoch of a source that is followed. Ours lies above it, and so
// do later elections and promotions here: 31 bits must hold them, 16 million by this one's room.
const epochMost = types.LeaderEpoch(1<<31 - 1 - 1<<24)

// noEpochLeft refuses an epoch above which no election would be possible here: a partition
// would stand for good, and every controller with it.
func noEpochLeft(shown types.LeaderEpoch) Refusal {
	return Refusal{SourceInconsistent, fmt.Sprintf("the source shows leader epoch %d; above %d no room is left for elections here", shown, epochMost)}
}

// isOtherTopic refuses a topic that has our topic's name alone (R26).
func isOtherTopic(pol Policy, s Source) Refusal {
	if pol.Rules.NoIdentity || s.TopicID.IsZero() || s.TopicID == pol.TopicID {
		return Refusal{}
	}
	return Refusal{TopicIDMismatch, fmt.Sprintf("the source's topic has id %s, ours %s: it was deleted and made again", s.TopicID, pol.TopicID)}
}

func regressed(shown, seen types.LeaderEpoch) Refusal {
	return Refusal{SourceEpochRegressed, fmt.Sprintf("the source shows leader epoch %d, %d was seen", shown, seen)}
}

// listOf is the source's list, its root derived where the source knows none (R16).
func listOf(s Source, p Policy) timeline.List {
	if len(s.Timelines) > 0 {
		return s.Timelines
	}
	return timeline.List{timeline.Root(s.ClusterID, sourceTopic(s, p))}
}

// open starts following, with everything checked that a look can show.
func (p *Partition) open(own *Own, out *Effects) {
	restart, ok := p.mindGap(own, out)
	if !ok {
		return
	}
	p.tellCompactionGap(out)
	p.generation++
	p.follower.Begin(replica.Session{
		Generation:       p.generation,
		LeaderEpoch:      p.source.LeaderEpoch,
		LocalEpoch:       p.localEpoch(),
		RealignBeforeCut: !p.policy.Rules.NoRealign,
	})
	p.look, p.restart, p.probed = own.Log, restart, false
	switch {
	case restart:
		p.restartAt = p.source.LogStart
		p.cutNow(own, out)
	case own.IsEmpty() || p.policy.Rules.NoProbe:
		p.ready(own, out)
	default:
		p.compare(out)
	}
}

// localEpoch is the leader epoch that a batch may not exceed without a raise (R21).
func (p *Partition) localEpoch() types.LeaderEpoch {
	if p.policy.Rules.NoRaise {
		return p.source.LeaderEpoch
	}
	return p.rec.LeaderEpoch
}

// gap judges a source whose log start is above our log end (R28): restart if it
// may be jumped, a failure if not.
func (p *Partition) gap(own *Own) (trouble, bool) {
	if p.source.LogStart <= own.LogEnd {
		return trouble{}, false
	}
	// A mirror that has never held a record can't miss one: its log still ends
	// where the source's began at the adoption, or at 0.
	fresh := own.IsEmpty() && !p.copied && own.LogEnd <= max(p.rec.Mirror.SourceStart, 0)
	given := !p.policy.Rules.NoGivenUp && p.givenUp.ok && p.givenUp.from <= own.LogEnd && !p.copied
	switch {
	case fresh:
		probeFresh.Reached()
		return trouble{}, true
	case given:
		probeGivenUp.Reached()
		return trouble{}, true
	case p.policy.Rules.NoGapCheck:
		return trouble{}, true
	}
	return trouble{
		reason: SourceGap, from: own.LogEnd, to: p.source.LogStart,
		detail: fmt.Sprintf("%d-%d: the source's log starts at %d, ours ends at %d", own.LogEnd, p.source.LogStart-1, p.source.LogStart, own.LogEnd),
	}, p.policy.ContinueOverGaps || p.rec.Mirror.GapAccepted
}

// mindGap fails on a gap that may not be jumped, and tells one that may.
func (p *Partition) mindGap(own *Own, out *Effects) (restart, ok bool) {
	gap, restart := p.gap(own)
	switch {
	case gap.reason != "" && !restart:
		p.failWith(gap, out)
		return false, false
	case gap.reason != "" && !p.isRealigned():
		out.add(Tell{Code: GapAccepted, Detail: gap.detail, From: gap.from, To: gap.to})
	}
	return restart, true
}

func (p *Partition) tellCompactionGap(out *Effects) {
	last, now := p.contact, p.facts.SeenAt
	p.contact = now
	if p.policy.Compacted && p.policy.DeleteRetention > 0 && p.copied && last >= 0 && now-last > p.policy.DeleteRetention {
		out.add(Tell{Code: CompactionGap, Detail: fmt.Sprintf("not connected for %d ms, delete.retention.ms is %d: deletions may have been compacted away", now-last, p.policy.DeleteRetention)})
	}
}

// compare asks whether the logs agree at look's end (R13), without taking data.
func (p *Partition) compare(out *Effects) {
	out.add(Fetch{Ticket: p.ask(comparing), Request: p.follower.Next(&p.look), Peek: true})
}

// compared goes one round on: each round moves look's end down until the
// source agrees. Nothing is cut before that (R26).
func (p *Partition) compared(now types.Millis, own *Own, r replica.Reply, out *Effects) {
	p.see(now, own, types.NoLeaderEpoch, r.LogStart, types.NoOffset)
	p.source.LogStart = max(p.source.LogStart, r.LogStart)
	switch r.Kind {
	case replica.AnswerFenced, replica.AnswerUnknownEpoch:
		p.sessionOver(r.Kind.String(), out)
	case replica.AnswerOutOfRange:
		p.outOfRange(own, out)
	case replica.AnswerDiverging:
		p.diverged(own, r.Diverging, out)
	case replica.AnswerData:
		if p.probed || p.look.IsEmpty() || p.policy.Rules.NoProbe {
			p.agreed(own, out)
			return
		}
		p.probes = 0
		p.probe(p.look.LogEnd, out)
	}
}

// probe compares the last own batch below an offset with the source's (R26).
func (p *Partition) probe(below types.Offset, out *Effects) {
	p.probes++
	out.add(Probe{Ticket: p.ask(probing), Below: below, LeaderEpoch: p.source.LeaderEpoch})
}

// probesMax bounds how far down a batch that both sides hold is looked for, where compaction has taken the last ones.
const probesMax = 8

// diverged moves look's end to where the answer allows agreement.
func (p *Partition) diverged(own *Own, d replica.EpochEnd, out *Effects) {
	last, ok := own.LastEpoch()
	if p.source.IsMirror && !p.policy.Rules.NoMirrorAhead && ok && d.Epoch == last && d.Epoch == p.source.LastEpoch && d.End < own.LogEnd {
		t := trouble{reason: Reason(AheadOfMirror), detail: fmt.Sprintf("%d records ahead of a source that is a mirror itself", own.LogEnd-d.End), from: d.End, to: own.LogEnd}
		if t != p.trouble {
			out.add(Tell{Code: AheadOfMirror, From: t.from, To: t.to, Detail: t.detail})
		}
		p.trouble = t
		p.endSession(out)
		p.backOff(out)
		return
	}
	p.answer = d
	before := p.look.LogEnd
	lastBefore, _ := p.look.LastEpoch()
	p.look = p.look.CutTo(replica.CutPoint(&p.look, d))
	if lastAfter, _ := p.look.LastEpoch(); p.look.LogEnd == before && lastAfter == lastBefore {
		p.failWith(trouble{reason: CorruptSource, detail: fmt.Sprintf("the source answers (%d, %d), which asks for nothing", d.Epoch, d.End)}, out)
		return
	}
	p.compare(out)
}

// outOfRange looks again at a source that has nothing at look's end: a look that
// is newer than the session decides between a gap, a restart and a contradiction.
func (p *Partition) outOfRange(own *Own, out *Effects) {
	at := p.look.LogEnd
	e, ok := p.look.LastEpoch()
	switch {
	case at < p.source.LogStart:
		p.restartOverGap(own, out)
	case ok && e > p.source.LeaderEpoch && p.source.LeaderEpoch >= 0:
		p.failWith(trouble{reason: SourceEpochRegressed, detail: fmt.Sprintf("our last epoch is %d, the source's leader epoch %d", e, p.source.LeaderEpoch)}, out)
	case at <= p.source.LogEnd || ok && at <= p.facts.End:
		p.insist(SourceLeaderMoved, fmt.Sprintf("offset %d is out of the source's range, %d-%d was seen", at, p.facts.Start, p.facts.End), out)
	default:
		// Beyond the source's end with nothing to compare: the only case in which a
		// log start falls.
		p.restart, p.restartAt = true, p.source.LogStart
		p.cutNow(own, out)
	}
}

// restartOverGap restarts where the source begins, if the gap may be jumped. A
// look whose end was moved below the source's start by divergences holds
// nothing that the source has: that is no gap, the records there are gone.
func (p *Partition) restartOverGap(own *Own, out *Effects) {
	if _, ok := p.mindGap(own, out); !ok {
		return
	}
	p.restart, p.restartAt = true, p.source.LogStart
	p.cutNow(own, out)
}

// insist fails on a source that contradicts what it said before. The look may be
// older than a retention run, or one answer damaged: only what it says several
// times in a row means that its log is not the one it was (R26).
func (p *Partition) insist(atFirst Reason, why string, out *Effects) {
	const times = 3
	if p.contradictions++; p.contradictions < times {
		p.failWith(trouble{reason: atFirst, detail: why}, out)
		return
	}
	p.failWith(trouble{reason: SourceRewritten, detail: why}, out)
}

func (p *Partition) probedBatch(own *Own, ev Probed, out *Effects) {
	if p.doubting {
		p.doubted(own, ev.Result, out)
		return
	}
	if ev.Result == ProbeDifferent {
		p.failWith(trouble{reason: SourceRewritten, detail: fmt.Sprintf("the batch at %d-%d differs from the source's although the epochs agree", ev.Base, ev.Last)}, out)
		return
	}
	if ev.Result == ProbeMissing && ev.Base > max(own.LogStart, p.source.LogStart) && p.probes < probesMax {
		p.probe(ev.Base, out)
		return
	}
	p.probed = true
	p.agreed(own, out)
}

// agreed: the source agrees at look's end. What lies above goes, or nothing does.
func (p *Partition) agreed(own *Own, out *Effects) {
	if p.look.LogEnd < own.LogEnd || p.look.History.Len() != own.History.Len() || p.mustCopyAnew(own, p.look.LogEnd) {
		p.cutNow(own, out)
		return
	}
	p.ready(own, out)
}

// cutNow makes the second cut or the restart, after R20's transaction.
func (p *Partition) cutNow(own *Own, out *Effects) {
	if p.breakCircle(own, out) {
		return
	}
	if !p.policy.Rules.NoRealign && !p.isRealigned() {
		p.propose(ForRealign, realign(p.rec, p.policy), out)
		return
	}
	p.follower.SetRealigned()
	anew := p.deepen(own)
	p.rounds.cutting(p.source.LeaderEpoch, p.cutAt(), own.LogEnd)
	t := p.ask(cutting)
	if p.restart {
		out.add(Restart{Ticket: t, At: p.restartAt, Cause: CauseRestart})
		return
	}
	out.add(Cut{Ticket: t, At: p.look.LogEnd, Cause: CauseDivergence, Anew: anew, MayDrop: p.look.LogEnd >= own.HighWatermark,
		SourceEpoch: p.answer.Epoch, SourceEnd: p.answer.End})
}

// mustCopyAnew reports whether a log that is to end at an offset may lack older
// records of keys that the source still has: its own compaction dropped them for newer
// ones that go now, or went in a cut that a crash interrupted (docs/adr/0027).
func (p *Partition) mustCopyAnew(own *Own, at types.Offset) bool {
	return !p.policy.Rules.KeepsCompacted && own.lacks(at)
}

// deepen has a cut below what compaction has reached take the whole log, to be copied
// anew: from its log start, or from the source's where that lies above.
func (p *Partition) deepen(own *Own) (anew bool) {
	if p.restart || !p.mustCopyAnew(own, p.look.LogEnd) {
		return false
	}
	probeAnew.Reached()
	if p.source.LogStart > own.LogStart {
		p.restart, p.restartAt = true, p.source.LogStart
		return true
	}
	p.look = p.look.CutTo(own.LogStart)
	return true
}

// isRealigned reports whether R20's transaction still covers a cut: no accepted
// fetch since, and nobody has joined in the meantime.
func (p *Partition) isRealigned() bool {
	return p.realignedAt == p.rec.LeaderEpoch && len(p.rec.ISR) == 1 && p.rec.ISR[0].ID == p.policy.Me && len(p.rec.ELR) == 0
}

// cutDone goes on after the second cut. A cut within an own batch ends at the
// batch's start: then the logs are compared once more.
func (p *Partition) cutDone(own *Own, out *Effects) {
	if p.restart {
		out.add(Tell{Code: LogReset, From: p.restartAt, To: p.restartAt, Detail: fmt.Sprintf("the log starts at %d", p.restartAt)})
		p.restart = false
		p.look = own.Log
		p.ready(own, out)
		return
	}
	agreedAt := p.look.LogEnd
	p.look = own.Log
	if own.LogEnd != agreedAt && !own.IsEmpty() {
		p.probed = false
		p.compare(out)
		return
	}
	p.ready(own, out)
}

// ready begins to copy, once the record says that it may.
func (p *Partition) ready(own *Own, out *Effects) {
	if p.rec.Mirror.State != meta.MirrorMirroring {
		if p.rec.Mirror.State == meta.MirrorFailed {
			out.add(Tell{Code: Recovered, Detail: "was " + p.rec.Mirror.Reason})
		}
		p.propose(ForMirroring, mirroring(p.rec, p.facts), out)
		return
	}
	p.trouble = trouble{}
	p.fetch(own, out)
}

// sessionOver ends the session: the source's leader or epoch is another by now.
func (p *Partition) sessionOver(why string, out *Effects) {
	p.failWith(trouble{reason: SourceLeaderMoved, detail: why}, out)
}
