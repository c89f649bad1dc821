package replica

import (
	"fmt"
	"math"

	"tidemark/internal/assert"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
)

var (
	probeRebase        = probe.New("replica: the leader's log start lies within its first batch")
	probeRestartWithin = probe.New("replica: the leader's first batch, with its log start, begins below a log that lies below that")
	probeNotVouched    = probe.New("replica: a log start that the leader doesn't vouch for")
)

// Session is one connection of a follower to one leader in one leader epoch.
// Another leader, another leader epoch or another source is another session.
type Session struct {
	// Generation distinguishes this session from every other one of the
	// partition's life in this process; the caller counts it up.
	Generation uint64
	// LeaderEpoch is the leader's epoch there, sent with each request. A batch of a
	// higher epoch is not the leader's to send (KAFKA-18723). -1 if the leader's
	// cluster doesn't say (Kafka below 2.1): then nothing bounds it.
	LeaderEpoch types.LeaderEpoch
	// LocalEpoch is, for a mirror, this cluster's leader epoch of the partition:
	// a batch above it needs a raise first (R21). For a follower of this cluster
	// it equals LeaderEpoch.
	LocalEpoch types.LeaderEpoch
	// RealignBeforeCut: a cut or restart needs a metadata transaction first (R20).
	// Mirror leaders set it; one transaction covers a session until its first
	// accepted fetch.
	RealignBeforeCut bool
}

// epochMax is the highest epoch that a batch of the session may have.
func (s *Session) epochMax() types.LeaderEpoch {
	if s.LeaderEpoch < 0 {
		return math.MaxInt32
	}
	return s.LeaderEpoch
}

// Rules names rules that a test switches off to see that its checks find it. The
// zero value has every rule on; nothing but tests sets it.
type Rules struct {
	TakeLate           bool // R13: an answer is taken whatever session and offset it was for
	CutToHighWatermark bool // R13: a divergence cuts to the high watermark
	OwnEndOnly         bool // R13: a divergence cuts where the answer's epoch ends here, whatever its end there
	IgnoreDivergence   bool // R13: no epoch comparison
}

// Follower follows one leader at a time. The zero value follows nobody.
type Follower struct {
	Rules Rules // for tests

	session   Session
	following bool
	realigned bool // the metadata transaction of R20 has been made for this session
	accepted  bool // an answer with data (or none, but agreeing) was accepted in this session
}

// Begin starts a session: every answer to an earlier one is stale from now on.
//
// Invariant I-85: generations rise strictly.
func (f *Follower) Begin(s Session) {
	assert.That(s.Generation > f.session.Generation, "I-85: session generation %d after %d", s.Generation, f.session.Generation)
	f.session, f.following, f.realigned, f.accepted = s, true, false, false
}

// End stops following; every answer still on its way is stale.
func (f *Follower) End() { f.following = false }

// Session gives the present session, false if there is none.
func (f *Follower) Session() (Session, bool) { return f.session, f.following }

// SetLocalEpoch takes note of a raised local leader epoch (R21); the session goes on.
func (f *Follower) SetLocalEpoch(e types.LeaderEpoch) { f.session.LocalEpoch = e }

// SetRealigned takes note of R20's transaction: cuts may follow until the first accepted fetch.
func (f *Follower) SetRealigned() { f.realigned = true }

// HasAccepted reports whether the session has had an accepted fetch.
func (f *Follower) HasAccepted() bool { return f.accepted }

// Next is the request to send for a log in this state.
func (f *Follower) Next(own *Log) Request {
	assert.That(f.following, "I-86: a request without a session")
	assert.That(own.LogStart <= own.LogEnd && own.HighWatermark <= own.LogEnd, "I-84: log %d-%d, high watermark %d", own.LogStart, own.LogEnd, own.HighWatermark)
	e, _ := own.LastEpoch()
	return Request{Generation: f.session.Generation, Offset: own.LogEnd, LastEpoch: e, LeaderEpoch: f.session.LeaderEpoch}
}

// Batch is what the follower needs of one received batch's header.
type Batch struct {
	// Base is the first offset, Next the last one plus 1.
	Base, Next types.Offset
	Epoch      types.LeaderEpoch
}

// Vouch says whether the leader's history reaches down to the asker's last epoch.
type Vouch int8

const (
	// VouchUnknown: the leader didn't say (the Kafka protocol has no field for it).
	VouchUnknown Vouch = iota
	// VouchYes: it does: what its log start passes left it by retention.
	VouchYes
	// VouchNo: the logs merely don't overlap.
	VouchNo
)

// Reply is what came back for a Request.
type Reply struct {
	To   Request
	Kind AnswerKind
	// Diverging is set for AnswerDiverging.
	Diverging EpochEnd
	// LogStart and HighWatermark are the leader's, -1 if it didn't say. For
	// AnswerOutOfRange the caller looks LogStart up (ListOffsets, earliest).
	LogStart, HighWatermark types.Offset
	// Batches are the whole batches received, in order. A trailing partial one is left out.
	Batches []Batch
	Vouch   Vouch
}

// VerdictKind is what a reply asks for.
type VerdictKind int8

const (
	// VerdictStale: the reply belongs to another session, epoch or offset
	// (KAFKA-18991). Nothing changes; send Next if no request is in flight.
	VerdictStale VerdictKind = iota
	// VerdictAccept: the logs agree below the offset. Carry out, in this order:
	// Rebase if set; RaiseLogStart if above the own log start (synced if not
	// Vouched, R13); append the first Append batches; HighWatermark.
	VerdictAccept
	// VerdictCut: Cut(At) by R1, then Next.
	VerdictCut
	// VerdictRestart: everything goes through R1 step 1, an empty log starts at At, then Next.
	VerdictRestart
	// VerdictRealign: R20's transaction first. Drop the reply; after success call
	// SetRealigned and send Next.
	VerdictRealign
	// VerdictRaise: R21's transaction first: the local leader epoch must reach
	// Epoch. Drop the reply; after success call SetLocalEpoch and send Next.
	VerdictRaise
	// VerdictVouch: ask the leader whether its history reaches down to Epoch
	// (OffsetForLeaderEpoch), set Reply.Vouch and receive the same reply again.
	VerdictVouch
	// VerdictEnd: the leader or its epoch isn't what the session believes: the
	// session is over, look up the leader anew.
	VerdictEnd
	// VerdictBroken: the reply contradicts the protocol (Why). Nothing changes; the session is over.
	VerdictBroken
)

// String is the kind as scripts and logs print it.
func (k VerdictKind) String() string {
	return [...]string{"stale", "accept", "cut", "restart", "realign", "raise", "vouch", "end", "broken"}[k]
}

// Verdict is what to do with a reply.
type Verdict struct {
	Kind VerdictKind
	// Why explains VerdictStale, VerdictEnd and VerdictBroken.
	Why string
	// At is where to cut or restart.
	At types.Offset
	// Epoch is for VerdictRaise and VerdictVouch.
	Epoch types.LeaderEpoch
	// For VerdictAccept, in the order to carry them out:

	// Rebase, if HasRebase: the log is empty and the leader's first batch begins
	// below its log end (a log start within a batch): restart at Rebase.
	HasRebase bool
	Rebase    types.Offset
	// RaiseLogStart is the log start to have before any append; Vouched is R28's
	// distinction: false sends what the log start passes to the vault.
	RaiseLogStart types.Offset
	Vouched       bool
	// Append is how many of the reply's batches to append, none of them above MaxEpoch.
	Append   int
	MaxEpoch types.LeaderEpoch
	// HighWatermark is the one to have afterwards, in this cluster only; a mirror
	// leader computes its own (R14) and ignores it.
	HighWatermark types.Offset
}

func stale(format string, args ...any) Verdict {
	return Verdict{Kind: VerdictStale, Why: fmt.Sprintf(format, args...)}
}

// Receive judges a reply against the log as it is now (R13).
func (f *Follower) Receive(own *Log, r Reply) Verdict {
	if v := f.checkCurrent(own, r.To); v.Why != "" {
		return v
	}
	if f.Rules.IgnoreDivergence && r.Kind == AnswerDiverging {
		r.Kind = AnswerData
	}
	switch r.Kind {
	case AnswerFenced, AnswerUnknownEpoch:
		return Verdict{Kind: VerdictEnd, Why: r.Kind.String()}
	case AnswerDiverging:
		if f.needsRealign() {
			return Verdict{Kind: VerdictRealign}
		}
		return Verdict{Kind: VerdictCut, At: f.cutPoint(own, r.Diverging)}
	case AnswerOutOfRange:
		if r.LogStart < 0 {
			return Verdict{Kind: VerdictEnd, Why: "out of range, and the leader's log start is not known"}
		}
		return f.restart(r.LogStart)
	}
	if beginsWithin(own, r) {
		probeRestartWithin.Reached()
		return f.restart(r.LogStart)
	}
	v := f.acceptData(own, r)
	f.accepted = f.accepted || v.Kind == VerdictAccept
	return v
}

func (f *Follower) restart(at types.Offset) Verdict {
	if f.needsRealign() {
		return Verdict{Kind: VerdictRealign}
	}
	return Verdict{Kind: VerdictRestart, At: at}
}

// beginsWithin reports whether the leader's log start passes all that we hold and lies within a
// batch that begins below our end: a divergence was answered with the log start, as the
// epochs of the leader begin there, and what we hold just below it isn't the leader's. An
// empty log at the log start takes the batch whole.
func beginsWithin(own *Log, r Reply) bool {
	if own.IsEmpty() || len(r.Batches) == 0 {
		return false
	}
	first := r.Batches[0]
	return first.Base < own.LogEnd && own.LogEnd <= r.LogStart && r.LogStart < first.Next
}

// needsRealign reports whether a cut must wait for R20's transaction. After an
// accepted fetch a new divergence needs a new one.
func (f *Follower) needsRealign() bool {
	return f.session.RealignBeforeCut && (!f.realigned || f.accepted)
}

// checkCurrent is the one place that drops answers which came too late.
func (f *Follower) checkCurrent(own *Log, to Request) Verdict {
	switch e, _ := own.LastEpoch(); {
	case !f.following:
		return stale("no session")
	case f.Rules.TakeLate:
		return Verdict{}
	case to.Generation != f.session.Generation:
		return stale("session %d, now %d", to.Generation, f.session.Generation)
	case to.LeaderEpoch != f.session.LeaderEpoch:
		return stale("leader epoch %d, now %d", to.LeaderEpoch, f.session.LeaderEpoch)
	case to.Offset != own.LogEnd:
		return stale("offset %d, log end now %d", to.Offset, own.LogEnd)
	case to.LastEpoch != e:
		return stale("last epoch %d, now %d", to.LastEpoch, e)
	}
	return Verdict{}
}

// CutPoint is where a divergence asks to cut (R13): the smaller of the own end
// of the largest own epoch not above the answer's, and the answer's end; never
// below the log start, never above the log end.
func CutPoint(own *Log, d EpochEnd) types.Offset {
	_, end := own.History.EndOffsetFor(d.Epoch, own.LogStart, own.LogEnd)
	return max(min(end, d.End, own.LogEnd), own.LogStart)
}

func (f *Follower) cutPoint(own *Log, d EpochEnd) types.Offset {
	switch {
	case f.Rules.CutToHighWatermark:
		return max(own.HighWatermark, own.LogStart)
	case f.Rules.OwnEndOnly:
		_, end := own.History.EndOffsetFor(d.Epoch, own.LogStart, own.LogEnd)
		return max(min(end, own.LogEnd), own.LogStart)
	}
	return CutPoint(own, d)
}

// acceptData judges an answer that agrees with the log.
func (f *Follower) acceptData(own *Log, r Reply) Verdict {
	v := Verdict{Kind: VerdictAccept, RaiseLogStart: own.LogStart, Vouched: true, MaxEpoch: min(f.session.epochMax(), f.session.LocalEpoch)}
	n, why := f.usable(own, r.Batches)
	if why != "" {
		return Verdict{Kind: VerdictBroken, Why: why}
	}
	for _, b := range r.Batches[:n] {
		if b.Epoch > f.session.LocalEpoch {
			v.Kind, v.Epoch = VerdictRaise, b.Epoch
		}
	}
	if v.Kind == VerdictRaise {
		return v
	}
	v.Append = n
	end := own.LogEnd
	if n > 0 {
		if base := r.Batches[0].Base; base < own.LogEnd {
			probeRebase.Reached()
			v.HasRebase, v.Rebase = true, base
		}
		end = r.Batches[n-1].Next
	}
	if r.LogStart > own.LogStart {
		v.RaiseLogStart = min(r.LogStart, own.LogEnd)
		vouch, known := vouched(own, r)
		if !known {
			e, _ := own.LastEpoch()
			return Verdict{Kind: VerdictVouch, Epoch: e}
		}
		if !vouch {
			probeNotVouched.Reached()
		}
		v.Vouched = vouch
	}
	v.HighWatermark = max(own.HighWatermark, min(r.HighWatermark, end))
	return v
}

// vouched reports whether what the leader's log start passes left the leader by
// retention (R28). It can only be in doubt if the log start passes everything
// we hold: otherwise the leader compared our last epoch with records of its own.
func vouched(own *Log, r Reply) (yes, known bool) {
	e, ok := own.LastEpoch()
	switch {
	case !ok || r.LogStart < own.LogEnd || r.Vouch == VouchYes:
		return true, true
	case len(r.Batches) > 0 && r.Batches[0].Epoch == e: // written behind what we hold, whatever is said of the rest
		return true, true
	case r.Vouch == VouchNo:
		return false, true
	}
	return false, false
}

// usable counts the leading batches that may be appended: offsets rise, epochs
// don't fall and don't exceed the session's (KAFKA-18723). why is set if already the first can't be.
func (f *Follower) usable(own *Log, batches []Batch) (n int, why string) {
	next := own.LogEnd
	last, _ := own.LastEpoch()
	for i, b := range batches {
		straddles := i == 0 && own.IsEmpty() && b.Base < next && b.Next > next
		switch {
		case b.Base < next && !straddles:
			why = fmt.Sprintf("batch at %d, expected %d or above", b.Base, next)
		case b.Next <= b.Base:
			why = fmt.Sprintf("batch at %d ends at %d", b.Base, b.Next)
		case b.Epoch < last:
			why = fmt.Sprintf("batch at %d has epoch %d after %d", b.Base, b.Epoch, last)
		case b.Epoch > f.session.epochMax():
			why = fmt.Sprintf("batch at %d has epoch %d above the leader's %d", b.Base, b.Epoch, f.session.LeaderEpoch)
		}
		if why != "" {
			if i > 0 {
				why = ""
			}
			return i, why
		}
		next, last = b.Next, b.Epoch
	}
	return len(batches), ""
}
