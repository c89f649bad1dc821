package replica

import (
	"cmp"
	"slices"

	"tidemark/internal/core/types"
)

// Reader is an in-sync follower as its leader knows it: one that consumers may
// be sent to (KIP-392).
type Reader struct {
	ID types.BrokerID
	// LogStart and LogEnd are what its last fetch in this leader epoch said; LogStart is NoOffset if it didn't.
	LogStart, LogEnd types.Offset
	// CaughtUpAt is when it last lacked nothing.
	CaughtUpAt types.Millis
}

// Holds reports whether the follower is known to hold the offset, or to end just there.
func (r Reader) Holds(o types.Offset) bool { return r.LogStart <= o && o <= r.LogEnd }

// Readers are the committed ISR's followers that have fetched in this leader
// epoch, ordered by id; none without leadership.
func (l *Leader) Readers() []Reader {
	if !l.leads {
		return nil
	}
	var list []Reader
	for _, m := range l.isr {
		if p := l.followers[m.ID]; m.ID != l.local && p != nil && p.provedIn == l.epoch {
			list = append(list, Reader{ID: m.ID, LogStart: p.logStart, LogEnd: p.logEnd, CaughtUpAt: p.caughtUpAt})
		}
	}
	slices.SortFunc(list, func(a, b Reader) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Nearest chooses whom a consumer at the offset is to read from, among followers
// of its own rack: whoever has most, then who was caught up last, then the
// highest id, so that the choice doesn't waver (Kafka parity:
// RackAwareReplicaSelector). ok is false if nobody holds the offset.
func Nearest(sameRack []Reader, o types.Offset) (best Reader, ok bool) {
	for _, r := range sameRack {
		if !r.Holds(o) {
			continue
		}
		if !ok || cmp.Or(cmp.Compare(r.LogEnd, best.LogEnd), cmp.Compare(r.CaughtUpAt, best.CaughtUpAt), cmp.Compare(r.ID, best.ID)) > 0 {
			best, ok = r, true
		}
	}
	return best, ok
}

// LowWatermark is the smallest log start among the committed ISR and pending
// additions, of which own is the leader's: below it no in-sync replica holds a
// record (KIP-107). An addition counts at once, as for the high watermark: it may
// be in force, and the next leader, before this one hears of it (R14, R8). It is
// NoOffset as long as a member has not said its own in this leader epoch.
func (l *Leader) LowWatermark(own types.Offset) types.Offset {
	low := own
	for _, id := range l.MaximalISR() {
		if id == l.local {
			continue
		}
		p := l.followers[id]
		if p == nil || p.provedIn != l.epoch {
			return types.NoOffset
		}
		low = min(low, p.logStart)
	}
	return low
}
