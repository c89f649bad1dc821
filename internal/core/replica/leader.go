package replica

import (
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Leader is what the leader of a partition knows of its followers: their
// positions, the ISR with a change that is under way, and the high watermark
// that follows (R14, R15). The zero value leads nothing: Lead begins.
//
// Invariant I-87: the high watermark is at most the log end, and within a leader
// epoch it never falls but by a cut.
type Leader struct {
	Rules LeaderRules // for tests

	local    types.BrokerID
	lagMax   types.Millis // replica.lag.time.max.ms
	leads    bool
	revision int64 // of the record last shown
	epoch    types.LeaderEpoch
	// epochStart is the log end at the first sight of the epoch: who joins the
	// ISR must have reached it (R15), and latest offsets wait for it (KIP-207).
	epochStart types.Offset
	replicas   []types.BrokerID
	isr        []meta.ISRMember // committed
	minISR     int
	pending    *ISRChange
	followers  map[types.BrokerID]*progress
	brokers    map[types.BrokerID]BrokerView
	logEnd, hw types.Offset
	logStart   types.Offset // its own
}

// LeaderRules names rules that a test switches off to see that its checks find
// it. The zero value has every rule on; nothing but tests sets it.
type LeaderRules struct {
	CountUnproved       bool // R14: who has not fetched in this leader epoch counts as if it held everything
	JoinBelowEpochStart bool // R15: reaching the high watermark is enough
	JoinInAnyEpoch      bool // R15: a join carries the present registration, whichever the fetch was of
	JoinBelowLogStart   bool // R15: who joins may hold records that this leader has deleted
}

// progress is one follower's.
type progress struct {
	logEnd      types.Offset      // last fetch offset, -1 if none yet
	logStart    types.Offset      // as that fetch said, -1 if it didn't
	provedIn    types.LeaderEpoch // leader epoch of that fetch
	caughtUpAt  types.Millis
	fetchedAt   types.Millis
	leaderEndAt types.Offset // the leader's log end at that fetch
	brokerEpoch types.BrokerEpoch
}

// BrokerView is what the metadata says of a follower's broker.
type BrokerView struct {
	// Barred: fenced, not registered or shutting down: it may not join the ISR.
	Barred bool
	// Epoch is its present registration, NoBrokerEpoch if unknown.
	Epoch types.BrokerEpoch
}

// ISRChange is a proposed change of the ISR. At most one is under way.
type ISRChange struct {
	// ISR is the whole new ISR, ordered by broker id, the entries with the broker epoch of the fetch that proved them (R15).
	ISR   []meta.ISRMember
	added []meta.ISRMember // beyond the committed ISR; they count for the high watermark at once
}

// LeaderState is what the partition record and the log say when it is shown.
type LeaderState struct {
	// Revision of the record; an older one than the last is ignored.
	Revision      int64
	LeaderEpoch   types.LeaderEpoch
	Replicas      []types.BrokerID
	ISR           []meta.ISRMember
	MinISR        int // effective (R12); above the number of replicas it counts as that
	LogStart      types.Offset
	LogEnd        types.Offset
	HighWatermark types.Offset
	Now           types.Millis
	LagMax        types.Millis
}

// Lead takes a record that names this broker as leader. isNew: it did not lead
// before. ok is false for a record older than the last one shown, which changes nothing.
func (l *Leader) Lead(local types.BrokerID, s LeaderState) (isNew, ok bool) {
	if s.Revision < l.revision {
		return false, false
	}
	isNew = !l.leads
	before := l.revision
	risen := isNew || s.LeaderEpoch != l.epoch
	if risen {
		l.epochStart = s.LogEnd
	}
	if isNew {
		l.followers, l.hw = map[types.BrokerID]*progress{}, s.HighWatermark
	}
	l.forgetWhoLeft(s.ISR)
	l.local, l.leads, l.revision, l.epoch, l.lagMax = local, true, s.Revision, s.LeaderEpoch, s.LagMax
	l.replicas, l.isr, l.minISR = slices.Clone(s.Replicas), slices.Clone(s.ISR), min(s.MinISR, len(s.Replicas))
	l.logStart, l.logEnd = s.LogStart, s.LogEnd
	if isNew || s.Revision > before {
		l.pending = nil // whatever became of it, this record says so (R8)
	}
	for _, id := range l.replicas {
		if id == local {
			continue
		}
		p := l.followers[id]
		if p == nil {
			p = &progress{logEnd: types.NoOffset, logStart: types.NoOffset, provedIn: types.NoLeaderEpoch, leaderEndAt: types.NoOffset, brokerEpoch: types.NoBrokerEpoch}
			l.followers[id] = p
		}
		if risen && l.isCommitted(id) {
			p.caughtUpAt = s.Now
		}
	}
	l.moveHighWatermark()
	return isNew, true
}

// forgetWhoLeft has those whom another than this leader has taken out of the ISR prove
// their positions anew: one whose disk failed would be let in again for what it once
// fetched (R15). Whom this leader meant to take out was late, and what it has fetched since
// counts: it may stand at the end of an idle log, where it asks for nothing again (KIP-227). So
// does what a later process of a broker has fetched before its earlier one was taken out.
func (l *Leader) forgetWhoLeft(isr []meta.ISRMember) {
	for _, m := range l.isr {
		isHim := func(n meta.ISRMember) bool { return n.ID == m.ID }
		isOurs := l.pending != nil && !slices.ContainsFunc(l.pending.ISR, isHim)
		if p := l.followers[m.ID]; p != nil && !isOurs && p.brokerEpoch <= m.BrokerEpoch && !slices.ContainsFunc(isr, isHim) {
			p.provedIn = types.NoLeaderEpoch
		}
	}
}

// Resign ends the leadership; progress is forgotten. An older record changes nothing.
func (l *Leader) Resign(revision int64) bool {
	if revision < l.revision {
		return false
	}
	*l = Leader{Rules: l.Rules, revision: revision, hw: l.hw, logEnd: l.logEnd, brokers: l.brokers}
	return true
}

// SetBroker takes note of what the metadata says of a broker.
func (l *Leader) SetBroker(id types.BrokerID, v BrokerView) {
	if l.brokers == nil {
		l.brokers = map[types.BrokerID]BrokerView{}
	}
	l.brokers[id] = v
}

// HighWatermark is the present one.
func (l *Leader) HighWatermark() types.Offset { return l.hw }

// LogEnd is the log end that the leader last heard of.
func (l *Leader) LogEnd() types.Offset { return l.logEnd }

// LeaderEpoch is the epoch led in, false if this broker doesn't lead.
func (l *Leader) LeaderEpoch() (types.LeaderEpoch, bool) { return l.epoch, l.leads }

// EpochStart is the log end at the first sight of the leader epoch.
func (l *Leader) EpochStart() types.Offset { return l.epochStart }

// Pending is the ISR change under way, nil if there is none.
func (l *Leader) Pending() *ISRChange { return l.pending }

// MaximalISR are the brokers that the high watermark waits for: the committed
// ISR and pending additions, ordered by id.
func (l *Leader) MaximalISR() []types.BrokerID {
	var ids []types.BrokerID
	for _, m := range l.isr {
		ids = append(ids, m.ID)
	}
	if l.pending != nil {
		for _, m := range l.pending.added {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func (l *Leader) isCommitted(id types.BrokerID) bool {
	return slices.ContainsFunc(l.isr, func(m meta.ISRMember) bool { return m.ID == id })
}

// Appended takes note of the log end after an append and moves the high
// watermark where nobody else holds it (R14).
func (l *Leader) Appended(logEnd types.Offset) (moved bool) {
	assert.That(logEnd >= l.logEnd, "I-87: log end falls from %d to %d by an append", l.logEnd, logEnd)
	l.logEnd = logEnd
	return l.moveHighWatermark()
}

// Started takes note of where the own log starts now: who joins the ISR has
// to have heard of it.
func (l *Leader) Started(logStart types.Offset) { l.logStart = logStart }

// Cut takes note of a cut at o: every remembered position and the epoch start
// become at most o (R1).
func (l *Leader) Cut(o types.Offset) {
	l.logEnd, l.hw, l.epochStart = min(l.logEnd, o), min(l.hw, o), min(l.epochStart, o)
	for _, p := range l.followers {
		p.logEnd, p.leaderEndAt = min(p.logEnd, o), min(p.leaderEndAt, o)
	}
}

// Denial is why a request is refused.
type Denial int8

// Denials, by the Kafka error they become.
const (
	Granted             Denial = iota
	FencedLeaderEpoch          // FENCED_LEADER_EPOCH
	UnknownLeaderEpoch         // UNKNOWN_LEADER_EPOCH
	NotLeader                  // NOT_LEADER_OR_FOLLOWER
	OutOfRange                 // OFFSET_OUT_OF_RANGE
	OffsetNotAvailable         // OFFSET_NOT_AVAILABLE (KIP-207)
	NotEnoughReplicas          // NOT_ENOUGH_REPLICAS
	NotEnoughAfterwards        // NOT_ENOUGH_REPLICAS_AFTER_APPEND
)

// CheckEpoch is the fence of every request that carries a leader epoch, -1 if it doesn't say (KIP-320).
func (l *Leader) CheckEpoch(said types.LeaderEpoch) Denial {
	if !l.leads {
		return NotLeader
	}
	switch checkEpoch(l.epoch, said) {
	case AnswerFenced:
		return FencedLeaderEpoch
	case AnswerUnknownEpoch:
		return UnknownLeaderEpoch
	}
	return Granted
}

// FollowerFetch is a fetch of a replica as its leader counts it.
type FollowerFetch struct {
	Replica types.BrokerID
	// BrokerEpoch of the fetch, NoBrokerEpoch if it doesn't say (KIP-903).
	BrokerEpoch types.BrokerEpoch
	Offset      types.Offset
	// LogStart is the follower's, NoOffset if it doesn't say.
	LogStart    types.Offset
	LeaderEpoch types.LeaderEpoch // -1 if it doesn't say
	// Diverging: it was answered with a divergence or an error, so it proves nothing (KAFKA-13141).
	Diverging bool
	Now       types.Millis
}

// Fetched counts a follower's fetch: its position is proved, the high watermark
// may move, and a change that lets it join may be proposed.
func (l *Leader) Fetched(f FollowerFetch) (moved bool, propose *ISRChange, denied Denial) {
	if d := l.CheckEpoch(f.LeaderEpoch); d != Granted {
		return false, nil, d
	}
	p, ok := l.followers[f.Replica]
	if !ok {
		if f.LeaderEpoch >= 0 {
			return false, nil, UnknownLeaderEpoch // our image may lag behind its reassignment
		}
		return false, nil, NotLeader
	}
	known := l.brokerEpoch(f.Replica)
	if f.BrokerEpoch >= 0 && known >= 0 && f.BrokerEpoch < known && !l.Rules.JoinInAnyEpoch {
		return false, nil, NotLeader
	}
	if f.Diverging {
		return false, nil, Granted
	}
	p.fetched(f, l.logEnd, l.epoch)
	moved = l.moveHighWatermark()
	return moved, l.proposeJoin(f.Replica), Granted
}

func (l *Leader) brokerEpoch(id types.BrokerID) types.BrokerEpoch {
	v, ok := l.brokers[id]
	if !ok {
		return types.NoBrokerEpoch
	}
	return v.Epoch
}

// fetched moves the position. A follower is caught up when its fetch reaches the
// leader's log end, or, as of its previous fetch, when it reaches the log end of that time.
func (p *progress) fetched(f FollowerFetch, leaderEnd types.Offset, epoch types.LeaderEpoch) {
	switch {
	case f.Offset >= leaderEnd:
		p.caughtUpAt = max(p.caughtUpAt, f.Now)
	case p.leaderEndAt >= 0 && f.Offset >= p.leaderEndAt:
		p.caughtUpAt = max(p.caughtUpAt, p.fetchedAt)
	}
	p.logEnd, p.logStart, p.provedIn, p.brokerEpoch = f.Offset, f.LogStart, epoch, f.BrokerEpoch
	p.fetchedAt, p.leaderEndAt = f.Now, leaderEnd
}

// moveHighWatermark is R14: the smallest position proved in this leader epoch
// among the committed ISR and pending additions, while the committed ISR is large enough.
func (l *Leader) moveHighWatermark() bool {
	if !l.leads || len(l.isr) < l.minISR {
		return false
	}
	to := l.slowest(l.isr, l.logEnd)
	if l.pending != nil {
		to = l.slowest(l.pending.added, to)
	}
	if to <= l.hw {
		return false
	}
	l.hw = to
	assert.That(l.hw <= l.logEnd, "I-87: high watermark %d above the log end %d", l.hw, l.logEnd)
	return true
}

// slowest is the smallest position among members and to; -1 if one has proved
// nothing in this leader epoch.
func (l *Leader) slowest(members []meta.ISRMember, to types.Offset) types.Offset {
	for _, m := range members {
		if m.ID == l.local {
			continue
		}
		p := l.followers[m.ID]
		if p == nil || p.provedIn != l.epoch {
			if l.Rules.CountUnproved {
				continue
			}
			return types.NoOffset
		}
		to = min(to, p.logEnd)
	}
	return to
}

// StillCaughtUp takes note, before an append, of who stands at the log end: up
// to now they lack nothing. A session doesn't ask again for a partition that has
// nothing new, so that no fetch says it (KIP-227).
func (l *Leader) StillCaughtUp(now types.Millis) {
	for _, p := range l.followers {
		if p.provedIn == l.epoch && p.logEnd >= l.logEnd {
			p.caughtUpAt = max(p.caughtUpAt, now)
		}
	}
}

// Join proposes the first follower outside the ISR that may join, after
// something other than its fetch has changed; nil if none may, or a change is under
// way. Who would leave again for being late is not among them: below min ISR the
// high watermark stands, and one who fetches no more stays at it.
func (l *Leader) Join(now types.Millis) *ISRChange {
	if !l.leads {
		return nil
	}
	for _, id := range l.replicas {
		if p := l.followers[id]; p == nil || l.isLate(p, now) {
			continue
		}
		if change := l.proposeJoin(id); change != nil {
			return change
		}
	}
	return nil
}

// proposeJoin is R15: a follower that has reached the high watermark and the
// epoch's start may join, in the registration that it fetched in. It must have
// raised its log start too: what was told to be deleted on every in-sync replica
// would come back if it led next (KIP-107), and who can't raise it, because its
// vault is full (R29), would join at the high watermark again and again and lag again.
func (l *Leader) proposeJoin(id types.BrokerID) *ISRChange {
	p := l.followers[id]
	view, known := l.brokers[id]
	reach, in := max(l.hw, l.epochStart), p.brokerEpoch
	if l.Rules.JoinBelowEpochStart {
		reach = l.hw
	}
	if l.Rules.JoinInAnyEpoch && known {
		in = view.Epoch
	}
	switch {
	case l.pending != nil, l.isCommitted(id), p.provedIn != l.epoch, p.logEnd < reach:
		return nil
	case p.logStart != types.NoOffset && p.logStart < l.logStart && !l.Rules.JoinBelowLogStart:
		return nil
	case known && (view.Barred || view.Epoch != in): // a fetch that names no registration proves nothing for one
		return nil
	}
	m := meta.ISRMember{ID: id, BrokerEpoch: in}
	change := &ISRChange{ISR: append(slices.Clone(l.isr), m), added: []meta.ISRMember{m}}
	slices.SortFunc(change.ISR, func(a, b meta.ISRMember) int { return int(a.ID) - int(b.ID) })
	l.pending = change
	return change
}

// Shrink proposes an ISR without the members that are late: not at the log end,
// and not caught up for longer than the lag time. nil if nobody is, or a change is under way.
func (l *Leader) Shrink(now types.Millis) *ISRChange {
	if !l.leads || l.pending != nil {
		return nil
	}
	late := func(m meta.ISRMember) bool {
		p := l.followers[m.ID]
		return m.ID != l.local && p != nil && l.isLate(p, now)
	}
	if !slices.ContainsFunc(l.isr, late) {
		return nil
	}
	l.pending = &ISRChange{ISR: slices.DeleteFunc(slices.Clone(l.isr), late)}
	return l.pending
}

// isLate reports whether a follower lacks something and has for longer than the lag time.
func (l *Leader) isLate(p *progress, now types.Millis) bool {
	return p.logEnd != l.logEnd && now-p.caughtUpAt > l.lagMax
}

// ISRCommitted takes the answer that a proposed change is in force. It is dropped
// if nothing is pending, or if a later record was shown before.
func (l *Leader) ISRCommitted(isr []meta.ISRMember, revision int64) (applied bool) {
	if l.pending == nil || revision <= l.revision {
		return false
	}
	l.isr, l.revision, l.pending = slices.Clone(isr), revision, nil
	l.moveHighWatermark()
	return true
}

// ISRRefused drops the pending change: back to the committed ISR. A change of
// unknown outcome stays pending instead until the image shows a later record (R8).
func (l *Leader) ISRRefused() { l.pending = nil }

// HasFetchedAll reports whether every ISR member has fetched in this leader epoch (§6.2).
func (l *Leader) HasFetchedAll() bool {
	for _, m := range l.isr {
		if p := l.followers[m.ID]; m.ID != l.local && (p == nil || p.provedIn != l.epoch) {
			return false
		}
	}
	return true
}

// CanAppend refuses an acks=all write that could not be acknowledged now.
func (l *Leader) CanAppend(acksAll bool) Denial {
	switch {
	case !l.leads:
		return NotLeader
	case acksAll && len(l.isr) < l.minISR:
		return NotEnoughReplicas
	}
	return Granted
}

// ProduceStatus is the state of an acks=all write that waits for required (its
// last offset + 1).
func (l *Leader) ProduceStatus(required types.Offset) (done bool, d Denial) {
	switch {
	case !l.leads:
		return true, NotLeader
	case l.hw < required:
		return false, Granted
	case len(l.MaximalISR()) < l.minISR:
		return true, NotEnoughAfterwards
	}
	return true, Granted
}

// Latest is the latest offset as ListOffsets answers it: the log end to a
// replica, the high watermark to a consumer, but not before it has reached what
// the previous leader may have shown (KIP-207).
func (l *Leader) Latest(replica bool, said types.LeaderEpoch) (types.Offset, Denial) {
	if d := l.CheckEpoch(said); d != Granted {
		return types.NoOffset, d
	}
	switch {
	case replica:
		return l.logEnd, Granted
	case l.hw < l.epochStart:
		return types.NoOffset, OffsetNotAvailable
	}
	return l.hw, Granted
}

// ConsumerBound is the offset up to which a consumer's fetch at from may read.
// Between the high watermark and the log end there is nothing yet and no error (KAFKA-9838).
func (l *Leader) ConsumerBound(logStart, from types.Offset, said types.LeaderEpoch) (types.Offset, Denial) {
	if d := l.CheckEpoch(said); d != Granted {
		return types.NoOffset, d
	}
	if from < logStart || from > l.logEnd {
		return types.NoOffset, OutOfRange
	}
	return max(l.hw, from), Granted
}
