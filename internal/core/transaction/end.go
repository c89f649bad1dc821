package transaction

import (
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// end decides a transaction. It is answered once the decision is durable; the
// markers follow.
func (t *Table) end(now types.Millis, ev End, out *Effects) {
	x, ok := t.entryOf(ev.ID, ev, out)
	if !ok {
		return
	}
	repeated := ev.Bumps && x != nil && x.meta.repeatsEnd(ev.ProducerID, ev.Epoch)
	if !repeated {
		if code := x.judge(ev.ProducerID, ev.Epoch); code != errcode.None {
			out.answer(ev, code)
			return
		}
	}
	decided, agrees := x.meta.decision(ev.Commit)
	switch {
	case ev.Commit && !repeated && t.hasLost(x):
		t.decide(x, x.meta.fenced(t.wall(now)), out, func(code errcode.Code, out *Effects) {
			if code == errcode.None {
				code = errcode.ProducerFenced
			}
			out.answer(ev, code)
		})
	case repeated && !decided:
		out.answer(ev, errcode.ProducerFenced) // a late copy: the producer is in its next transaction
	case decided && x.meta.State.isPrepared() && agrees:
		out.answer(ev, errcode.ConcurrentTransactions)
	case decided && agrees && (repeated || !ev.Bumps):
		id, epoch := x.meta.told()
		out.reply(ev.Request, EndResponse{ProducerID: id, Epoch: epoch})
	case x.meta.State == Ongoing || ev.Bumps && !ev.Commit && !repeated && !x.meta.State.isPrepared():
		t.finish(now, x, ev, out)
	default:
		out.answer(ev, errcode.InvalidTxnState)
	}
}

// hasLost reports whether an open transaction can't be committed any more: part of it
// belongs to another cluster's history.
func (t *Table) hasLost(x *entry) bool {
	return x.meta.State == Ongoing && t.Lost != nil && slices.ContainsFunc(x.meta.Partitions, t.Lost)
}

// decision reports whether the newest transaction is decided, and as asked.
func (m *Metadata) decision(commit bool) (decided, agrees bool) {
	switch m.State {
	case PrepareCommit, CompleteCommit:
		return true, commit
	case PrepareAbort, CompleteAbort:
		return true, !commit
	}
	return false, false
}

func (t *Table) finish(now types.Millis, x *entry, ev End, out *Effects) {
	if ev.Bumps && x.meta.Epoch >= lastClientEpoch && ev.FreshProducerID == types.NoProducer {
		out.answer(ev, errcode.ConcurrentTransactions)
		return
	}
	next := x.meta.ended(t.wall(now), ev.Commit, ev.Bumps, ev.FreshProducerID)
	t.decide(x, next, out, func(code errcode.Code, out *Effects) {
		if code != errcode.None {
			out.answer(ev, code)
			return
		}
		id, epoch := x.meta.told()
		out.reply(ev.Request, EndResponse{ProducerID: id, Epoch: epoch})
	})
}

// decide writes a decision, and has the markers sent once it is durable.
func (t *Table) decide(x *entry, next Metadata, out *Effects, answer func(errcode.Code, *Effects)) {
	if t.Rules.MarkersFirst {
		out.Markers = append(out.Markers, markersOf(x.id, &next))
	}
	t.change(x, next, out, func(now types.Millis, code errcode.Code, out *Effects) {
		answer(code, out)
		if code == errcode.None && !t.resigned {
			t.sendMarkers(now, x, out)
		}
	})
}

func (t *Table) sendMarkers(now types.Millis, x *entry, out *Effects) {
	// Invariant I-363: markers are sent of a decision that the log holds.
	assert.That(x.meta.State.isPrepared() && !x.changing, "I-363: markers of %q in state %s (changing %v)", x.id, x.meta.State, x.changing)
	if len(x.meta.Partitions) == 0 {
		t.complete(now, x, out)
		return
	}
	x.unwritten = make(map[types.TopicPartition]struct{}, len(x.meta.Partitions))
	for _, tp := range x.meta.Partitions {
		x.unwritten[tp] = struct{}{}
	}
	out.Markers = append(out.Markers, markersOf(x.id, &x.meta))
}

func markersOf(id string, m *Metadata) Markers {
	return Markers{ID: id, ProducerID: m.ProducerID, Epoch: m.Epoch, Commit: m.State == PrepareCommit, Bumped: m.Bumps, Partitions: m.Partitions}
}

func (t *Table) markerWritten(now types.Millis, ev MarkerWritten, out *Effects) {
	x := t.ids[ev.ID]
	if x == nil || !x.meta.State.isPrepared() || x.changing || ev.ProducerID != x.meta.ProducerID || ev.Epoch != x.meta.Epoch {
		return // of an earlier transaction, told twice
	}
	delete(x.unwritten, ev.Partition)
	if len(x.unwritten) == 0 {
		t.complete(now, x, out)
	}
}

// complete notes that nothing of the transaction is left to do. Until it is
// durable, a new coordinator writes the markers once more, which does no harm.
func (t *Table) complete(now types.Millis, x *entry, out *Effects) {
	t.change(x, x.meta.completed(t.wall(now)), out, func(now types.Millis, code errcode.Code, out *Effects) {
		if code != errcode.None && !t.resigned {
			x.unwritten = nil
			t.retry = append(t.retry, x.id) // the next sweep completes it
		}
	})
}

// sweep ends what is open for too long, or can't be committed any more, completes what the log had no room for,
// and forgets ids that nobody uses.
func (t *Table) sweep(now types.Millis, out *Effects) {
	retry := t.retry
	t.retry = nil
	for _, id := range retry {
		if x := t.ids[id]; x != nil && x.meta.State.isPrepared() && !x.changing {
			t.complete(now, x, out)
		}
	}
	wall := t.wall(now)
	for _, x := range t.inOrder() {
		switch {
		case x.changing:
		case x.meta.State == Ongoing && now-x.startedAt >= x.meta.Timeout && !t.Rules.NoTimeouts:
			out.Notes = append(out.Notes, Note{ID: x.id, What: "transaction was open for too long and is aborted", Metadata: x.meta})
			t.decide(x, x.meta.fenced(wall), out, func(errcode.Code, *Effects) {})
		case t.hasLost(x):
			out.Notes = append(out.Notes, Note{ID: x.id, What: "transaction is aborted: partitions of it are another cluster's mirrors now", Metadata: x.meta})
			t.decide(x, x.meta.fenced(wall), out, func(errcode.Code, *Effects) {})
		case x.meta.State == Empty || x.meta.State == CompleteCommit || x.meta.State == CompleteAbort:
			if wall-x.meta.UpdatedAt >= t.cfg.IDExpiration {
				t.forget(x, out)
			}
		}
	}
}

// forget takes an id out once the log says so.
func (t *Table) forget(x *entry, out *Effects) {
	x.changing = true
	t.append(Record{ID: x.id}, out, func(now types.Millis, code errcode.Code, out *Effects) {
		x.changing = false
		if code == errcode.None && t.ids[x.id] == x {
			delete(t.ids, x.id)
		}
		t.unpark(now, x, out)
	})
}
