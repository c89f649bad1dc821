package log

import (
	"errors"
	"fmt"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
	"tidemark/internal/vfs"
)

var probeCutInGap = probe.New("log: a cut ends in a gap, above a batch that stays")

// Cut (W) is R1: what lies at or above o goes, in the rule's order. The numbers
// in the code are the rule's. It can be repeated after a crash at any point: an
// open after the crash finds a log that ends somewhere between o and the old
// end, and the same cut does the rest.
//
// A batch that straddles o goes whole, and the log then ends at its base. A cut
// at or above the log end removes no record but still drops history entries
// that start there (KAFKA-10706), and takes the timeline checkpoint given. A cut
// below the log start restarts the log at o. One that leaves no record begins the
// log anew at its log start (see cutAll).
//
// If the keeper refuses, its error comes back and nothing was touched; one that is
// ErrOffline is the log's own failure. A later
// step that finds no room on the disk is owed (see owe); any other failure takes
// the log offline.
func (l *Log) Cut(o types.Offset, c CutReason) (CutResult, error) {
	if err := l.usable(); err != nil {
		return CutResult{}, err
	}
	if o < l.marks.start {
		return l.Restart(max(o, 0), c)
	}
	plan, err := l.planCut(o)
	if err != nil {
		return CutResult{}, l.fail("read for a cut", err)
	}
	if plan.all {
		return l.cutAll(plan, c)
	}
	res := CutResult{LogEnd: min(plan.at, l.marks.end), From: plan.at, To: l.marks.end, Bytes: plan.bytes}
	if res.From > res.To {
		res.From = res.To
	}
	if res.From < res.To { // (1)
		// Before the keeper links what goes: refused for want of room, nothing is shared.
		if plan.kept, err = l.keepPart(l.segs[plan.index], plan.pos); err != nil {
			return CutResult{}, l.refuse("copy what stays of a segment that has another name", err)
		}
		if res.KeptID, err = l.keep(plan.ranges, res.From, res.To, c); err != nil {
			l.dropPart(l.segs[plan.index], plan.kept)
			return CutResult{}, err
		}
		plan.state, err = l.producersAt(plan.at)
		if err != nil {
			return res, l.fail("replay producers for a cut", err)
		}
	}
	res.LostTransactions = l.reopened(plan.state)
	history := l.history.Clone()
	if !l.o.Rules.CutKeepsHistory {
		history.TruncateFromEnd(o)
		history.TruncateFromEnd(plan.at)
	}
	res.EpochsRemoved = l.history.Len() - history.Len()
	if err := l.carryOut(plan, &history, o, c); err != nil {
		return res, err
	}
	res.HighWatermark = l.marks.high
	l.log.Info("log cut", "partition", l.o.TopicPartition.String(), "cause", string(c.Cause), "at", int64(o), "log_end", int64(res.LogEnd),
		"removed_from", int64(res.From), "removed_to", int64(res.To), "bytes", res.Bytes, "kept", res.KeptID)
	return res, nil
}

// cutPlan is what a cut is going to do to the segments.
type cutPlan struct {
	at     types.Offset // the log end afterwards
	index  int          // the segment that becomes active
	pos    int64        // its length afterwards
	ranges []RemovedRange
	bytes  int64
	state  *txn.State // producers afterwards; nil if no record goes
	// fresh says that the log must go on in a new segment at `at`: o lies in a
	// gap, and without a file of that name the log would end below it.
	fresh bool
	// wasSealed says that the segment becomes active again.
	wasSealed bool
	// kept is what stays of the segment, if a fork or the vault has its file, too.
	kept *keptPart
	// all says that no record is left, and no segment's file stays, not even cut to
	// nothing: a file that stays is written again and must not be linked by the keeper.
	all bool
}

// planCut finds the batch boundary at or below o, and what lies above it.
func (l *Log) planCut(o types.Offset) (cutPlan, error) {
	if o >= l.marks.end {
		return cutPlan{at: o, index: len(l.segs) - 1, pos: l.active().size}, nil
	}
	plan := cutPlan{at: o, index: l.segmentAt(o)}
	s := l.segs[plan.index]
	plan.wasSealed = s.sealed
	p := s.look()
	f, err := p.file()
	if err != nil {
		return plan, err
	}
	pos, err := p.floor(o)
	if err != nil {
		return plan, err
	}
	h, at, ok, err := find(f, pos, s.size, o)
	if err != nil {
		return plan, err
	}
	plan.pos = s.size
	if ok {
		plan.pos = at
		plan.at = min(o, h.BaseOffset)
	}
	prev, ok, err := l.batchBefore(plan.at)
	if err != nil {
		return plan, err
	}
	end := s.base
	if ok {
		end = max(end, prev.NextOffset())
	}
	plan.fresh = plan.at > end
	plan.all = !ok || prev.NextOffset() <= l.marks.start
	return plan, l.planRanges(&plan)
}

// planRanges lists what goes, for the keeper.
func (l *Log) planRanges(plan *cutPlan) error {
	for i, s := range l.segs[plan.index:] {
		from, pos := s.base, int64(0)
		if i == 0 {
			from, pos = max(plan.at, s.base), plan.pos
		}
		if s.size == pos {
			continue
		}
		f, err := s.data.get(s, logSuffix)
		if err != nil {
			return err
		}
		plan.bytes += s.size - pos
		plan.ranges = append(plan.ranges, RemovedRange{
			Path: s.path(logSuffix), File: f, BaseOffset: s.base, From: from, To: s.next, Pos: pos, Len: s.size - pos, Whole: i > 0 || plan.all,
		})
	}
	return nil
}

// keep gives the keeper what is about to go (R1 step 1).
func (l *Log) keep(ranges []RemovedRange, from, to types.Offset, c CutReason) (string, error) {
	if l.o.Keeper == nil || len(ranges) == 0 {
		return "", nil
	}
	id, err := l.o.Keeper.Keep(Removal{
		TopicPartition: l.o.TopicPartition, TopicID: l.o.TopicID, Cause: c.Cause, Order: c.Order, Note: c.Note, From: from, To: to,
		HighWatermark: l.marks.high, LeaderHighWatermark: c.LeaderHighWatermark, Ranges: ranges,
		EpochsBefore: l.history.Entries(), TimelinesBefore: l.timelines, TimelinesAfter: c.Timelines, At: l.now(),
	})
	switch {
	case errors.Is(err, ErrOffline): // a sync of the log's own bytes failed: the next one proves nothing
		return "", l.fail("keep what a cut takes", err)
	case err != nil:
		return "", fmt.Errorf("keep records %d to %d before a cut: %w", from, to, err)
	}
	return id, nil
}

// producersAt is the producer state of a log that ends at o: a replay of what
// is left, plus the ended transactions that still hold the stable offset.
func (l *Log) producersAt(o types.Offset) (*txn.State, error) {
	state, err := l.producersBelow(o)
	if err != nil {
		return nil, err
	}
	l.recall(state)
	if _, err := l.replayInto(state, o, func(*segment, txn.Aborted) {}); err != nil {
		return nil, err
	}
	ended := slices.DeleteFunc(l.producers.Ended(), func(t txn.Txn) bool { return t.LastOffset >= o })
	state.Hold(ended)
	return state, nil
}

// reopened lists the producers whose transaction is open in the new state but
// had its marker before: the marker is cut away (DESIGN §8).
func (l *Log) reopened(state *txn.State) []types.ProducerID {
	if state == nil {
		return nil
	}
	var out []types.ProducerID
	before := l.producers.Open()
	for _, t := range state.Open() {
		if !slices.Contains(before, t) {
			out = append(out, t.ProducerID)
		}
	}
	return out
}

// carryOut does steps 2 to 6 of R1. In memory everything changes at once, and
// first: from then on no reader sees what is going.
func (l *Log) carryOut(plan cutPlan, history *epoch.History, o types.Offset, c CutReason) error {
	epochsChanged := history.Len() != l.history.Len()
	onDisk := func() error { return nil } // (2), (3)
	if plan.state != nil {
		gone, err := l.dropTail(plan, history)
		if err != nil {
			return l.fail("cut", err)
		}
		onDisk = func() error { return l.removeTail(plan, &gone) }
	}
	l.mu.Lock()
	l.history = history
	l.marks.high = min(l.marks.high, o)
	l.marks.recovery = min(l.marks.recovery, plan.at)
	l.settle()
	l.mu.Unlock()
	return l.settleCut(onDisk, history, epochsChanged, c)
}

// settleCut does what follows a change in memory: steps 2 and 3 of R1, which can
// be repeated, then 4 to 6. On a full disk they are owed.
func (l *Log) settleCut(onDisk func() error, history *epoch.History, epochsChanged bool, c CutReason) error {
	timelines := slices.Clone(c.Timelines)
	return l.owe(func() error {
		if err := onDisk(); err != nil { // (2), (3)
			return err
		}
		if err := l.writeCheckpoints(); err != nil { // (4)
			return err
		}
		if epochsChanged { // (5)
			if err := l.writeHistory(history); err != nil {
				return l.refuse("write epoch history", err)
			}
		}
		if timelines != nil { // (6)
			return l.SetTimelineCheckpoint(timelines)
		}
		return nil
	})
}

// dropTail makes the log end at plan.at in memory, and gives the segments that
// are no longer part of it.
func (l *Log) dropTail(plan cutPlan, history *epoch.History) (gone []*segment, err error) {
	s := l.segs[plan.index]
	cut, err := l.shortened(s, plan)
	if err != nil {
		return nil, err
	}
	l.untouched = false
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cuts++
	l.cleaned, l.evidence = min(l.cleaned, plan.at), min(l.evidence, plan.at) // what comes in place of the removed isn't compacted
	gone = slices.Clone(l.segs[plan.index+1:])
	l.segs = l.segs[: plan.index+1 : plan.index+1]
	for _, g := range gone {
		g.retired.Store(true)
		l.size -= g.size
	}
	l.size -= s.size - cut.size
	s.size, s.next, s.maxTs, s.maxTsLast, s.firstTs = cut.size, cut.next, cut.maxTs, cut.maxTsLast, cut.firstTs
	s.entries, s.stamps, s.unindexed, s.aborted = cut.entries, cut.stamps, cut.unindexed, cut.aborted
	s.sealed, s.indexCount, s.timeCount = false, 0, 0
	l.marks.end = plan.at
	l.marks.high = min(l.marks.high, plan.at)
	l.producers, l.history = plan.state, history
	l.settle()
	assert.That(s.next <= l.marks.end, "I-25: segment %d ends at %d, the log at %d", s.base, s.next, l.marks.end)
	return gone, nil
}

// shortened builds what segment s holds when it is cut to plan.pos: its index
// entries below the cut, and what the batches behind the last of them say.
func (l *Log) shortened(s *segment, plan cutPlan) (*segment, error) {
	cut := newSegment(l.fs, l.dir, s.base)
	if !s.sealed {
		cut.entries, cut.stamps = s.entries, s.stamps
	} else if ok, err := cut.loadIndexes(s.size); err != nil {
		return nil, err
	} else if !ok {
		cut.forget()
	}
	cut.keepBelow(plan.pos, plan.at)
	from := int64(0)
	if n := len(cut.entries); n > 0 {
		from = int64(cut.entries[n-1].pos)
	} else {
		cut.forget()
	}
	p := s.look()
	f, err := p.file()
	if err != nil {
		return nil, err
	}
	w := walk(f, from, plan.pos)
	defer w.done()
	for w.next() {
		cut.noteBatch(&w.h, w.at, l.cfg.IndexIntervalBytes)
	}
	if w.err != nil {
		return nil, w.err
	}
	if err := noteFirst(cut, f, plan.pos); err != nil {
		return nil, err
	}
	cut.aborted = slices.DeleteFunc(slices.Clone(s.aborted), func(a txn.Aborted) bool { return a.LastOffset >= plan.at })
	return cut, nil
}

// removeTail is steps 2 and 3 of R1 on disk: segments from the last one down,
// so that a crash in between leaves no hole; then the tail of the one that
// stays; then what described the tail; then everything is synced. Where there is
// no room it can be repeated; gone is what it has not removed yet.
func (l *Log) removeTail(plan cutPlan, gone *[]*segment) error {
	if err := l.removeGone(gone); err != nil {
		return err
	}
	s := l.segs[plan.index]
	if plan.kept != nil {
		if err := l.place(s, plan.kept); err != nil {
			return l.refuse("cut", err)
		}
	}
	if plan.wasSealed || plan.kept != nil {
		if err := l.reopenForWriting(s); err != nil {
			return l.refuse("cut", err)
		}
	}
	f, err := s.data.get(s, logSuffix)
	if err != nil {
		return l.refuse("cut", err)
	}
	if plan.kept == nil {
		if err := f.Truncate(plan.pos); err != nil {
			return l.refuse("cut", err)
		}
	}
	if err := l.removeDescriptions(s, plan.at); err != nil {
		return l.refuse("cut", err)
	}
	if err := l.syncCut(s, f); err != nil { // final, also on a full disk: what a failed sync left is unknown
		return l.fail("cut", err)
	}
	if !plan.fresh {
		return nil
	}
	probeCutInGap.Reached()
	// The log must end at plan.at, which no batch borders: begin a segment there.
	if err := l.rollTo(l.active(), plan.at); err != nil {
		return err
	}
	return l.syncAll()
}

// removeGone removes segments from the last one down, and takes each out of the
// list. Each removal is on the disk before the next one begins, or the file below
// is cut: else a loss of power could take a segment and bring back the one above
// it, and the recovery point, which still lies above both, vouches for the hole.
func (l *Log) removeGone(gone *[]*segment) error {
	for n := len(*gone); n > 0; n-- {
		if err := l.removeSegmentFiles((*gone)[n-1:]); err != nil {
			return l.refuse("cut", err)
		}
		if err := l.fs.SyncDir(l.dir); err != nil { // final: what a failed sync left is unknown
			return l.fail("cut", err)
		}
		*gone = (*gone)[:n-1]
	}
	return nil
}

// syncCut syncs what a cut has left of the segment that stays.
func (l *Log) syncCut(s *segment, data vfs.File) error {
	if len(s.aborted) > 0 {
		if err := syncFile(l.fs, s.path(txnSuffix)); err != nil {
			return err
		}
	}
	if err := data.Sync(); err != nil {
		return err
	}
	l.folderChanged = false
	return l.fs.SyncDir(l.dir)
}

// reopenForWriting opens a segment that was sealed so that it can be written
// again. A reader may hold the old data handle: it stays open as long as the segment.
func (l *Log) reopenForWriting(s *segment) error {
	f, err := l.fs.OpenReadWrite(s.path(logSuffix))
	if err != nil {
		return err
	}
	old := s.data.p.Swap(&f)
	if old != nil {
		s.stale = append(s.stale, *old)
	}
	_ = s.index.drop()
	_ = s.times.drop()
	return nil
}

// removeDescriptions removes index files of a segment that is active again
// (they are in memory now), rewrites its aborted index, and removes producer
// snapshots above o.
func (l *Log) removeDescriptions(s *segment, o types.Offset) error {
	for _, suffix := range []string{indexSuffix, timeSuffix} {
		if err := removeIfThere(l.fs, s.path(suffix)); err != nil {
			return err
		}
	}
	if err := l.writeAborted(s); err != nil {
		return err
	}
	return l.removeSnapshotsAbove(o)
}

func (l *Log) removeSnapshotsAbove(o types.Offset) error {
	snaps, err := l.snapshots()
	if err != nil {
		return err
	}
	for _, at := range snaps {
		if at > o {
			l.unsyncedSnapshots = slices.DeleteFunc(l.unsyncedSnapshots, func(name string) bool { return name == FileName(at, snapshotSuffix) })
			if err := l.fs.Remove(join(l.dir, FileName(at, snapshotSuffix))); err != nil {
				return err
			}
		}
	}
	return nil
}
