package group

import (
	"bytes"
	"slices"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

func (t *Table) join(now types.Millis, ev Join, out *Effects) {
	fail := func(code errcode.Code) {
		out.reply(ev.Request, JoinResponse{Code: code, MemberID: ev.MemberID, Generation: noGeneration})
	}
	if ev.Group == "" {
		fail(errcode.InvalidGroupID)
		return
	}
	if t.closing != errcode.None {
		fail(t.closing)
		return
	}
	if ev.SessionTimeout < t.cfg.MinSessionTimeout || ev.SessionTimeout > t.cfg.MaxSessionTimeout {
		fail(errcode.InvalidSessionTimeout)
		return
	}
	if ev.MemberID != "" && t.group(ev.Group) == nil {
		fail(errcode.UnknownMemberID)
		return
	}
	g := t.open(ev.Group)
	if g.deleting {
		fail(errcode.CoordinatorNotAvailable)
		return
	}
	if g.consumer != nil && !t.becomeClassic(g, ev.MemberID, out) {
		fail(errcode.InconsistentGroupProtocol)
		return
	}
	if !t.hasRoom(g, ev.MemberID) {
		if m := g.members[ev.MemberID]; m != nil {
			t.leaveOne(g, m, now, out)
		}
		delete(g.pendingJoin, ev.MemberID)
		fail(errcode.GroupMaxSizeReached)
		return
	}
	if !g.supports(ev.ProtocolType, ev.Protocols) {
		fail(errcode.InconsistentGroupProtocol)
		return
	}
	if ev.MemberID == "" {
		t.joinNew(g, now, ev, out)
		return
	}
	if _, pending := g.pendingJoin[ev.MemberID]; pending {
		if ev.InstanceID != "" {
			fail(errcode.UnknownMemberID) // ids are kept for dynamic members only
			return
		}
		t.addMember(g, ev.MemberID, now, ev, out)
		return
	}
	m, code := g.validate(ev.MemberID, ev.InstanceID)
	if code != errcode.None {
		fail(code)
		return
	}
	t.rejoin(g, m, now, ev, out)
}

// hasRoom applies group.max.size. A member that is in may come back, except
// that in PreparingRebalance the first to join get the places.
func (t *Table) hasRoom(g *group, memberID string) bool {
	m := g.members[memberID]
	switch g.state {
	case PreparingRebalance:
		return m != nil && m.joining != NoRequest || g.joiningCount() < t.cfg.MaxSize
	case CompletingRebalance, Stable:
		return m != nil || len(g.members) < t.cfg.MaxSize
	}
	return true
}

func (t *Table) joinNew(g *group, now types.Millis, ev Join, out *Effects) {
	switch {
	case ev.InstanceID != "":
		if owner, ok := g.static[ev.InstanceID]; ok {
			t.takeOver(g, g.members[owner], now, ev, out)
			return
		}
		t.addMember(g, ev.FreshMemberID, now, ev, out)
	case ev.RequireKnownMember:
		if g.pendingJoin == nil {
			g.pendingJoin = map[string]types.Millis{}
		}
		g.pendingJoin[ev.FreshMemberID] = now + ev.SessionTimeout
		g.wakeAt(now + ev.SessionTimeout)
		out.reply(ev.Request, JoinResponse{Code: errcode.MemberIDRequired, MemberID: ev.FreshMemberID, Generation: noGeneration})
	default:
		t.addMember(g, ev.FreshMemberID, now, ev, out)
	}
}

func (t *Table) addMember(g *group, id string, now types.Millis, ev Join, out *Effects) {
	m := &member{id: id, instance: ev.InstanceID, isNew: true}
	g.add(m)
	g.protocolType = ev.ProtocolType
	g.park(m, now, ev, out)
	if g.state == PreparingRebalance && g.initial {
		g.newcomer = true
	}
	t.rebalanceOrCompleteJoin(g, now, out)
}

// park takes over what the join says of the member and lets it wait.
func (g *group) park(m *member, now types.Millis, ev Join, out *Effects) {
	// A join that is sent again (a lost connection) takes the place of the first.
	m.answerJoin(JoinResponse{Code: errcode.RebalanceInProgress, MemberID: m.id, Generation: noGeneration}, out)
	m.answerSync(SyncResponse{Code: errcode.RebalanceInProgress}, out)
	m.describe(ev)
	m.joining = ev.Request
	m.deadline = 0
	if m.isNew {
		m.deadline = now + newMemberJoinTimeout
		g.wakeAt(m.deadline)
	}
}

func (m *member) describe(ev Join) {
	m.clientID, m.clientHost = ev.ClientID, ev.ClientHost
	m.session, m.rebalance = ev.SessionTimeout, ev.RebalanceTimeout
	if m.rebalance <= 0 {
		m.rebalance = m.session // v0 has no rebalance timeout
	}
	m.protocols = make([]Protocol, len(ev.Protocols))
	for i, p := range ev.Protocols {
		m.protocols[i] = Protocol{Name: p.Name, Metadata: bytes.Clone(p.Metadata)}
	}
}

// rejoin handles a join of a member that is in the group.
func (t *Table) rejoin(g *group, m *member, now types.Millis, ev Join, out *Effects) {
	same := m.supportsSame(ev.Protocols)
	switch g.state {
	case CompletingRebalance:
		if same {
			// The answer to its join may have been lost: say it again.
			out.reply(ev.Request, g.joined(m))
			g.keepAlive(m, now)
			return
		}
	case Stable:
		// A leader joins again to have the group assigned anew; a follower
		// with nothing new only wants to know the generation.
		if m.id != g.leader && same {
			out.reply(ev.Request, g.joined(m))
			g.keepAlive(m, now)
			return
		}
	case Empty, Dead:
		out.reply(ev.Request, JoinResponse{Code: errcode.UnknownMemberID, MemberID: ev.MemberID, Generation: noGeneration})
		return
	}
	g.park(m, now, ev, out)
	t.rebalanceOrCompleteJoin(g, now, out)
}

// joined is the answer to a member of a completed join.
func (g *group) joined(m *member) JoinResponse {
	r := JoinResponse{
		Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol,
		Leader: g.leader, MemberID: m.id,
	}
	if m.id == g.leader {
		r.Members = g.joinMembers()
	}
	return r
}

func (g *group) joinMembers() []JoinMember {
	all := make([]JoinMember, 0, len(g.members))
	for _, m := range g.inOrder() {
		metadata, _ := m.metadata(g.protocol)
		all = append(all, JoinMember{MemberID: m.id, InstanceID: m.instance, Metadata: metadata})
	}
	return all
}

// takeOver gives a static member's place to a new process with the same
// instance id (KIP-345). The old member id is fenced at once.
func (t *Table) takeOver(g *group, old *member, now types.Millis, ev Join, out *Effects) {
	leader := g.leader
	before := *old
	old.answerJoin(JoinResponse{Code: errcode.FencedInstanceID, MemberID: old.id, Generation: noGeneration}, out)
	old.answerSync(SyncResponse{Code: errcode.FencedInstanceID}, out)

	m := &member{id: ev.FreshMemberID, instance: ev.InstanceID, sequence: old.sequence, assignment: old.assignment, isNew: old.isNew}
	delete(g.members, old.id)
	delete(g.pendingSync, old.id)
	g.members[m.id] = m
	g.static[m.instance] = m.id
	if g.leader == old.id {
		g.leader = m.id
	}
	m.describe(ev)
	out.note(g, m.id, "static member came back with a new id")

	if g.state == Stable && g.selectProtocol() == g.protocol && g.sameSubscription(&before, m) {
		g.keepAlive(m, now)
		t.confirmTakeOver(g, m, leader, ev, out)
		return
	}
	g.park(m, now, ev, out)
	t.rebalanceOrCompleteJoin(g, now, out)
}

// confirmTakeOver makes the new member id durable and then lets the member go
// on in the present generation. A failed write leaves the new member in place:
// the old one is fenced already, and the client joins again.
func (t *Table) confirmTakeOver(g *group, m *member, leaderBefore string, ev Join, out *Effects) {
	r := g.joined(m)
	switch {
	case ev.CanSkipAssignment:
		r.SkipAssignment = m.id == g.leader
	default:
		// An old client that saw itself as leader would assign; it is told of the one that was.
		r.Leader = leaderBefore
		r.Members = nil
	}
	g.persisted = true
	t.append([]Record{GroupRecord{Group: g.id, Value: g.snapshot(nil)}}, out,
		func(_ types.Millis, code errcode.Code, out *Effects) {
			if code != errcode.None {
				r = JoinResponse{Code: groupWriteFailed(code), MemberID: m.id, Generation: noGeneration}
			}
			out.reply(ev.Request, r)
		})
}

// sameSubscription reports whether a returning static member asks for what it
// asked for before. Consumers' metadata carries owned partitions, which a
// restart empties; only the topics count there. (Kafka looks at the protocol's
// name alone, and so doesn't see a changed subscription.)
func (g *group) sameSubscription(a, b *member) bool {
	x, _ := a.metadata(g.protocol)
	y, _ := b.metadata(g.protocol)
	if bytes.Equal(x, y) {
		return true
	}
	if g.protocolType != consumerProtocolType {
		return false
	}
	before, errBefore := subscribedTopics(x)
	after, errAfter := subscribedTopics(y)
	if errBefore != nil || errAfter != nil {
		return false
	}
	slices.Sort(before)
	slices.Sort(after)
	return slices.Equal(before, after)
}
