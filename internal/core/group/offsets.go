package group

import (
	"cmp"
	"maps"
	"slices"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// offset is one partition's committed offset. durable is what clients are
// told. While writes are in flight, asked is the newest value among them (nil
// for a removal): what the log will say once they are done.
type offset struct {
	durable  *Committed
	asked    *Committed
	inFlight int
	order    uint64 // of durable's record
	// high is at or above every value that this offset can come to have once
	// the writes in flight have succeeded or failed, each by itself. A write that was
	// refused may be found by the next load: it counts until one behind it has succeeded.
	high types.Offset
	// before is what the source's offset has replaced that was above it.
	before replaced
}

func (o *offset) latest() *Committed {
	if o.inFlight > 0 {
		return o.asked
	}
	return o.durable
}

// mayBeInLog reports whether the log holds an offset, or may, once all writes are done.
func (o *offset) mayBeInLog() bool {
	return o.latest() != nil || o.inFlight == 0 && o.high != types.NoOffset
}

// offsetWrite stands for one change of one offset on its way to the log.
type offsetWrite struct {
	tp    types.TopicPartition
	value *Committed
	order uint64
}

// commit takes offsets also for the group without a name: consumers of long ago committed
// to it, and their offsets can be deleted (Kafka parity; it takes no members).
func (t *Table) commit(now types.Millis, ev Commit, out *Effects) {
	codes, writes := t.admit(now, ev.Request, ev.Offsets, func() errcode.Code { return t.validateCommit(now, ev) }, out)
	if len(writes) == 0 {
		return
	}
	t.writeOffsets(t.open(ev.Group), writes, out, func(_ types.Millis, code errcode.Code, out *Effects) {
		out.replyWritten(ev.Request, codes, code)
	})
}

// admit judges a commit: a code for each offset, and the writes of those that are taken.
// A commit without any is answered already.
func (t *Table) admit(now types.Millis, id RequestID, offsets []CommitOffset, validate func() errcode.Code, out *Effects) ([]errcode.Code, []offsetWrite) {
	if code := validate(); code != errcode.None {
		out.reply(id, CommitResponse{Code: code})
		return nil, nil
	}
	codes, writes := t.judgeOffsets(now, offsets)
	if len(writes) == 0 {
		out.reply(id, CommitResponse{Partitions: codes})
	}
	return codes, writes
}

// replyWritten answers a commit whose write has ended with code; codes are its offsets'.
func (e *Effects) replyWritten(id RequestID, codes []errcode.Code, code errcode.Code) {
	for i := range codes {
		if codes[i] == errcode.None {
			codes[i] = offsetWriteFailed(code)
		}
	}
	e.reply(id, CommitResponse{Partitions: codes})
}

// judgeOffsets gives a code for each offset, and the writes of those that are taken.
func (t *Table) judgeOffsets(now types.Millis, offsets []CommitOffset) ([]errcode.Code, []offsetWrite) {
	codes := make([]errcode.Code, len(offsets))
	writes := make([]offsetWrite, 0, len(offsets))
	for i, c := range offsets {
		if len(c.Metadata) > t.cfg.OffsetMetadataMaxBytes {
			codes[i] = errcode.OffsetMetadataTooLarge
			continue
		}
		v := &Committed{
			TopicID: c.TopicID, Offset: c.Offset, LeaderEpoch: c.LeaderEpoch, Metadata: c.Metadata,
			CommittedAt: t.wall(now), ExpiresAt: types.NoTimestamp,
		}
		if c.Retention >= 0 {
			v.ExpiresAt = t.wall(now) + c.Retention
		}
		writes = append(writes, offsetWrite{tp: types.TopicPartition{Topic: c.Topic, Partition: c.Partition}, value: v})
	}
	return codes, writes
}

// validateCommit decides whether the sender may commit, and keeps a member's session.
func (t *Table) validateCommit(now types.Millis, ev Commit) errcode.Code {
	g := t.group(ev.Group)
	if g == nil {
		switch {
		case ev.Generation < 0:
			return errcode.None
		case ev.UnknownGroupIsNotFound:
			return errcode.GroupIDNotFound
		}
		return errcode.IllegalGeneration
	}
	if g.deleting {
		return errcode.CoordinatorNotAvailable
	}
	if ev.Generation < 0 && g.isEmpty() {
		return errcode.None // the group only keeps offsets
	}
	if g.consumer != nil {
		return t.validateMemberCommit(g, ev)
	}
	if ev.Generation < 0 && ev.MemberID == "" && ev.InstanceID == "" {
		return errcode.UnknownMemberID // in a group with members only they commit
	}
	m, code := g.validate(ev.MemberID, ev.InstanceID)
	if code != errcode.None {
		return code
	}
	if ev.Generation != g.generation {
		return errcode.IllegalGeneration
	}
	// The member knows this generation from its join, so the assignment is on
	// its way. A commit while the group waits for joins is taken.
	if g.state == CompletingRebalance {
		return errcode.RebalanceInProgress
	}
	g.keepAlive(m, now)
	return errcode.None
}

// offsetWriteFailed is what a committer is told when the log refused its record.
func offsetWriteFailed(code errcode.Code) errcode.Code {
	switch code {
	case errcode.None, errcode.NotCoordinator, errcode.CoordinatorLoadInProgress, errcode.InvalidCommitOffsetSize:
		return code
	}
	return errcode.CoordinatorNotAvailable
}

// writeOffsets hands changes of a group's offsets to the log and takes them
// over when they are durable. done runs after that.
func (t *Table) writeOffsets(g *group, writes []offsetWrite, out *Effects, done func(types.Millis, errcode.Code, *Effects)) {
	records := make([]Record, 0, len(writes))
	for i, w := range writes {
		t.order++
		writes[i].order = t.order
		records = append(records, OffsetRecord{Group: g.id, TopicPartition: w.tp, Value: w.value})
	}
	g.persisted = true
	t.append(records, out, func(now types.Millis, code errcode.Code, out *Effects) {
		for _, w := range writes {
			g.offsetWritten(w, code)
		}
		done(now, code, out)
	})
	if g.offsets == nil {
		g.offsets = make(map[types.TopicPartition]*offset, len(writes))
	}
	for _, w := range writes {
		o := g.offsets[w.tp]
		if o == nil {
			o = &offset{high: types.NoOffset}
			g.offsets[w.tp] = o
		}
		o.asked = w.value
		o.inFlight++
		if w.value != nil {
			o.high = max(o.high, w.value.Offset)
		}
	}
}

// offsetWritten takes over one change. Writes complete in order, so the last
// one to complete is the newest.
func (g *group) offsetWritten(w offsetWrite, code errcode.Code) {
	o := g.offsets[w.tp]
	o.inFlight--
	if code == errcode.None && o.order < w.order {
		o.durable, o.order = w.value, w.order
	}
	if o.inFlight > 0 {
		return
	}
	o.asked = nil
	if code == errcode.None { // else what was refused may be in the log all the same, and high stays
		o.high = types.NoOffset
		if o.durable != nil {
			o.high = o.durable.Offset
		}
	}
	if !o.mayBeInLog() {
		delete(g.offsets, w.tp)
	}
}

// held gives the partitions that have an offset, or will have one when all
// writes are done, in order.
func (g *group) held() []types.TopicPartition {
	return g.partitions(func(o *offset) bool { return o.latest() != nil })
}

// keptInLog gives those of which the log may hold an offset, in order.
func (g *group) keptInLog() []types.TopicPartition { return g.partitions((*offset).mayBeInLog) }

func (g *group) partitions(of func(*offset) bool) []types.TopicPartition {
	var all []types.TopicPartition
	for tp, o := range g.offsets {
		if of(o) {
			all = append(all, tp)
		}
	}
	sortPartitions(all)
	return all
}

func sortPartitions(tps []types.TopicPartition) {
	slices.SortFunc(tps, func(a, b types.TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// removals are the writes that take away the offsets of partitions.
func removals(tps []types.TopicPartition) []offsetWrite {
	writes := make([]offsetWrite, len(tps))
	for i, tp := range tps {
		writes[i] = offsetWrite{tp: tp}
	}
	return writes
}

// Offset gives the committed offset of a partition as clients see it, nil if there is none.
func (t *Table) Offset(groupID string, tp types.TopicPartition) *Committed {
	g := t.group(groupID)
	if g == nil {
		return nil
	}
	o := g.offsets[tp]
	if o == nil {
		return nil
	}
	return o.durable
}

// OffsetEntry is one committed offset of a group.
type OffsetEntry struct {
	types.TopicPartition
	Committed
	// Unstable: a transaction that isn't ended has an offset for the partition.
	Unstable bool
}

// Offsets gives a group's committed offsets, ordered by topic and partition.
func (t *Table) Offsets(groupID string) []OffsetEntry {
	g := t.group(groupID)
	if g == nil {
		return nil
	}
	all := make([]OffsetEntry, 0, len(g.offsets))
	tps := slices.Collect(maps.Keys(g.offsets))
	sortPartitions(tps)
	for _, tp := range tps {
		if v := g.offsets[tp].durable; v != nil {
			all = append(all, OffsetEntry{TopicPartition: tp, Committed: *v, Unstable: g.isUnstable(tp)})
		}
	}
	return all
}
