package mirror

import (
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Status is what mirror status shows of one partition.
type Status struct {
	// State is one of meta's Mirror… constants; empty before the first record.
	State string
	// Reason and Detail say why it isn't moving; empty if it is.
	Reason Reason
	Detail string
	// Phase says what it is doing right now, for people.
	Phase string
	// Facts are the source's as last seen.
	Facts Facts
	Lag   LagNow
}

// Status gives the present status.
func (p *Partition) Status(now types.Millis, own *Own) Status {
	s := Status{Reason: p.trouble.reason, Detail: p.trouble.detail, Phase: phaseNames[p.phase], Facts: p.facts, Lag: p.lag.now(now, own.LogEnd)}
	if p.rec == nil || p.rec.Mirror == nil {
		return s
	}
	s.State = p.rec.Mirror.State
	if p.phase == proposing && p.proposed == ForRaise {
		s.State = meta.MirrorEpochFencing // the moment of R21
	}
	if s.Reason == "" && p.rec.Mirror.Reason != "" {
		s.Reason, s.Detail = ReasonOf(p.rec.Mirror.Reason)
	}
	return s
}
