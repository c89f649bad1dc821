package transaction

import (
	"maps"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// Config is what a table needs of the broker's configuration, in milliseconds.
type Config struct {
	MaxTimeout   types.Millis // transaction.max.timeout.ms
	IDExpiration types.Millis // transactional.id.expiration.ms
}

// parkedMax bounds the requests that wait for a change of their id that is on its
// way to the log; more are told to come again (CONCURRENT_TRANSACTIONS).
const parkedMax = 256

// entry is one transactional id.
//
// Invariant I-360: at most one change of an id is on its way to the log.
type entry struct {
	id   string
	meta Metadata // what the log says
	// changing: a change is on its way to the log.
	changing bool
	// persisted: the log has a record of the id.
	persisted bool
	// startedAt is when the open transaction began, by the steps' time.
	startedAt types.Millis
	// unwritten are the partitions whose marker isn't known to be written.
	unwritten map[types.TopicPartition]struct{}
	// parked are requests that wait for the change, oldest first.
	parked []Event
}

// Table holds the transactional ids of one partition of __transaction_state. It
// has one owner; nothing in it is safe for concurrent use.
type Table struct {
	// Lost reports whether a partition belongs to another cluster's history by now: what
	// a transaction has in it was ended there, or cut. nil: none does. Set before the first Step.
	Lost func(types.TopicPartition) bool
	// Rules are switched off by the simulator alone; set before the first Step.
	Rules     Rules
	cfg       Config
	ids       map[string]*entry
	writes    []write // asked for and not yet completed, oldest first
	lastToken Token
	wallAhead types.Millis
	// retry are ids whose completion the log had no room for.
	retry    []string
	resigned bool
	// resignedWith is what everybody is told since.
	resignedWith errcode.Code
}

// write is an append whose completion is awaited.
type write struct {
	token Token
	done  func(now types.Millis, code errcode.Code, out *Effects)
}

// NewTable gives an empty table.
func NewTable(cfg Config) *Table { return &Table{cfg: cfg, ids: map[string]*entry{}} }

// SetWall says how far the wall clock is ahead of the steps' time. Steps' time must
// not jump, as it ends transactions; what goes into records is the wall clock's.
func (t *Table) SetWall(ahead types.Millis) { t.wallAhead = ahead }

func (t *Table) wall(now types.Millis) types.Millis { return now + t.wallAhead }

// IDs gives the number of transactional ids.
func (t *Table) IDs() int { return len(t.ids) }

// Replay takes one record of the log, in log order, before the first Step.
func (t *Table) Replay(r Record) {
	if r.Value == nil {
		delete(t.ids, r.ID)
		return
	}
	t.ids[r.ID] = &entry{id: r.ID, meta: *r.Value, persisted: true}
}

// Loaded ends the replay: decisions whose markers may not all be written are
// carried out, and open transactions are as old as the wall clock says.
func (t *Table) Loaded(now types.Millis, out *Effects) {
	for _, x := range t.inOrder() {
		switch {
		case x.meta.State.isPrepared():
			if !t.Rules.ForgetDecided {
				t.sendMarkers(now, x, out)
			}
		case x.meta.State == Ongoing:
			x.startedAt = now - max(0, t.wall(now)-x.meta.StartedAt)
		}
	}
}

func (t *Table) inOrder() []*entry {
	all := make([]*entry, 0, len(t.ids))
	for _, id := range slices.Sorted(maps.Keys(t.ids)) {
		all = append(all, t.ids[id])
	}
	return all
}

// Step applies one event at time now and adds its effects to out, to which it
// keeps no reference.
func (t *Table) Step(now types.Millis, ev Event, out *Effects) {
	if t.resigned {
		assert.That(false, "I-361: %T after the table has resigned", ev)
	}
	switch ev := ev.(type) {
	case Init:
		t.init(now, ev, out)
	case Add:
		t.add(now, ev, out)
	case End:
		t.end(now, ev, out)
	case MarkerWritten:
		t.markerWritten(now, ev, out)
	case Sweep:
		t.sweep(now, out)
	case EndWithin:
		t.endWithin(now, ev, out)
	case Appended:
		t.appended(now, ev, out)
	case Resign:
		t.resign(now, ev.Code, out)
	}
}

// change hands an id's next state to the log; done runs when it is there, or is
// certainly not.
func (t *Table) change(x *entry, next Metadata, out *Effects, done func(now types.Millis, code errcode.Code, out *Effects)) {
	assert.That(!x.changing, "I-360: a second change of transactional id %q is on its way (%s)", x.id, next.State)
	x.changing = true
	value := next
	t.append(Record{ID: x.id, Value: &value}, out, func(now types.Millis, code errcode.Code, out *Effects) {
		x.changing = false
		if code == errcode.None {
			x.meta, x.persisted = next, true
		}
		done(now, code, out)
		t.unpark(now, x, out)
	})
}

func (t *Table) append(r Record, out *Effects, done func(types.Millis, errcode.Code, *Effects)) {
	t.lastToken++
	t.writes = append(t.writes, write{token: t.lastToken, done: done})
	out.Appends = append(out.Appends, Append{Token: t.lastToken, Record: r})
}

func (t *Table) appended(now types.Millis, ev Appended, out *Effects) {
	// Invariant I-362: appends complete in the order in which they were asked for.
	assert.That(len(t.writes) > 0 && t.writes[0].token == ev.Token, "I-362: append %d completed out of order (%d await)", ev.Token, len(t.writes))
	w := t.writes[0]
	t.writes[0] = write{}
	t.writes = t.writes[1:]
	w.done(now, ev.Code, out)
}

// park has a request wait until the change of its id is done; false if it need
// not wait. Where too many wait, it is refused.
func (t *Table) park(x *entry, ev Event, out *Effects) bool {
	if x == nil || !x.changing {
		return false
	}
	if len(x.parked) >= parkedMax {
		out.answer(ev, errcode.ConcurrentTransactions)
		return true
	}
	x.parked = append(x.parked, ev)
	return true
}

// entryOf gives the id that a request names, nil if there is none yet; ok is false for
// one that is refused, or waits for a change of the id.
func (t *Table) entryOf(id string, ev Event, out *Effects) (x *entry, ok bool) {
	if id == "" {
		out.answer(ev, errcode.InvalidRequest)
		return nil, false
	}
	x = t.ids[id]
	return x, !t.park(x, ev, out)
}

// unpark takes up what waited for a change, in order; the first that changes the
// id anew has the rest wait again.
func (t *Table) unpark(now types.Millis, x *entry, out *Effects) {
	parked := x.parked
	x.parked = nil
	for _, ev := range parked {
		if t.resigned {
			out.answer(ev, t.resignedWith)
			continue
		}
		t.Step(now, ev, out)
	}
	if !x.persisted && !x.changing && t.ids[x.id] == x {
		delete(t.ids, x.id) // its first record was refused
	}
}

// resign answers everything that waits, in a fixed order.
func (t *Table) resign(now types.Millis, code errcode.Code, out *Effects) {
	t.resigned, t.resignedWith = true, code
	for _, w := range t.writes {
		w.done(now, code, out)
	}
	t.writes = nil
	clear(t.ids)
	out.Appends, out.Markers = out.Appends[:0], out.Markers[:0]
}
