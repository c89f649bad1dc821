package group

import (
	"cmp"
	"maps"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/types"
)

// Config is what a table needs of the broker's configuration. Times are in
// milliseconds, sizes in bytes; the names are Kafka's keys.
type Config struct {
	InitialRebalanceDelay  types.Millis // group.initial.rebalance.delay.ms
	MinSessionTimeout      types.Millis // group.min.session.timeout.ms
	MaxSessionTimeout      types.Millis // group.max.session.timeout.ms
	MaxSize                int          // group.max.size, in members
	OffsetMetadataMaxBytes int          // offset.metadata.max.bytes
	OffsetsRetention       types.Millis // offsets.retention.minutes
	// Consumer is of groups of the new protocol (KIP-848).
	Consumer consumer.Config
}

// newMemberJoinTimeout is how long a member in its first join may wait for the
// others: Kafka's fixed five minutes, which bounds the life of a member whose
// client has gone away before it learned its id.
const newMemberJoinTimeout types.Millis = 5 * 60 * 1000

// Table holds the groups of one partition of __consumer_offsets. It has one
// owner; nothing in it is safe for concurrent use.
type Table struct {
	cfg       Config
	groups    map[string]*group
	timers    timers
	writes    []write // asked for and not yet completed, oldest first
	lastToken Token
	order     uint64 // of the newest record
	wallAhead types.Millis
	// closing, if not None, is what joins and syncs are answered with: see Unpark.
	closing errcode.Code
	// resigned, if not None, is what everything is answered with.
	resigned errcode.Code
	topics   consumer.Topics
}

// write is an append whose completion is awaited. done gets None or the failure.
type write struct {
	token Token
	done  func(now types.Millis, code errcode.Code, out *Effects)
}

// NewTable gives an empty table.
func NewTable(cfg Config) *Table {
	return &Table{cfg: cfg, groups: map[string]*group{}, topics: noTopics{}}
}

// SetWall says how far the wall clock is ahead of the time that steps are
// given. Steps' time must not jump, as it ends sessions; what goes into records
// and what is judged by them (commit times, retention) is the wall clock's.
func (t *Table) SetWall(ahead types.Millis) { t.wallAhead = ahead }

// SetTopics says what topics there are, from the next step on.
func (t *Table) SetTopics(topics consumer.Topics) { t.topics = topics }

func (t *Table) wall(now types.Millis) types.Millis { return now + t.wallAhead }

// Step applies one event at time now and adds its effects to out. It keeps no
// reference to out. Time must not go backwards between steps; a step in the
// past is treated as it stands and only delays timers.
func (t *Table) Step(now types.Millis, ev Event, out *Effects) {
	switch ev := ev.(type) {
	case Join:
		t.join(now, ev, out)
		t.settle(ev.Group)
	case Sync:
		t.sync(now, ev, out)
	case Heartbeat:
		out.reply(ev.Request, CodeResponse{Code: t.heartbeat(now, ev)})
	case ConsumerHeartbeat:
		t.consumerHeartbeat(now, ev, out)
		t.settle(ev.Group)
	case Leave:
		t.leave(now, ev, out)
		t.settle(ev.Group)
	case Commit:
		t.commit(now, ev, out)
	case TxnCommit:
		t.commitTxn(now, ev, out)
	case EndTxn:
		t.endTxn(ev, out)
	case DeleteOffsets:
		t.deleteOffsets(ev, out)
	case DeleteGroup:
		t.deleteGroup(ev, out)
	case MirrorOffsets:
		t.mirrorOffsets(now, ev, out)
	case Clamp:
		t.clamp(now, ev, out)
	case ForgetTopics:
		t.forgetTopics(ev, out)
	case SweepOffsets:
		t.sweep(now, out)
	case Appended:
		t.appended(now, ev, out)
	case Tick:
		t.tick(now, out)
	case Unpark:
		t.closing = ev.Code
		t.unpark(now, ev.Code, out)
	case Resign:
		t.resign(now, ev.Code, out)
	}
}

// Deadline gives the time by which a Tick is due, and false if none is.
// It may be early: a Tick that finds nothing due does nothing.
func (t *Table) Deadline() (types.Millis, bool) { return t.timers.next() }

// Pending gives the number of appends whose completion is awaited.
func (t *Table) Pending() int { return len(t.writes) }

// Groups gives the number of groups.
func (t *Table) Groups() int { return len(t.groups) }

// append asks for records to be written; done runs when the outcome is known.
func (t *Table) append(records []Record, out *Effects, done func(types.Millis, errcode.Code, *Effects)) {
	t.appendAs(&Append{Records: records}, out, done)
}

func (t *Table) appendAs(a *Append, out *Effects, done func(types.Millis, errcode.Code, *Effects)) {
	t.lastToken++
	a.Token = t.lastToken
	t.writes = append(t.writes, write{token: a.Token, done: done})
	out.Appends = append(out.Appends, *a)
}

func (t *Table) appended(now types.Millis, ev Appended, out *Effects) {
	// Invariant I-70: appends complete in the order in which they were asked for.
	assert.That(len(t.writes) > 0 && t.writes[0].token == ev.Token,
		"I-70: append %d completed out of order (%d await)", ev.Token, len(t.writes))
	w := t.writes[0]
	t.writes[0] = write{}
	t.writes = t.writes[1:]
	w.done(now, ev.Code, out)
}

// resign answers everything that waits, in a fixed order: writes first, then parked members.
func (t *Table) resign(now types.Millis, code errcode.Code, out *Effects) {
	t.resigned = code
	for len(t.writes) > 0 {
		w := t.writes[0]
		t.writes = t.writes[1:]
		w.done(now, code, out)
	}
	t.unpark(now, code, out)
	for _, id := range slices.Sorted(maps.Keys(t.groups)) {
		t.pump(t.groups[id], now, out)
	}
	clear(t.groups)
	t.timers = nil
	// The writes' completions may have asked for more; nobody carries them out.
	t.writes = nil
	out.Appends = out.Appends[:0]
}

// unpark answers the parked members, in a fixed order.
func (t *Table) unpark(now types.Millis, code errcode.Code, out *Effects) {
	for _, id := range slices.Sorted(maps.Keys(t.groups)) {
		g := t.groups[id]
		for _, m := range g.inOrder() {
			m.answerJoin(JoinResponse{Code: code, MemberID: m.id, Generation: noGeneration}, out)
			m.answerSync(SyncResponse{Code: code}, out)
			g.keepAlive(m, now)
		}
	}
}

func (t *Table) tick(now types.Millis, out *Effects) {
	var due []*group
	for {
		g := t.timers.due(now)
		if g == nil {
			break
		}
		if t.groups[g.id] == g {
			due = append(due, g)
		}
	}
	slices.SortFunc(due, func(a, b *group) int { return cmp.Compare(a.id, b.id) })
	for _, g := range due {
		t.expire(g, now, out)
		g.rest()
		t.settle(g.id)
	}
}

// group gives a group that exists and isn't being deleted.
func (t *Table) group(id string) *group {
	return t.groups[id]
}

// open gives the group, made if it doesn't exist.
func (t *Table) open(id string) *group {
	g := t.groups[id]
	if g == nil {
		g = newGroup(id)
		g.timers = &t.timers
		t.groups[id] = g
	}
	return g
}

// settle drops a group that holds nothing and was never written: what an
// unanswered or refused join leaves behind must not take memory forever.
func (t *Table) settle(id string) {
	g := t.groups[id]
	if g == nil {
		return
	}
	g.check()
	if g.isVacant() && !g.persisted {
		t.drop(g)
	}
}

func (t *Table) drop(g *group) {
	// Invariant I-77: a group that is taken out is the one that is in.
	assert.That(t.groups[g.id] == g, "I-77: group %q is dropped twice", g.id)
	delete(t.groups, g.id)
	g.wake = 0 // what timers still hold of it is stale
}
