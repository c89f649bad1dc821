package mirror

import (
	"fmt"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// A start on a partition that exists goes (R25):
//
//	look, Judge                     a refusal here changes nothing
//	Fence, one transaction          a partition that clients write to; state STARTING
//	look again, Judge again         in the fenced epoch: the log end no longer moves
//	AdoptStart or GoBack            one transaction; nothing was cut before
//
// A partition that mirrors, or that was never written, needs no fence: Judge and
// AdoptStart go together. One that a switchover has closed is closed already, and where the
// start is refused it stays so (docs/adr/0034): MayAdopt.

// Judge says whether a start may go on with what a look at the source showed. A
// Refusal changes nothing.
func Judge(rec *meta.PartitionRecord, r StartRequest, pol Policy, s Source, plan *Plan) Refusal {
	fresh := startingFrom(rec, r)
	if refusal := Identify(&fresh, pol, s); refusal.Reason != "" {
		return refusal
	}
	if refusal := s.Mirrored.beyond(&fresh, pol, &s, plan.LogEnd); refusal.Reason != "" {
		return refusal
	}
	if err := plan.Theirs.Validate(); err != nil {
		return Refusal{CorruptSource, err.Error()}
	}
	return plan.Consent(rec, r, pol.Rules)
}

// startingFrom is the record with a fresh mirror part for the start. It remembers
// what R24 asks about, and, where the same start was abandoned or taken back on this
// partition before, the highest epoch that it has seen at the source (I-57), and how often it was begun (I-370).
func startingFrom(rec *meta.PartitionRecord, r StartRequest) meta.PartitionRecord {
	out := rec.Clone()
	wasWritable := rec.Writable || rec.Fence != nil || rec.Mirror != nil && rec.Mirror.WasWritable
	out.Mirror = NewMirrored(r.Mirror, r.StartID)
	out.Mirror.PlanID, out.Mirror.Rollback, out.Mirror.WasWritable = r.PlanID, r.Rollback, wasWritable
	if rec.Mirror != nil && rec.Mirror.StartID == r.StartID {
		out.Mirror.SourceEpochMax = rec.Mirror.SourceEpochMax
		if out.Mirror.Begun = rec.Mirror.Begun; rec.Writable && r.CountBegun {
			out.Mirror.Begun++
		}
	}
	out.Fence = nil
	return out
}

// NeedsFence reports whether a start must first close the partition to clients' writes.
func NeedsFence(rec *meta.PartitionRecord) bool { return rec.Writable }

// MayAdopt refuses a start's adoption where the log end that it was judged by may still
// move: clients may write again, or in a partition that a switchover has closed open
// transactions want their markers (docs/adr/0028). A Refusal changes nothing.
func MayAdopt(rec *meta.PartitionRecord, open int) Refusal {
	switch {
	case rec.Writable:
		return Refusal{StaleRequest, "clients may write to it again since the first look; the same command closes it"}
	case rec.Fence != nil && open > 0:
		return Refusal{AlreadyFenced, fmt.Sprintf("it is closed for a switchover to cluster %s, and has %d transactions open that end first; then the same command goes on", rec.Fence.ClusterID, open)}
	}
	return Refusal{}
}

// FenceForStart closes the partition for a start (R25): read-only in a new leader epoch.
func FenceForStart(rec *meta.PartitionRecord, r StartRequest) meta.PartitionRecord {
	out := startingFrom(rec, r)
	out.Writable = false
	out.LeaderEpoch++
	out.Mirror.State = meta.MirrorStarting
	checkChange(rec, &out)
	return out
}

// HasStarted reports whether a partition mirrors by a start, its source's list
// adopted: another run of the same start, on a broker that took it over, has nothing to
// do there.
func HasStarted(rec *meta.PartitionRecord, startID string) bool {
	return rec.IsMirror() && rec.Mirror.StartID == startID && rec.Mirror.State != meta.MirrorStarting && isAdopted(rec)
}

// AdoptStart makes the record of the adoption that a start leads to, once Judge
// has let it go on. It keeps the list before it, for Abandon; adopted once more, that would
// be the source's own.
func AdoptStart(rec *meta.PartitionRecord, r StartRequest, pol Policy, s Source, own *Own, now types.Millis) (meta.PartitionRecord, Adoption) {
	if HasStarted(rec, r.StartID) {
		return *rec, Adoption{}
	}
	from := *rec
	if rec.Mirror == nil || rec.Mirror.StartID != r.StartID || rec.Mirror.State != meta.MirrorStarting {
		from = startingFrom(rec, r)
	} else {
		// The same start may have been ordered again since the fence: what was judged is
		// this order's plan, and so the adoption quotes that (R24).
		from = rec.Clone()
		from.Mirror.PlanID, from.Mirror.Rollback = r.PlanID, r.Rollback
	}
	pol.Consented = r.StartID
	out, a := Adopt(&from, pol, s, own, now)
	if a.Refused.Reason != "" {
		return *rec, a
	}
	out.Mirror.Before, out.Mirror.EndBefore = rec.Timelines.Clone(), own.LogEnd
	checkChange(rec, &out)
	return out, a
}

// GoBack ends a start that was refused at the second look, or whose operator
// took it back before the adoption: writable again, in a new epoch, nothing cut (R25).
func GoBack(rec *meta.PartitionRecord, r Refusal) (meta.PartitionRecord, error) {
	if rec.Mirror == nil || rec.Writable || rec.Mirror.State != meta.MirrorStarting {
		return meta.PartitionRecord{}, &Refusal{NothingToAbandon, "no start is under way"}
	}
	return goBack(rec, r), nil
}

// AbandonRequest is what an abandon needs beside the record.
type AbandonRequest struct {
	// TimelineID is a fresh random id; Step is mirror.promotion.step, 0 the default.
	TimelineID string
	Step       int32
	Own        *Own
}

// Abandonable refuses an abandon that comes too late, or has nothing to take back.
func Abandonable(rec *meta.PartitionRecord) error {
	switch {
	case !rec.IsMirror() || len(rec.Mirror.Before) == 0 && !rec.Mirror.Copied:
		return &Refusal{NothingToAbandon, "no start of an existing partition is under way"}
	case len(rec.Mirror.Before) == 0 || rec.Mirror.Copied:
		return &Refusal{TooLate, "records of the new source have been accepted since the adoption: fail over instead"}
	}
	return nil
}

// MayGoBack reports whether the start of a mirror can still be taken back, by GoBack
// or Abandon: the partition would be written again, with the records that it had.
func MayGoBack(rec *meta.PartitionRecord) bool {
	return rec.IsMirror() && (rec.Mirror.State == meta.MirrorStarting || Abandonable(rec) == nil)
}

// Abandoned is the reason of a partition whose start was taken back.
const Abandoned = "abandoned"

// Abandon takes a started failback back before its first accepted fetch (DESIGN
// §6.4): one transaction with the list before the adoption and an own entry at the log
// end. It writes no promotion record. A leader that has made its first cut reads
// the tail back from its vault before; Own is the log after that.
func Abandon(rec *meta.PartitionRecord, r AbandonRequest) (meta.PartitionRecord, error) {
	if err := Abandonable(rec); err != nil {
		return meta.PartitionRecord{}, err
	}
	seen := []types.LeaderEpoch{rec.LeaderEpoch, rec.Mirror.SourceEpochMax}
	for _, l := range []timeline.List{rec.Timelines, rec.Mirror.Before} {
		if e, ok := l.Last(); ok {
			seen = append(seen, e.FirstEpoch)
		}
	}
	if e, ok := r.Own.History.Latest(); ok {
		seen = append(seen, e.Epoch)
	}
	if r.Step == 0 {
		r.Step = DefaultPromotionStep
	}
	epoch, err := timeline.PromotedEpoch(r.Step, seen...)
	if err != nil {
		return meta.PartitionRecord{}, fmt.Errorf("abandon: %w", err)
	}
	out := rec.Clone()
	out.Timelines, err = rec.Mirror.Before.Extend(timeline.Entry{ID: r.TimelineID, FirstEpoch: epoch, FirstOffset: r.Own.LogEnd})
	if err != nil {
		return meta.PartitionRecord{}, fmt.Errorf("abandon: %w", err)
	}
	out.OwnTimelines = append(out.OwnTimelines, r.TimelineID)
	out.LeaderEpoch, out.Writable = epoch, true
	out.Mirror.State, out.Mirror.Reason = meta.MirrorStopped, Abandoned
	forgetStart(out.Mirror)
	checkChange(rec, &out)
	return out, nil
}

// BackTo is the timeline checkpoint that a leader syncs before it reads back what
// its first cut took, for an abandon. The records belong to the list before the
// adoption: under the adopted one's checkpoint the next first cut (R19) would take those of a
// timeline that this cluster had made once more, and a crash would leave records
// that the checkpoint's list gives to another timeline. What the first cut has left
// is of both lists.
func BackTo(rec *meta.PartitionRecord) timeline.Checkpoint {
	return timeline.Checkpoint{List: rec.Mirror.Before.Clone(), LeaderEpoch: rec.LeaderEpoch}
}

// forgetStart drops what only a start under way needs.
func forgetStart(m *meta.MirrorState) {
	m.GivenUpFrom, m.Before, m.EndBefore, m.PlanID, m.Rollback, m.WasWritable, m.GapAccepted = nil, nil, 0, "", false, false, false
}

// AcceptGap lets a partition that stands at a gap go on behind it, once (R28).
func AcceptGap(rec *meta.PartitionRecord) (meta.PartitionRecord, error) {
	if err := mustMirror(rec); err != nil {
		return meta.PartitionRecord{}, err
	}
	if reason, _ := ReasonOf(rec.Mirror.Reason); rec.Mirror.State != meta.MirrorFailed || reason != SourceGap {
		return meta.PartitionRecord{}, &Refusal{NoGap, "it does not stand at a gap"}
	}
	out := rec.Clone()
	out.Mirror.GapAccepted = true
	return out, nil
}
