package group

import (
	"iter"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/types"
)

// consumerGroup is the part of a group that uses the new protocol (KIP-848). One write of
// it is under way at a time; what comes meanwhile waits and goes, in order, into the next.
type consumerGroup struct {
	*consumer.Group
	waiting []ConsumerHeartbeat
	writing bool
	// wasClassic: the log may hold a classic group's record, which is to be taken out first.
	wasClassic bool
}

const (
	// mostWaiting bounds the heartbeats of one group that wait for a write.
	mostWaiting = 10_000
	// retryRemoval is how long a member stays whose removal couldn't be written, in ms.
	retryRemoval types.Millis = 1000
)

// noTopics is what a table knows of topics before it is told.
type noTopics struct{}

func (noTopics) Version() int64                            { return 0 }
func (noTopics) ByName(string) (consumer.Topic, bool)      { return consumer.Topic{}, false }
func (noTopics) ByID(types.TopicID) (consumer.Topic, bool) { return consumer.Topic{}, false }
func (noTopics) All() iter.Seq[consumer.Topic]             { return func(func(consumer.Topic) bool) {} }

func (t *Table) env(now types.Millis) consumer.Env {
	return consumer.Env{Now: now, Wall: t.wall(now), Topics: t.topics}
}

// deadline is the group's, unless a write is under way: what is due then is seen to after it.
func (c *consumerGroup) deadline() types.Millis {
	if c == nil || c.writing {
		return 0
	}
	at, _ := c.Deadline()
	return at
}

// stateNow is the group's state as the log has it.
func (c *consumerGroup) stateNow() (s State) {
	c.AsKept(func() { s = stateOf(c.State()) })
	return s
}

func stateOf(s consumer.GroupState) State {
	switch s {
	case consumer.GroupAssigning:
		return Assigning
	case consumer.GroupReconciling:
		return Reconciling
	case consumer.GroupStable:
		return Stable
	}
	return Empty
}

// isEmpty reports whether the group has no members, of either protocol, and none is about to be one.
func (g *group) isEmpty() bool {
	c := g.consumer
	return g.state == Empty && (c == nil || c.IsEmpty() && !c.writing && len(c.waiting) == 0)
}

func (t *Table) consumerHeartbeat(now types.Millis, ev ConsumerHeartbeat, out *Effects) {
	fail := func(code errcode.Code, message string) {
		out.reply(ev.Request, ConsumerHeartbeatResponse{Code: code, Message: message})
	}
	if refused := ev.Validate(&t.cfg.Consumer, ev.Group); refused != nil {
		fail(refused.Code, refused.Message)
		return
	}
	g := t.group(ev.Group)
	isConsumer := g != nil && g.consumer != nil
	switch {
	case g != nil && g.deleting:
		fail(errcode.CoordinatorNotAvailable, "The group is being deleted.")
	case !isConsumer && ev.Epoch < consumer.JoinEpoch:
		fail(errcode.GroupIDNotFound, "Group "+ev.Group+" not found.")
	case !isConsumer && ev.Epoch != consumer.JoinEpoch:
		// Kafka answers GROUP_ID_NOT_FOUND, and Java's consumer dies of that. A member that a failover
		// brings here from a mirrored cluster must join anew instead.
		fail(errcode.UnknownMemberID, "Consumer group "+ev.Group+" not found: the member must rejoin.")
	case !isConsumer && g != nil && (!g.isEmpty() || len(g.pendingJoin) > 0):
		fail(errcode.GroupIDNotFound, "Cannot upgrade classic group "+ev.Group+" to consumer group because online upgrade is disabled.")
	case isConsumer && len(g.consumer.waiting) >= mostWaiting:
		fail(errcode.CoordinatorNotAvailable, "Too many heartbeats of the group wait.")
	default:
		g = t.openConsumer(ev.Group)
		g.consumer.waiting = append(g.consumer.waiting, ev)
		t.pump(g, now, out)
	}
}

// openConsumer gives a group of the new protocol, made if it doesn't exist, or of an empty classic one.
func (t *Table) openConsumer(id string) *group {
	g := t.open(id)
	if g.consumer == nil {
		g.consumer = &consumerGroup{Group: consumer.NewGroup(id, &t.cfg.Consumer), wasClassic: g.protocolType != ""}
		g.protocolType, g.protocol, g.leader, g.topics = "", "", "", nil
		g.members, g.static, g.state = nil, nil, Empty // of a classic group that has members, a log that another program wrote goes on
	}
	return g
}

// becomeClassic lets an empty group of the new protocol be a classic one's place again;
// false if it can't be. An id that such a group gave is none of a classic member.
func (t *Table) becomeClassic(g *group, memberID string, out *Effects) bool {
	if !g.isEmpty() {
		return false
	}
	if records := g.consumerTombstones(); len(records) > 0 && memberID == "" {
		// Should this write fail, a group without members is all that comes back with a load.
		t.append(records, out, func(types.Millis, errcode.Code, *Effects) {})
	}
	if memberID == "" {
		g.consumer = nil
	}
	return true
}

func (g *group) consumerTombstones() []Record {
	if g.consumer == nil || !g.consumer.Exists() {
		return nil
	}
	return inGroup(g.id, g.consumer.Tombstones())
}

func inGroup(id string, records []consumer.Record) []Record {
	all := make([]Record, 0, len(records))
	for _, r := range records {
		all = append(all, ConsumerRecord{Group: id, Record: r})
	}
	return all
}

// heartbeatAnswer is an answer that waits for a write.
type heartbeatAnswer struct {
	request  RequestID
	response ConsumerHeartbeatResponse
}

// pump takes what waits in a group, and what time has brought, unless a write is under way.
func (t *Table) pump(g *group, now types.Millis, out *Effects) {
	c := g.consumer
	if c == nil || c.writing || g.deleting {
		return
	}
	waiting := c.waiting
	c.waiting = nil
	if t.resigned != errcode.None {
		for _, ev := range waiting {
			out.reply(ev.Request, ConsumerHeartbeatResponse{Code: t.resigned})
		}
		return
	}
	env := t.env(now)
	for _, e := range c.Expire(env) {
		t.noteConsumer(g, e.MemberID, "member is taken out: "+e.Why, out)
	}
	answers := t.stepConsumer(g, env, waiting, out)
	// What a failed write left in doubt is settled before anybody is answered again, not sooner.
	records := inGroup(g.id, c.Changes())
	if len(records) == 0 || len(answers) == 0 && !c.HasChanged() {
		answerAll(answers, out)
		g.wakeAt(c.deadline())
		return
	}
	if c.wasClassic {
		records = append([]Record{GroupRecord{Group: g.id}}, records...)
	}
	c.writing, g.persisted = true, true
	t.append(records, out, func(now types.Millis, code errcode.Code, out *Effects) {
		t.consumerWritten(g, answers, now, code, out)
	})
}

func answerAll(answers []heartbeatAnswer, out *Effects) {
	for _, a := range answers {
		out.reply(a.request, a.response)
	}
}

// stepConsumer takes heartbeats, all of them before the first is answered.
func (t *Table) stepConsumer(g *group, env consumer.Env, waiting []ConsumerHeartbeat, out *Effects) []heartbeatAnswer {
	answers := make([]heartbeatAnswer, len(waiting))
	filed := make([]consumer.Filed, len(waiting))
	for i, ev := range waiting {
		answers[i].request = ev.Request
		members := g.consumer.Size()
		var refused *consumer.Refusal
		filed[i], refused = g.consumer.File(env, ev.Heartbeat)
		switch {
		case refused != nil:
			answers[i].response = refusedHeartbeat(refused)
		case ev.Epoch == consumer.StaticLeaveEpoch:
			t.noteConsumer(g, ev.MemberID, "static member is away", out)
		case ev.Epoch == consumer.LeaveEpoch:
			t.noteConsumer(g, ev.MemberID, "member left", out)
		case g.consumer.Size() > members:
			t.noteConsumer(g, ev.MemberID, "member joined", out)
		}
	}
	for i := range answers {
		if answers[i].response.Code != errcode.None {
			continue
		}
		answer, refused := g.consumer.Answer(env, filed[i])
		if answers[i].response.Answer = answer; refused != nil {
			answers[i].response = refusedHeartbeat(refused)
		}
	}
	return answers
}

func refusedHeartbeat(r *consumer.Refusal) ConsumerHeartbeatResponse {
	return ConsumerHeartbeatResponse{Code: r.Code, Message: r.Message}
}

func (t *Table) noteConsumer(g *group, memberID, what string, out *Effects) {
	c := g.consumer
	out.Notes = append(out.Notes, Note{Group: g.id, What: what, MemberID: memberID, State: stateOf(c.State()), Generation: c.Epoch(), Members: c.Size()})
}

// consumerWritten takes over what was written, or takes it back.
func (t *Table) consumerWritten(g *group, answers []heartbeatAnswer, now types.Millis, code errcode.Code, out *Effects) {
	c := g.consumer
	c.writing = false
	if code == errcode.None {
		c.Keep()
		c.wasClassic = false
	} else {
		c.Drop()
		c.Postpone(now, now+retryRemoval)
		for i := range answers {
			answers[i].response = ConsumerHeartbeatResponse{Code: groupWriteFailed(code)}
		}
	}
	answerAll(answers, out)
	t.pump(g, now, out)
	g.wakeAt(c.deadline())
	t.settle(g.id)
}

// validateMemberCommit decides whether a member of a group of the new protocol may commit.
func (t *Table) validateMemberCommit(g *group, ev Commit) errcode.Code {
	if code := g.checkMemberCommit(t.topics, ev); code == errcode.UnknownMemberID || ev.UnknownGroupIsNotFound {
		return code
	}
	return errcode.UnsupportedVersion // older versions know of no member epochs
}

// checkMemberCommit judges by what the group is about to be: who is being taken out commits nothing any more.
func (g *group) checkMemberCommit(topics consumer.Topics, ev Commit) errcode.Code {
	partitions := make([]consumer.Partition, 0, len(ev.Offsets))
	for _, o := range ev.Offsets {
		id := o.TopicID
		if t, ok := topics.ByName(o.Topic); ok && id.IsZero() {
			id = t.ID
		}
		partitions = append(partitions, consumer.Partition{Topic: id, Number: o.Partition})
	}
	if refused := g.consumer.CheckCommit(ev.MemberID, ev.Generation, partitions); refused != nil {
		return refused.Code
	}
	return errcode.None
}

// CheckFetch decides whether a member that tells its epoch may be told committed offsets
// (KIP-848). Of a classic group, or none, such a member is told what there is.
func (t *Table) CheckFetch(groupID, memberID string, epoch int32) errcode.Code {
	g := t.group(groupID)
	if g == nil || g.consumer == nil {
		return errcode.None
	}
	if refused := g.consumer.CheckFetch(memberID, epoch); refused != nil {
		return refused.Code
	}
	return errcode.None
}

// ConsumerDescription is one group of ConsumerGroupDescribe.
type ConsumerDescription struct {
	Code errcode.Code // None, or GroupIDNotFound with Message
	// Message is for people.
	Message string
	consumer.Description
	// Topics are those of the members' partitions that exist.
	Topics map[types.TopicID]string
}

// DescribeConsumer gives a group of the new protocol, as the log has it.
func (t *Table) DescribeConsumer(id string) ConsumerDescription {
	g := t.group(id)
	switch {
	case g == nil || g.deleting:
		return ConsumerDescription{Code: errcode.GroupIDNotFound, Message: "Group " + id + " not found."}
	case g.consumer == nil:
		return ConsumerDescription{Code: errcode.GroupIDNotFound, Message: "Group " + id + " is not a consumer group."}
	}
	d := ConsumerDescription{Topics: map[types.TopicID]string{}}
	g.consumer.AsKept(func() { d.Description = g.consumer.Describe() })
	for _, m := range d.Members {
		for _, set := range [][]consumer.Partition{m.Owned, m.Target} {
			for _, p := range set {
				if topic, ok := t.topics.ByID(p.Topic); ok {
					d.Topics[p.Topic] = topic.Name
				}
			}
		}
	}
	return d
}

func (t *Table) replayConsumer(r ConsumerRecord) {
	g := t.group(r.Group)
	if consumer.IsTombstone(r.Record) && (g == nil || g.consumer == nil) {
		return
	}
	g = t.openConsumer(r.Group)
	g.consumer.wasClassic = false
	g.persisted = true
	g.consumer.Replay(r.Record)
	// In a compacted log other records may come before the epoch's: only its tombstone is an end.
	if e, ok := r.Record.(consumer.EpochRecord); ok && e.Gone && g.consumer.IsEmpty() {
		g.consumer = nil
		if g.isVacant() {
			t.drop(g)
		}
	}
}

func (t *Table) loadedConsumer(g *group, now types.Millis) {
	if g.consumer == nil {
		return
	}
	g.consumer.Loaded(now)
	if g.consumer.IsEmpty() && !g.consumer.Exists() {
		g.consumer = nil
		t.settle(g.id)
		return
	}
	g.wakeAt(g.consumer.deadline())
}
