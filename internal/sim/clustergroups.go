package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/core/control"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// offsetsPartitions is how many partitions __consumer_offsets has here, and how many groups there are.
const (
	offsetsPartitions = 2
	groupsMost        = 2
)

// member is one member of a consumer group, as clients are: it looks for its
// coordinator, joins, syncs, reads on from the committed offsets, commits and says
// that it lives, one request after the other.
type member struct {
	c           *cluster
	k           *kernel
	number      int
	group       string
	coordinator types.BrokerID // as it believes; 0: it must look

	id         string // given by the coordinator; empty: none
	generation int32
	joined     bool // the generation holds; the assignment may not be there yet
	assigned   []int32
	synced     bool
	reading

	sent      int  // requests, so that a late answer is known
	busy      bool // something is on its way, or due
	away      bool // it has left, or is paused
	committed time.Duration
}

// reading is how far a member of a group has read the partitions that are its own.
type reading struct {
	c         *cluster
	name      string                  // of the member
	positions map[int32]types.Offset  // as far as they are known
	topic     types.TopicID           // that the positions are for
	found     map[int32]types.TopicID // the topic that each position was found in
	fresh     bool                    // positions have moved since the last commit
}

func newReading(c *cluster, name string) reading {
	return reading{c: c, name: name, positions: map[int32]types.Offset{}, found: map[int32]types.TopicID{}}
}

func newMember(c *cluster, number int) *member {
	g := &member{c: c, k: c.k, number: number, group: fmt.Sprintf("group-%d", number%groupsMost), committed: -1}
	g.reading = newReading(c, g.who())
	g.soon(time.Duration(number) * 50 * time.Millisecond)
	return g
}

func (g *member) who() string { return fmt.Sprintf("member %d", g.number) }

// offsetsPartition is where a group's offsets are.
func (c *cluster) offsetsPartition(groupID string) meta.PartitionID {
	return meta.PartitionID{Topic: c.offsetsTopic, Number: statelog.PartitionFor(groupID, offsetsPartitions)}
}

// soon has the member do its next step.
func (g *member) soon(wait time.Duration) {
	if g.busy {
		return
	}
	g.busy = true
	g.k.after(wait, g.who(), func() {
		g.busy = false
		if !g.away {
			g.step()
		}
	})
}

func (g *member) step() {
	switch {
	case !g.c.check.hasOffsets:
		g.soon(200 * time.Millisecond)
	case g.coordinator == 0:
		g.look()
	case !g.joined:
		g.join()
	case !g.synced: // its request came to nothing
		g.join()
	case g.lacks(g.assigned):
		g.fetchOffsets()
	case g.fresh && g.k.dice(g.who()).chance(0.5):
		g.commit()
	default:
		g.work()
	}
}

func (g *member) pause() {
	g.soon(g.k.dice(g.who()).between(30*time.Millisecond, 400*time.Millisecond))
}

// ask sends a request to a broker, where it runs as a task; what it gives runs
// here once the answer has come, unless the member has given up waiting.
func (g *member) ask(to types.BrokerID, what string, timeout time.Duration, serve func(m *machine) (arrived func())) {
	g.busy = true
	g.sent++
	attempt, m := g.sent, g.c.machine(to)
	settled := false
	once := func(f func()) {
		if settled || attempt != g.sent {
			return
		}
		settled, g.busy = true, false
		f()
		g.pause()
	}
	g.c.net.call(g.who(), m.name, what, timeout, func(reply func(func())) {
		if !m.serves() {
			return
		}
		m.task(func() {
			arrived := serve(m)
			reply(func() { once(arrived) })
		})
	}, func() {
		once(func() {
			g.k.probe("member: timed out")
			g.coordinator = 0
		})
	})
}

const memberTimeout = 2 * time.Second

// look asks some broker who coordinates the group.
func (g *member) look() {
	d := g.k.dice(g.who())
	g.ask(g.c.anyMachine(d).id, "find coordinator", memberTimeout, func(m *machine) func() {
		id, err := m.node.Groups().FindCoordinator(m.node.Context(), g.group)
		return func() {
			if err == nil {
				g.coordinator = id
			}
		}
	})
}

// rejoin forgets the generation; the member joins again.
func (g *member) rejoin() { g.joined, g.synced, g.assigned = false, false, nil }

// told takes an answer's code; false if it is an error.
func (g *member) told(code errcode.Code) bool {
	switch code {
	case errcode.None:
		return true
	case errcode.NotCoordinator, errcode.CoordinatorNotAvailable:
		g.coordinator = 0
	case errcode.CoordinatorLoadInProgress:
		g.k.probe("member: coordinator loads")
	case errcode.UnknownMemberID, errcode.FencedInstanceID:
		g.id = ""
		g.rejoin()
	case errcode.IllegalGeneration:
		g.k.probe("member: illegal generation")
		g.rejoin()
	case errcode.RebalanceInProgress:
		g.rejoin()
	default:
		g.k.probe(fmt.Sprintf("member: error %d", code))
	}
	return false
}

func (g *member) join() {
	ev := group.Join{
		Group: g.group, MemberID: g.id, ClientID: g.who(), ClientHost: "/sim", SessionTimeout: 3000, RebalanceTimeout: 2000,
		ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0}}}, RequireKnownMember: true,
	}
	g.rejoin()
	g.ask(g.coordinator, "join", 6*time.Second, func(m *machine) func() {
		r := m.node.Groups().Join(m.node.Context(), ev)
		return func() {
			if r.Code == errcode.MemberIDRequired {
				g.id = r.MemberID
				return
			}
			if !g.told(r.Code) {
				return
			}
			g.id, g.generation, g.joined = r.MemberID, r.Generation, true
			g.sync(r)
		}
	})
}

// sync asks for the assignment. The leader gives everybody's, round robin.
func (g *member) sync(r group.JoinResponse) {
	ev := group.Sync{Group: g.group, MemberID: g.id, Generation: g.generation}
	if r.Leader == r.MemberID {
		ids := make([]string, 0, len(r.Members))
		for _, m := range r.Members {
			ids = append(ids, m.MemberID)
		}
		slices.Sort(ids)
		parts := make([][]string, len(ids))
		for p := range g.c.o.Partitions {
			at := (p + int(g.generation)) % len(ids) // owners change
			parts[at] = append(parts[at], strconv.Itoa(p))
		}
		for i, id := range ids {
			ev.Assignments = append(ev.Assignments, group.Assignment{MemberID: id, Data: []byte(strings.Join(parts[i], ","))})
		}
	}
	g.ask(g.coordinator, "sync", 6*time.Second, func(m *machine) func() {
		r := m.node.Groups().Sync(m.node.Context(), ev)
		if r.Code == errcode.None {
			m.c.check.assigned(m, g.group, ev.Generation, ev.MemberID, partitionsOf(r.Assignment))
		}
		return func() {
			if !g.told(r.Code) {
				g.rejoin()
				return
			}
			g.assigned, g.synced = partitionsOf(r.Assignment), true
			clear(g.positions)
			g.topic = g.c.wantTopic
		}
	})
}

func partitionsOf(assignment []byte) []int32 {
	var out []int32
	for _, word := range strings.FieldsFunc(string(assignment), func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(word)
		if err == nil {
			out = append(out, int32(n))
		}
	}
	return out
}

// lacks reports whether the position of one of the partitions isn't known.
func (r *reading) lacks(parts []int32) bool {
	if r.topic != r.c.wantTopic {
		r.topic = r.c.wantTopic
		clear(r.positions)
	}
	return slices.ContainsFunc(parts, func(p int32) bool { _, ok := r.positions[p]; return !ok })
}

// fetchOffsets asks where the group stands.
func (g *member) fetchOffsets() {
	tps := make([]types.TopicPartition, len(g.assigned))
	for i, p := range g.assigned {
		tps[i] = types.TopicPartition{Topic: clusterTopic, Partition: p}
	}
	generation := g.generation
	g.ask(g.coordinator, "fetch offsets", memberTimeout, func(m *machine) func() {
		began := m.k.now
		entries, code := m.node.Groups().Offset(m.node.Context(), g.group, tps)
		if code == errcode.None {
			m.c.check.offsetsRead(m, g.group, entries, began)
		}
		return func() {
			if !g.told(code) || generation != g.generation {
				return
			}
			g.begin(g.group, entries)
		}
	})
}

// work says that the member lives, and reads on.
func (g *member) work() {
	ev := group.Heartbeat{Group: g.group, MemberID: g.id, Generation: g.generation}
	g.ask(g.coordinator, "heartbeat", memberTimeout, func(m *machine) func() {
		code := m.node.Groups().Heartbeat(m.node.Context(), ev)
		return func() { g.told(code) }
	})
	generation := g.generation
	for _, p := range g.assigned {
		g.read(p, func() bool { return g.generation == generation && g.synced })
	}
}

// begin takes the positions of partitions from what is committed for a group.
func (r *reading) begin(groupID string, entries []group.OffsetEntry) {
	for _, e := range entries {
		r.positions[e.Partition], r.found[e.Partition] = max(e.Offset, 0), r.c.check.foundIn(groupID, e, r.topic)
	}
}

// offsets are the positions of partitions, to be committed for a group.
func (r *reading) offsets(groupID string, parts []int32) []group.CommitOffset {
	var all []group.CommitOffset
	for _, p := range parts {
		if at, ok := r.positions[p]; ok {
			c := r.c.check.commits(groupID, p, at, r.topic, r.found[p])
			all = append(all, group.CommitOffset{
				Topic: clusterTopic, TopicID: r.topic, Partition: p, Offset: at, LeaderEpoch: types.NoLeaderEpoch, Metadata: c.text, Retention: -1,
			})
		}
	}
	return all
}

// read moves the position of a partition by what its leader gives, if the partition is still the member's then.
func (r *reading) read(p int32, still func() bool) {
	topic, at := r.topic, r.positions[p]
	leader, _ := r.c.leader(topic, int(p), r.c.k.dice(r.name), 0)
	m := r.c.machine(leader)
	r.c.net.call(r.name, m.name, "consume", clientTimeout, func(reply func(func())) {
		if !m.serves() {
			return
		}
		m.p.do(func() {
			out, raw, err := m.consume(topic, p, at, types.NoLeaderEpoch, types.NoLeaderEpoch)
			reply(func() {
				now, known := r.positions[p]
				if r.topic != topic || !known || now != at || !still() {
					return
				}
				switch {
				case out.HasDiverging || isOutOfRange(err):
					r.c.k.probe("member: out of range")
					r.positions[p], r.fresh = r.c.earliest(m, meta.PartitionID{Topic: topic, Number: p}), true
				case err == nil && len(raw) > 0:
					r.positions[p], r.fresh = nextOf(raw), true
				}
				if r.positions[p] != at {
					r.found[p] = topic
				}
			})
		})
	}, func() {})
}

// commit commits the positions.
func (g *member) commit() {
	g.fresh = false
	ev := group.Commit{Group: g.group, MemberID: g.id, Generation: g.generation}
	ev.Offsets = g.offsets(g.group, g.assigned)
	if len(ev.Offsets) == 0 {
		g.pause()
		return
	}
	topic := g.topic
	g.ask(g.coordinator, "commit", memberTimeout, func(m *machine) func() {
		if _, exists := m.node.Image().Topic(topic); !exists {
			m.k.probe("member: commits for a topic that isn't there")
			return func() {} // UNKNOWN_TOPIC_ID, before the coordinator hears of it
		}
		carriedOut := m.c.check.commitArrives(g.group, ev.Offsets)
		r := m.node.Groups().Commit(m.node.Context(), ev)
		carriedOut()
		if r.Code == errcode.None {
			m.c.check.offsetsCommitted(m, g.group, ev.Offsets, r.Partitions)
		}
		return func() {
			if g.told(r.Code) && !slices.ContainsFunc(r.Partitions, func(c errcode.Code) bool { return !g.told(c) }) {
				g.committed = g.k.now
			}
		}
	})
}

// behind says what the member lacks after the faults.
func (g *member) behind() string {
	switch {
	case !g.joined || !g.synced:
		return g.who() + " of " + g.group + " has no assignment"
	case len(g.assigned) > 0 && (g.committed < g.c.healedAt || g.lacks(g.assigned)):
		return g.who() + " of " + g.group + " has committed nothing since the faults ended"
	}
	return ""
}

// groupLeave has a member leave its group, and join again later.
func (c *cluster) groupLeave(d dice) string {
	if len(c.members) == 0 {
		return ""
	}
	g, span := c.members[d.IntN(len(c.members))], d.between(100*time.Millisecond, 8*time.Second)
	if g.away || g.id == "" || g.coordinator == 0 {
		return ""
	}
	ev := group.Leave{Group: g.group, Members: []group.LeavingMember{{MemberID: g.id}}}
	g.ask(g.coordinator, "leave", memberTimeout, func(m *machine) func() {
		_ = m.node.Groups().Leave(m.node.Context(), ev) // what it is told changes nothing: it is gone
		return func() {}
	})
	g.id = ""
	g.rejoin()
	g.stayAway(span)
	return fmt.Sprintf("%s leaves %s for %v", g.who(), g.group, span.Round(time.Millisecond))
}

// groupPause freezes a member for longer than its session, often.
func (c *cluster) groupPause(d dice) string {
	if len(c.members) == 0 {
		return ""
	}
	g, span := c.members[d.IntN(len(c.members))], d.between(500*time.Millisecond, 8*time.Second)
	if g.away {
		return ""
	}
	g.stayAway(span)
	return fmt.Sprintf("%s of %s for %v", g.who(), g.group, span.Round(time.Millisecond))
}

func (g *member) stayAway(span time.Duration) {
	g.away = true
	g.k.after(span, "member is back", g.back)
}

func (g *member) back() {
	g.away = false
	g.pause()
}

// orderGroups has the offsets topic made, until it is there, and the groups' members begin.
func (c *cluster) orderGroups() {
	if !c.o.hasGroups() || c.world != nil {
		return
	}
	d := c.k.dice("offsets topic")
	if c.offsetsTopic.IsZero() {
		for i := range c.offsetsTopic {
			c.offsetsTopic[i] = byte(d.IntN(256))
		}
		for i := range c.o.Members {
			c.members = append(c.members, newMember(c, i))
		}
		for i := range c.o.NewMembers {
			c.consumers = append(c.consumers, newConsumerMember(c, i))
		}
	}
	c.k.after(300*time.Millisecond, "offsets topic ordered", func() {
		if c.check.hasOffsets {
			return
		}
		c.operate(d, "create the offsets topic", c.createOffsets)
		c.k.after(time.Second, "offsets topic ordered", c.orderGroups)
	})
}

func (c *cluster) createOffsets(m *machine) error {
	return c.createInternal(m, coordinator.OffsetsTopic, c.offsetsTopic, offsetsPartitions)
}

// createInternal makes the topic of a coordinator.
func (c *cluster) createInternal(m *machine, name string, id types.TopicID, partitions int32) error {
	assignment := make([][]types.BrokerID, partitions)
	for p := range assignment {
		for i := range c.o.Replicas {
			assignment[p] = append(assignment[p], types.BrokerID((p+i+1)%c.o.Brokers+1))
		}
	}
	r := control.CreateTopicRequest{
		Name: name, ID: id, Partitions: partitions, ReplicationFactor: c.o.Replicas, Assignment: assignment,
		Configs: map[string]string{
			"cleanup.policy": "compact", "min.insync.replicas": fmt.Sprint(c.o.MinISR), "segment.bytes": fmt.Sprint(c.o.SegmentBytes), "segment.ms": "10000",
			"index.interval.bytes": "300", "flush.ms": fmt.Sprint(c.o.FlushEvery.Milliseconds()), "min.cleanable.dirty.ratio": "0.1",
			"unclean.leader.election.enable": fmt.Sprint(c.o.Unclean), "message.timestamp.after.max.ms": "9223372036854775807",
		},
		MinISR: c.o.MinISR, Internal: true, TimelineID: "timeline-" + id.String(),
	}
	return m.node.Plan(func(i *meta.Image) ([]meta.Plan, error) {
		if _, ok := i.TopicByName(name); ok {
			return nil, nil
		}
		return control.CreateTopic(i, r, m.node.Me(), m.node.Limits())
	})
}

// groupsUnfinished says what groups and their offsets lack after the faults.
func (c *cluster) groupsUnfinished(image *meta.Image) string {
	if c.offsetsTopic.IsZero() {
		return ""
	}
	parts := 0
	for p := range image.PartitionsOf(c.offsetsTopic) {
		parts++
		if why := c.behind(p); why != "" {
			return fmt.Sprintf("offsets, partition %d: %s", p.ID.Number, why)
		}
	}
	if parts != offsetsPartitions {
		return fmt.Sprintf("%d partitions of offsets", parts)
	}
	for _, g := range c.members {
		if why := g.behind(); why != "" {
			return why
		}
	}
	return c.consumersUnfinished()
}

// crashCoordinator stops the leader of a partition of the offsets topic.
func (c *cluster) crashCoordinator(d dice) string {
	n := int32(d.IntN(offsetsPartitions))
	if !c.check.hasOffsets {
		return ""
	}
	r := c.check.ledger(meta.PartitionID{Topic: c.offsetsTopic, Number: n}).record
	if r == nil {
		return ""
	}
	m := c.machine(r.Leader)
	if m == nil || !m.up() {
		return ""
	}
	m.crash()
	return m.name
}
