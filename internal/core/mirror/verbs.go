package mirror

import (
	"fmt"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Refusal is a request that changes nothing, with the reason to tell.
type Refusal struct {
	Reason Reason
	Detail string
}

// Error gives reason and detail.
func (e *Refusal) Error() string { return string(e.Reason) + ": " + e.Detail }

// StartRequest is what a start writes into the partition record.
type StartRequest struct {
	Mirror  string
	StartID string
	// Own is the leader's log, to see whether records of its own are there.
	Own *Own
	// Consented: an operator's plan covers what the start takes (R24).
	Consented bool
	// PlanID is the preview's that the operator quotes, "" for none; Rollback gives
	// up what this cluster was promoted to (R24).
	PlanID   string
	Rollback bool
	// CountBegun: every program of the cluster knows how often a partition was begun anew in one start.
	CountBegun bool
}

// NewMirrored is the mirror part of the record of a partition that is made for a
// mirror: read-only, and without a list until the source's is adopted (R25).
func NewMirrored(mirror, startID string) *meta.MirrorState {
	return &meta.MirrorState{
		Name: mirror, State: meta.MirrorLogAlignment, StartID: startID,
		SourceEpochMax: types.NoLeaderEpoch, SourceStart: types.NoOffset, SourceEnd: types.NoOffset, SourceSeenAt: types.NoTimestamp,
	}
}

// Start makes a partition a mirror, or points a mirror elsewhere (R25). What the
// source says is adopted later, by the leader's machine. One that is writable
// and holds records is refused with PlanRequired unless a preview's plan covers it (R24).
func Start(rec *meta.PartitionRecord, r StartRequest) (meta.PartitionRecord, error) {
	if rec.Mirror != nil && !rec.Writable && rec.Mirror.StartID == r.StartID {
		return *rec, nil
	}
	if rec.Writable && !r.Own.IsEmpty() && !r.Consented {
		return meta.PartitionRecord{}, &Refusal{PlanRequired, fmt.Sprintf("the partition is writable and holds records %d-%d of its own", r.Own.LogStart, r.Own.LogEnd-1)}
	}
	out := rec.Clone()
	out.Mirror = NewMirrored(r.Mirror, r.StartID)
	out.Writable = false
	out.LeaderEpoch++
	checkChange(rec, &out)
	return out, nil
}

// Repoint starts a partition that mirrors, or was never written, in one
// transaction (R25): it has nothing to fence, so the look at the source and the
// adoption go together. A refusal changes nothing.
func Repoint(rec *meta.PartitionRecord, r StartRequest, pol Policy, s Source, now types.Millis) (meta.PartitionRecord, Adoption) {
	fresh := rec.Clone()
	fresh.Mirror = NewMirrored(r.Mirror, r.StartID)
	if refusal := Identify(&fresh, pol, s); refusal.Reason != "" {
		return *rec, Adoption{Refused: refusal}
	}
	return Adopt(&fresh, pol, s, r.Own, now)
}

// Pause stops the copying; the partition stays read-only.
func Pause(rec *meta.PartitionRecord) (meta.PartitionRecord, error) {
	if err := mustMirror(rec); err != nil {
		return meta.PartitionRecord{}, err
	}
	out := rec.Clone()
	out.Mirror.State = meta.MirrorPaused
	return out, nil
}

// Resume goes on after Pause, or tries again after FAILED. A partition that has
// not adopted its source's list goes on where it was: LOG_ALIGNMENT.
func Resume(rec *meta.PartitionRecord) (meta.PartitionRecord, error) {
	if err := mustMirror(rec); err != nil {
		return meta.PartitionRecord{}, err
	}
	out := rec.Clone()
	if s := rec.Mirror.State; s == meta.MirrorMirroring || s == meta.MirrorLogAlignment {
		return out, nil
	}
	out.Mirror.State, out.Mirror.Reason = meta.MirrorMirroring, ""
	if !isAdopted(rec) {
		out.Mirror.State = meta.MirrorLogAlignment
	}
	return out, nil
}

func mustMirror(rec *meta.PartitionRecord) error {
	if !rec.IsMirror() {
		return &Refusal{NotMirror, "the partition is not a mirror"}
	}
	return nil
}
