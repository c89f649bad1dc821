package mirror

import (
	"errors"

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

// ErrNoEpoch is returned when no leader epoch is left above the present one.
var ErrNoEpoch = errors.New("the leader epoch can't rise any more")

// StartRequest is what a start writes into the partition record.
type StartRequest struct {
	Mirror  string
	StartID string
	// Own is the leader's log, to see whether records of its own are there.
	Own *Own
}

// NewMirrored is the mirror part of the record of a partition that is made for
// a mirror: read-only, no list until it is adopted (R25).
func NewMirrored(mirror, startID string) *meta.MirrorState { return nil }

// Start makes a partition a mirror again, or for the first time (R25). One
// that is writable and holds records is refused with PlanRequired (R24).
func Start(rec *meta.PartitionRecord, r StartRequest) (meta.PartitionRecord, error) {
	return meta.PartitionRecord{}, errors.ErrUnsupported
}

// Pause stops the copying; the partition stays read-only.
func Pause(rec *meta.PartitionRecord) (meta.PartitionRecord, error) {
	return meta.PartitionRecord{}, errors.ErrUnsupported
}

// Resume goes on after Pause, or tries again after FAILED.
func Resume(rec *meta.PartitionRecord) (meta.PartitionRecord, error) {
	return meta.PartitionRecord{}, errors.ErrUnsupported
}

// PromoteRequest is a promotion's part that doesn't come from the record.
type PromoteRequest struct {
	// StartID is the start that the request ends (R23); empty means the present one.
	StartID string
	// TimelineID is a fresh random id.
	TimelineID string
	// Step is mirror.promotion.step.
	Step int32
	// Now is for the record of the promotion.
	Now types.Millis
	// Own is the promoting leader's log, its fetcher stopped.
	Own *Own
	// Facts are what the leader's machine last saw of the source; nil if it saw
	// nothing, then the record's facts count.
	Facts *Facts
}

// Facts are the source's as last seen.
type Facts struct {
	LeaderEpoch types.LeaderEpoch
	Start, End  types.Offset
	SeenAt      types.Millis
}

// PromoteOutcome says what a promotion did.
type PromoteOutcome int8

const (
	// Promoted: the record given is to be committed.
	Promoted PromoteOutcome = iota
	// AlreadyPromoted: this start was promoted before; nothing is to be written.
	AlreadyPromoted
)

// Promotion is what a promotion writes or found.
type Promotion struct {
	Outcome PromoteOutcome
	// Record is the partition record to commit, for Promoted.
	Record meta.PartitionRecord
	// Made is the promotion's own record, new or found.
	Made meta.PromotionRecord
	// MirrorAgain: the partition has become a mirror again since (AlreadyPromoted).
	MirrorAgain string
}

// Promote ends the mirroring of a partition and makes it writable (R23). It is
// pure and needs nothing of the machine but Facts, so that a thousand
// partitions are promoted by a thousand calls and as few commits as the store takes.
func Promote(rec *meta.PartitionRecord, r PromoteRequest) (Promotion, error) {
	return Promotion{}, errors.ErrUnsupported
}
