package sim

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/types"
)

// twoConsumers gives two members of one group, of which the first reads partition 0.
func twoConsumers(t *testing.T) (c *cluster, a, b *consumerMember, p consumer.Partition) {
	t.Helper()
	c = consumerThatRead(t).c
	c.topic = c.wantTopic
	p = consumer.Partition{Topic: c.topic, Number: 0}
	a, b = newConsumerMember(c, 0), newConsumerMember(c, groupsMost)
	c.consumers = []*consumerMember{a, b}
	a.in, b.in, a.owned = true, true, []consumer.Partition{p}
	return c, a, b, p
}

// answerGiving answers a heartbeat, without an assignment if given is nil.
func answerGiving(epoch int32, given []consumer.Partition) *kmsg.ConsumerGroupHeartbeatResponse {
	r := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	r.MemberEpoch = epoch
	if given != nil {
		r.Assignment = &kmsg.ConsumerGroupHeartbeatResponseAssignment{}
	}
	for _, p := range given {
		r.Assignment.Topics = append(r.Assignment.Topics, kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{TopicID: p.Topic, Partitions: []int32{p.Number}})
	}
	return r
}

func wantOnly(t *testing.T, c *cluster, invariant string) {
	t.Helper()
	if found := c.k.failure; (found != nil) != (invariant != "") || found != nil && found.Invariant != invariant {
		t.Errorf("found %v, want %q", found, invariant)
	}
}

// OneOwner of the new protocol: a partition is taken from nobody whose session and time to
// let go of it are not over.
func TestAPartitionThatIsTakenFromAMember(t *testing.T) {
	f := func(a, b standing, invariant string) {
		t.Helper()
		c, x, y, p := twoConsumers(t)
		c.k.now = 10 * time.Second
		x.standing, y.standing = a, b
		c.check.takes(y, []consumer.Partition{p})
		wantOnly(t, c, invariant)
	}
	lives := standing{until: 11 * time.Second, revoked: -1}
	f(lives, lives, "OneOwner")
	f(standing{until: 9 * time.Second, revoked: -1}, lives, "")
	f(lives, standing{until: 9 * time.Second, revoked: -1}, "") // what it was told was of an earlier life of it
	f(standing{until: 11 * time.Second, revoked: 9 * time.Second}, lives, "OneOwner")
	f(standing{until: 11 * time.Second, revoked: 10*time.Second - consumerRebalance}, lives, "")
}

// A member's time to let go of partitions runs from the first answer that leaves one out, until it says that it has none of those.
func TestAMembersTimeToLetGo(t *testing.T) {
	c, a, _, p := twoConsumers(t)
	other := consumer.Partition{Topic: c.topic, Number: 1}
	a.owned = []consumer.Partition{p, other}
	f := func(b beat, given []consumer.Partition, revoked time.Duration) {
		t.Helper()
		a.stands(b, answerGiving(5, given))
		if a.revoked != revoked {
			t.Errorf("to let go since %v, want %v", a.revoked, revoked)
		}
	}
	f(beat{came: 1}, []consumer.Partition{p, other}, -1)
	f(beat{came: 2}, []consumer.Partition{p}, 2)
	f(beat{came: 3}, nil, 2)
	f(beat{came: 4, tells: true, owned: []consumer.Partition{p, other}}, nil, 2)
	f(beat{came: 5, tells: true, owned: []consumer.Partition{p}}, nil, -1)
}

// CommitFenced and CommitGoesOn can fail.
func TestAMembersCommit(t *testing.T) {
	f := func(invariant string, story func(l *consumerLedger, p consumer.Partition), epoch int32, at types.Offset) {
		t.Helper()
		c, a, _, p := twoConsumers(t)
		c.k.now = 10 * time.Second
		story(c.check.consumersOf(a.group), p)
		offset := group.CommitOffset{Partition: 0, Offset: at}
		c.check.judgeCommit(c.machine(1), &memberCommit{group: a.group, id: "a", epoch: epoch, topic: c.topic, offsets: []group.CommitOffset{offset}, sent: 8 * time.Second, came: 9 * time.Second},
			[]errcode.Code{errcode.None})
		wantOnly(t, c, invariant)
	}
	gives := func(id string, said time.Duration) func(*consumerLedger, consumer.Partition) {
		return func(l *consumerLedger, p consumer.Partition) { l.given[p] = gift{id: id, said: said} }
	}
	f("", gives("a", time.Second), 5, 7)
	f("CommitFenced", gives("b", time.Second), 5, 7)
	f("", gives("b", 10*time.Second), 5, 7) // the commit was there before
	gone := func(l *consumerLedger, _ consumer.Partition) { l.gone["a"] = goneMember{5, time.Second} }
	f("CommitFenced", gone, 5, 7)
	f("", gone, 6, 7) // it has joined again
	stopped := func(id string, at time.Duration) func(*consumerLedger, consumer.Partition) {
		return func(l *consumerLedger, _ consumer.Partition) { l.newest[0] = memberOffset{id, 8, at} }
	}
	f("CommitGoesOn", stopped("b", time.Second), 5, 7)
	f("", stopped("b", time.Second), 5, 8)
	f("", stopped("b", 9*time.Second), 5, 7)
	f("", stopped("a", time.Second), 5, 7) // its own commit, late
}

// MemberEpochs can fail: an epoch falls, or a member joins below what others were told.
func TestAMembersEpoch(t *testing.T) {
	f := func(b beat, epoch int32, invariant string) {
		t.Helper()
		c, a, _, _ := twoConsumers(t)
		b.g = a
		c.check.judgeEpoch(c.machine(1), b, "a", epoch)
		wantOnly(t, c, invariant)
	}
	f(beat{epoch: 5, own: 5, told: 7}, 5, "")
	f(beat{epoch: 5, own: 5, told: 7}, 4, "MemberEpochs")
	f(beat{epoch: 0, own: 0, told: 7}, 7, "")
	f(beat{epoch: 0, own: 0, told: 7}, 6, "MemberEpochs")
}
