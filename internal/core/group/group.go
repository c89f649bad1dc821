package group

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// State is a group's state, in Kafka's terms.
type State int8

const (
	// Empty: no members; the group may hold offsets.
	Empty State = iota
	// PreparingRebalance: waiting for the members to join.
	PreparingRebalance
	// CompletingRebalance: waiting for the leader's assignment.
	CompletingRebalance
	// Stable: every member may have its assignment.
	Stable
	// Dead: the group is being removed, or doesn't exist.
	Dead
	// Assigning: a group of the new protocol whose newest epoch has no target yet.
	Assigning
	// Reconciling: a group of the new protocol with members on their way to the target.
	Reconciling
)

// String gives the name that ListGroups and DescribeGroups use.
func (s State) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Assigning", "Reconciling"}[s]
}

const noGeneration int32 = -1

// group is one group. Times of 0 mean "no deadline".
type group struct {
	id           string
	state        State
	stateSince   types.Millis // types.NoTimestamp: unknown, from an old record
	protocolType string       // empty: offsets only ("simple" group)
	protocol     string
	generation   int32
	leader       string
	members      map[string]*member
	static       map[string]string // instance id -> member id
	joinSequence uint64

	// pendingJoin holds the ids that were given out with MEMBER_ID_REQUIRED, with their deadlines.
	pendingJoin map[string]types.Millis
	// joinDeadline ends PreparingRebalance. In the first rebalance of a group
	// it is extended while new members come, within initialBudget.
	joinDeadline  types.Millis
	initial       bool
	newcomer      bool
	initialBudget types.Millis
	// pendingSync holds the members that were told of this generation and
	// haven't asked for their assignment; they have until syncDeadline.
	pendingSync  map[string]struct{}
	syncDeadline types.Millis
	// syncWrite is the append that makes the leader's assignment durable, 0 if none is under way.
	syncWrite Token

	// consumer is there if the group uses the new protocol (KIP-848), or did with its last
	// member. Then it is Empty as a classic one.
	consumer *consumerGroup

	// topics are what the members subscribe to; nil if unknown (not consumers, or unreadable).
	topics  map[string]struct{}
	offsets map[types.TopicPartition]*offset
	// pending are offsets of transactions that aren't ended, oldest first.
	pending map[types.ProducerID][]*pendingOffset
	// persisted: the log may hold a record of the group or its offsets.
	persisted bool
	deleting  bool

	// wake is at or before the earliest deadline of the group; 0 if it has none.
	wake   types.Millis
	timers *timers // the table's
}

type member struct {
	id, instance         string
	clientID, clientHost string
	session, rebalance   types.Millis
	protocols            []Protocol
	assignment           []byte
	sequence             uint64
	// isNew until the first join that it takes part in completes.
	isNew    bool
	joining  RequestID // the parked join, if any
	syncing  RequestID // the parked sync, if any
	deadline types.Millis
}

func newGroup(id string) *group {
	return &group{id: id, stateSince: types.NoTimestamp}
}

// setState changes the state at a time of the wall clock.
func (g *group) setState(s State, wall types.Millis) {
	g.state = s
	g.stateSince = wall
}

// wakeAt notes a deadline.
func (g *group) wakeAt(at types.Millis) {
	if at != 0 && (g.wake == 0 || at < g.wake) {
		g.wake = at
		g.timers.push(g)
	}
}

// rest computes wake anew: heartbeats only ever push deadlines out, so it is
// enough to do so when the old one has passed.
func (g *group) rest() {
	first := types.Millis(0)
	soonest := func(at types.Millis) {
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	soonest(g.joinDeadline)
	soonest(g.syncDeadline)
	for _, at := range g.pendingJoin {
		soonest(at)
	}
	for _, m := range g.members {
		soonest(m.deadline)
	}
	soonest(g.consumer.deadline())
	g.wake = 0
	g.wakeAt(first) // once: in the order of a map each would leave an entry of its own
}

// keepAlive starts a member's session anew.
func (g *group) keepAlive(m *member, now types.Millis) {
	if m.joining != NoRequest || m.syncing != NoRequest {
		return // a parked member is alive as long as its request is
	}
	m.deadline = now + m.session
	g.wakeAt(m.deadline)
}

// inOrder gives the members in the order in which they joined.
func (g *group) inOrder() []*member {
	return slices.SortedFunc(maps.Values(g.members), func(a, b *member) int {
		return cmp.Compare(a.sequence, b.sequence)
	})
}

func (g *group) isVacant() bool {
	return g.isEmpty() && len(g.pendingJoin) == 0 && len(g.offsets) == 0 && len(g.pending) == 0
}

func (g *group) allJoined() bool {
	if len(g.pendingJoin) > 0 {
		return false
	}
	for _, m := range g.members {
		if m.joining == NoRequest {
			return false
		}
	}
	return true
}

func (g *group) joiningCount() (n int) {
	for _, m := range g.members {
		if m.joining != NoRequest {
			n++
		}
	}
	return n
}

// add puts a new member into the group.
func (g *group) add(m *member) {
	if len(g.members) == 0 {
		g.protocolType = ""
	}
	if g.members == nil {
		g.members = map[string]*member{}
	}
	g.joinSequence++
	m.sequence = g.joinSequence
	g.members[m.id] = m
	if m.instance != "" {
		if g.static == nil {
			g.static = map[string]string{}
		}
		g.static[m.instance] = m.id
	}
	if g.leader == "" {
		g.leader = m.id
	}
	delete(g.pendingJoin, m.id)
}

// remove takes a member out and answers what it had parked with code.
func (g *group) remove(m *member, code errcode.Code, out *Effects) {
	m.answerJoin(JoinResponse{Code: code, MemberID: m.id, Generation: noGeneration}, out)
	m.answerSync(SyncResponse{Code: code}, out)
	delete(g.members, m.id)
	delete(g.pendingSync, m.id)
	if m.instance != "" && g.static[m.instance] == m.id {
		delete(g.static, m.instance)
	}
	if g.leader == m.id {
		g.leader = ""
		if rest := g.inOrder(); len(rest) > 0 {
			g.leader = rest[0].id
		}
	}
}

// validate finds the member that a request comes from (KIP-345 rules).
func (g *group) validate(memberID, instanceID string) (*member, errcode.Code) {
	if instanceID != "" {
		owner, ok := g.static[instanceID]
		if !ok {
			return nil, errcode.UnknownMemberID
		}
		if owner != memberID {
			return nil, errcode.FencedInstanceID
		}
	}
	m := g.members[memberID]
	if m == nil {
		return nil, errcode.UnknownMemberID
	}
	return m, errcode.None
}

// supports reports whether a member with these protocols can be in the group:
// one of them must be known to every present member.
func (g *group) supports(protocolType string, protocols []Protocol) bool {
	if protocolType == "" || len(protocols) == 0 {
		return false
	}
	if len(g.members) == 0 {
		return true
	}
	if protocolType != g.protocolType {
		return false
	}
	for _, p := range protocols {
		if g.allSupport(p.Name) {
			return true
		}
	}
	return false
}

func (g *group) allSupport(protocol string) bool {
	for _, m := range g.members {
		if _, ok := m.metadata(protocol); !ok {
			return false
		}
	}
	return true
}

// selectProtocol lets each member vote for the first of its protocols that all
// support; the most votes win, and among equals the one voted for first.
func (g *group) selectProtocol() string {
	votes := map[string]int{}
	best := ""
	for _, m := range g.inOrder() {
		for _, p := range m.protocols {
			if g.allSupport(p.Name) {
				votes[p.Name]++
				if best == "" {
					best = p.Name
				}
				break
			}
		}
	}
	for _, m := range g.inOrder() {
		for _, p := range m.protocols {
			if votes[p.Name] > votes[best] {
				best = p.Name
			}
		}
	}
	return best
}

// readTopics computes the subscribed topics of a consumer group; unknown (nil)
// if one member's metadata can't be read, as then no offset may be judged by them.
func (g *group) readTopics() {
	g.topics = nil
	if g.protocolType != consumerProtocolType {
		return
	}
	topics := map[string]struct{}{}
	for _, m := range g.members {
		metadata, _ := m.metadata(g.protocol)
		names, err := subscribedTopics(metadata)
		if err != nil {
			return
		}
		for _, name := range names {
			topics[name] = struct{}{}
		}
	}
	g.topics = topics
}

// snapshot gives what the log is to keep. Assignments are given for the members
// that a leader's sync is about to assign; nil keeps the present ones.
func (g *group) snapshot(assignments map[string][]byte) *Metadata {
	v := &Metadata{
		ProtocolType: g.protocolType, Generation: g.generation, Protocol: g.protocol,
		Leader: g.leader, StateSince: g.stateSince,
	}
	for _, m := range g.inOrder() {
		subscription, _ := m.metadata(g.protocol)
		assignment := m.assignment
		if assignments != nil {
			assignment = assignments[m.id]
		}
		v.Members = append(v.Members, MemberMetadata{
			MemberID: m.id, InstanceID: m.instance, ClientID: m.clientID, ClientHost: m.clientHost,
			RebalanceTimeout: m.rebalance, SessionTimeout: m.session,
			Subscription: subscription, Assignment: assignment,
		})
	}
	return v
}

func (m *member) metadata(protocol string) ([]byte, bool) {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata, true
		}
	}
	return nil, false
}

func (m *member) supportsSame(protocols []Protocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b Protocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

// answerJoin answers the parked join, if there is one.
func (m *member) answerJoin(r JoinResponse, out *Effects) {
	id := m.joining
	m.joining = NoRequest
	out.reply(id, r)
}

// answerSync answers the parked sync, if there is one.
func (m *member) answerSync(r SyncResponse, out *Effects) {
	id := m.syncing
	m.syncing = NoRequest
	out.reply(id, r)
}

// check asserts what holds between steps and costs little to see.
func (g *group) check() {
	// Invariant I-72: a group has members exactly if it isn't Empty (or Dead), and its leader is one of them.
	hasMembers := g.state == CompletingRebalance || g.state == Stable
	assert.That(!hasMembers || len(g.members) > 0, "I-72: group %q is %v without members", g.id, g.state)
	assert.That(g.state != Empty || len(g.members) == 0, "I-72: group %q is Empty with %d members", g.id, len(g.members))
	if hasMembers {
		_, ok := g.members[g.leader]
		assert.That(ok, "I-72: group %q is led by %q, who is no member", g.id, g.leader)
	}
	// Invariant I-73: a static instance names exactly one present member.
	assert.That(len(g.static) <= len(g.members), "I-73: group %q has %d instances and %d members", g.id, len(g.static), len(g.members))
}
