package group

import (
	"maps"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// mirrorOffsets writes what a mirrored cluster's group has committed. A group
// with members here is theirs (R §6.3); an offset beyond the local log end
// waits until the data is here, else a consumer that starts from it would be
// out of range, or, after a failover, skip what comes to stand there.
func (t *Table) mirrorOffsets(now types.Millis, ev MirrorOffsets, out *Effects) {
	fail := func(code errcode.Code) { out.reply(ev.Request, MirrorOffsetsResponse{Code: code}) }
	g := t.group(ev.Group)
	if g != nil && g.deleting {
		fail(errcode.CoordinatorNotAvailable)
		return
	}
	if g != nil && (!g.isEmpty() || len(g.pendingJoin) > 0) {
		fail(errcode.NonEmptyGroup)
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
	g = t.open(ev.Group)
	g.noteReplaced(writes, now)
	t.writeOffsets(g, writes, out, func(_ types.Millis, code errcode.Code, out *Effects) {
		if code != errcode.None {
			out.reply(ev.Request, MirrorOffsetsResponse{Code: offsetWriteFailed(code)})
			return
		}
		out.reply(ev.Request, MirrorOffsetsResponse{Results: results})
	})
}

// replaced is an offset that a lower one of the source took the place of. Where a mirror
// follows another history, the source's offset often comes before the cut of the log:
// the cut then tells what the group has lost, though it finds nothing to lower.
type replaced struct {
	offset types.Offset
	until  types.Millis // when it is forgotten; 0: there is none
}

// replacedKept is how long a replaced offset waits for a cut to explain it, in ms: what a
// cut takes is kept in the vault first, and its coordinators may be away. Later
// ones have nothing to do with it: the group was taken back at the source.
const replacedKept types.Millis = 10 * 60_000

// noteReplaced keeps what mirrored offsets are about to take back.
func (g *group) noteReplaced(writes []offsetWrite, now types.Millis) {
	for _, w := range writes {
		o := g.offsets[w.tp]
		if o == nil || o.latest() == nil {
			continue
		}
		was, above := o.latest().Offset, o.atMost(now)
		switch {
		case w.value.Offset >= above:
			o.before = replaced{} // the group is past it again
		case was == above:
			o.before = replaced{offset: was, until: now + replacedKept}
		}
	}
}

// atMost is the highest offset that the group had lately, as far as a cut may still have to tell of it.
func (o *offset) atMost(now types.Millis) types.Offset {
	at := types.NoOffset
	if v := o.latest(); v != nil {
		at = v.Offset
	}
	if now < o.before.until {
		at = max(at, o.before.offset)
	}
	return at
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
func (t *Table) clamp(now types.Millis, ev Clamp, out *Effects) {
	ends := make(map[types.TopicPartition]types.Offset, len(ev.Cuts))
	for _, c := range ev.Cuts {
		if end, ok := ends[c.TopicPartition]; !ok || c.Offset < end {
			ends[c.TopicPartition] = c.Offset
		}
	}
	answer := &clampAnswer{request: ev.Request, awaited: 1} // one for this walk
	for _, id := range slices.Sorted(maps.Keys(t.groups)) {
		g := t.groups[id]
		t.clampGroup(now, g, ends, answer, out)
	}
	answer.awaited--
	answer.finish(errcode.None, out)
}

// clampAnswer gathers the outcome of the appends of one clamp.
type clampAnswer struct {
	request RequestID
	awaited int
	code    errcode.Code
	lowered []Lowered
}

func (a *clampAnswer) finish(code errcode.Code, out *Effects) {
	if code != errcode.None {
		a.code = offsetWriteFailed(code)
	}
	if a.awaited == 0 {
		out.reply(a.request, ClampResponse{Code: a.code, Lowered: a.lowered})
		a.request = NoRequest
	}
}

func (t *Table) clampGroup(now types.Millis, g *group, ends map[types.TopicPartition]types.Offset, answer *clampAnswer, out *Effects) {
	tps := make([]types.TopicPartition, 0, len(g.offsets))
	pending := g.pendingAbove(ends)
	for tp, o := range g.offsets {
		if end, cut := ends[tp]; cut && (max(o.high, o.atMost(now)) > end || pending[tp] > end) {
			tps = append(tps, tp)
		}
	}
	for tp := range pending {
		if g.offsets[tp] == nil {
			tps = append(tps, tp)
		}
	}
	sortPartitions(tps)
	var writes []offsetWrite
	var lowered []Lowered
	for _, tp := range tps {
		o, end := g.offsets[tp], ends[tp]
		if o == nil {
			// Written behind the transaction's offset, the cut's is the one that stays.
			writes = append(writes, offsetWrite{tp: tp, value: &Committed{Offset: end, LeaderEpoch: types.NoLeaderEpoch, CommittedAt: t.wall(now), ExpiresAt: types.NoTimestamp}})
			lowered = append(lowered, Lowered{Group: g.id, TopicPartition: tp, From: pending[tp], To: end, Cut: end})
			continue
		}
		v := o.latest()
		switch {
		case g.deleting || v == nil && o.inFlight > 0:
			// A removal is on its way. Should it fail, the offset is still there: ask again.
			answer.code = errcode.CoordinatorNotAvailable
			continue
		case v == nil: // a commit that was refused, and that a load may find
			writes = append(writes, offsetWrite{tp: tp})
			continue
		}
		low := *v
		if v.Offset > end {
			low.Offset, low.LeaderEpoch = end, types.NoLeaderEpoch
		}
		l := Lowered{Group: g.id, TopicPartition: tp, From: max(o.atMost(now), pending[tp]), To: low.Offset, Cut: end}
		if o.high <= end && pending[tp] == 0 { // the source's offset came before the cut
			answer.lowered = append(answer.lowered, l)
			o.before = replaced{}
			continue
		}
		if l.From > end {
			lowered = append(lowered, l)
		}
		// Also where the newest write in flight is below the cut already: it may fail and leave an older one.
		writes = append(writes, offsetWrite{tp: tp, value: &low})
	}
	if len(writes) == 0 {
		return
	}
	answer.awaited++
	t.writeOffsets(g, writes, out, func(_ types.Millis, code errcode.Code, out *Effects) {
		answer.awaited--
		if code == errcode.None {
			answer.lowered = append(answer.lowered, lowered...)
			g.forgetReplaced(lowered)
		}
		answer.finish(code, out)
	})
	for _, w := range writes {
		// Invariant I-75: after a cut no committed offset is above it.
		v := g.offsets[w.tp].latest()
		assert.That(v == nil || v.Offset <= ends[w.tp], "I-75: group %q at %v stays above the cut", g.id, w.tp)
	}
}

// forgetReplaced drops what has been told.
func (g *group) forgetReplaced(told []Lowered) {
	for _, l := range told {
		if o := g.offsets[l.TopicPartition]; o != nil && o.before.offset <= l.From {
			o.before = replaced{}
		}
	}
}
