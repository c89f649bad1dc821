package group

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/types"
)

// fourPartitions is a cluster with one topic, "t".
type fourPartitions struct{}

var topicT = consumer.Topic{Name: "t", ID: types.TopicID{1}, Partitions: 4}

func (fourPartitions) Version() int64 { return 1 }
func (fourPartitions) ByName(name string) (consumer.Topic, bool) {
	return topicT, name == topicT.Name
}
func (fourPartitions) ByID(id types.TopicID) (consumer.Topic, bool) { return topicT, id == topicT.ID }
func (fourPartitions) All() iter.Seq[consumer.Topic] {
	return func(yield func(consumer.Topic) bool) { yield(topicT) }
}

// rig is a table and its log; writes wait while hold is set.
type rig struct {
	t       *testing.T
	table   *Table
	now     types.Millis
	request RequestID
	hold    bool
	fail    errcode.Code
	held    []Append
	log     []Record
	answers map[RequestID]Response
	fx      Effects
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, now: 1000, answers: map[RequestID]Response{}}
	r.table = r.fresh()
	return r
}

func (r *rig) fresh() *Table {
	table := NewTable(Config{
		MinSessionTimeout: 1, MaxSessionTimeout: 1 << 40, MaxSize: 10, OffsetMetadataMaxBytes: 10, OffsetsRetention: 20_000,
		Consumer: consumer.Config{SessionTimeout: 10_000, HeartbeatInterval: 1000, MaxSize: 10, Assignors: []string{consumer.Uniform}},
	})
	table.SetTopics(fourPartitions{})
	return table
}

// ask takes a step and gives its request's answer, nil if there is none yet.
func (r *rig) ask(event func(id RequestID) Event) Response {
	r.request++
	id := r.request
	r.step(event(id))
	return r.answers[id]
}

func (r *rig) step(ev Event) {
	r.fx.Reset()
	r.table.Step(r.now, ev, &r.fx)
	for _, a := range r.fx.Replies {
		if _, twice := r.answers[a.Request]; twice {
			r.t.Fatalf("request %d is answered twice", a.Request)
		}
		r.answers[a.Request] = a.Response
	}
	r.held = append(r.held, r.fx.Appends...)
	if !r.hold {
		r.write()
	}
}

// write completes what waits.
func (r *rig) write() {
	for len(r.held) > 0 {
		a := r.held[0]
		r.held = r.held[1:]
		if r.fail == errcode.None {
			r.log = append(r.log, a.Records...)
		}
		r.step(Appended{Token: a.Token, Code: r.fail})
	}
}

// compacted keeps the last record of each key.
func (r *rig) compacted() []Record {
	key := func(rec Record) string {
		switch rec := rec.(type) {
		case OffsetRecord:
			return fmt.Sprint("offset ", rec.Group, rec.TopicPartition)
		case GroupRecord:
			return "group " + rec.Group
		}
		c := rec.(ConsumerRecord)
		switch x := c.Record.(type) {
		case consumer.ProfileRecord:
			return "profile " + c.Group + x.Member
		case consumer.PositionRecord:
			return "position " + c.Group + x.Member
		case consumer.TargetRecord:
			return "target " + c.Group + x.Member
		}
		return fmt.Sprintf("%T %s", c.Record, c.Group)
	}
	last := map[string]int{}
	for i, rec := range r.log {
		last[key(rec)] = i
	}
	var kept []Record
	for i, rec := range r.log {
		if last[key(rec)] == i {
			kept = append(kept, rec)
		}
	}
	return kept
}

func (r *rig) reload() { r.load(r.log) }

func (r *rig) load(log []Record) {
	r.table = r.fresh()
	for _, rec := range log {
		r.table.Replay(rec)
	}
	r.fx.Reset()
	r.table.Loaded(r.now, &r.fx)
}

func (r *rig) beat(member string, epoch int32, change ...func(h *consumer.Heartbeat)) ConsumerHeartbeatResponse {
	r.t.Helper()
	h := consumer.Heartbeat{MemberID: member, Epoch: epoch, RebalanceTimeout: -1, OwnMemberID: true}
	if epoch == consumer.JoinEpoch {
		h.RebalanceTimeout, h.Topics, h.HasTopics, h.HasOwned = 5000, []string{"t"}, true, true
	}
	for _, f := range change {
		f(&h)
	}
	answer, _ := r.ask(func(id RequestID) Event { return ConsumerHeartbeat{Request: id, Group: "g", Heartbeat: h} }).(ConsumerHeartbeatResponse)
	return answer
}

func (r *rig) commit(member string, epoch int32, v9 bool) errcode.Code {
	r.t.Helper()
	answer := r.ask(func(id RequestID) Event {
		return Commit{Request: id, Group: "g", MemberID: member, Generation: epoch, UnknownGroupIsNotFound: v9, Offsets: []CommitOffset{{Topic: "t", Offset: 5, Retention: -1}}}
	}).(CommitResponse)
	if answer.Code == errcode.None && len(answer.Partitions) == 1 {
		return answer.Partitions[0]
	}
	return answer.Code
}

func (r *rig) join(member string) errcode.Code {
	r.t.Helper()
	answer, _ := r.ask(func(id RequestID) Event {
		return Join{Request: id, Group: "g", MemberID: member, FreshMemberID: "classic", SessionTimeout: 5000, RebalanceTimeout: 5000, ProtocolType: "consumer", Protocols: []Protocol{{Name: "range"}}}
	}).(JoinResponse)
	return answer.Code
}

func (r *rig) want(what string, got, want errcode.Code) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (r *rig) deleteGroup() errcode.Code {
	return r.ask(func(id RequestID) Event { return DeleteGroup{Request: id, Group: "g"} }).(CodeResponse).Code
}

func (r *rig) mirrored() errcode.Code {
	return r.ask(func(id RequestID) Event {
		return MirrorOffsets{Request: id, Group: "g", Offsets: []MirrorOffset{{Topic: "t", Offset: 3, LogEnd: 9}}}
	}).(MirrorOffsetsResponse).Code
}

// Requests for a group of the new protocol, and their codes.
func TestConsumerGroupCodes(t *testing.T) {
	r := newRig(t)
	r.want("a member of no group", r.beat("m", 4).Code, errcode.UnknownMemberID)
	r.want("who leaves no group", r.beat("m", -1).Code, errcode.GroupIDNotFound)
	r.want("joins", r.beat("m", 0).Code, errcode.None)
	r.want("commits", r.commit("m", 2, true), errcode.None)
	r.want("commits without epochs", r.commit("m", 2, false), errcode.UnsupportedVersion)
	r.want("commits in another epoch", r.commit("m", 3, true), errcode.StaleMemberEpoch)
	r.want("a stranger commits", r.commit("x", 2, true), errcode.UnknownMemberID)
	r.want("a simple commit", r.commit("", -1, true), errcode.UnknownMemberID)
	r.want("fetches", r.table.CheckFetch("g", "m", 2), errcode.None)
	r.want("fetches in another epoch", r.table.CheckFetch("g", "m", 0), errcode.StaleMemberEpoch)
	r.want("fetches of no group", r.table.CheckFetch("h", "m", 0), errcode.None)
	r.want("a classic member", r.join(""), errcode.InconsistentGroupProtocol)
	r.want("deletion", r.deleteGroup(), errcode.NonEmptyGroup)
	r.want("mirrored offsets", r.mirrored(), errcode.NonEmptyGroup)
	deleted := r.ask(func(id RequestID) Event {
		return DeleteOffsets{Request: id, Group: "g", Partitions: []types.TopicPartition{{Topic: "t"}, {Topic: "u"}}}
	}).(CommitResponse)
	if !slices.Equal(deleted.Partitions, []errcode.Code{errcode.GroupSubscribedToTopic, errcode.None}) {
		t.Errorf("deleted offsets: %+v", deleted)
	}
	if d := r.table.Describe("g"); d.State != Dead || !d.OtherType {
		t.Errorf("as a classic group: %+v", d)
	}
	if l := r.table.List(nil, []string{"Consumer"}); len(l) != 1 || l[0].State != Stable || l[0].Type != TypeConsumer || l[0].ProtocolType != "consumer" {
		t.Errorf("listed: %+v", l)
	}
	if l := r.table.List(nil, []string{"classic"}); len(l) != 0 {
		t.Errorf("listed as classic: %+v", l)
	}
	if n := r.table.Count(); len(n) != 1 || n[Kind{TypeConsumer, Stable}] != 1 {
		t.Errorf("counted: %+v", n)
	}
	r.want("leaves", r.beat("m", -1).Code, errcode.None)
	if l := r.table.List([]string{"empty"}, nil); len(l) != 1 {
		t.Errorf("listed as empty: %+v", l)
	}
	if n := r.table.Count(); len(n) != 1 || n[Kind{TypeConsumer, Empty}] != 1 {
		t.Errorf("counted: %+v", n)
	}
	r.want("a simple commit into an empty group", r.commit("", -1, true), errcode.None)
	r.want("mirrored offsets of an empty group", r.mirrored(), errcode.None)
	r.want("deletion", r.deleteGroup(), errcode.None)
	r.want("deletion", r.deleteGroup(), errcode.GroupIDNotFound)
	r.reload()
	if n := r.table.Groups(); n != 0 {
		t.Errorf("%d groups are left in the log", n)
	}
}

// An empty group changes its protocol, with its offsets; one with members doesn't.
func TestGroupsChangeTheirProtocol(t *testing.T) {
	r := newRig(t)
	r.want("a simple commit", r.commit("", -1, true), errcode.None)
	r.want("joins a group of offsets", r.beat("m", 0).Code, errcode.None)
	r.want("leaves", r.beat("m", -1).Code, errcode.None)
	r.want("a classic member", r.join(""), errcode.None)
	r.want("a member of the new protocol", r.beat("m", 0).Code, errcode.GroupIDNotFound)
	if l := r.table.List(nil, []string{"classic"}); len(l) != 1 {
		t.Errorf("listed: %+v", l)
	}
	sync := r.ask(func(id RequestID) Event {
		return Sync{Request: id, Group: "g", MemberID: "classic", Generation: 1, Assignments: []Assignment{{MemberID: "classic"}}}
	}).(SyncResponse)
	r.want("sync", sync.Code, errcode.None)
	r.reload()
	if d := r.table.Describe("g"); d.State != Stable || len(d.Members) != 1 {
		t.Errorf("loaded as %+v", d)
	}
	r.step(Leave{Group: "g", Members: []LeavingMember{{MemberID: "classic"}}})
	r.want("a member of the new protocol", r.beat("m", 0).Code, errcode.None)
	r.reload()
	if d := r.table.DescribeConsumer("g"); d.Code != errcode.None || len(d.Members) != 1 {
		t.Errorf("loaded as %+v", d)
	}
	if o := r.table.Offset("g", types.TopicPartition{Topic: "t"}); o == nil || o.Offset != 5 {
		t.Errorf("the group's offset is %+v", o)
	}
}

// What comes during a write goes into the next one; a failed write takes all of its
// requests back, and the log is told again.
func TestConsumerGroupWrites(t *testing.T) {
	r := newRig(t)
	r.hold = true
	r.beat("m1", 0)
	r.beat("m2", 0)
	r.beat("m3", 0)
	if len(r.answers) != 0 || len(r.held) != 1 {
		t.Fatalf("%d answers, %d writes before the first is done", len(r.answers), len(r.held))
	}
	if d := r.table.DescribeConsumer("g"); len(d.Members) != 0 || d.State != consumer.GroupEmpty {
		t.Errorf("described before the log has it: %+v", d)
	}
	r.want("deletion during a write", r.deleteGroup(), errcode.NonEmptyGroup)
	r.want("mirrored offsets during a write", r.mirrored(), errcode.NonEmptyGroup)
	r.fail = errcode.CoordinatorNotAvailable
	r.step(Appended{Token: r.held[0].Token, Code: r.fail})
	r.held = r.held[1:]
	r.want("the first join", r.answers[1].(ConsumerHeartbeatResponse).Code, errcode.CoordinatorNotAvailable)
	if len(r.held) != 1 {
		t.Fatalf("%d writes after the first has failed", len(r.held))
	}
	r.fail, r.hold = errcode.None, false
	r.write()
	if d := r.table.DescribeConsumer("g"); len(d.Members) != 2 {
		t.Errorf("members: %+v", d.Members)
	}
	want := r.table.DescribeConsumer("g")
	r.reload()
	if got := r.table.DescribeConsumer("g"); got.Epoch != want.Epoch || len(got.Members) != 2 {
		t.Errorf("loaded as %+v, was %+v", got, want)
	}
}

// Whoever waits is answered when the coordinator goes.
func TestConsumerGroupResigns(t *testing.T) {
	r := newRig(t)
	r.hold = true
	r.beat("m1", 0)
	r.beat("m2", 0)
	r.step(Resign{Code: errcode.NotCoordinator})
	for id := RequestID(1); id <= 2; id++ {
		if a, ok := r.answers[id].(ConsumerHeartbeatResponse); !ok || a.Code != errcode.NotCoordinator {
			t.Errorf("request %d: %+v", id, r.answers[id])
		}
	}
}

// Sessions end by the table's own timers, also while the log refuses.
func TestConsumerGroupTimers(t *testing.T) {
	r := newRig(t)
	r.beat("m", 0)
	due, ok := r.table.Deadline()
	if !ok || due > 11_000 {
		t.Fatalf("due at %d, %v", due, ok)
	}
	r.now, r.fail = 11_000, errcode.CoordinatorNotAvailable
	r.step(Tick{})
	if d := r.table.DescribeConsumer("g"); len(d.Members) != 1 {
		t.Errorf("%+v", d)
	}
	due, ok = r.table.Deadline()
	if !ok || due <= r.now || due > r.now+retryRemoval {
		t.Errorf("due at %d, %v after a failed removal", due, ok)
	}
	r.now, r.fail = due, errcode.None
	r.step(Tick{})
	if d := r.table.DescribeConsumer("g"); len(d.Members) != 0 || d.State != consumer.GroupEmpty {
		t.Errorf("%+v", d)
	}
}

// Offsets of topics that members read stay; those of an empty group go after their
// retention, and the group with them.
func TestConsumerGroupExpires(t *testing.T) {
	r := newRig(t)
	r.beat("m", 0)
	r.commit("m", 2, true)
	has := func(want bool, why string) {
		t.Helper()
		r.step(SweepOffsets{})
		if got := r.table.Offset("g", types.TopicPartition{Topic: "t"}) != nil; got != want {
			t.Errorf("%s: offset is there: %v", why, got)
		}
	}
	for range 5 {
		r.now += 9_000
		r.beat("m", 2)
	}
	has(true, "its topic is read")
	r.beat("m", -1)
	r.now += 19_999
	has(true, "the group is empty for less than the retention")
	r.reload()
	has(true, "loaded before it is over")
	r.now++
	has(false, "the retention is over")
	r.now += 1
	has(false, "nothing comes back")
	if n := r.table.Groups(); n != 0 {
		t.Errorf("%d groups", n)
	}
}

// A group is the same from a compacted log, in which what came first may be gone, and
// what it is about may come after it.
func TestConsumerGroupFromACompactedLog(t *testing.T) {
	r := newRig(t)
	r.beat("m1", 0)
	r.beat("m2", 0)
	r.beat("m1", 2, func(h *consumer.Heartbeat) {
		h.HasOwned, h.Owned = true, []consumer.Partition{{Topic: topicT.ID}, {Topic: topicT.ID, Number: 1}}
	})
	r.beat("m2", 3)
	r.beat("m3", 0, func(h *consumer.Heartbeat) { h.Topics = []string{"nonesuch"} }) // moves all but the targets
	r.beat("m1", 3, func(h *consumer.Heartbeat) { h.ClientID = "another" })
	r.beat("m2", 3, func(h *consumer.Heartbeat) { h.ClientID = "another" })
	if first, ok := r.compacted()[0].(ConsumerRecord).Record.(consumer.TargetRecord); !ok {
		t.Fatalf("the compacted log begins with %+v", first)
	}
	want := r.table.DescribeConsumer("g")
	if want.State != consumer.GroupStable || len(want.Members[0].Target) != 2 {
		t.Fatalf("%+v", want)
	}
	r.load(r.compacted())
	if got := r.table.DescribeConsumer("g"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("loaded as\n%+v\nit was\n%+v", got, want)
	}
}
