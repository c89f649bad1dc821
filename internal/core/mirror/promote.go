package mirror

import (
	"fmt"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// PromoteRequest is a promotion's part that doesn't come from the record.
type PromoteRequest struct {
	// StartID is the start that the request ends (R23); empty means the present one.
	StartID string
	// TimelineID is a fresh random id.
	TimelineID string
	// Step is mirror.promotion.step; 0 means the default.
	Step int32
	// Now is for the record of the promotion.
	Now types.Millis
	// Own is the promoting leader's log, its fetcher stopped.
	Own *Own
	// At, if not nil, is where a consistent cut promotes the partition: what lies
	// above goes to the vault with the first cut of each replica (R19), as the entry of the new
	// timeline begins there.
	At *types.Offset
	// Compacted: the operator was told that At lies below what compaction has reached.
	Compacted bool
	// Facts are what the leader's machine last saw of the source; nil if there is no
	// machine, then the record's facts count.
	Facts *Facts
	// TellsMadeAgain: the cluster's records may say so (meta.LevelAttempts).
	TellsMadeAgain bool
	// MissingMs is the age of the oldest source record that the log lacks, 0 if that is not known.
	MissingMs types.Millis
}

// Facts are the source's as last seen; numbers below 0 stand for "never".
type Facts struct {
	LeaderEpoch types.LeaderEpoch
	Start, End  types.Offset
	SeenAt      types.Millis
	// Copied: a fetch has been accepted since the adoption.
	Copied bool
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
	// MirrorAgain is the start id under which the partition has become a mirror
	// again since (AlreadyPromoted), empty if it has not.
	MirrorAgain string
	// OnLeaderOnly, if From < To: records above the high watermark that no other
	// in-sync replica was known to have; they are kept (R23).
	OnLeaderOnlyFrom, OnLeaderOnlyTo types.Offset
}

// Promote ends the mirroring of a partition and makes it writable (R23). It is
// pure and needs nothing of the machine but Facts, so that a thousand
// partitions are promoted by a thousand calls and as few commits as the store
// takes. A *Refusal changes nothing.
//
// The caller stops the fetcher first (the machine, shown the STOPPED record,
// does nothing any more), reads Own, commits Record with R7's compares, and lets
// the leader assign its epoch (R3) and abort open transactions before any client write.
func Promote(rec *meta.PartitionRecord, r PromoteRequest) (Promotion, error) {
	if done, ok := findPromotion(rec, r.StartID); ok {
		return done, nil
	}
	if err := promotable(rec, r); err != nil {
		return Promotion{}, err
	}
	f := r.Facts
	if f == nil {
		f = recordFacts(rec.Mirror)
	}
	made, err := promotionRecord(rec, r, *f)
	if err != nil {
		return Promotion{}, err
	}
	if r.At != nil {
		checkPromotedAt(*r.At, &made)
	}
	out := rec.Clone()
	out.Timelines, err = rec.Timelines.Extend(timeline.Entry{ID: r.TimelineID, FirstEpoch: made.PromotedEpoch, FirstOffset: made.LogEnd})
	if err != nil {
		return Promotion{}, fmt.Errorf("promotion: %w", err)
	}
	out.LeaderEpoch, out.Writable = made.PromotedEpoch, true
	out.Mirror.State, out.Mirror.Reason = meta.MirrorStopped, ""
	forgetStart(out.Mirror)
	out.Promotions = append(out.Promotions, made)
	checkChange(rec, &out)
	return Promotion{Record: out, Made: made, OnLeaderOnlyFrom: min(made.HighWatermark, made.LogEnd), OnLeaderOnlyTo: made.LogEnd}, nil
}

// MadeAgain reports that a mirror's partition has found the source's topic to be another one
// of the same name: what that one holds isn't here.
func MadeAgain(m *meta.MirrorState) bool {
	r, _ := ReasonOf(m.Reason)
	return r == TopicIDMismatch
}

// checkPromotedAt states that a promotion at a consistent cut ends there.
func checkPromotedAt(at types.Offset, made *meta.PromotionRecord) {
	// Invariant I-341: a promotion at a consistent cut takes nothing from above it.
	assert.That(made.LogEnd == at && made.HighWatermark <= at, "I-341: promoted at %d, high watermark %d, for a cut at %d", made.LogEnd, made.HighWatermark, at)
}

// findPromotion finds the promotion of a start that was done before.
func findPromotion(rec *meta.PartitionRecord, startID string) (Promotion, bool) {
	if startID == "" && rec.Writable && len(rec.Promotions) > 0 {
		return Promotion{Outcome: AlreadyPromoted, Made: rec.Promotions[len(rec.Promotions)-1]}, true
	}
	for _, made := range rec.Promotions {
		if made.StartID != startID || startID == "" {
			continue
		}
		p := Promotion{Outcome: AlreadyPromoted, Made: made}
		if !rec.Writable && rec.Mirror != nil && rec.Mirror.StartID != startID {
			p.MirrorAgain = rec.Mirror.StartID
		}
		return p, true
	}
	return Promotion{}, false
}

// Promotable refuses what could not be promoted as it is held now: what is no mirror of
// this start, or still owes the cut that the start's timelines ask for. What such a log
// holds is not what a promotion will find in it.
func Promotable(rec *meta.PartitionRecord, startID string, own *Own) error {
	return promotable(rec, PromoteRequest{StartID: startID, Own: own})
}

// promotable refuses what R23 and R19 forbid.
func promotable(rec *meta.PartitionRecord, r PromoteRequest) error {
	switch {
	case !rec.IsMirror(), rec.Mirror.State == meta.MirrorStarting:
		return &Refusal{NotPromoted, "the partition is not a mirror"}
	case r.StartID != "" && r.StartID != rec.Mirror.StartID:
		return &Refusal{StaleRequest, fmt.Sprintf("the request ends start %s, the present start is %s", r.StartID, rec.Mirror.StartID)}
	}
	if owed := timeline.FirstCut(r.Own.replica(), rec.Timelines, rec.LeaderEpoch); owed.Kind != timeline.CutNothing {
		return &Refusal{FirstCutOwed, "this replica has not made its first cut yet; try again"}
	}
	if r.At != nil && (*r.At > r.Own.LogEnd || *r.At < r.Own.LogStart) {
		return &Refusal{CutOutOfReach, fmt.Sprintf("the consistent cut is at offset %d and this replica holds %d to %d: have the replica lead that the cut was found on, or fail over without --consistent",
			*r.At, r.Own.LogStart, r.Own.LogEnd-1)}
	}
	if r.At != nil && !r.Compacted {
		if below := BelowCompaction(*r.At, r.Own.LogEnd, r.Own.Cleaned); below != nil {
			below.Detail += ": fail over without --consistent"
			return below
		}
	}
	return nil
}

func promotionRecord(rec *meta.PartitionRecord, r PromoteRequest, f Facts) (meta.PromotionRecord, error) {
	step := r.Step
	if step == 0 {
		step = DefaultPromotionStep
	}
	kept := r.Own.Log
	endBefore := types.Offset(0)
	if r.At != nil && *r.At < kept.LogEnd {
		endBefore = kept.LogEnd
		kept = kept.CutTo(*r.At)
	}
	lastRecord, _ := kept.LastEpoch()
	lastEntry, lastStart := types.NoLeaderEpoch, types.NoLeaderEpoch
	if e, ok := r.Own.History.Latest(); ok {
		lastEntry = e.Epoch
	}
	if e, ok := rec.Timelines.Last(); ok {
		lastStart = e.FirstEpoch
	}
	epoch, err := timeline.PromotedEpoch(step, rec.LeaderEpoch, lastStart, lastEntry, f.LeaderEpoch, rec.Mirror.SourceEpochMax)
	if err != nil {
		return meta.PromotionRecord{}, fmt.Errorf("promotion: %w", err)
	}
	return meta.PromotionRecord{
		SourceClusterID: rec.Mirror.SourceClusterID, StartID: rec.Mirror.StartID, Mirror: rec.Mirror.Name,
		LastMirroredEpoch: lastRecord, LogEnd: kept.LogEnd, HighWatermark: min(r.Own.HighWatermark, kept.LogEnd), EndBefore: endBefore,
		SourceStart: f.Start, SourceEnd: f.End, SourceEpoch: f.LeaderEpoch, SourceSeenAt: f.SeenAt,
		SourceMadeAgain: r.TellsMadeAgain && MadeAgain(rec.Mirror),
		NeverFetched:    !f.Copied, MissingMs: max(r.MissingMs, 0), At: r.Now, PromotedEpoch: epoch,
	}, nil
}

func recordFacts(m *meta.MirrorState) *Facts {
	return &Facts{LeaderEpoch: m.SourceEpochMax, Start: m.SourceStart, End: m.SourceEnd, SeenAt: m.SourceSeenAt, Copied: m.Copied}
}

// LastMirroredOffset is what clusters that speak KIP-1279 are served (R23).
func LastMirroredOffset(m meta.PromotionRecord) types.Offset { return min(m.LogEnd, m.HighWatermark) }

// Missing says which records of the source the promoted log may lack: [from,
// to), or nothing known if the source was never fetched from since the mirror
// started. from == to means that nothing beyond our end had been seen.
func Missing(m meta.PromotionRecord) (from, to types.Offset, known bool) {
	if m.NeverFetched {
		return m.LogEnd, m.LogEnd, false
	}
	return m.LogEnd, max(m.LogEnd, m.SourceEnd), true
}
