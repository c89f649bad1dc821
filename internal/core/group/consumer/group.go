package consumer

import (
	"cmp"
	"maps"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/types"
)

// Config is what groups need of the broker's configuration. Times are in milliseconds;
// the names are Kafka's keys.
type Config struct {
	SessionTimeout    types.Millis // group.consumer.session.timeout.ms
	HeartbeatInterval types.Millis // group.consumer.heartbeat.interval.ms
	MaxSize           int          // group.consumer.max.size, in members
	Assignors         []string     // group.consumer.assignors; the first is the default
	// Rules switches rules off; only the simulator sets it.
	Rules Rules
}

// Rules names rules that the simulator switches off to see that its checks find it. The
// zero value has every rule on (KIP-848).
type Rules struct {
	// ReleaseUnasked: a member has let go of what it is to with its next heartbeat, whatever that says.
	ReleaseUnasked bool
	// ForgetOwners: who loads a group doesn't know what its members have.
	ForgetOwners bool
	// CommitUnfenced: anybody may commit, in any epoch.
	CommitUnfenced bool
	// KeepsSilent: who is silent stays a member.
	KeepsSilent bool
}

// Group is one consumer group. It has one owner; nothing in it is safe for concurrent use.
type Group struct {
	id  string
	cfg *Config

	// What the log holds.
	exists      bool // it has an epoch
	epoch       int32
	hash        int64
	since       types.Millis // when epoch was written
	targetEpoch int32
	targets     map[string][]Partition
	regexes     map[string]*Resolved
	members     map[string]*Member
	static      map[string]string // instance id -> member id
	owners      map[Partition]string

	// changes are records that aren't kept yet, undo what they set before.
	changes []Record
	undo    []Record
	// doubt are keys that the log may have other values of.
	doubt map[recordKey]bool

	// What nobody but this group's owner knows.
	sessions map[string]types.Millis // when a member that is silent is out
	revokes  map[string]revoke
	wake     types.Millis // at or before the first of these; 0: there are none
	seen     int64        // version of the topics that hash and expressions were last compared with
	patterns patterns
	// resolvedAt is when the expressions were last matched with topics.
	resolvedAt types.Millis
}

// revoke is the time that a member has to let go of partitions, in the epoch that it is in.
type revoke struct {
	epoch int32
	by    types.Millis
}

// neverSeen is no version of topics: the group looks at them with the next heartbeat.
const neverSeen int64 = -1

// NewGroup makes a group of which nothing is known yet.
func NewGroup(id string, cfg *Config) *Group {
	return &Group{
		id: id, cfg: cfg, targets: map[string][]Partition{}, regexes: map[string]*Resolved{}, members: map[string]*Member{},
		static: map[string]string{}, owners: map[Partition]string{}, sessions: map[string]types.Millis{}, revokes: map[string]revoke{}, seen: neverSeen,
	}
}

// IsEmpty reports whether the group has no members.
func (g *Group) IsEmpty() bool { return len(g.members) == 0 }

// Size is the number of members.
func (g *Group) Size() int { return len(g.members) }

// Exists reports whether the log may hold anything of the group.
func (g *Group) Exists() bool {
	return g.exists || len(g.members) > 0 || len(g.changes) > 0 || len(g.doubt) > 0
}

// Since is when the group's epoch was written, by the wall clock: with the last change
// of its membership. 0 if that isn't known.
func (g *Group) Since() types.Millis { return g.since }

// GroupState is the state of a group, by Kafka's names.
type GroupState string

// The states of a consumer group.
const (
	GroupEmpty       GroupState = "Empty"
	GroupAssigning   GroupState = "Assigning"   // its newest epoch has no target yet
	GroupReconciling GroupState = "Reconciling" // members are on their way to the target
	GroupStable      GroupState = "Stable"
)

// State gives the group's state.
func (g *Group) State() GroupState {
	switch {
	case len(g.members) == 0:
		return GroupEmpty
	case g.epoch > g.targetEpoch:
		return GroupAssigning
	}
	for _, m := range g.members {
		if m.State != Stable || m.Epoch != g.targetEpoch {
			return GroupReconciling
		}
	}
	return GroupStable
}

// inOrder gives the members in the order of their ids.
func (g *Group) inOrder() []*Member {
	return slices.SortedFunc(maps.Values(g.members), func(a, b *Member) int { return cmp.Compare(a.ID, b.ID) })
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Loaded ends the replay. Sessions begin anew, as heartbeats went to nobody meanwhile.
func (g *Group) Loaded(now types.Millis) {
	for _, m := range g.inOrder() {
		g.dropStrange(m)
	}
	for id := range g.targets {
		if g.members[id] == nil {
			delete(g.targets, id)
		}
	}
	for _, m := range g.members {
		if m.Epoch > g.targetEpoch { // the target's epoch is missing: it is computed anew
			g.targetEpoch, g.epoch = m.Epoch, max(g.epoch, m.Epoch+1)
		}
	}
	g.epoch = max(g.epoch, g.targetEpoch)
	if g.cfg.Rules.ForgetOwners {
		clear(g.owners)
	}
	for _, m := range g.inOrder() {
		g.keepAlive(m.ID, now)
		if m.State == UnrevokedPartitions {
			g.giveTime(m, now)
		}
	}
	g.Check()
}

// dropStrange mends what no group writes: a member that isn't known by its profile, and a
// partition that the log gives to two members, which stays the later one's.
func (g *Group) dropStrange(m *Member) {
	if !m.profiled {
		g.Replay(PositionRecord{Member: m.ID})
		return
	}
	c := *m
	c.Assigned, c.Revoking = g.ownPart(m.ID, m.Assigned), g.ownPart(m.ID, m.Revoking)
	if c.State == 0 {
		c.State = Stable // its position's record is missing
	}
	g.members[m.ID] = &c
}

func (g *Group) ownPart(id string, all Partitions) Partitions {
	kept := Partitions{}
	for p, epoch := range all {
		if g.owners[p] == id {
			kept[p] = epoch
		}
	}
	return kept
}

// Deadline gives a time at or before which nothing is due; false if nothing will be.
func (g *Group) Deadline() (types.Millis, bool) { return g.wake, g.wake != 0 }

func (g *Group) wakeAt(at types.Millis) {
	if g.wake == 0 || at < g.wake {
		g.wake = at
	}
}

func (g *Group) keepAlive(id string, now types.Millis) {
	g.sessions[id] = now + g.cfg.SessionTimeout
	g.wakeAt(g.sessions[id])
}

func (g *Group) giveTime(m *Member, now types.Millis) {
	g.revokes[m.ID] = revoke{epoch: m.Epoch, by: now + m.RebalanceTimeout}
	g.wakeAt(g.revokes[m.ID].by)
}

// rest computes wake anew: heartbeats only ever push it out, so it is enough to do so when it has come.
func (g *Group) rest() {
	g.wake = 0
	for _, at := range g.sessions {
		g.wakeAt(at)
	}
	for _, r := range g.revokes {
		g.wakeAt(r.by)
	}
}

// Postpone moves what is due to a later time: its removal couldn't be written.
func (g *Group) Postpone(now, until types.Millis) {
	for _, m := range g.members {
		if at, waits := g.sessions[m.ID]; !waits || at <= now {
			g.sessions[m.ID] = until
		}
		if r, waits := g.revokes[m.ID]; m.State == UnrevokedPartitions && (!waits || r.epoch != m.Epoch || r.by <= now) {
			g.revokes[m.ID] = revoke{epoch: m.Epoch, by: until}
		}
	}
	g.rest()
}

// Expired is a member that is taken out, and why.
type Expired struct{ MemberID, Why string }

// Expire takes out members whose session is over, or who haven't let go of partitions
// in their rebalance timeout (KIP-848).
func (g *Group) Expire(env Env) []Expired {
	if g.wake == 0 || env.Now < g.wake {
		return nil
	}
	defer g.rest()
	var out []Expired
	for _, id := range sortedKeys(g.sessions) {
		if g.sessions[id] > env.Now || g.cfg.Rules.KeepsSilent {
			continue
		}
		delete(g.sessions, id)
		if m := g.members[id]; m != nil {
			g.remove(m, env)
			out = append(out, Expired{id, "its session is over"})
		}
	}
	for _, id := range sortedKeys(g.revokes) {
		r := g.revokes[id]
		if r.by > env.Now {
			continue
		}
		delete(g.revokes, id)
		if m := g.members[id]; m != nil && m.Epoch == r.epoch && m.State == UnrevokedPartitions {
			g.remove(m, env)
			out = append(out, Expired{id, "it hasn't let go of its partitions in its rebalance timeout"})
		}
	}
	return out
}

// remove takes a member out and raises the group's epoch; the others get what it had
// with the next target.
func (g *Group) remove(m *Member, env Env) {
	g.write(PositionRecord{Member: m.ID})
	g.write(TargetRecord{Member: m.ID, Gone: true})
	g.write(ProfileRecord{Member: m.ID})
	delete(g.sessions, m.ID)
	delete(g.revokes, m.ID)
	g.dropRegexes()
	g.raise(env)
	if len(g.members) == 0 {
		g.write(TargetEpochRecord{Epoch: g.epoch})
	}
}

// raise begins a new epoch of the group. Kafka parity: the first one is 2.
func (g *Group) raise(env Env) {
	g.write(EpochRecord{Epoch: max(g.epoch, 1) + 1, Hash: hashOf(g.subscribed(env.Topics)), Time: env.Wall})
}

// checkFree asserts that what a member is given is nobody else's.
func (g *Group) checkFree(id string, to *Position) {
	for _, set := range []Partitions{to.Assigned, to.Revoking} {
		for p := range set {
			// Invariant I-380: a partition is one member's at a time, from when it is given to it until it has let go of it.
			owner, owned := g.owners[p]
			assert.That(!owned || owner == id, "I-380: group %q gives %v to %q while it is %q's", g.id, p, id, owner)
		}
	}
}

// Check asserts what holds between changes.
func (g *Group) Check() {
	// Invariant I-381: the target's epoch is at most the group's, and no member is ahead of it.
	assert.That(g.targetEpoch <= g.epoch, "I-381: group %q has a target of epoch %d in epoch %d", g.id, g.targetEpoch, g.epoch)
	for _, m := range g.members {
		assert.That(m.Epoch <= g.targetEpoch, "I-381: member %q of group %q is in epoch %d, the target is of %d", m.ID, g.id, m.Epoch, g.targetEpoch)
		// Invariant I-382: a static instance names one present member.
		assert.That(m.InstanceID == "" || g.static[m.InstanceID] == m.ID, "I-382: instance %q of group %q is %q's, who isn't %q", m.InstanceID, g.id, g.static[m.InstanceID], m.ID)
	}
	for instance, id := range g.static {
		assert.That(g.members[id] != nil, "I-382: instance %q of group %q names %q, who is no member", instance, g.id, id)
	}
}

// checkTargets asserts that the target divides partitions.
func (g *Group) checkTargets() {
	seen := map[Partition]string{}
	for id, target := range g.targets {
		assert.That(g.members[id] != nil, "I-383: group %q has a target for %q, who is no member", g.id, id)
		for _, p := range target {
			// Invariant I-383: a target gives no partition to two members, and nothing to those who are none.
			other, twice := seen[p]
			assert.That(!twice, "I-383: group %q would have both %q and %q read %v", g.id, other, id, p)
			seen[p] = id
		}
	}
}

// Epoch is the group's epoch.
func (g *Group) Epoch() int32 { return g.epoch }
