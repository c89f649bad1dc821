package group

import (
	"bytes"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

func (t *Table) sync(now types.Millis, ev Sync, out *Effects) {
	fail := func(code errcode.Code) { out.reply(ev.Request, SyncResponse{Code: code}) }
	if ev.Group == "" {
		fail(errcode.InvalidGroupID)
		return
	}
	if t.closing != errcode.None {
		fail(t.closing)
		return
	}
	g := t.group(ev.Group)
	if g == nil {
		fail(errcode.UnknownMemberID)
		return
	}
	if g.deleting {
		fail(errcode.CoordinatorNotAvailable)
		return
	}
	m, code := g.validate(ev.MemberID, ev.InstanceID)
	switch {
	case code != errcode.None:
		fail(code)
	case ev.Generation != g.generation:
		fail(errcode.IllegalGeneration)
	case ev.ProtocolType != "" && ev.ProtocolType != g.protocolType,
		ev.Protocol != "" && ev.Protocol != g.protocol:
		fail(errcode.InconsistentGroupProtocol)
	case g.state == PreparingRebalance:
		fail(errcode.RebalanceInProgress)
	case g.state == CompletingRebalance:
		t.parkSync(g, m, now, ev, out)
	case g.state == Stable:
		delete(g.pendingSync, m.id)
		g.endSyncWait()
		g.keepAlive(m, now)
		out.reply(ev.Request, g.assigned(m))
	default:
		fail(errcode.UnknownMemberID)
	}
	g.check()
}

func (g *group) assigned(m *member) SyncResponse {
	return SyncResponse{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.assignment}
}

func (g *group) endSyncWait() {
	if len(g.pendingSync) == 0 {
		g.syncDeadline = 0
	}
}

func (t *Table) parkSync(g *group, m *member, now types.Millis, ev Sync, out *Effects) {
	m.answerSync(SyncResponse{Code: errcode.RebalanceInProgress}, out)
	m.syncing = ev.Request
	m.deadline = 0
	delete(g.pendingSync, m.id)
	g.endSyncWait()
	if m.id != g.leader || g.syncWrite != 0 {
		return
	}
	assignments := make(map[string][]byte, len(g.members))
	for _, a := range ev.Assignments {
		if g.members[a.MemberID] != nil {
			assignments[a.MemberID] = bytes.Clone(a.Data)
		}
	}
	value := g.snapshot(assignments)
	value.StateSince = t.wall(now)
	g.persisted = true
	generation := g.generation
	t.append([]Record{GroupRecord{Group: g.id, Value: value}}, out,
		func(now types.Millis, code errcode.Code, out *Effects) {
			t.assignmentWritten(g, generation, assignments, now, code, out)
		})
	g.syncWrite = t.lastToken
}

// assignmentWritten makes the group stable, unless it has moved on meanwhile.
func (t *Table) assignmentWritten(g *group, generation int32, assignments map[string][]byte, now types.Millis, code errcode.Code, out *Effects) {
	if g.state != CompletingRebalance || g.generation != generation || g.syncWrite == 0 {
		return
	}
	g.syncWrite = 0
	if code != errcode.None {
		for _, m := range g.inOrder() {
			m.assignment = nil
			if m.syncing != NoRequest {
				m.answerSync(SyncResponse{Code: groupWriteFailed(code)}, out)
				g.keepAlive(m, now)
			}
		}
		t.prepareRebalance(g, now, out)
		return
	}
	for _, m := range g.inOrder() {
		m.assignment = assignments[m.id]
		if m.syncing != NoRequest {
			m.answerSync(g.assigned(m), out)
			g.keepAlive(m, now)
		}
	}
	g.setState(Stable, t.wall(now))
	out.note(g, "", "group is stable")
}

// groupWriteFailed is what members are told when the log refused a group's
// record: the codes of "elsewhere" as they are; all else sends the member to
// look for the coordinator again and retry.
func groupWriteFailed(code errcode.Code) errcode.Code {
	if code == errcode.NotCoordinator || code == errcode.CoordinatorLoadInProgress {
		return code
	}
	return errcode.CoordinatorNotAvailable
}

func (t *Table) heartbeat(now types.Millis, ev Heartbeat) errcode.Code {
	if ev.Group == "" {
		return errcode.InvalidGroupID
	}
	g := t.group(ev.Group)
	if g == nil {
		return errcode.UnknownMemberID
	}
	if g.deleting {
		return errcode.CoordinatorNotAvailable
	}
	m, code := g.validate(ev.MemberID, ev.InstanceID)
	if code != errcode.None {
		return code
	}
	if ev.Generation != g.generation {
		return errcode.IllegalGeneration
	}
	switch g.state {
	case PreparingRebalance:
		g.keepAlive(m, now)
		return errcode.RebalanceInProgress
	case CompletingRebalance, Stable:
		g.keepAlive(m, now)
		return errcode.None
	}
	return errcode.UnknownMemberID
}

func (t *Table) leave(now types.Millis, ev Leave, out *Effects) {
	if ev.Group == "" {
		out.reply(ev.Request, LeaveResponse{Code: errcode.InvalidGroupID})
		return
	}
	codes := make([]errcode.Code, len(ev.Members))
	g := t.group(ev.Group)
	if g != nil && g.deleting {
		out.reply(ev.Request, LeaveResponse{Code: errcode.CoordinatorNotAvailable})
		return
	}
	left := false
	for i, who := range ev.Members {
		codes[i] = errcode.UnknownMemberID
		if g == nil {
			continue
		}
		if _, pending := g.pendingJoin[who.MemberID]; pending && who.MemberID != "" {
			delete(g.pendingJoin, who.MemberID)
			codes[i], left = errcode.None, true
			continue
		}
		memberID := who.MemberID
		if memberID == "" && who.InstanceID != "" {
			memberID = g.static[who.InstanceID] // an operator names the instance alone (KIP-345)
		}
		m, code := g.validate(memberID, who.InstanceID)
		codes[i] = code
		if code == errcode.None {
			g.remove(m, errcode.UnknownMemberID, out)
			out.note(g, m.id, "member left")
			left = true
		}
	}
	out.reply(ev.Request, LeaveResponse{Members: codes})
	if left {
		t.membersLeft(g, now, out)
	}
}
