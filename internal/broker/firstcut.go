package broker

import (
	"bytes"
	"fmt"
	"path/filepath"

	"tidemark/internal/core/timeline"
	"tidemark/internal/log"
)

// appliedCheckpoint remembers the parsed timeline checkpoint beside its text.
type appliedCheckpoint struct {
	text       []byte
	checkpoint timeline.Checkpoint
	ok         bool
}

// applied gives the timeline checkpoint; false if there is none that can be read.
func (p *Partition) applied() (timeline.Checkpoint, bool) {
	text, ok := p.log.TimelineCheckpoint()
	if !ok {
		return timeline.Checkpoint{}, false
	}
	if c := p.checkpoint; c != nil && bytes.Equal(c.text, text) {
		return c.checkpoint, c.ok
	}
	c, err := timeline.ParseCheckpoint(text)
	p.checkpoint = &appliedCheckpoint{text: bytes.Clone(text), checkpoint: c, ok: err == nil}
	return c, err == nil
}

// firstCut is R19: before it leads or follows, this replica's log is cut to what
// the record's list allows. A mirror's leader has it done by its driver.
//
// The checkpoint's leader epoch is not kept in step with every election: the
// history's own entry (R3) says the same to FirstCut.
func (p *Partition) firstCut() error {
	v := p.log.View()
	applied, ok := p.applied()
	owed := timeline.FirstCutUnder(p.firstCutRules(), timeline.Replica{
		Applied: applied, HasApplied: ok, History: v.History, LogStart: v.LogStart, LogEnd: v.LogEnd,
	}, p.record.Timelines, p.record.LeaderEpoch)
	switch owed.Kind {
	case timeline.CutRefused:
		return fmt.Errorf("METADATA_WENT_BACK: %s", owed.Why)
	case timeline.CutEverything:
		if p.mayFollow() {
			return p.cutEverything(owed)
		}
		// Nobody else is known to have what would go.
		return p.unknownHistory(owed.Why)
	}
	checkpoint := timeline.Checkpoint{List: p.record.Timelines, LeaderEpoch: p.record.LeaderEpoch}.Format()
	if owed.Kind == timeline.CutAt {
		cause, note := p.firstCutCause(owed)
		at := owed.At
		switch lacks := p.lacksCompacted(at); {
		case lacks && p.mayFollow() && (p.record.IsMirror() || !p.record.InISR(p.env.nodeID)):
			// Else its leader counts on what an in-sync replica holds.
			at, note = p.log.View().LogStart, note+"; compaction here had reached above: the whole log is copied anew"
		case lacks:
			p.env.logger.Warn("the log is cut below what its compaction has reached: older records of keys may be missing, what replaced them is in the vault", "partition", p.tp.String(), "at", at, "compacted", p.log.Cleaned())
		}
		r, err := p.log.Cut(at, log.CutReason{Cause: cause, Order: log.OrderedByMetadata, Note: note, Timelines: checkpoint, LeaderHighWatermark: -1})
		if err != nil {
			return p.storageFault(err)
		}
		p.leader.Cut(r.LogEnd) // a leader that stays one, before it appends (R1)
		if r.From < r.To {
			p.trail.cut(r.LogEnd)
		}
		p.env.logger.Warn("log cut to the partition's timelines", "partition", p.tp.String(), "cause", string(cause), "from", r.From, "to", r.To, "vault", r.KeptID)
		p.env.metrics.Log.CutRecords.WithLabelValues(string(cause), string(log.OrderedByMetadata)).Add(float64(r.To - r.From))
		return nil
	}
	if !owed.WriteCheckpoint {
		return nil
	}
	if err := p.log.SetTimelineCheckpoint(checkpoint); err != nil {
		return p.storageFault(err)
	}
	return nil
}

// unknownHistory says why this replica can serve nothing, and what can be done.
func (p *Partition) unknownHistory(why string) error {
	_, found := p.log.TimelineCheckpoint()
	if _, readable := p.applied(); found && !readable {
		why = "its timeline checkpoint can't be read"
	}
	folder := filepath.Join(p.dir.path, p.tp.String())
	return fmt.Errorf("TIMELINE_UNKNOWN: %s: the log holds records whose history the metadata doesn't name, and no other replica has them; put %s back from a copy, or stop the node and move %s away: the partition then begins empty, and tidemark log dump prints the folder's records",
		why, filepath.Join(folder, log.TimelineFile), folder)
}

// firstCutCause names the cut of a consistent failover apart: there the promotion's
// own entry begins below the log's end on purpose (docs/adr/0011).
func (p *Partition) firstCutCause(owed timeline.Owed) (log.Cause, string) {
	n, shared := len(p.record.Promotions), owed.Comparison.Shared
	if n > 0 && shared < len(p.record.Timelines) {
		last := p.record.Promotions[n-1]
		if last.EndBefore > 0 && p.record.Timelines[shared].FirstEpoch == last.PromotedEpoch {
			return log.CauseConsistent, "consistent failover of mirror " + last.Mirror
		}
	}
	return log.CauseTimeline, "first cut"
}

// cutEverything empties a follower's log whose history the record doesn't name:
// the leader has the partition's, the vault this one.
func (p *Partition) cutEverything(owed timeline.Owed) error {
	before := p.log.View()
	checkpoint := timeline.Checkpoint{List: p.record.Timelines, LeaderEpoch: p.record.LeaderEpoch}.Format()
	r, err := p.log.Restart(0, log.CutReason{Cause: log.CauseTimeline, Order: log.OrderedByMetadata, Note: "first cut before following: " + owed.Why, Timelines: checkpoint, LeaderHighWatermark: -1})
	p.tellCut(r, log.CauseTimeline, log.OrderedByMetadata, before)
	if err != nil {
		return p.storageFault(err)
	}
	return nil
}

// owesCut reports, for a mirror's partition, that its driver has not yet brought
// the log in line with the record's list (R19), or that no list was adopted.
func (p *Partition) owesCut() bool {
	applied, ok := p.applied()
	return !ok || len(p.record.Timelines) == 0 || !applied.List.Equal(p.record.Timelines) || p.record.LeaderEpoch < applied.LeaderEpoch
}
