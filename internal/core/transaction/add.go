package transaction

import (
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// add puts partitions into the transaction of a producer, which begins with the
// first of them, or says whether they are in it.
func (t *Table) add(now types.Millis, ev Add, out *Effects) {
	x, ok := t.entryOf(ev.ID, ev, out)
	if !ok {
		return
	}
	if code := x.judge(ev.ProducerID, ev.Epoch); code != errcode.None {
		out.answer(ev, code)
		return
	}
	switch {
	case x.meta.State.isPrepared():
		out.answer(ev, errcode.ConcurrentTransactions)
	case len(ev.Partitions) == 0, x.meta.State == Ongoing && x.meta.has(ev.Partitions):
		out.answer(ev, errcode.None)
	case ev.VerifyOnly:
		out.answer(ev, errcode.TransactionAbortable)
	default:
		t.extend(now, x, ev, out)
	}
}

// judge reports whether a request is of the present producer of the id.
func (x *entry) judge(id types.ProducerID, epoch int16) errcode.Code {
	switch {
	case x == nil || id != x.meta.ProducerID:
		return errcode.InvalidProducerIDMapping
	case epoch != x.meta.Epoch:
		return errcode.ProducerFenced
	}
	return errcode.None
}

func (t *Table) extend(now types.Millis, x *entry, ev Add, out *Effects) {
	next, wall := x.meta, t.wall(now)
	begins := next.State != Ongoing
	if begins {
		next.State, next.StartedAt, next.Partitions = Ongoing, wall, nil
	}
	next.Partitions, next.UpdatedAt = next.with(ev.Partitions), wall
	t.change(x, next, out, func(now types.Millis, code errcode.Code, out *Effects) {
		if code == errcode.None && begins {
			x.startedAt = now
		}
		out.answer(ev, code)
	})
}
