package mirror

import (
	"fmt"
	"strings"

	"tidemark/internal/core/meta"
)

// isLasting reports whether a reason is written into the record as FAILED. The
// others pass by themselves and would only cost transactions: with the source
// away, every partition has one.
func (r Reason) isLasting() bool {
	switch r {
	case TopicIDMismatch, OtherCluster, SourceRewritten, SourceEpochRegressed, SourceInconsistent, SourceGap, SourceTopicGone, UnrelatedLogs,
		AheadOfSource, PlanRequired, MirrorLoop, VaultFull, TimelineUnknown, MetadataWentBack, SourceTooOld:
		return true
	}
	return false
}

func (p *Partition) fail(r Reason, detail string, out *Effects) {
	p.failWith(trouble{reason: r, detail: detail}, out)
}

// failWith ends the session, tells, writes FAILED if the reason lasts and isn't
// written yet, and tries again later by itself.
func (p *Partition) failWith(t trouble, out *Effects) {
	p.endSession(out)
	changed := t != p.trouble
	p.trouble = t
	if t.reason == SourceEpochRegressed && p.regressed < regressedInsists {
		// Metadata of a broker that lags may show it once.
		p.backOff(out)
		return
	}
	if !t.reason.isLasting() {
		if changed && t.reason != SourceLeaderMoved {
			out.add(Tell{Code: SourceGone, Reason: t.reason, Detail: t.detail})
		}
		p.backOff(out)
		return
	}
	text := t.text()
	if m := p.rec.Mirror; m.State == meta.MirrorFailed && m.Reason == text {
		p.backOff(out)
		return
	}
	out.add(Tell{Code: Failed, Reason: t.reason, Detail: t.detail, From: t.from, To: t.to})
	p.propose(ForFailure, failed(p.rec, text, p.facts), out)
}

// regressedInsists is how many looks in a row must show a lower leader epoch
// before it counts as what the source insists on (R26).
const regressedInsists = 3

// text is the reason as the record keeps it.
func (t trouble) text() string {
	if t.detail == "" {
		return string(t.reason)
	}
	return fmt.Sprintf("%s: %s", t.reason, t.detail)
}

// ReasonOf takes the reason out of a record's text.
func ReasonOf(text string) (Reason, string) {
	r, detail, _ := strings.Cut(text, ": ")
	return Reason(r), detail
}

// backOff waits before the next try.
func (p *Partition) backOff(out *Effects) {
	p.attempt++
	out.add(Backoff{Ticket: p.ask(backingOff), Attempt: p.attempt, Reason: p.trouble.reason})
}

func (p *Partition) sourceFailed(own *Own, ev SourceFailed, out *Effects) {
	p.failWith(trouble{reason: ev.Reason, detail: ev.Detail}, out)
	_ = own
}

// logFailed: nothing after the failed effect was done. R1 is repeatable, so the
// next try begins at the beginning.
func (p *Partition) logFailed(ev LogFailed, out *Effects) {
	p.failWith(trouble{reason: ev.Reason, detail: ev.Detail}, out)
}
