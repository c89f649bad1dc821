package group

import (
	"maps"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// rebalanceOrCompleteJoin follows a change of the membership: it starts a
// rebalance, or ends the one that was waiting for just this.
func (t *Table) rebalanceOrCompleteJoin(g *group, now types.Millis, out *Effects) {
	switch g.state {
	case PreparingRebalance:
		if !g.initial && g.allJoined() {
			t.completeJoin(g, now, out)
		}
	case Empty, CompletingRebalance, Stable:
		t.prepareRebalance(g, now, out)
	case Dead:
	}
}

// prepareRebalance starts a rebalance. The first one of a group waits a little
// for more members (group.initial.rebalance.delay.ms), later ones wait for all
// members that are known, up to the largest of their rebalance timeouts.
func (t *Table) prepareRebalance(g *group, now types.Millis, out *Effects) {
	for _, m := range g.inOrder() {
		if m.syncing != NoRequest {
			m.answerSync(SyncResponse{Code: errcode.RebalanceInProgress}, out)
			g.keepAlive(m, now)
		}
	}
	clear(g.pendingSync)
	g.syncDeadline = 0
	g.syncWrite = 0
	g.initial = g.state == Empty
	g.setState(PreparingRebalance, t.wall(now))
	out.note(g, "", "group rebalances")
	timeout := g.rebalanceTimeout()
	if g.initial && t.cfg.InitialRebalanceDelay > 0 {
		g.newcomer = false
		g.initialBudget = max(timeout-t.cfg.InitialRebalanceDelay, 0)
		g.joinDeadline = now + t.cfg.InitialRebalanceDelay
		g.wakeAt(g.joinDeadline)
		return
	}
	// Kafka parity: a group's first rebalance doesn't wait for ids that were given out and not used yet.
	if g.initial || g.allJoined() {
		t.completeJoin(g, now, out)
		return
	}
	g.joinDeadline = now + timeout
	g.wakeAt(g.joinDeadline)
}

func (g *group) rebalanceTimeout() types.Millis {
	var longest types.Millis
	for _, m := range g.members {
		longest = max(longest, m.rebalance)
	}
	return longest
}

// expireJoin is the end of the wait for joins.
func (t *Table) expireJoin(g *group, now types.Millis, out *Effects) {
	if g.initial && g.newcomer && g.initialBudget > 0 {
		delay := min(t.cfg.InitialRebalanceDelay, g.initialBudget)
		g.newcomer = false
		g.initialBudget -= delay
		g.joinDeadline = now + delay
		g.wakeAt(g.joinDeadline)
		return
	}
	t.completeJoin(g, now, out)
}

// completeJoin ends the wait for joins: dynamic members that didn't come are
// out, static ones are kept until their session ends.
func (t *Table) completeJoin(g *group, now types.Millis, out *Effects) {
	g.joinDeadline = 0
	g.initial = false
	for _, m := range g.inOrder() {
		if m.joining == NoRequest && m.instance == "" {
			g.remove(m, errcode.UnknownMemberID, out)
			out.note(g, m.id, "member didn't join again in time")
		}
	}
	if len(g.members) > 0 && !g.electJoinedLeader() {
		// Only static members that didn't come: wait for them, or for their sessions to end.
		g.joinDeadline = now + g.rebalanceTimeout()
		g.wakeAt(g.joinDeadline)
		return
	}
	g.generation++
	// Invariant I-71: generations rise.
	assert.That(g.generation > 0, "I-71: group %q reached generation %d", g.id, g.generation)
	if len(g.members) == 0 {
		t.becomeEmpty(g, now, out)
		return
	}
	g.protocol = g.selectProtocol()
	g.readTopics()
	g.setState(CompletingRebalance, t.wall(now))
	g.pendingSync = make(map[string]struct{}, len(g.members))
	for _, m := range g.inOrder() {
		m.isNew = false
		m.answerJoin(g.joined(m), out)
		g.keepAlive(m, now)
		g.pendingSync[m.id] = struct{}{}
	}
	g.syncDeadline = now + g.rebalanceTimeout()
	g.wakeAt(g.syncDeadline)
}

// electJoinedLeader keeps the leader if it has joined, else takes the first member that has.
func (g *group) electJoinedLeader() bool {
	if m := g.members[g.leader]; m != nil && m.joining != NoRequest {
		return true
	}
	for _, m := range g.inOrder() {
		if m.joining != NoRequest {
			g.leader = m.id
			return true
		}
	}
	return false
}

func (t *Table) becomeEmpty(g *group, now types.Millis, out *Effects) {
	g.protocol, g.leader = "", ""
	g.topics = nil
	if g.protocolType == consumerProtocolType {
		g.topics = map[string]struct{}{}
	}
	g.setState(Empty, t.wall(now))
	out.note(g, "", "group is empty")
	g.persisted = true
	// A failed write is made good by the next one: an older record names
	// members whose sessions then end after a reload.
	t.append([]Record{GroupRecord{Group: g.id, Value: g.snapshot(nil)}}, out,
		func(types.Millis, errcode.Code, *Effects) {})
}

// leaveOne takes a member out and lets the others know.
func (t *Table) leaveOne(g *group, m *member, now types.Millis, out *Effects) {
	g.remove(m, errcode.UnknownMemberID, out)
	t.membersLeft(g, now, out)
}

// membersLeft follows the departure of members, or of ids that were given out and never used.
func (t *Table) membersLeft(g *group, now types.Millis, out *Effects) {
	switch g.state {
	case CompletingRebalance, Stable:
		t.prepareRebalance(g, now, out)
	case PreparingRebalance:
		// While the first rebalance waits for newcomers only its own deadline ends it.
		if g.allJoined() && (!g.initial || len(g.members) == 0) {
			t.completeJoin(g, now, out)
		}
	case Empty, Dead:
	}
}

// expire lets the deadlines of a group pass.
func (t *Table) expire(g *group, now types.Millis, out *Effects) {
	t.pump(g, now, out)
	left := false
	for _, id := range slices.Sorted(maps.Keys(g.pendingJoin)) {
		if g.pendingJoin[id] <= now {
			delete(g.pendingJoin, id)
			left = true
		}
	}
	stale := false
	for _, m := range g.inOrder() {
		if m.deadline != 0 && m.deadline <= now {
			g.remove(m, errcode.UnknownMemberID, out)
			out.note(g, m.id, "member's session ended")
			stale = true
		}
	}
	if stale || left && g.state == PreparingRebalance {
		t.membersLeft(g, now, out)
	}
	if g.joinDeadline != 0 && g.joinDeadline <= now {
		t.expireJoin(g, now, out)
	}
	if g.syncDeadline != 0 && g.syncDeadline <= now {
		t.expireSync(g, now, out)
	}
}

// expireSync removes the members that took their generation and never asked for
// their assignment: a leader that hangs there would stop the group for good.
func (t *Table) expireSync(g *group, now types.Millis, out *Effects) {
	g.syncDeadline = 0
	left := false
	for _, m := range g.inOrder() {
		if _, missing := g.pendingSync[m.id]; missing {
			g.remove(m, errcode.UnknownMemberID, out)
			out.note(g, m.id, "member didn't ask for its assignment in time")
			left = true
		}
	}
	clear(g.pendingSync)
	if left {
		t.membersLeft(g, now, out)
	}
}
