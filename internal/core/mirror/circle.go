package mirror

import (
	"fmt"

	"tidemark/internal/core/types"
)

// roundsMost is how many rounds (a cut, and records copied behind it) may come
// to nothing in one leader epoch of the source.
const roundsMost = 3

// rounds counts cuts after which copying did not get beyond where the log was
// cut before. A leader's log only grows in its epoch: one that gives records and
// then asks to cut them has an epoch history that contradicts its batches, as
// KAFKA-10706 left them. Followed to the letter it has the same offsets cut and
// fetched for ever, each time with R20's transaction.
type rounds struct {
	epoch  types.LeaderEpoch // the source's
	at     types.Offset      // the highest cut
	end    types.Offset      // the highest log end before one
	n      int
	copied bool // records came since the last cut
}

// cutting takes note of a cut at an offset of a log that ended at end.
func (r *rounds) cutting(epoch types.LeaderEpoch, at, end types.Offset) {
	if !r.covers(epoch, at, end) {
		*r = rounds{epoch: epoch, at: at, end: end, n: 1}
		return
	}
	if r.copied {
		r.n++
	}
	r.end, r.copied = max(r.end, end), false
}

// covers reports whether a cut belongs to those counted: what was kept or copied
// since begins them anew. A source that shows no leader epochs may have had an
// election in between; there the log end must stand still, too.
func (r *rounds) covers(epoch types.LeaderEpoch, at, end types.Offset) bool {
	return r.n > 0 && epoch == r.epoch && at <= r.at && (epoch >= 0 || end <= r.end)
}

// isCircle reports whether another cut would only begin one more round.
func (r *rounds) isCircle(epoch types.LeaderEpoch, at, end types.Offset) bool {
	return r.n >= roundsMost && r.copied && r.covers(epoch, at, end)
}

// mayForgetAttempts reports whether records up to end are progress, so that the
// next backoff is a first one again.
func (r *rounds) mayForgetAttempts(end types.Offset) bool { return r.n < roundsMost || end > r.end }

// cutAt is where the cut, or the restart, that is due would leave the log.
func (p *Partition) cutAt() types.Offset {
	if p.restart {
		return p.restartAt
	}
	return p.look.LogEnd
}

// breakCircle touches no more data where a cut would only begin another round.
// It fails first. Later tries ask whether the source still holds the last batch
// that it wants cut: only one that doesn't tells a story that fits together.
func (p *Partition) breakCircle(own *Own, out *Effects) bool {
	if p.policy.Rules.NoRounds || !p.rounds.isCircle(p.source.LeaderEpoch, p.cutAt(), own.LogEnd) {
		return false
	}
	if p.trouble.reason != SourceInconsistent {
		p.failCircle(own, out)
		return true
	}
	p.doubting = true
	p.probe(own.LogEnd, out)
	return true
}

func (p *Partition) failCircle(own *Own, out *Effects) {
	asks := fmt.Sprintf("to cut them at %d, where epoch %d ends", p.cutAt(), p.answer.Epoch)
	if p.restart {
		asks = fmt.Sprintf("to begin anew at %d", p.restartAt)
	}
	p.failWith(trouble{reason: SourceInconsistent, from: p.cutAt(), to: own.LogEnd, detail: fmt.Sprintf(
		"%d times in its leader epoch %d the source gave records up to %d and then asked %s: its epoch history contradicts its batches",
		p.rounds.n, p.source.LeaderEpoch, own.LogEnd, asks)}, out)
}

// doubted goes on after breakCircle's question. That a compacted topic lacks the
// batch says nothing; then another leader epoch at the source must come.
func (p *Partition) doubted(own *Own, r ProbeResult, out *Effects) {
	p.doubting = false
	if r == ProbeSame || r == ProbeMissing && p.policy.Compacted {
		p.failCircle(own, out)
		return
	}
	p.rounds.copied = false // this cut is none of the circle's
	p.cutNow(own, out)
}
