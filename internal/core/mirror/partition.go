package mirror

import (
	"fmt"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// phase is what the partition waits for.
type phase int8

const (
	idle         phase = iota // nothing to do: not leading, paused, stopped, not a mirror
	firstCutting              // LogDone of the first cut (R19)
	aligning                  // a record that shows ISR and fetches complete (§6.2)
	lookingUp                 // SourceShown
	proposing                 // Proposed
	comparing                 // Fetched of a Peek: where do the logs agree?
	probing                   // Probed (R26)
	cutting                   // LogDone of the second cut or a restart (R20)
	fetching                  // Fetched
	vouching                  // Vouched (R28)
	appending                 // LogDone of an accepted reply
	backingOff                // BackoffOver
)

var phaseNames = [...]string{"idle", "cutting to the timeline", "waiting for the ISR", "asking the source", "writing metadata",
	"comparing epochs", "comparing the last batch", "cutting", "fetching", "asking for an epoch", "appending", "waiting to try again"}

// Partition is one mirrored partition on the broker that leads it. New makes
// one. It is owned by one caller at a time.
type Partition struct {
	policy Policy

	rec        *meta.PartitionRecord // as last shown; nil before the first
	leading    bool
	allFetched bool

	phase  phase
	ticket Ticket // of the one outstanding asking effect
	// proposed is what the outstanding transaction is for.
	proposed Purpose

	// The session: one look at the source and the follower of its leader.
	source     Source
	hasSource  bool // source is of the present session (R18)
	list       timeline.List
	follower   replica.Follower
	generation uint64

	// look is the log as the second cut would leave it, while the logs are
	// compared (comparing, probing); restart and restartAt if the whole log must go.
	look      replica.Log
	restart   bool
	restartAt types.Offset
	answer    replica.EpochEnd // that asked for the cut
	probed    bool             // the last batch was found equal in this session
	probes    int              // batches compared so far
	owesAll   bool             // the first cut is "everything", once the source is known to have it

	realignedAt types.LeaderEpoch // leader epoch of R20's transaction that still covers cuts: until the logs agree; -1 if none
	vouch       vouchFor          // what the source said last when it was asked to vouch

	facts     Facts
	persisted Facts
	contact   types.Millis // when the copying last kept up with the source (R28)
	copied    bool         // an accepted fetch since the adoption
	givenUp   givenUp
	lag       lagBook

	attempt int
	trouble trouble
	// regressed and contradictions count in a row what a source must insist on
	// before it is believed (R26).
	regressed, contradictions int
	rounds                    rounds
	doubting                  bool // the probe on its way is breakCircle's
}

// vouchFor is an answer to AskVouch, for the log end that it was asked for.
type vouchFor struct {
	known  bool
	at     types.Offset
	answer replica.Vouch
}

// givenUp is where the offsets begin that the adoption gave up (R28).
type givenUp struct {
	from types.Offset
	ok   bool
}

// trouble is why the partition doesn't move; the zero value is "it does".
type trouble struct {
	reason   Reason
	detail   string
	from, to types.Offset // offsets concerned, if any
}

// New makes the machine of one partition. It does nothing before the first
// RecordShown. Tickets begin anew: answers to what an earlier machine of the
// partition asked must not reach this one.
func New(p Policy) *Partition {
	unseen := Facts{LeaderEpoch: types.NoLeaderEpoch, Start: types.NoOffset, End: types.NoOffset, SeenAt: types.NoTimestamp}
	return &Partition{policy: p, realignedAt: types.NoLeaderEpoch, facts: unseen, persisted: unseen}
}

// Step applies one event and appends the effects to out. now is the time of the
// event, own the log at that time. It never blocks and keeps no reference to own.
func (p *Partition) Step(now types.Millis, own *Own, ev Event, out *Effects) {
	switch ev := ev.(type) {
	case RecordShown:
		p.recordShown(now, own, ev, out)
	case SourceShown:
		if p.isDue(ev.Ticket, lookingUp) {
			p.sourceShown(now, own, ev.Source, out)
		}
	case SourceFailed:
		if p.isDue(ev.Ticket, lookingUp, comparing, probing, fetching, vouching) {
			p.sourceFailed(own, ev, out)
		}
	case Fetched:
		p.fetched(now, own, ev, out)
	case Vouched:
		if p.isDue(ev.Ticket, vouching) {
			p.vouched(own, ev.Yes, out)
		}
	case Probed:
		if p.isDue(ev.Ticket, probing) {
			p.probedBatch(own, ev, out)
		}
	case Proposed:
		if p.isDue(ev.Ticket, proposing) {
			p.proposalDone(now, own, ev.Applied, out)
		}
	case LogDone:
		if p.isDue(ev.Ticket, firstCutting, cutting, appending) {
			p.logDone(now, own, out)
		}
	case LogFailed:
		if p.isDue(ev.Ticket, firstCutting, cutting, appending) {
			p.logFailed(ev, out)
		}
	case BackoffOver:
		if p.isDue(ev.Ticket, backingOff) {
			p.begin(own, out)
		}
	case RetryNow:
		if p.phase == backingOff {
			p.attempt = 0
			p.begin(own, out)
		}
	case Tick:
		p.tick(now, out)
	case Refreshed:
		p.refreshed(now, own, ev.Source, out)
	case PolicyChanged:
		p.policy = ev.Policy
	}
}

// isDue reports whether an answer belongs to the outstanding question. It is the
// one place where late answers are dropped.
func (p *Partition) isDue(t Ticket, phases ...phase) bool {
	if t != p.ticket {
		return false
	}
	for _, ph := range phases {
		if p.phase == ph {
			return true
		}
	}
	return false
}

// ask moves to a phase that waits, and gives the ticket for its effect.
func (p *Partition) ask(ph phase) Ticket {
	p.ticket++
	p.phase = ph
	return p.ticket
}

// isActive reports whether the record asks this broker to copy.
func (p *Partition) isActive() bool {
	if p.rec == nil || !p.leading || p.rec.Mirror == nil || p.rec.Writable {
		return false
	}
	switch p.rec.Mirror.State {
	case meta.MirrorLogAlignment, meta.MirrorEpochFencing, meta.MirrorMirroring, meta.MirrorFailed:
		return true
	}
	return false
}

// isAdopted reports whether the source's list has been adopted in this start (R18).
func isAdopted(rec *meta.PartitionRecord) bool {
	return len(rec.Timelines) > 0 && rec.Mirror.SourceSeenAt != types.NoTimestamp
}

func (p *Partition) recordShown(now types.Millis, own *Own, ev RecordShown, out *Effects) {
	before := p.rec
	p.rec, p.leading, p.allFetched = ev.Record, ev.Leading, ev.AllFetched
	if before == nil || before.Mirror == nil || ev.Record == nil || ev.Record.Mirror == nil || before.Mirror.StartID != ev.Record.Mirror.StartID || !isAdopted(before) && isAdopted(ev.Record) {
		p.loadFacts() // an adoption may be a start's, made beside this machine
	}
	if !p.isActive() {
		p.stop(out)
		return
	}
	p.follower.SetLocalEpoch(p.rec.LeaderEpoch)
	switch {
	case p.phase == proposing:
		// Proposed follows, and with it what this record means (R8).
	case p.phase == idle, p.phase == aligning:
		p.begin(own, out)
	case before == nil || !sameSession(before, p.rec):
		p.endSession(out)
		p.begin(own, out)
	}
	_ = now
}

// sameSession reports whether a session that was begun under one record goes on under the other.
func sameSession(a, b *meta.PartitionRecord) bool {
	return a.Mirror != nil && b.Mirror != nil && a.Mirror.StartID == b.Mirror.StartID && a.Mirror.Name == b.Mirror.Name &&
		a.Timelines.Equal(b.Timelines) && isAdopted(a) == isAdopted(b)
}

// loadFacts takes over what the record knows of the source.
func (p *Partition) loadFacts() {
	p.facts = Facts{LeaderEpoch: types.NoLeaderEpoch, Start: types.NoOffset, End: types.NoOffset, SeenAt: types.NoTimestamp}
	p.lag, p.copied, p.givenUp, p.realignedAt, p.rounds = lagBook{}, false, givenUp{}, types.NoLeaderEpoch, rounds{}
	if p.rec != nil && p.rec.Mirror != nil {
		m := p.rec.Mirror
		p.facts = Facts{LeaderEpoch: m.SourceEpochMax, Start: m.SourceStart, End: m.SourceEnd, SeenAt: m.SourceSeenAt, Copied: m.Copied}
		p.copied = m.Copied
		if m.GivenUpFrom != nil {
			p.givenUp = givenUp{from: *m.GivenUpFrom, ok: true}
		}
	}
	p.persisted, p.contact = p.facts, p.facts.SeenAt
}

// stop ends everything: what is still on its way is stale.
func (p *Partition) stop(out *Effects) {
	p.endSession(out)
	p.ticket++
	p.phase, p.attempt, p.trouble = idle, 0, trouble{}
}

// endSession forgets the source's leader and list.
func (p *Partition) endSession(out *Effects) {
	if _, following := p.follower.Session(); following {
		p.follower.End()
		out.add(StopFetching{})
	}
	p.hasSource, p.restart, p.probed, p.doubting, p.list, p.vouch = false, false, false, false, nil, vouchFor{}
}

// begin goes on from whatever the record says: first cut, adoption, alignment, session.
func (p *Partition) begin(own *Own, out *Effects) {
	assert.That(p.isActive(), "I-90: begin on a partition that doesn't mirror here")
	if !isAdopted(p.rec) {
		p.lookUp(out)
		return
	}
	if p.oweFirstCut(own, out) {
		return
	}
	if p.mustAlign() {
		if p.aligned(out) {
			p.propose(ForMirroring, mirroring(p.rec, p.facts), out)
		}
		return
	}
	if !p.hasSource {
		p.lookUp(out)
		return
	}
	p.open(own, out)
}

// mustAlign reports whether LOG_ALIGNMENT is still to end: also where it was
// left because a first cut had failed.
func (p *Partition) mustAlign() bool {
	m := p.rec.Mirror
	if m.State != meta.MirrorFailed || m.Copied {
		return m.State == meta.MirrorLogAlignment
	}
	switch reason, _ := ReasonOf(m.Reason); reason {
	case VaultFull, TimelineUnknown, MetadataWentBack:
		return true
	}
	return false
}

// aligned reports whether LOG_ALIGNMENT may end: the ISR is large enough and
// every member has fetched in this leader epoch, and so has made its first cut (§6.2).
func (p *Partition) aligned(out *Effects) bool {
	ok, why := MayMirror(p.rec, p.allFetched)
	if ok {
		return true
	}
	if p.phase != aligning {
		out.add(Tell{Code: Waiting, Detail: why})
	}
	p.ticket++
	p.phase = aligning
	return false
}

// MayMirror reports whether LOG_ALIGNMENT may end, or why not (§6.2). fetched: every ISR
// member has fetched in the record's leader epoch.
func MayMirror(rec *meta.PartitionRecord, fetched bool) (bool, string) {
	if need := rec.MinISRNow(); len(rec.ISR) < need {
		return false, fmt.Sprintf("ISR %d/%d", len(rec.ISR), need)
	}
	if !fetched {
		return false, "an in-sync replica has not fetched in this leader epoch"
	}
	return true, ""
}

// oweFirstCut starts the first cut if this replica owes one (R19).
func (p *Partition) oweFirstCut(own *Own, out *Effects) bool {
	p.owesAll = false
	if p.policy.Rules.NoFirstCut {
		return false
	}
	owed := timeline.FirstCutUnder(p.policy.Rules.FirstCut, own.replica(), p.rec.Timelines, p.rec.LeaderEpoch)
	if !owed.WriteCheckpoint && owed.Kind != timeline.CutRefused {
		return false
	}
	switch owed.Kind {
	case timeline.CutRefused:
		p.fail(MetadataWentBack, owed.Why, out)
		return true
	case timeline.CutEverything:
		if !own.HasCheckpoint && !p.sourceCovers(own) {
			p.owesAll = true
			if !p.hasSource {
				p.lookUp(out)
				return true
			}
			p.fail(TimelineUnknown, owed.Why+", and the source doesn't have all that is held here", out)
			return true
		}
	}
	p.firstCut(own, owed, out)
	return true
}

// sourceCovers reports whether the source was seen to hold every offset held here.
func (p *Partition) sourceCovers(own *Own) bool {
	return p.hasSource && p.source.LogStart <= own.LogStart && p.source.LogEnd >= own.LogEnd
}

func (p *Partition) firstCut(own *Own, owed timeline.Owed, out *Effects) {
	t := p.ask(firstCutting)
	switch owed.Kind {
	case timeline.CutAt:
		at, anew := owed.At, p.mustCopyAnew(own, owed.At)
		if anew {
			probeAnew.Reached()
			at = own.LogStart
		}
		out.add(Cut{Ticket: t, At: at, Cause: CauseTimeline, Anew: anew})
	case timeline.CutEverything:
		out.add(Cut{Ticket: t, At: own.LogStart, Cause: CauseTimeline})
	}
	out.add(SetCheckpoint{Ticket: t, Checkpoint: timeline.Checkpoint{List: p.rec.Timelines, LeaderEpoch: p.rec.LeaderEpoch}})
}

// replica is the log as the first cut looks at it.
func (o *Own) replica() timeline.Replica {
	return timeline.Replica{Applied: o.Checkpoint, HasApplied: o.HasCheckpoint, History: &o.History, LogStart: o.LogStart, LogEnd: o.LogEnd}
}

func (p *Partition) lookUp(out *Effects) { out.add(LookUp{Ticket: p.ask(lookingUp)}) }

// propose asks for one transaction on the partition record.
func (p *Partition) propose(purpose Purpose, rec meta.PartitionRecord, out *Effects) {
	p.proposed = purpose
	out.add(Propose{Ticket: p.ask(proposing), Purpose: purpose, Record: rec})
}

// proposalDone goes on after a transaction; RecordShown came before (R8).
func (p *Partition) proposalDone(now types.Millis, own *Own, applied bool, out *Effects) {
	if applied {
		p.applied(now, out)
	}
	if applied && p.goOn(own, out) {
		return
	}
	if !applied {
		// Someone else wrote first: what the record says now decides.
		p.endSession(out)
	}
	if p.trouble.reason != "" && p.proposed == ForFailure {
		p.backOff(out)
		return
	}
	p.begin(own, out)
}

// applied takes note of what a transaction has changed.
func (p *Partition) applied(now types.Millis, out *Effects) {
	switch p.proposed {
	case ForRealign:
		p.realignedAt = p.rec.LeaderEpoch
		out.add(Tell{Code: Realigned, Epoch: p.rec.LeaderEpoch, Detail: fmt.Sprintf("leader epoch %d before a cut", p.rec.LeaderEpoch)})
	case ForSeen:
		p.persisted = p.facts
	case ForAdoption:
		p.persisted, p.copied, p.realignedAt = p.facts, false, types.NoLeaderEpoch
		p.givenUp = givenUp{}
		if from := p.rec.Mirror.GivenUpFrom; from != nil {
			p.givenUp = givenUp{from: *from, ok: true}
		}
		p.facts.Copied, p.persisted.Copied = false, false
	}
	_ = now
}

// goOn continues a session after a transaction of its own.
func (p *Partition) goOn(own *Own, out *Effects) bool {
	if !p.hasSource || !p.list.Equal(p.rec.Timelines) {
		return false
	}
	switch p.proposed {
	case ForRealign:
		p.follower.SetRealigned()
		p.cutNow(own, out)
	case ForRaise:
		p.follower.SetLocalEpoch(p.rec.LeaderEpoch)
		p.fetch(own, out)
	case ForMirroring:
		if _, following := p.follower.Session(); !following {
			return false // the end of LOG_ALIGNMENT: the session is still to begin
		}
		p.trouble = trouble{}
		p.fetch(own, out)
	case ForSeen:
		p.next(p.facts.SeenAt, own, out)
	default:
		return false
	}
	return true
}

func (p *Partition) logDone(now types.Millis, own *Own, out *Effects) {
	switch p.phase {
	case firstCutting:
		if _, following := p.follower.Session(); following {
			p.endSession(out)
		}
		p.begin(own, out)
	case cutting:
		p.cutDone(own, out)
	case appending:
		p.appended(now, own, out)
	}
}
