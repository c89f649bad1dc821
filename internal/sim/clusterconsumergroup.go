package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/types"
)

// Groups of the new protocol (KIP-848). Members speak frame by frame through the brokers'
// handlers of requests: they join, say that they live, take what they are given, let go of
// what they are to, commit under their epochs, leave, freeze, and die without a word.
//
// What tells which partitions a member has comes once and within its sender's patience, or
// never, as over a connection that is closed then: a copy of it that came when the member had
// been given more would give that up in its name, and no broker can know. So do joins and
// leaves. All other frames are late, lost or twice like all messages here.

// Times of groups of the new protocol.
const (
	consumerSession   = 3 * time.Second        // group.consumer.session.timeout.ms
	consumerBeat      = 400 * time.Millisecond // group.consumer.heartbeat.interval.ms
	consumerRebalance = 4 * time.Second        // the members' rebalance timeout
)

// consumerMember is one consumer of a group of the new protocol.
type consumerMember struct {
	reading
	k           *kernel
	number      int
	lives       int // how many processes there were
	group       string
	coordinator types.BrokerID // as it believes; 0: it must look

	id    string
	epoch int32
	in    bool // it has joined
	// owned are the partitions that it reads, and give those that it is to let go of.
	owned, give []consumer.Partition
	// tell: it says all of itself next, as an answer may have been lost.
	tell bool
	// letsGo is when it has done with what it is to let go of.
	letsGo time.Duration
	beats  time.Duration // when its next heartbeat is due
	// woke: it was frozen, and commits what it has read before it hears that it may not.
	woke bool

	sent      int  // requests, so that a late answer is known
	turn      int  // steps, so that one that is due no more is known
	busy      bool // something is on its way, or due
	away      bool
	committed time.Duration

	// What the group knows of this process, as judged (clusterconsumergroupcheck.go).
	standing
}

func newConsumerMember(c *cluster, number int) *consumerMember {
	g := &consumerMember{k: c.k, number: number, group: fmt.Sprintf("consumers-%d", number%groupsMost), committed: -1}
	g.reading = newReading(c, g.who())
	g.born()
	g.soon(time.Duration(number) * 50 * time.Millisecond)
	return g
}

func (g *consumerMember) who() string { return fmt.Sprintf("consumer %d", g.number) }

// born begins a new process: it has an id that nobody had before. Those of version 0 are given one.
func (g *consumerMember) born() {
	g.lives++
	g.id = fmt.Sprintf("consumer-%d-life-%d", g.number, g.lives)
	if g.version() == 0 {
		g.id = ""
	}
	g.coordinator, g.standing = 0, newStanding()
	g.forget()
}

func (g *consumerMember) version() int16 { return int16(min(g.number%3, 1)) }

// forget has the member own nothing and join anew.
func (g *consumerMember) forget() {
	g.epoch, g.in, g.owned, g.give, g.tell, g.woke, g.beats = 0, false, nil, nil, false, false, 0
	clear(g.positions)
}

// soon has the member do its next step.
func (g *consumerMember) soon(wait time.Duration) {
	if g.busy {
		return
	}
	g.busy = true
	g.turn++
	turn := g.turn
	g.k.after(wait, g.who(), func() {
		if turn != g.turn {
			return
		}
		g.busy = false
		if !g.away {
			g.step()
		}
	})
}

func (g *consumerMember) pause() {
	g.soon(g.k.dice(g.who()).between(20*time.Millisecond, 300*time.Millisecond))
}

func (g *consumerMember) step() {
	d := g.k.dice(g.who())
	switch {
	case !g.c.check.hasOffsets || g.c.topic.IsZero():
		g.soon(200 * time.Millisecond)
	case g.coordinator == 0:
		g.look()
	case !g.in:
		g.join()
	case len(g.give) > 0 && g.k.now >= g.letsGo:
		g.letGo()
	case g.woke && g.fresh && !g.lacks(g.numbers()):
		g.woke = false
		g.commit()
	case g.tell || g.k.now >= g.beats:
		g.beat()
	case g.lacks(g.numbers()):
		g.fetchOffsets()
	case g.fresh && d.chance(0.5):
		g.commit()
	default:
		for _, p := range g.numbers() {
			g.read(p, func() bool { return g.in && g.owns(p) })
		}
		g.pause()
	}
}

// numbers are the partitions of the present topic that the member reads.
func (g *consumerMember) numbers() []int32 {
	var all []int32
	for _, p := range g.owned {
		if p.Topic == g.c.wantTopic {
			all = append(all, p.Number)
		}
	}
	return all
}

func (g *consumerMember) owns(number int32) bool {
	return slices.Contains(g.owned, consumer.Partition{Topic: g.c.wantTopic, Number: number})
}

// asking is one request of a member.
type asking struct {
	to     types.BrokerID
	req    kmsg.Request
	onTime bool // it comes once and within the sender's patience, or never
	// comes, if not nil, runs where a copy of it is taken; said hears what is answered to that copy.
	comes   func(m *machine) (said func(m *machine, resp kmsg.Response))
	arrived func(resp kmsg.Response)
}

// ask sends a frame to a broker. Its answer is taken here, unless the member has given up
// waiting, or is away.
func (g *consumerMember) ask(a asking) {
	g.busy = true
	g.sent++
	g.turn++
	attempt, m := g.sent, g.c.machine(a.to)
	settled := false
	once := func(f func()) {
		if settled || attempt != g.sent {
			return
		}
		settled, g.busy = true, false
		if !g.away {
			f()
		}
		g.pause()
	}
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(g.who())).AppendRequest(nil, a.req, 1)[4:]
	arrives := g.k.arrival(memberTimeout-500*time.Millisecond, a.onTime) // the broker may be slow to look at it
	g.c.net.call(g.who(), m.name, fmt.Sprintf("api %d", a.req.Key()), memberTimeout, func(reply func(func())) {
		if !m.serves() || !arrives() {
			return
		}
		m.task(func() {
			var said func(m *machine, resp kmsg.Response)
			if a.comes != nil {
				said = a.comes(m)
			}
			m.answerFrame(a.req, frame, said, func(resp kmsg.Response) { reply(func() { once(func() { a.arrived(resp) }) }) })
		})
	}, func() {
		once(func() {
			g.k.probe("consumer member: timed out")
			g.coordinator, g.tell = 0, g.in
		})
	})
}

// look asks some broker who coordinates the group.
func (g *consumerMember) look() {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKey, req.CoordinatorType = 3, g.group, 0
	g.ask(asking{to: g.c.anyMachine(g.k.dice(g.who())).id, req: req, arrived: func(resp kmsg.Response) {
		if r := resp.(*kmsg.FindCoordinatorResponse); r.ErrorCode == 0 && g.c.machine(types.BrokerID(r.NodeID)) != nil {
			g.coordinator = types.BrokerID(r.NodeID)
		}
	}})
}

func (g *consumerMember) heartbeat() *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = g.version(), g.group, g.id, g.epoch, -1
	return req
}

// tellAll has a heartbeat say all of the member.
func (g *consumerMember) tellAll(req *kmsg.ConsumerGroupHeartbeatRequest) {
	req.RebalanceTimeoutMillis, req.SubscribedTopicNames = int32(consumerRebalance.Milliseconds()), []string{clusterTopic}
	g.tellOwned(req)
}

func (g *consumerMember) tellOwned(req *kmsg.ConsumerGroupHeartbeatRequest) {
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for _, p := range g.owned {
		n := len(req.Topics) - 1
		if n < 0 || req.Topics[n].TopicID != p.Topic {
			t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
			t.TopicID = p.Topic
			req.Topics = append(req.Topics, t)
			n++
		}
		req.Topics[n].Partitions = append(req.Topics[n].Partitions, p.Number)
	}
}

func (g *consumerMember) join() {
	req := g.heartbeat()
	g.tellAll(req)
	g.send(req, true)
}

// beat says that the member lives, and all of it where an answer may have been lost.
func (g *consumerMember) beat() {
	req := g.heartbeat()
	if g.tell {
		g.tellAll(req)
	}
	g.send(req, g.tell)
}

// letGo commits, perhaps, and gives up what the member is to: it reads it no more.
func (g *consumerMember) letGo() {
	if g.fresh && !g.lacks(g.numbers()) && g.k.dice(g.who()).chance(0.7) {
		g.commit()
		return
	}
	g.owned = slices.DeleteFunc(g.owned, func(p consumer.Partition) bool { return slices.Contains(g.give, p) })
	for _, p := range g.give {
		delete(g.positions, p.Number)
	}
	g.give = nil
	req := g.heartbeat()
	g.tellOwned(req)
	g.send(req, true)
}

// send sends a heartbeat.
func (g *consumerMember) send(req *kmsg.ConsumerGroupHeartbeatRequest, onTime bool) {
	g.beats = g.k.now + consumerBeat
	g.ask(asking{
		to: g.coordinator, req: req, onTime: onTime, comes: g.c.check.beatOf(g, req),
		arrived: func(resp kmsg.Response) { g.told(resp.(*kmsg.ConsumerGroupHeartbeatResponse)) },
	})
}

// told takes the answer to a heartbeat.
func (g *consumerMember) told(r *kmsg.ConsumerGroupHeartbeatResponse) {
	if !g.ok(errcode.Code(r.ErrorCode)) {
		return
	}
	if r.MemberID != nil {
		g.id = *r.MemberID
	}
	g.epoch, g.in, g.tell = r.MemberEpoch, true, false
	if r.Assignment == nil {
		return
	}
	given := partitionsGiven(r)
	g.give = slices.DeleteFunc(slices.Clone(g.owned), func(p consumer.Partition) bool { return slices.Contains(given, p) })
	for _, p := range given {
		if !slices.Contains(g.owned, p) {
			g.owned = append(g.owned, p)
		}
	}
	slices.SortFunc(g.owned, consumer.Partition.Compare)
	g.c.check.takes(g, given)
	if len(g.give) > 0 {
		g.letsGo = g.k.now + g.k.dice(g.who()).between(0, 600*time.Millisecond)
		if g.k.buggified("consumer member: is slow to let go") {
			g.letsGo += g.k.dice(g.who()).between(0, 2*consumerRebalance)
		}
	}
}

func partitionsGiven(r *kmsg.ConsumerGroupHeartbeatResponse) []consumer.Partition {
	var all []consumer.Partition
	for _, t := range r.Assignment.Topics {
		for _, n := range t.Partitions {
			all = append(all, consumer.Partition{Topic: t.TopicID, Number: n})
		}
	}
	return all
}

// ok takes an answer's code; false if it is an error.
func (g *consumerMember) ok(code errcode.Code) bool {
	switch code {
	case errcode.None:
		return true
	case errcode.NotCoordinator, errcode.CoordinatorNotAvailable:
		g.coordinator, g.tell = 0, g.in
	case errcode.CoordinatorLoadInProgress:
		g.k.probe("consumer member: coordinator loads")
		g.tell = g.in
	case errcode.UnknownMemberID, errcode.FencedMemberEpoch, errcode.GroupIDNotFound:
		g.k.probe("consumer member: fenced: " + code.Error())
		g.forget()
	case errcode.StaleMemberEpoch:
		g.k.probe("consumer member: stale epoch")
		g.tell = g.in // a heartbeat tells where it stands
	default:
		g.k.probe("consumer member: " + code.Error())
		g.tell = g.in
	}
	return false
}

// fetchOffsets asks where the group stands.
func (g *consumerMember) fetchOffsets() {
	parts, id, epoch, topic := g.numbers(), g.id, g.epoch, g.topic
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 9 + g.version()
	in := kmsg.NewOffsetFetchRequestGroup()
	in.Group, in.MemberID, in.MemberEpoch = g.group, &id, epoch
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.TopicID, t.Partitions = clusterTopic, topic, parts
	in.Topics = []kmsg.OffsetFetchRequestGroupTopic{t}
	req.Groups = []kmsg.OffsetFetchRequestGroup{in}
	g.ask(asking{
		to: g.coordinator, req: req,
		comes: func(m *machine) func(*machine, kmsg.Response) {
			began := m.k.now
			return func(m *machine, resp kmsg.Response) {
				if r := &resp.(*kmsg.OffsetFetchResponse).Groups[0]; r.ErrorCode == 0 {
					g.c.check.offsetsRead(m, g.group, entriesOf(r), began)
				}
			}
		},
		arrived: func(resp kmsg.Response) {
			r := &resp.(*kmsg.OffsetFetchResponse).Groups[0]
			if g.ok(errcode.Code(r.ErrorCode)) && g.epoch == epoch && g.topic == topic {
				g.begin(g.group, slices.DeleteFunc(entriesOf(r), func(e group.OffsetEntry) bool { return !g.owns(e.Partition) }))
			}
		},
	})
}

// entriesOf are the offsets that an answer tells.
func entriesOf(r *kmsg.OffsetFetchResponseGroup) []group.OffsetEntry {
	var all []group.OffsetEntry
	for i := range r.Topics {
		for _, p := range r.Topics[i].Partitions {
			if p.ErrorCode != 0 {
				continue
			}
			e := group.OffsetEntry{TopicPartition: types.TopicPartition{Topic: clusterTopic, Partition: p.Partition}}
			if e.Offset = types.Offset(p.Offset); p.Metadata != nil {
				e.Metadata = *p.Metadata
			}
			all = append(all, e)
		}
	}
	return all
}

// commit commits the positions.
func (g *consumerMember) commit() {
	g.fresh = false
	offsets := g.offsets(g.group, g.numbers())
	if len(offsets) == 0 {
		g.pause()
		return
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 9+g.version(), g.group, g.id, g.epoch
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = clusterTopic, g.topic
	for i := range offsets {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.Metadata = offsets[i].Partition, int64(offsets[i].Offset), &offsets[i].Metadata
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = []kmsg.OffsetCommitRequestTopic{t}
	g.ask(asking{
		to: g.coordinator, req: req, comes: g.c.check.commitOf(g, offsets),
		arrived: func(resp kmsg.Response) {
			ok := true
			for _, p := range resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions {
				ok = ok && g.ok(errcode.Code(p.ErrorCode))
			}
			if ok {
				g.committed = g.k.now
			}
		},
	})
}

// behind says what the member lacks after the faults.
func (g *consumerMember) behind() string {
	switch {
	case !g.in || len(g.give) > 0:
		return g.who() + " of " + g.group + " has no assignment that it can keep"
	case len(g.owned) > 0 && (g.committed < g.c.healedAt || g.lacks(g.numbers())):
		return g.who() + " of " + g.group + " has committed nothing since the faults ended"
	}
	return ""
}

// consumersUnfinished says what groups of the new protocol lack after the faults: each
// partition has one reader in each group that has members.
func (c *cluster) consumersUnfinished() string {
	readers := map[string]map[consumer.Partition]string{}
	for _, g := range c.consumers {
		if why := g.behind(); why != "" {
			return why
		}
		if readers[g.group] == nil {
			readers[g.group] = map[consumer.Partition]string{}
		}
		for _, p := range g.owned {
			if other := readers[g.group][p]; other != "" {
				return fmt.Sprintf("%s and %s of %s both read %d", other, g.who(), g.group, p.Number)
			}
			readers[g.group][p] = g.who()
		}
	}
	for id, read := range readers {
		for p := range int32(c.o.Partitions) {
			if read[consumer.Partition{Topic: c.topic, Number: p}] == "" {
				return fmt.Sprintf("nobody of %s reads partition %d", id, p)
			}
		}
	}
	return ""
}

// anyConsumer is some member that is not away, nil if that one is.
func (c *cluster) anyConsumer(d dice) *consumerMember {
	if len(c.consumers) == 0 {
		return nil
	}
	if g := c.consumers[d.IntN(len(c.consumers))]; !g.away {
		return g
	}
	return nil
}

// consumerLeave has a member leave its group, and join again later.
func (c *cluster) consumerLeave(d dice) string {
	g, span := c.anyConsumer(d), d.between(100*time.Millisecond, 6*time.Second)
	if g == nil || !g.in || g.coordinator == 0 {
		return ""
	}
	req := g.heartbeat()
	req.MemberEpoch = consumer.LeaveEpoch
	g.forget()
	g.ask(asking{
		to: g.coordinator, req: req, onTime: true, comes: c.check.beatOf(g, req),
		arrived: func(kmsg.Response) {}, // what it is told changes nothing: it is gone
	})
	g.stayAway(span + memberTimeout) // a copy of its leave that came later would be taken for another
	return fmt.Sprintf("%s leaves %s for %v", g.who(), g.group, span.Round(time.Millisecond))
}

// consumerPause freezes a member for longer than its session, often. It comes back in the epoch that it had.
func (c *cluster) consumerPause(d dice) string {
	g, span := c.anyConsumer(d), d.between(500*time.Millisecond, 3*consumerSession)
	if g == nil {
		return ""
	}
	g.stayAway(span)
	return fmt.Sprintf("%s of %s for %v", g.who(), g.group, span.Round(time.Millisecond))
}

// consumerDie ends a member without a word. Another process comes in its place.
func (c *cluster) consumerDie(d dice) string {
	g, span := c.anyConsumer(d), d.between(0, 2*consumerSession)
	if g == nil {
		return ""
	}
	g.sent++ // nobody is there for what comes now
	g.turn++
	g.busy = false
	g.born()
	g.stayAway(span)
	return fmt.Sprintf("%s of %s, another one comes in %v", g.who(), g.group, span.Round(time.Millisecond))
}

func (g *consumerMember) stayAway(span time.Duration) {
	g.away = true
	g.k.after(span, "consumer member is back", g.back)
}

func (g *consumerMember) back() {
	if g.away {
		g.away, g.tell, g.woke = false, g.in, g.in && g.k.dice(g.who()).chance(0.5)
		g.pause()
	}
}
