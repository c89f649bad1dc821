package consumer

import (
	"slices"
	"strings"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// Env is what a step of a group goes by. Now is steady, Wall the wall clock's time.
type Env struct {
	Now, Wall types.Millis
	Topics    Topics
}

// Heartbeat is a ConsumerGroupHeartbeat request. What the request leaves out is nil, or
// below 0, and stays as it is.
type Heartbeat struct {
	MemberID string
	// FreshMemberID is the id to give to a member that brings none (v0).
	FreshMemberID        string
	Epoch                int32
	InstanceID, RackID   *string
	ClientID, ClientHost string
	RebalanceTimeout     types.Millis
	Topics               []string
	HasTopics            bool
	Regex                *string
	Assignor             *string
	// Owned are the partitions that the member has and hasn't let go of.
	Owned    []Partition
	HasOwned bool
	// OwnMemberID: the member must bring its own id (v1+).
	OwnMemberID bool
	// Sees says which topics the sender may know of (DESCRIBE): its expressions stand for
	// those alone; nil: for all.
	Sees func(topic string) bool
}

// Answer tells a member its epoch and, when that is news, what it may read.
type Answer struct {
	MemberID          string
	Epoch             int32
	HeartbeatInterval types.Millis
	HasAssignment     bool
	Assignment        []Partition
}

// Validate refuses a heartbeat that makes no sense by itself.
func (h *Heartbeat) Validate(cfg *Config, groupID string) *Refusal {
	bad := func(message string) *Refusal { return refuse(errcode.InvalidRequest, "%s", message) }
	isBlank := func(s *string) bool { return s != nil && strings.TrimSpace(*s) == "" }
	switch {
	case strings.TrimSpace(h.MemberID) == "" && (h.OwnMemberID || h.Epoch != JoinEpoch):
		return bad("MemberId can't be empty.")
	case strings.TrimSpace(groupID) == "":
		return bad("GroupId can't be empty.")
	case isBlank(h.InstanceID):
		return bad("InstanceId can't be empty.")
	case isBlank(h.RackID):
		return bad("RackId can't be empty.")
	case h.Epoch < StaticLeaveEpoch:
		return bad("MemberEpoch is invalid.")
	case h.Epoch == StaticLeaveEpoch && h.InstanceID == nil:
		return bad("InstanceId can't be null.")
	case h.Epoch != JoinEpoch:
	case h.RebalanceTimeout < 0:
		return bad("RebalanceTimeoutMs must be provided in first request.")
	case !h.HasOwned || len(h.Owned) > 0:
		return bad("TopicPartitions must be empty when (re-)joining.")
	case !h.HasTopics && h.Regex == nil:
		return bad("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
	}
	if h.Assignor != nil && !slices.Contains(cfg.Assignors, *h.Assignor) {
		return refuse(errcode.UnsupportedAssignor, "ServerAssignor %s is not supported. Supported assignors: %s.", *h.Assignor, strings.Join(cfg.Assignors, ", "))
	}
	return nil
}

// Filed is a heartbeat that has been taken and waits for its answer.
type Filed struct {
	h      Heartbeat
	was    Position // the member's, before
	leaves bool     // it is answered with answer
	answer Answer
}

// File takes a valid heartbeat: who the member is and what it wants. Several may be filed
// before they are answered: they share one computation of the target.
func (g *Group) File(env Env, h Heartbeat) (Filed, *Refusal) {
	if h.Epoch == LeaveEpoch || h.Epoch == StaticLeaveEpoch {
		answer, refused := g.leave(env, h)
		return Filed{h: h, leaves: true, answer: answer}, refused
	}
	if h.MemberID == "" {
		h.MemberID = h.FreshMemberID
	}
	if refused := g.admit(h); refused != nil {
		return Filed{}, refused
	}
	before := g.members[h.MemberID]
	if h.InstanceID != nil {
		before = g.takeOver(env, h, before)
	}
	f := Filed{h: h}
	if before != nil {
		f.was = before.Position
	}
	g.subscribe(env, h, before)
	g.keepAlive(h.MemberID, env.Now)
	return f, nil
}

// Answer takes the member of a filed heartbeat as far as it can go, and tells it where it
// is. The answer may be given once the changes are kept.
func (g *Group) Answer(env Env, f Filed) (Answer, *Refusal) {
	if f.leaves {
		return f.answer, nil
	}
	m := g.members[f.h.MemberID]
	if m == nil { // what was filed behind it has taken it out, or taken its place
		return Answer{}, refuse(errcode.UnknownMemberID, "Member %s is not a member of group %s any more.", f.h.MemberID, g.id)
	}
	if g.epoch > g.targetEpoch {
		g.retarget(env.Topics)
	}
	m = g.reconcile(env, m, f.h)
	if len(g.changes) > 0 {
		g.Check()
	}
	a := Answer{MemberID: m.ID, Epoch: m.Epoch, HeartbeatInterval: g.cfg.HeartbeatInterval}
	if f.h.isFull() || f.h.Epoch != f.was.Epoch || !samePartitions(f.was.Assigned, m.Assigned) {
		a.HasAssignment, a.Assignment = true, m.Assigned.Sorted()
	}
	return a, nil
}

// isFull reports whether the member tells all of itself, and so wants to be told all.
func (h *Heartbeat) isFull() bool {
	return h.Epoch == JoinEpoch || h.RebalanceTimeout >= 0 && (h.HasTopics || h.Regex != nil) && h.HasOwned
}

// admit decides whether the sender is, or may become, the member that it says it is.
func (g *Group) admit(h Heartbeat) *Refusal {
	m := g.members[h.MemberID]
	if refused := g.admitRegex(h); refused != nil {
		return refused
	}
	if refused := g.admitSize(h, m); refused != nil {
		return refused
	}
	if h.InstanceID != nil {
		return g.admitStatic(h)
	}
	switch {
	case m == nil && h.Epoch != JoinEpoch:
		return g.noMember(h.MemberID)
	case m == nil:
		return nil
	}
	return h.checkEpoch(m)
}

// admitRegex refuses an expression that is none. One that is in use was looked at before.
func (g *Group) admitRegex(h Heartbeat) *Refusal {
	if h.Regex == nil || *h.Regex == "" || g.patterns[*h.Regex] != nil {
		return nil
	}
	_, refused := compile(*h.Regex)
	return refused
}

func (g *Group) admitSize(h Heartbeat, m *Member) *Refusal {
	if m != nil || len(g.members) < g.cfg.MaxSize {
		return nil
	}
	if h.InstanceID != nil && g.static[*h.InstanceID] != "" {
		return nil
	}
	return refuse(errcode.GroupMaxSizeReached, "The consumer group has reached its maximum capacity of %d members.", g.cfg.MaxSize)
}

// admitStatic is admit for a member that names an instance (KIP-345, KIP-848).
func (g *Group) admitStatic(h Heartbeat) *Refusal {
	holder := g.members[g.static[*h.InstanceID]]
	switch {
	case h.Epoch == JoinEpoch && holder == nil:
		return nil
	// Kafka refuses also a member that comes back under its own id after it was fenced; it owns nothing any more.
	case h.Epoch == JoinEpoch && holder.ID != h.MemberID && !holder.hasLeft():
		return refuse(errcode.UnreleasedInstanceID, "Static member %s with instance id %s cannot join the group because the instance id is owned by %s member.", h.MemberID, *h.InstanceID, holder.ID)
	case h.Epoch == JoinEpoch:
		return nil
	case holder == nil:
		return refuse(errcode.UnknownMemberID, "Instance id %s is unknown.", *h.InstanceID)
	case holder.ID != h.MemberID:
		return refuse(errcode.FencedInstanceID, "Static member %s with instance id %s was fenced by member %s.", h.MemberID, *h.InstanceID, holder.ID)
	}
	return h.checkEpoch(holder)
}

// checkEpoch fences a member that isn't in its epoch. One that comes with the epoch
// before, and has no more than it was given, has missed an answer.
func (h *Heartbeat) checkEpoch(m *Member) *Refusal {
	switch {
	case h.Epoch == JoinEpoch || h.Epoch == m.Epoch:
		return nil
	case h.Epoch > m.Epoch:
		return refuse(errcode.FencedMemberEpoch, "The consumer group member has a greater member epoch (%d) than the one known by the group coordinator (%d). The member must abandon all its partitions and rejoin.", h.Epoch, m.Epoch)
	case h.Epoch == m.Previous && h.HasOwned && !slices.ContainsFunc(h.Owned, func(p Partition) bool { _, ok := m.Assigned[p]; return !ok }):
		return nil
	}
	return refuse(errcode.FencedMemberEpoch, "The consumer group member has a smaller member epoch (%d) than the one known by the group coordinator (%d). The member must abandon all its partitions and rejoin.", h.Epoch, m.Epoch)
}

// takeOver gives a static member's place to the member that comes in its stead, and gives
// that one; before if nobody had the place. What it was to have stays as it is, so that nothing moves.
func (g *Group) takeOver(env Env, h Heartbeat, before *Member) *Member {
	old := g.members[g.static[*h.InstanceID]]
	switch {
	case old == nil || old == before:
		return before
	case before != nil: // it has a place of its own already
		g.remove(old, env)
		return before
	}
	target := g.targets[old.ID]
	id := h.MemberID
	g.write(PositionRecord{Member: old.ID})
	g.write(TargetRecord{Member: old.ID, Gone: true})
	g.write(ProfileRecord{Member: old.ID})
	delete(g.sessions, old.ID)
	delete(g.revokes, old.ID)
	profile, position := old.Profile, old.Position
	position.Epoch, position.Previous = 0, 0
	g.write(ProfileRecord{Member: id, Value: &profile})
	g.write(TargetRecord{Member: id, Partitions: target})
	g.write(PositionRecord{Member: id, Value: &position})
	return g.members[id]
}

// profile is what a member says of itself now; before may be nil. It points into nothing of the request.
func (h *Heartbeat) profile(before *Member) Profile {
	p := Profile{}
	if before != nil {
		p = before.Profile
	}
	set := func(to *string, said *string) {
		if said != nil && *to != *said {
			*to = *said
		}
	}
	set(&p.InstanceID, h.InstanceID)
	set(&p.RackID, h.RackID)
	set(&p.Regex, h.Regex)
	set(&p.Assignor, h.Assignor)
	set(&p.ClientID, &h.ClientID)
	set(&p.ClientHost, &h.ClientHost)
	if h.RebalanceTimeout >= 0 {
		p.RebalanceTimeout = h.RebalanceTimeout
	}
	if h.HasTopics {
		topics := slices.Clone(h.Topics)
		slices.Sort(topics)
		if topics = slices.Compact(topics); !slices.Equal(topics, p.Topics) {
			p.Topics = topics
		}
	}
	return p
}

// subscribe files the member with its profile and raises the group's epoch if anybody
// may have to be given other partitions.
func (g *Group) subscribe(env Env, h Heartbeat, before *Member) {
	profile := h.profile(before)
	isNew := before == nil
	isSame := !isNew && before.Profile.equal(&profile)
	isFresh := g.seen == env.Topics.Version() && !g.resolvesAgain(env, profile.Regex)
	if isSame && isFresh {
		return // as nearly all heartbeats are
	}
	preferred := g.assignor()
	moved := isNew || !slices.Equal(before.Topics, profile.Topics) || before.Regex != profile.Regex
	if !isSame {
		g.write(ProfileRecord{Member: h.MemberID, Value: &profile})
	}
	if moved || !isFresh {
		g.resolve(env, h.Sees)
		g.dropRegexes()
		moved = moved || hashOf(g.subscribed(env.Topics)) != g.hash
		g.seen = env.Topics.Version()
	}
	if moved || g.assignor() != preferred {
		g.raise(env)
	}
}

// leave takes a member out, or notes that a static one is away for a while.
func (g *Group) leave(env Env, h Heartbeat) (Answer, *Refusal) {
	m := g.members[h.MemberID]
	if h.InstanceID != nil {
		m = g.members[g.static[*h.InstanceID]]
		switch {
		case m == nil:
			return Answer{}, refuse(errcode.UnknownMemberID, "Instance id %s is unknown.", *h.InstanceID)
		case m.ID != h.MemberID:
			return Answer{}, refuse(errcode.FencedInstanceID, "Static member %s with instance id %s was fenced by member %s.", h.MemberID, *h.InstanceID, m.ID)
		}
	}
	if m == nil {
		return Answer{}, g.noMember(h.MemberID)
	}
	if h.Epoch == LeaveEpoch || h.InstanceID == nil {
		g.remove(m, env)
		return Answer{MemberID: m.ID, Epoch: h.Epoch}, nil
	}
	// Its place and its partitions are kept for whoever comes in its stead.
	away := m.Position
	away.Epoch, away.Revoking, away.Assigned = StaticLeaveEpoch, Partitions{}, make(Partitions, len(m.Assigned))
	for p := range m.Assigned {
		away.Assigned[p] = 0
	}
	if !m.Position.equal(&away) {
		g.write(PositionRecord{Member: m.ID, Value: &away})
	}
	delete(g.revokes, m.ID)
	return Answer{MemberID: m.ID, Epoch: StaticLeaveEpoch}, nil
}
