package log

import (
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
)

// Restart (W) removes everything through R1 and begins an empty log at the
// offset: start, end and high watermark all become it (KAFKA-9491). It can be
// repeated after a crash at any point.
func (l *Log) Restart(at types.Offset, c CutReason) (CutResult, error) {
	if err := l.usable(); err != nil {
		return CutResult{}, err
	}
	res := CutResult{LogEnd: at, HighWatermark: at, From: l.marks.start, To: l.marks.end, Bytes: l.size, EpochsRemoved: l.history.Len()}
	plan := cutPlan{at: l.segs[0].base, all: true}
	if err := l.planRanges(&plan); err != nil {
		return CutResult{}, l.fail("read for a restart", err)
	}
	if res.From < res.To { // (1)
		var err error
		if res.KeptID, err = l.keep(withoutDeleted(plan.ranges, l.marks.start), res.From, res.To, c); err != nil {
			return CutResult{}, err
		}
	}
	for _, t := range l.producers.Open() {
		res.LostTransactions = append(res.LostTransactions, t.ProducerID)
	}
	epochsChanged := l.history.Len() > 0
	s, gone := l.empty(at)
	if err := l.settleCut(func() error { return l.replaceAll(s, &gone) }, l.history, epochsChanged, c); err != nil {
		return res, err
	}
	l.log.Info("log restarted", "partition", l.o.TopicPartition.String(), "cause", string(c.Cause), "at", int64(at),
		"removed_from", int64(res.From), "removed_to", int64(res.To), "bytes", res.Bytes, "kept", res.KeptID)
	return res, nil
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
func (l *Log) empty(at types.Offset) (s *segment, gone []*segment) {
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
	l.history, l.producers = &epoch.History{}, txn.New(at)
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
