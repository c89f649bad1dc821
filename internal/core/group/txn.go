package group

import (
	"maps"
	"slices"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// TxnCommit is a TxnOffsetCommit request: offsets that become the group's with the
// COMMIT marker of the producer's transaction, and are dropped with its ABORT. It
// is answered with a CommitResponse.
type TxnCommit struct {
	Commit
	ProducerID    types.ProducerID
	ProducerEpoch int16
	// Guard goes with the append: what the partition's leader has learned of the transaction (KIP-890).
	Guard uint64
}

// EndTxn writes a transaction's marker into the log, behind all that its producer
// has committed, and carries it out. It is answered with a CodeResponse.
type EndTxn struct {
	Request          RequestID
	ProducerID       types.ProducerID
	ProducerEpoch    int16
	CoordinatorEpoch int32
	Commit           bool
	// Bumped: ProducerEpoch is above that of the transaction's records (KIP-890).
	Bumped bool
}

func (TxnCommit) event() {}
func (EndTxn) event()    {}

// Writer is the producer of a batch that is part of a transaction.
type Writer struct {
	ProducerID types.ProducerID
	Epoch      int16
}

// Marker is a batch that ends a transaction.
type Marker struct {
	Writer
	CoordinatorEpoch int32
	Commit, Bumped   bool
}

// pendingOffset is an offset that waits for its transaction's marker. order is its
// record's place among the group's records: whatever was committed behind it stays.
type pendingOffset struct {
	tp      types.TopicPartition
	value   *Committed
	order   uint64
	durable bool
}

func (t *Table) commitTxn(now types.Millis, ev TxnCommit, out *Effects) {
	codes, writes := t.admit(now, ev.Request, ev.Offsets, func() errcode.Code { return t.validateTxnCommit(now, ev) }, out)
	if len(writes) == 0 {
		return
	}
	g := t.open(ev.Group)
	g.persisted = true
	records := make([]Record, 0, len(writes))
	pending := make([]*pendingOffset, 0, len(writes))
	for _, w := range writes {
		t.order++
		p := &pendingOffset{tp: w.tp, value: w.value, order: t.order}
		pending = append(pending, p)
		g.await(ev.ProducerID, p)
		records = append(records, OffsetRecord{Group: g.id, TopicPartition: w.tp, Value: w.value})
	}
	t.appendAs(&Append{Records: records, Writer: &Writer{ev.ProducerID, ev.ProducerEpoch}, Guard: ev.Guard}, out, func(_ types.Millis, code errcode.Code, out *Effects) {
		for _, p := range pending {
			p.durable = code == errcode.None
			if code != errcode.None {
				g.drop(ev.ProducerID, p)
			}
		}
		out.replyWritten(ev.Request, codes, code)
	})
}

// validateTxnCommit decides whether the sender may commit: a member of the group is
// judged as one, whoever says nothing of itself is let through (KIP-447).
func (t *Table) validateTxnCommit(now types.Millis, ev TxnCommit) errcode.Code {
	g := t.group(ev.Group)
	switch {
	case ev.Group == "":
		return errcode.InvalidGroupID
	case g == nil && ev.Generation >= 0 && ev.UnknownGroupIsNotFound:
		return errcode.GroupIDNotFound
	case g == nil && ev.Generation >= 0:
		return errcode.IllegalGeneration
	case g == nil:
		return errcode.None
	case g.deleting:
		return errcode.CoordinatorNotAvailable
	case ev.Generation < 0 && g.isEmpty():
		return errcode.None // the group only keeps offsets
	case ev.Generation < 0 && ev.MemberID == "" && ev.InstanceID == "":
		return errcode.None
	case g.consumer != nil:
		if code := g.checkMemberCommit(t.topics, ev.Commit); code != errcode.StaleMemberEpoch {
			return code
		}
		return errcode.IllegalGeneration // producers know no other word for it
	}
	m, code := g.validate(ev.MemberID, ev.InstanceID)
	if code != errcode.None {
		return code
	}
	if ev.Generation != g.generation {
		return errcode.IllegalGeneration
	}
	g.keepAlive(m, now)
	return errcode.None
}

// endTxn has the marker written in turn with the group's records, so that what it
// ends is what lies before it in the log.
func (t *Table) endTxn(ev EndTxn, out *Effects) {
	marker := &Marker{Writer: Writer{ev.ProducerID, ev.ProducerEpoch}, CoordinatorEpoch: ev.CoordinatorEpoch, Commit: ev.Commit, Bumped: ev.Bumped}
	t.appendAs(&Append{Marker: marker}, out, func(_ types.Millis, code errcode.Code, out *Effects) {
		if code == errcode.None {
			t.ended(ev.ProducerID, ev.Commit)
		}
		out.reply(ev.Request, CodeResponse{Code: code})
	})
}

// ended makes a transaction's offsets the groups' own, or drops them.
func (t *Table) ended(id types.ProducerID, commit bool) {
	for _, groupID := range slices.Sorted(maps.Keys(t.groups)) {
		g := t.groups[groupID]
		pending := g.pending[id]
		if pending == nil {
			continue
		}
		delete(g.pending, id)
		for _, p := range pending {
			if commit && p.durable {
				g.take(p)
			}
		}
		t.settle(groupID)
	}
}

// take makes a pending offset the committed one, unless a later one is there.
func (g *group) take(p *pendingOffset) {
	if g.offsets == nil {
		g.offsets = map[types.TopicPartition]*offset{}
	}
	o := g.offsets[p.tp]
	if o == nil {
		o = &offset{high: types.NoOffset}
		g.offsets[p.tp] = o
	}
	if o.order > p.order {
		return
	}
	o.durable, o.order = p.value, p.order
	o.high = max(o.high, p.value.Offset)
}

func (g *group) await(id types.ProducerID, p *pendingOffset) {
	if g.pending == nil {
		g.pending = map[types.ProducerID][]*pendingOffset{}
	}
	// Of what is durable for a partition the newest alone counts.
	g.pending[id] = slices.DeleteFunc(g.pending[id], func(old *pendingOffset) bool {
		return old.tp == p.tp && old.durable && slices.ContainsFunc(g.pending[id], func(newer *pendingOffset) bool {
			return newer.tp == p.tp && newer.durable && newer.order > old.order
		})
	})
	g.pending[id] = append(g.pending[id], p)
}

func (g *group) drop(id types.ProducerID, p *pendingOffset) {
	g.pending[id] = slices.DeleteFunc(g.pending[id], func(x *pendingOffset) bool { return x == p })
	if len(g.pending[id]) == 0 {
		delete(g.pending, id)
	}
}

// isUnstable reports whether a transaction that isn't ended has an offset for the partition.
func (g *group) isUnstable(tp types.TopicPartition) bool {
	for _, list := range g.pending {
		if slices.ContainsFunc(list, func(p *pendingOffset) bool { return p.tp == tp }) {
			return true
		}
	}
	return false
}

// IsUnstable reports whether a partition's committed offset may change with the end
// of a transaction that is open (UNSTABLE_OFFSET_COMMIT, KIP-447).
func (t *Table) IsUnstable(groupID string, tp types.TopicPartition) bool {
	g := t.group(groupID)
	return g != nil && g.isUnstable(tp)
}

// pendingAbove lists the partitions with a pending offset above the cut, and what
// each holds at most.
func (g *group) pendingAbove(ends map[types.TopicPartition]types.Offset) map[types.TopicPartition]types.Offset {
	var above map[types.TopicPartition]types.Offset
	for _, list := range g.pending {
		for _, p := range list {
			end, cut := ends[p.tp]
			if !cut || p.value == nil || p.value.Offset <= end {
				continue
			}
			if above == nil {
				above = map[types.TopicPartition]types.Offset{}
			}
			above[p.tp] = max(above[p.tp], p.value.Offset)
		}
	}
	return above
}

// ReplayTxn takes one record of a transaction, in log order.
func (t *Table) ReplayTxn(id types.ProducerID, r Record) {
	o, ok := r.(OffsetRecord)
	if !ok || o.Value == nil {
		return // Kafka writes no others
	}
	g := t.open(o.Group)
	g.persisted = true
	t.order++
	g.await(id, &pendingOffset{tp: o.TopicPartition, value: o.Value, order: t.order, durable: true})
}

// ReplayMarker takes a transaction's end, in log order.
func (t *Table) ReplayMarker(id types.ProducerID, commit bool) { t.ended(id, commit) }
