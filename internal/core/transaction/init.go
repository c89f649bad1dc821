package transaction

import (
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// WantsProducerID reports whether an Init or an End of the id would give out a new
// producer id: it has none yet, or its epochs have run out.
func (t *Table) WantsProducerID(id string) bool {
	x := t.ids[id]
	return x == nil || x.meta.Epoch >= lastClientEpoch
}

// init gives a producer its id and epoch. What an earlier producer of the
// transactional id has open is aborted first, above its epoch, so that whatever it
// still sends is refused (KIP-98); meanwhile the new one is told to come again.
func (t *Table) init(now types.Millis, ev Init, out *Effects) {
	switch {
	case ev.ID == "":
		out.answer(ev, errcode.InvalidRequest)
		return
	case ev.Timeout <= 0 || ev.Timeout > t.cfg.MaxTimeout:
		out.answer(ev, errcode.InvalidTransactionTimeout)
		return
	}
	x := t.ids[ev.ID]
	if t.park(x, ev, out) {
		return
	}
	if x == nil {
		if ev.FreshProducerID == types.NoProducer {
			out.answer(ev, errcode.ConcurrentTransactions) // the id went between the question and this
			return
		}
		x = &entry{id: ev.ID, meta: fresh(ev.FreshProducerID)}
		t.ids[ev.ID] = x
	}
	if !x.meta.admits(ev.ProducerID, ev.Epoch) {
		out.answer(ev, errcode.ProducerFenced)
		return
	}
	switch x.meta.State {
	case PrepareCommit, PrepareAbort:
		out.answer(ev, errcode.ConcurrentTransactions)
	case Ongoing:
		if ev.ProducerID != types.NoProducer && ev.Epoch != x.meta.Epoch {
			out.answer(ev, errcode.ProducerFenced) // a late copy: the producer has gone on
			return
		}
		t.decide(x, x.meta.fenced(t.wall(now)), out, func(code errcode.Code, out *Effects) {
			if code == errcode.None {
				code = errcode.ConcurrentTransactions
			}
			out.answer(ev, code)
		})
	default:
		t.begin(now, x, ev, out)
	}
}

// admits reports whether a producer may go on from the id and epoch it names
// (KIP-360): the present ones, or those before, whose answer was lost.
func (m *Metadata) admits(id types.ProducerID, epoch int16) bool {
	switch {
	case id == types.NoProducer || m.Epoch == NoEpoch:
		return true
	case id == m.ProducerID:
		return epoch == m.Epoch || m.LastEpoch != NoEpoch && epoch == m.LastEpoch
	}
	return id == m.PrevProducerID && epoch >= lastClientEpoch && m.Epoch == 0
}

// begin gives the next epoch, or the one that a repeated request was given.
func (t *Table) begin(now types.Millis, x *entry, ev Init, out *Effects) {
	next, wall := x.meta, t.wall(now)
	named := ev.ProducerID != types.NoProducer && x.meta.Epoch != NoEpoch
	repeated := named && (ev.ProducerID != x.meta.ProducerID || ev.Epoch != x.meta.Epoch)
	last := NoEpoch
	if named {
		last = x.meta.Epoch
	}
	switch {
	case repeated:
	case x.meta.Epoch >= lastClientEpoch:
		if ev.FreshProducerID == types.NoProducer {
			out.answer(ev, errcode.ConcurrentTransactions)
			return
		}
		next = next.renewed(ev.FreshProducerID, last)
	case t.Rules.InitKeepsEpoch && next.Epoch != NoEpoch:
	default:
		next.Epoch++
		next.LastEpoch = last
	}
	t.change(x, next.begun(wall, ev.Timeout), out, func(_ types.Millis, code errcode.Code, out *Effects) {
		if code != errcode.None {
			out.answer(ev, code)
			return
		}
		out.reply(ev.Request, InitResponse{ProducerID: x.meta.ProducerID, Epoch: x.meta.Epoch})
	})
}
