package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
)

// logStarts are what the checkers know of one partition's log start.
type logStarts struct {
	// legal is the highest log start that retention or DeleteRecords made somewhere.
	legal types.Offset
	// asked is the highest offset that an operator asked to delete up to; -1: none, marks up to the high watermark.
	asked types.Offset
	// deleted are the deletions that were answered as done on every in-sync replica (KIP-107).
	deleted []deletion
}

// deletion is an answer to DeleteRecords: below low nothing was left, when it came, on who was in sync.
type deletion struct {
	low types.Offset
	at  time.Duration
	by  []types.BrokerID
}

// startMoved judges a log start that isn't where it was (LogStartLegal): it rises, up to the
// high watermark at most, because somebody asked for it, retention demands it, or
// the leader's has risen before. It is elsewhere altogether where the whole log begins anew.
func (j *judge) startMoved(m *machine, h *held, v log.View, start, end types.Offset) {
	l := j.ledger(h.id)
	bad := func(format string, args ...any) {
		j.fail("LogStartLegal", "%s %s: the log start moves from %d to %d, log end %d, high watermark %d: "+format,
			append([]any{m.name, h.part.Name(), start, v.LogStart, v.LogEnd, v.HighWatermark}, args...)...)
	}
	switch {
	case v.LogStart > end: // restarted above its end
		if v.LogStart > l.starts.legal {
			bad("no leader's log starts there")
		}
	case v.LogStart < start:
		// An empty log goes down to the batch that the leader's log start lies in.
		if v.LogEnd > start && start < end && l.unclean < 0 {
			bad("it falls")
		}
	case h.part.IsFollowing() && v.LogStart <= l.starts.legal:
		j.c.k.probe("follower: log start follows the leader's")
	case v.LogStart > v.HighWatermark:
		bad("above what is committed")
	case h.part.IsFollowing() && l.compacted && v.LogStart == v.LogEnd:
		// A cut in a gap that compaction left, with no record below: the empty log begins there.
	case v.LogStart <= l.starts.asked, j.c.o.RetentionBytes > 0 && !l.compacted && v.Size >= j.c.o.RetentionBytes:
		l.starts.legal = max(l.starts.legal, v.LogStart)
	default:
		bad("nobody asked for more than %d, and %d bytes are left (retention.bytes %d)", l.starts.asked, v.Size, j.c.o.RetentionBytes)
	}
}

// staysDeleted demands of a new leader that what was deleted everywhere is gone
// (DeletedIsGone), if it was in sync when that was said. A process that ended since
// may have lost it: a deletion is as durable as the next checkpoint of the log
// starts (Kafka parity). Each answer is judged by its own moment: one that comes
// after an unclean election, and promises less, doesn't renew what that one took.
func (j *judge) staysDeleted(m *machine, h *held, l *ledger) {
	for _, d := range l.starts.deleted {
		if h.start < d.low && slices.Contains(d.by, m.id) && m.bootedAt <= d.at && l.unclean < d.at {
			j.fail("DeletedIsGone", "%s %s: leads with log start %d; records below %d were deleted on every in-sync replica", m.name, h.part.Name(), h.start, d.low)
			return
		}
	}
}

// deleteRecords is an operator's DeleteRecords at a partition's leader.
func (c *cluster) deleteRecords(d dice) string {
	id, ok := c.anyPartition(d)
	l := c.check.ledger(id)
	r := l.record
	if !ok || r == nil || c.o.Compacted || id.Topic == c.offsetsTopic {
		return ""
	}
	m := c.machine(r.Leader)
	if m == nil || !m.serves() || m.held(id) == nil {
		return ""
	}
	h := m.held(id)
	before := types.NoOffset
	if span := int64(h.hw - h.start); span > 0 && d.chance(0.8) {
		before = h.start + types.Offset(d.Int64N(span+2)) // one above the mark is refused
	}
	what := fmt.Sprintf("partition %d before %d at %s", id.Number, before, m.name)
	m.task(func() {
		part, err := m.node.Partitions().Get(id.Topic, id.Number)
		if err == nil {
			asked := before
			if asked == types.NoOffset {
				asked = 1 << 60
			}
			l.starts.asked = max(l.starts.asked, asked)
			ctx, cancel := m.p.WithTimeout(m.node.Context(), 5*time.Second)
			defer cancel()
			var low types.Offset
			if low, err = part.DeleteRecords(ctx, before); err == nil {
				if l.record != nil {
					l.starts.deleted = append(l.starts.deleted, deletion{low, c.k.now, l.record.ISRIDs()})
				}
				c.k.probe("operator: records deleted on every in-sync replica")
			}
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			c.k.note("operator", "delete records: %s: %v", what, err)
		} else {
			c.k.note("operator", "delete records: %s: done", what)
		}
	})
	return what
}

// foreignRecord looks in a compacted batch for a record that the batch as it was
// written doesn't hold, and gives its offset.
func foreignRecord(now, written []byte) (types.Offset, bool) {
	hash := func(r *batch.Record) uint64 { return mixed(mixed(sumOf(r.Key), sumOf(r.Value)), uint64(r.Timestamp)) }
	had := map[types.Offset]uint64{}
	for it := batch.Records(written, nil); it.Next(); {
		had[it.Record.Offset] = hash(&it.Record)
	}
	for it := batch.Records(now, nil); it.Next(); {
		if sum, ok := had[it.Record.Offset]; !ok || sum != hash(&it.Record) {
			return it.Record.Offset, true
		}
	}
	return 0, false
}
