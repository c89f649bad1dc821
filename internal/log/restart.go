package log

import (
	"errors"

	"tidemark/internal/batch"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
)

var (
	probeCutAll      = probe.New("log: a cut leaves no record")
	probeCutAtStart  = probe.New("log: a cut in the batch that holds the log start")
	probeCutAllInGap = probe.New("log: a cut leaves no record, in a gap above the log start")
)

// Restart (W) removes everything through R1 and begins an empty log at the
// offset: start, end and high watermark all become it (KAFKA-9491). It can be
// repeated after a crash at any point.
func (l *Log) Restart(at types.Offset, c CutReason) (CutResult, error) {
	if err := l.usable(); err != nil {
		return CutResult{}, err
	}
	plan := cutPlan{at: l.segs[0].base, all: true}
	if err := l.planRanges(&plan); err != nil {
		return CutResult{}, l.fail("read for a restart", err)
	}
	var lost []types.ProducerID
	for _, t := range l.producers.Open() {
		lost = append(lost, t.ProducerID)
	}
	plan.ranges, plan.bytes, plan.state = withoutDeleted(plan.ranges, l.marks.start), l.size, txn.New(at)
	return l.beginAt(at, plan, lost, c)
}

// cutAll is a cut that leaves no record. The log begins anew, so that deleted records
// go from the disk too: an open that finds no log start would take them for the
// log's, and what came behind them, of an older epoch, for what ends it (R2).
//
// It is empty at the log start then, also where that lies within a batch: cut at the
// batch's base it would lack offsets that its source has no more (R28). In a gap
// above the log start it is empty at the cut, but not above the high watermark,
// which a cut doesn't raise. Producers stay known, also those whose records were all
// deleted: they may send the newest again.
func (l *Log) cutAll(plan cutPlan, c CutReason) (CutResult, error) {
	probeCutAll.Reached()
	switch at := plan.at; {
	case at < l.marks.start:
		probeCutAtStart.Reached()
	case at > l.marks.start:
		probeCutAllInGap.Reached()
	}
	at := max(l.marks.start, min(plan.at, l.marks.high))
	state, err := l.producersAt(plan.at)
	if err != nil {
		return CutResult{}, l.fail("replay producers for a cut", err)
	}
	state.Advance(at)
	plan.state = state
	if l.startSynced < l.marks.start {
		// A crash may take the files before the new one is there.
		if err := l.writeCheckpoints(); err != nil && !errors.Is(err, ErrNoSpace) { // on a full disk the cut makes room
			return CutResult{}, err
		}
	}
	return l.beginAt(at, plan, l.reopened(state), c)
}

// beginAt makes the log an empty one at the offset, whose producers are plan.state's;
// plan.ranges are for the keeper.
func (l *Log) beginAt(at types.Offset, plan cutPlan, lost []types.ProducerID, c CutReason) (CutResult, error) {
	res := CutResult{LogEnd: at, HighWatermark: at, From: l.marks.start, To: l.marks.end, Bytes: plan.bytes, EpochsRemoved: l.history.Len(), LostTransactions: lost}
	if res.From < res.To { // (1)
		var err error
		if res.KeptID, err = l.keep(plan.ranges, res.From, res.To, c); err != nil {
			return CutResult{}, err
		}
	}
	epochsChanged := l.history.Len() > 0
	s, gone := l.empty(at, &epoch.History{}, plan.state)
	if err := l.settleCut(func() error { return l.replaceAll(s, &gone) }, l.history, epochsChanged, c); err != nil {
		return res, err
	}
	l.log.Info("log restarted", "partition", l.o.TopicPartition.String(), "cause", string(c.Cause), "at", int64(at),
		"removed_from", int64(res.From), "removed_to", int64(res.To), "bytes", res.Bytes, "kept", res.KeptID)
	return res, nil
}

// leaveDeleted begins an empty log anew, at its end, before a batch of an older epoch
// than the deleted records that it still has on the disk: a log start that was raised to
// the log end forgot their epochs (R1), and the batch may come from the leader of an unclean
// election. Left in front of it, they would end the log at the next open (R2).
func (l *Log) leaveDeleted(first *batch.Header) error {
	if l.marks.start < l.marks.end || l.size == 0 {
		return nil
	}
	last, ok, err := l.batchBefore(l.marks.end)
	if err != nil {
		return l.fail("read the last deleted batch", err)
	}
	if !ok || last.PartitionLeaderEpoch <= first.PartitionLeaderEpoch {
		return nil
	}
	s, gone := l.empty(l.marks.end, l.history, l.producers)
	return l.settleCut(func() error { return l.replaceAll(s, &gone) }, l.history, false, CutReason{})
}

// withoutDeleted leaves out segments that lie wholly below the log start: their
// records were deleted already.
func withoutDeleted(ranges []RemovedRange, start types.Offset) []RemovedRange {
	for len(ranges) > 0 && ranges[0].To <= start {
		ranges = ranges[1:]
	}
	return ranges
}

// empty makes the log an empty one at the offset, in memory.
func (l *Log) empty(at types.Offset, history *epoch.History, producers *txn.State) (s *segment, gone []*segment) {
	l.untouched = false
	s = newSegment(l.fs, l.dir, at)
	s.created = l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cuts++
	gone = l.segs
	for _, g := range gone {
		g.retired.Store(true)
	}
	l.segs, l.size = []*segment{s}, 0
	l.marks = marks{start: at, end: at, high: at, stable: at, recovery: at}
	l.history, l.producers = history, producers
	l.cleaned, l.evidence, l.beyond = min(l.cleaned, at), min(l.evidence, at), 0
	l.settle()
	return s, gone
}

// replaceAll removes all files of the log and makes the one of the new segment:
// steps 2 and 3 of R1. Where there is no room it can be repeated; gone is what it
// has not removed yet.
func (l *Log) replaceAll(s *segment, gone *[]*segment) error {
	if err := l.removeGone(gone); err != nil {
		return err
	}
	if err := l.removeSnapshotsAbove(types.NoOffset); err != nil {
		return l.refuse("restart", err)
	}
	l.unsyncedSnapshots = nil
	if l.producers.Len() > 0 {
		if err := l.takeSnapshot(); err != nil {
			return l.refuse("restart", err)
		}
		if err := syncFile(l.fs, join(l.dir, FileName(s.base, snapshotSuffix))); err != nil {
			return l.fail("restart", err)
		}
	}
	f, err := l.fs.Create(s.path(logSuffix))
	if err != nil {
		return l.refuse("restart", err)
	}
	s.data.set(f)
	if err := f.Sync(); err != nil {
		return l.fail("restart", err)
	}
	l.folderChanged, l.unsyncedSnapshots = false, nil
	if err := l.fs.SyncDir(l.dir); err != nil {
		return l.fail("restart", err)
	}
	return nil
}
