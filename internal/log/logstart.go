package log

import (
	"fmt"

	"tidemark/internal/core/types"
)

// RaiseLogStart (W) moves the log start up to o, following a leader's; it never
// falls. Records below it are gone for readers; their segments go with
// EnforceRetention.
//
// Unvouched (R28: the leader's answer could not vouch for the last epoch), what
// it passes goes to the keeper first, and the new start is synced. o at the log
// end empties the history of a follower (R1); o above it restarts the log at o
// through R1.
func (l *Log) RaiseLogStart(o types.Offset, vouched bool, c CutReason) (CutResult, error) {
	if err := l.usable(); err != nil {
		return CutResult{}, err
	}
	res := CutResult{LogEnd: l.marks.end, HighWatermark: l.marks.high, From: l.marks.start, To: l.marks.start}
	switch {
	case o <= l.marks.start:
		return res, nil
	case o > l.marks.end:
		return l.Restart(o, c)
	}
	res.To = o
	if !vouched {
		id, err := l.keepBelow(o, c)
		if err != nil {
			return CutResult{}, err
		}
		res.KeptID = id
	}
	if err := l.raise(o); err != nil {
		return res, err
	}
	res.HighWatermark = l.marks.high
	if vouched {
		return res, nil
	}
	return res, l.owe(l.writeCheckpoints)
}

// keepBelow gives the keeper the batches that hold offsets from the log start up to o.
func (l *Log) keepBelow(o types.Offset, c CutReason) (string, error) {
	plan := cutPlan{at: l.segs[0].base}
	if err := l.planRanges(&plan); err != nil {
		return "", l.fail("read for the keeper", err)
	}
	ranges := withoutDeleted(plan.ranges, l.marks.start)
	for i := range ranges {
		ranges[i].Whole = false // the file stays for now, and the last one is appended to
	}
	n := 0
	for n < len(ranges) && ranges[n].BaseOffset < o {
		n++
	}
	ranges = ranges[:n]
	if n > 0 && ranges[n-1].To > o {
		last := &ranges[n-1]
		p := l.segs[l.segmentAt(o)].look()
		end, err := p.endBelow(o, 0)
		if err != nil {
			return "", l.fail("read for the keeper", err)
		}
		last.To, last.Len, last.Whole = o, end-last.Pos, false
		if last.Len == 0 {
			ranges = ranges[:n-1]
		}
	}
	return l.keep(ranges, l.marks.start, o, c)
}

// raise moves the log start in memory, and the history with it. The checkpoint
// is written only if entries went: a start of an entry that is too low is set
// right by every open.
func (l *Log) raise(o types.Offset) error {
	h := l.history.Clone()
	before := h.Len()
	h.TruncateFromStart(o)
	if o == l.marks.end && !l.leads {
		h.Clear()
	}
	if h.Len() != before {
		if err := l.writeHistory(&h); err != nil {
			return l.refuse("write epoch history", err)
		}
	}
	l.untouched = false
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = &h
	l.marks.start = o
	l.settle()
	return nil
}

// DeleteRecords (W) moves the log start up to before, which lies at or below
// the high watermark (-1: the high watermark itself), and gives the log start
// afterwards. ErrOutOfRange above the mark. Kafka parity: the deletion is as
// durable as the next write of the log-start checkpoint.
func (l *Log) DeleteRecords(before types.Offset) (types.Offset, error) {
	if err := l.usable(); err != nil {
		return l.marks.start, err
	}
	if before == types.NoOffset {
		before = l.marks.high
	}
	if before < 0 || before > l.marks.high {
		return l.marks.start, fmt.Errorf("%w: delete before %d, high watermark is %d", ErrOutOfRange, before, l.marks.high)
	}
	if before <= l.marks.start {
		return l.marks.start, nil
	}
	if err := l.raise(before); err != nil {
		return l.marks.start, err
	}
	l.log.Debug("records deleted", "partition", l.o.TopicPartition.String(), "log_start", int64(before))
	return before, nil
}
