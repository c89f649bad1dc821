package sim

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// What groups of the new protocol are judged by. A member's partitions are its own from when
// it was told so until it has let go of them, while the group must know that it lives: for its
// session from the last heartbeat that a coordinator in office has answered, and
// for its rebalance timeout once it was told to let go of something.

// consumerLedger is what the checkers know of one group of the new protocol.
type consumerLedger struct {
	told   int32                       // the highest epoch that a member was told
	epochs map[string]int32            // the last one of each member
	given  map[consumer.Partition]gift // whom each partition was given to last
	gone   map[string]goneMember       // members that were told that they are none
	newest map[int32]memberOffset      // the highest offset of each partition that was acknowledged
}

// gift is that a coordinator has told a member that a partition is its own.
type gift struct {
	id   string
	in   types.LeaderEpoch // of the coordinator
	came time.Duration     // when the heartbeat came that was answered
	said time.Duration
}

// goneMember is a member that isn't one any more, in its epochs up to one.
type goneMember struct {
	epoch int32
	said  time.Duration
}

type memberOffset struct {
	id     string
	offset types.Offset
	acked  time.Duration
}

// standing is what a group must know of one process of a member.
type standing struct {
	// until is when its session may be over, revoked since when it is to let go of something, -1: it isn't.
	until, revoked time.Duration
	// last is what it was told last that it may read.
	last []consumer.Partition
}

func newStanding() standing { return standing{until: -1, revoked: -1} }

// clockMargin is more than a broker's clock runs fast.
const clockMargin = 0.98

// isKept reports whether the group must not have taken the member's partitions from it.
func (s *standing) isKept(now time.Duration) bool {
	return now < s.until && (s.revoked < 0 || now < s.revoked+shortened(consumerRebalance))
}

func shortened(d time.Duration) time.Duration { return time.Duration(float64(d) * clockMargin) }

func (j *judge) consumersOf(groupID string) *consumerLedger {
	l := j.consumers[groupID]
	if l == nil {
		l = &consumerLedger{
			epochs: map[string]int32{}, given: map[consumer.Partition]gift{}, gone: map[string]goneMember{}, newest: map[int32]memberOffset{},
		}
		j.consumers[groupID] = l
	}
	return l
}

// inOffice gives the leader epoch of a group's coordinator, and whether nobody has followed it yet.
func (j *judge) inOffice(m *machine, groupID, what string) (in types.LeaderEpoch, office, ok bool) {
	in, ok = j.coordinates(m, groupID, what)
	r := j.ledger(j.c.offsetsPartition(groupID)).record
	return in, ok && r != nil && r.Leader == m.id && r.LeaderEpoch == in, ok
}

// beat is one copy of a heartbeat, where it came.
type beat struct {
	g     *consumerMember
	lives int // of the member, when it was sent
	epoch int32
	tells bool                 // it says what the member has:
	owned []consumer.Partition // this
	came  time.Duration
	// told and own are the highest epoch that a member of the group, and the sender, was told before.
	told, own int32
}

// beatOf judges a heartbeat where it comes, and its answer.
func (j *judge) beatOf(g *consumerMember, req *kmsg.ConsumerGroupHeartbeatRequest) func(*machine) func(*machine, kmsg.Response) {
	b := beat{g: g, lives: g.lives, epoch: req.MemberEpoch, tells: req.Topics != nil, owned: slices.Clone(g.owned)}
	return func(*machine) func(*machine, kmsg.Response) {
		l, b := j.consumersOf(g.group), b
		b.came, b.told, b.own = j.c.k.now, l.told, l.epochs[req.MemberID]
		return func(m *machine, resp kmsg.Response) {
			j.beatAnswered(m, b, req.MemberID, resp.(*kmsg.ConsumerGroupHeartbeatResponse))
		}
	}
}

// beatAnswered takes note of what a coordinator tells a member, and judges it.
func (j *judge) beatAnswered(m *machine, b beat, id string, r *kmsg.ConsumerGroupHeartbeatResponse) {
	l, now := j.consumersOf(b.g.group), j.c.k.now
	switch errcode.Code(r.ErrorCode) {
	case errcode.UnknownMemberID:
		if _, office, _ := j.inOffice(m, b.g.group, "fences a member"); office && b.epoch > 0 {
			l.gone[id] = goneMember{max(b.epoch, l.gone[id].epoch), now}
		}
		return
	case errcode.None:
	default:
		return
	}
	in, office, ok := j.inOffice(m, b.g.group, "answers a heartbeat")
	if !ok || b.epoch < consumer.JoinEpoch {
		return
	}
	if r.MemberID != nil && id == "" {
		id = *r.MemberID
	}
	if r.Assignment != nil {
		for _, p := range partitionsGiven(r) {
			if g := l.given[p]; g.in < in || g.in == in && g.came <= b.came {
				l.given[p] = gift{id: id, in: in, came: b.came, said: now}
			}
		}
	}
	if !office {
		return
	}
	j.judgeEpoch(m, b, id, r.MemberEpoch)
	l.told, l.epochs[id] = max(l.told, r.MemberEpoch), max(l.epochs[id], r.MemberEpoch)
	if b.g.lives == b.lives {
		b.g.stands(b, r)
	}
}

// judgeEpoch demands that a member's epoch never falls, and that whoever joins is in an epoch at
// or above all that were told before (MemberEpochs).
func (j *judge) judgeEpoch(m *machine, b beat, id string, epoch int32) {
	if epoch < b.own || b.epoch == consumer.JoinEpoch && epoch < b.told {
		j.fail("MemberEpochs", "%s tells %q of %s epoch %d; before that heartbeat came it was in %d, and members were told %d", m.name, id, b.g.group, epoch, b.own, b.told)
	}
}

// stands takes note of what the group knows of a member, now that it has answered.
func (s *consumerMember) stands(b beat, r *kmsg.ConsumerGroupHeartbeatResponse) {
	s.until = max(s.until, b.came+shortened(consumerSession))
	has := s.owned
	if b.tells {
		has = b.owned
	}
	if r.Assignment != nil {
		s.last = partitionsGiven(r)
	} else if !b.tells {
		return
	}
	lacks := slices.ContainsFunc(has, func(p consumer.Partition) bool { return !slices.Contains(s.last, p) })
	switch {
	case !lacks:
		s.revoked = -1
	case s.revoked < 0:
		s.revoked = b.came
	}
}

// takes judges that a member begins to read partitions: no other member of its group has one
// of them while both are kept (OneOwner).
func (j *judge) takes(g *consumerMember, given []consumer.Partition) {
	now := j.c.k.now
	for _, other := range j.c.consumers {
		if other == g || other.group != g.group || !other.isKept(now) || !g.isKept(now) {
			continue
		}
		for _, p := range given {
			if slices.Contains(other.owned, p) {
				j.fail("OneOwner", "%s of %s begins to read partition %d in epoch %d; %s has it in epoch %d, hasn't let go of it, and is a member until %v at least",
					g.who(), g.group, p.Number, g.epoch, other.who(), other.epoch, other.until.Round(time.Millisecond))
				return
			}
		}
	}
}

// commitOf judges a commit of a member where it comes, and its answer.
func (j *judge) commitOf(g *consumerMember, offsets []group.CommitOffset) func(*machine) func(*machine, kmsg.Response) {
	c := memberCommit{group: g.group, id: g.id, epoch: g.epoch, topic: g.topic, offsets: offsets, sent: j.c.k.now}
	return func(*machine) func(*machine, kmsg.Response) {
		c := c
		c.came = j.c.k.now
		carriedOut := j.commitArrives(c.group, offsets)
		return func(m *machine, resp kmsg.Response) {
			carriedOut()
			var codes []errcode.Code
			for _, p := range resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions {
				codes = append(codes, errcode.Code(p.ErrorCode))
			}
			if slices.Contains(codes, errcode.None) {
				j.judgeCommit(m, &c, codes)
				j.offsetsCommitted(m, c.group, c.offsets, codes)
			}
		}
	}
}

// memberCommit is one copy of a commit.
type memberCommit struct {
	group, id  string
	epoch      int32
	topic      types.TopicID
	offsets    []group.CommitOffset
	sent, came time.Duration
}

// judgeCommit judges an acknowledged commit: who isn't a member any more, or whose partition
// another member was given before the commit came, commits nothing (CommitFenced); and who
// goes on where another one stopped doesn't go back (CommitGoesOn).
func (j *judge) judgeCommit(m *machine, c *memberCommit, codes []errcode.Code) {
	l := j.consumersOf(c.group)
	gone, wasTold := l.gone[c.id]
	for i, o := range c.offsets {
		if codes[i] != errcode.None {
			continue
		}
		if wasTold && c.epoch <= gone.epoch && gone.said < c.came {
			j.fail("CommitFenced", "%s takes offset %d of partition %d from %q of %s in epoch %d, who was told at %v that it is no member", m.name, o.Offset, o.Partition, c.id, c.group, c.epoch, gone.said.Round(time.Millisecond))
			return
		}
		if g, given := l.given[consumer.Partition{Topic: c.topic, Number: o.Partition}]; given && g.id != c.id && g.said < c.came {
			j.fail("CommitFenced", "%s takes offset %d of partition %d from %q of %s in epoch %d; %q was given it at %v", m.name, o.Offset, o.Partition, c.id, c.group, c.epoch, g.id, g.said.Round(time.Millisecond))
			return
		}
		top := l.newest[o.Partition]
		if c.topic == j.c.topic && top.id != "" && top.id != c.id && top.offset > o.Offset && top.acked < c.sent && !j.mayReset(c.topic, o.Partition) {
			j.fail("CommitGoesOn", "%s takes offset %d of partition %d from %q of %s; %q had committed %d at %v, before that was sent", m.name, o.Offset, o.Partition, c.id, c.group, top.id, top.offset, top.acked.Round(time.Millisecond))
			return
		}
		if top.offset <= o.Offset {
			l.newest[o.Partition] = memberOffset{c.id, o.Offset, j.c.k.now}
		}
	}
}

// mayReset reports whether a member may have been told to begin a partition elsewhere.
func (j *judge) mayReset(topic types.TopicID, number int32) bool {
	l := j.ledger(meta.PartitionID{Topic: topic, Number: number})
	return l.unclean >= 0 || l.deleted || l.starts.legal > 0
}
