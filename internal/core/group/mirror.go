package group

import (
	"maps"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/types"
)

// mirrorOffsets writes what a mirrored cluster's group has committed. A group
// with members here is theirs (R §6.3); an offset beyond the local log end
// waits until the data is here, else a consumer that starts from it would be
// out of range, or, after a failover, skip what comes to stand there.
func (t *Table) mirrorOffsets(now types.Millis, ev MirrorOffsets, out *Effects) {
	fail := func(code ErrorCode) { out.reply(ev.Request, MirrorOffsetsResponse{Code: code}) }
	if ev.Group == "" {
		fail(InvalidGroupID)
		return
	}
	g := t.group(ev.Group)
	if g != nil && g.deleting {
		fail(CoordinatorNotAvailable)
		return
	}
	if g != nil && (len(g.members) > 0 || len(g.pendingJoin) > 0) {
		fail(NonEmptyGroup)
		return
	}
	results := make([]MirrorResult, len(ev.Offsets))
	var writes []offsetWrite
	for i, m := range ev.Offsets {
		tp := types.TopicPartition{Topic: m.Topic, Partition: m.Partition}
		switch {
		case m.Offset < 0 || m.Offset > m.LogEnd:
			results[i] = MirrorPending
		case t.holdsAlready(g, tp, m, now):
			results[i] = MirrorUnchanged
		default:
			// Invariant I-74 (GroupNotAhead): no mirrored offset is beyond the log end it was synced to.
			assert.That(m.Offset <= m.LogEnd, "I-74: group %q at %v would be set to %d beyond the log end %d", ev.Group, tp, m.Offset, m.LogEnd)
			results[i] = MirrorApplied
			writes = append(writes, offsetWrite{tp: tp, value: &Committed{
				TopicID: m.TopicID, Offset: m.Offset, LeaderEpoch: m.LeaderEpoch, Metadata: m.Metadata,
				CommittedAt: t.wall(now), ExpiresAt: types.NoTimestamp,
			}})
		}
	}
	if len(writes) == 0 {
		out.reply(ev.Request, MirrorOffsetsResponse{Results: results})
		return
	}
	t.writeOffsets(t.open(ev.Group), writes, out, func(_ types.Millis, code ErrorCode, out *Effects) {
		if code != None {
			out.reply(ev.Request, MirrorOffsetsResponse{Code: offsetWriteFailed(code)})
			return
		}
		out.reply(ev.Request, MirrorOffsetsResponse{Results: results})
	})
}

// holdsAlready reports whether the group has just this offset. One that nears
// its retention counts as not held, so that it is written again: the source
// still keeps it, and a live group that reads a quiet topic must find it here.
func (t *Table) holdsAlready(g *group, tp types.TopicPartition, m MirrorOffset, now types.Millis) bool {
	if g == nil || g.offsets[tp] == nil {
		return false
	}
	v := g.offsets[tp].latest()
	return v != nil && v.Offset == m.Offset && v.LeaderEpoch == m.LeaderEpoch && v.Metadata == m.Metadata &&
		t.wall(now)-v.CommittedAt < t.cfg.OffsetsRetention/2
}

// clamp sets every committed offset above a cut to the cut, members or not
// (R §6.3): the records that it stood for are gone from this log. The leader
// epoch goes with them: left in place, it would name the removed history.
func (t *Table) clamp(_ types.Millis, ev Clamp, out *Effects) {
	ends := make(map[types.TopicPartition]types.Offset, len(ev.Cuts))
	for _, c := range ev.Cuts {
		if end, ok := ends[c.TopicPartition]; !ok || c.Offset < end {
			ends[c.TopicPartition] = c.Offset
		}
	}
	answer := &clampAnswer{request: ev.Request, awaited: 1} // one for this walk
	for _, id := range slices.Sorted(maps.Keys(t.groups)) {
		g := t.groups[id]
		t.clampGroup(g, ends, answer, out)
	}
	answer.awaited--
	answer.finish(None, out)
}

// clampAnswer gathers the outcome of the appends of one clamp.
type clampAnswer struct {
	request RequestID
	awaited int
	code    ErrorCode
	lowered []Lowered
}

func (a *clampAnswer) finish(code ErrorCode, out *Effects) {
	if code != None {
		a.code = offsetWriteFailed(code)
	}
	if a.awaited == 0 {
		out.reply(a.request, ClampResponse{Code: a.code, Lowered: a.lowered})
		a.request = NoRequest
	}
}

func (t *Table) clampGroup(g *group, ends map[types.TopicPartition]types.Offset, answer *clampAnswer, out *Effects) {
	tps := make([]types.TopicPartition, 0, len(g.offsets))
	for tp, o := range g.offsets {
		if end, cut := ends[tp]; cut && o.high > end {
			tps = append(tps, tp)
		}
	}
	sortPartitions(tps)
	var writes []offsetWrite
	var lowered []Lowered
	for _, tp := range tps {
		end, v := ends[tp], g.offsets[tp].latest()
		if v == nil || g.deleting {
			// A removal is on its way. Should it fail, the offset is still there: ask again.
			answer.code = CoordinatorNotAvailable
			continue
		}
		low := *v
		if v.Offset > end {
			low.Offset, low.LeaderEpoch = end, types.NoLeaderEpoch
			lowered = append(lowered, Lowered{Group: g.id, TopicPartition: tp, From: v.Offset, To: end})
		}
		// Also where the newest write in flight is below the cut already: it may fail and leave an older one.
		writes = append(writes, offsetWrite{tp: tp, value: &low})
	}
	if len(writes) == 0 {
		return
	}
	answer.awaited++
	t.writeOffsets(g, writes, out, func(_ types.Millis, code ErrorCode, out *Effects) {
		answer.awaited--
		if code == None {
			answer.lowered = append(answer.lowered, lowered...)
		}
		answer.finish(code, out)
	})
	for _, w := range writes {
		// Invariant I-75: after a cut no committed offset is above it.
		v := g.offsets[w.tp].latest()
		assert.That(v.Offset <= ends[w.tp], "I-75: group %q at %v stays above the cut", g.id, w.tp)
	}
}
