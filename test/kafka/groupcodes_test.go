//go:build kafka

package kafka_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/test/kafka/cluster"
)

// groupDifferences are those about groups of the new protocol (KIP-848).
var groupDifferences = []meantDifference{
	{"ConsumerGroupHeartbeat v\\d: a member of (no group|an empty classic group|a classic group)", "the member is to join anew: of Kafka's answer Java's consumer dies, and a failover leaves groups without members"},
	{"ConsumerGroupHeartbeat v1: the first has missed the answer", "who comes with the epoch before has missed what the answer told, and is told again"},
	{"OffsetFetch v\\d+: an epoch without member", "nobody is no member; Kafka has no answer"},
	{"ConsumerGroupHeartbeat v1: its own id and instance, anew", "a static member that comes back under its own id owns nothing any more"},
}

// TestConsumerGroupCodes asks Kafka and a node of ours the same about groups of the new protocol, by frames made by
// hand: codes, epochs, and how many partitions a member is given. Kafka computes its targets at once, as we do.
func TestConsumerGroupCodes(t *testing.T) {
	kafka := cluster.Start(t, cluster.Options{Props: map[string]string{
		"offsets.topic.num.partitions": "1", "group.consumer.migration.policy": "disabled", "group.initial.rebalance.delay.ms": "0",
		"group.consumer.assignment.interval.ms": "0", "group.consumer.assignor.offload.enable": "false", "transaction.state.log.num.partitions": "1",
	}})
	tidemark := startNode(t, "serve", "--set", "offsets.topic.num.partitions=1", "--set", "group.initial.rebalance.delay.ms=0", "--set", "transaction.state.log.num.partitions=1")
	was, is := &groupAsker{newAsker(t, "Kafka", kafka.Bootstrap())}, &groupAsker{newAsker(t, "Tidemark", tidemark.kafka)}
	for _, a := range []*groupAsker{was, is} {
		a.senseless()
		a.strangers()
		a.reconciles()
		a.statics()
		a.subscriptions()
		a.commits()
		a.otherRequests()
		a.classics()
	}
	compareCodes(t, was.asker, is.asker, groupDifferences)
}

// groupAsker asks one contender about groups.
type groupAsker struct{ *asker }

func joinBeat(group, member string, topics ...string) *kmsg.ConsumerGroupHeartbeatRequest {
	req := plainBeat(group, member, 0)
	req.RebalanceTimeoutMillis, req.SubscribedTopicNames, req.Topics = 30000, topics, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if topics == nil {
		req.SubscribedTopicNames = []string{}
	}
	return req
}

func plainBeat(group, member string, epoch int32) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = group, member, epoch, -1
	return req
}

func instance(req *kmsg.ConsumerGroupHeartbeatRequest, id string) *kmsg.ConsumerGroupHeartbeatRequest {
	req.InstanceID = &id
	return req
}

// beat sends a heartbeat and keeps its code, the member's epoch and what it is given.
func (a *groupAsker) beat(question string, req *kmsg.ConsumerGroupHeartbeatRequest, version int16) *kmsg.ConsumerGroupHeartbeatResponse {
	a.t.Helper()
	resp := a.settled(req, version).(*kmsg.ConsumerGroupHeartbeatResponse)
	answer := codeName(resp.ErrorCode)
	if resp.ErrorCode == 0 {
		answer += fmt.Sprintf(" epoch %d, member %v, every %d ms", resp.MemberEpoch, resp.MemberID != nil && (req.MemberID == "" || *resp.MemberID == req.MemberID), resp.HeartbeatIntervalMillis)
		if resp.Assignment != nil {
			answer += fmt.Sprintf(", %d partitions", len(a.given(resp)))
		}
	}
	a.keep(fmt.Sprintf("ConsumerGroupHeartbeat v%d: %s", version, question), answer)
	return resp
}

func (a *groupAsker) given(resp *kmsg.ConsumerGroupHeartbeatResponse) (all []int32) {
	if resp.Assignment == nil {
		return nil
	}
	for _, topic := range resp.Assignment.Topics {
		all = append(all, topic.Partitions...)
	}
	return all
}

// owning says that the member has these partitions of the topic.
func (a *groupAsker) owning(req *kmsg.ConsumerGroupHeartbeatRequest, partitions ...int32) *kmsg.ConsumerGroupHeartbeatRequest {
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if len(partitions) > 0 {
		req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: a.c.topicID, Partitions: partitions})
	}
	return req
}

func (a *groupAsker) senseless() {
	blank, sticky := " ", "sticky"
	for version := int16(0); version <= 1; version++ {
		f := func(question string, change func(req *kmsg.ConsumerGroupHeartbeatRequest)) {
			req := joinBeat("senseless", "m", "codes")
			change(req)
			a.beat(question, req, version)
		}
		f("no group", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "" })
		f("blank instance", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = &blank })
		f("blank rack", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = &blank })
		f("no timeout", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 })
		f("owned partitions not said", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil })
		f("owned partitions at a join", func(r *kmsg.ConsumerGroupHeartbeatRequest) { a.owning(r, 0) })
		f("no subscription", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil })
		f("an unknown assignor", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = &sticky })
		f("epoch -3", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -3 })
		f("away without instance", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -2 })
		f("leaves without id", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch, r.MemberID = -1, "" })
		f("is there without id", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch, r.MemberID = 1, "" })
	}
	a.beat("joins without id", joinBeat("senseless", "", "codes"), 1)
	for _, regex := range []string{"(", "a)(b", "(?=a)b", `[[:alpha:]]+`, "", `\pN`, "a{2,1}", "x**"} {
		req := joinBeat("regex "+regex, "m")
		req.SubscribedTopicNames, req.SubscribedTopicRegex = nil, &regex
		a.keep("an expression is taken: "+regex, codeName(a.settled(req, 1).(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode))
	}
}

func (a *groupAsker) strangers() {
	for version := int16(0); version <= 1; version++ {
		a.beat("a member of no group", plainBeat("nonesuch", "m", 3), version)
		a.beat("leaves no group", plainBeat("nonesuch", "m", -1), version)
		a.beat("a static member leaves no group", instance(plainBeat("nonesuch", "m", -2), "i"), version)
	}
	a.beat("joins without an id in v0", joinBeat("v0", "", "codes"), 0)
}

// reconciles has two members share, step by step. A group's first epoch is 2.
func (a *groupAsker) reconciles() {
	const g = "reconciles"
	a.beat("the first joins", joinBeat(g, "m1", "codes"), 1)
	a.beat("the first is there", plainBeat(g, "m1", 2), 1)
	a.beat("the first tells all", a.owning(fullBeat(plainBeat(g, "m1", 2), "codes"), 0, 1), 1)
	a.beat("a member that there isn't", plainBeat(g, "m9", 2), 1)
	a.beat("a member that there isn't leaves", plainBeat(g, "m9", -1), 1)
	a.beat("an epoch to come", plainBeat(g, "m1", 3), 1)
	a.describe("with one member", g)
	a.beat("the second joins", joinBeat(g, "m2", "codes"), 1)
	a.describe("while the second waits", g)
	a.beat("the second is there", plainBeat(g, "m2", 3), 1)
	first := a.beat("the first hears of it", plainBeat(g, "m1", 2), 1)
	a.describe("while the first lets go", g)
	a.beat("the first still has both", a.owning(plainBeat(g, "m1", 2), 0, 1), 1)
	a.beat("the first says nothing of what it has", plainBeat(g, "m1", 2), 1)
	a.beat("the first has let go", a.owning(plainBeat(g, "m1", 2), a.given(first)...), 1)
	a.beat("the first has missed the answer", a.owning(plainBeat(g, "m1", 2), a.given(first)...), 1)
	a.beat("the first has missed the answer, and says nothing of what it has", plainBeat(g, "m1", 2), 1)
	a.beat("the second is given its own", plainBeat(g, "m2", 3), 1)
	a.describe("with two members", g)
	a.beat("the second asks again in the epoch before", a.owning(plainBeat(g, "m2", 0)), 1)
	a.beat("an epoch gone by", plainBeat(g, "m2", 2), 1)
	a.beat("the second joins anew under its id", joinBeat(g, "m2", "codes"), 1)
	a.beat("the first leaves", plainBeat(g, "m1", -1), 1)
	a.describe("when the first has left", g)
	a.beat("the second is given all", plainBeat(g, "m2", 3), 1)
	a.beat("the second leaves", plainBeat(g, "m2", -1), 1)
	a.describe("without members", g)
	a.beat("a third comes later", joinBeat(g, "m3", "codes"), 1)
	a.describe("with a third", g)
}

func fullBeat(req *kmsg.ConsumerGroupHeartbeatRequest, topics ...string) *kmsg.ConsumerGroupHeartbeatRequest {
	req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 30000, topics
	return req
}

func (a *groupAsker) describe(when, group string) {
	a.t.Helper()
	for version := int16(0); version <= 1; version++ {
		req := kmsg.NewPtrConsumerGroupDescribeRequest()
		req.Groups = []string{group}
		g := a.settled(req, version).(*kmsg.ConsumerGroupDescribeResponse).Groups[0]
		answer := fmt.Sprintf("%s %s epoch %d of %d, %s", codeName(g.ErrorCode), g.State, g.AssignmentEpoch, g.Epoch, g.AssignorName)
		slices.SortFunc(g.Members, func(x, y kmsg.ConsumerGroupDescribeResponseGroupMember) int {
			return slices.Compare([]byte(x.MemberID), []byte(y.MemberID))
		})
		for _, m := range g.Members {
			answer += fmt.Sprintf("; %s %s %s epoch %d client %q of type %d, %v %s: %d of %d", m.MemberID, str(m.InstanceID), str(m.RackID), m.MemberEpoch, m.ClientID, m.MemberType,
				m.SubscribedTopics, str(m.SubscribedTopicRegex), partitionCount(m.Assignment), partitionCount(m.TargetAssignment))
		}
		a.keep(fmt.Sprintf("ConsumerGroupDescribe v%d: %s %s", version, group, when), answer)
	}
}

func str(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func partitionCount(as kmsg.Assignment) (n int) {
	for _, tp := range as.TopicPartitions {
		n += len(tp.Partitions)
	}
	return n
}

func (a *groupAsker) statics() {
	const g = "statics"
	a.beat("a static member joins", instance(joinBeat(g, "s1", "codes"), "i"), 1)
	a.beat("another under its instance", instance(joinBeat(g, "s2", "codes"), "i"), 1)
	a.beat("its own id and instance, anew", instance(joinBeat(g, "s1", "codes"), "i"), 1)
	a.beat("another's heartbeat under its instance", instance(plainBeat(g, "s2", 2), "i"), 1)
	a.beat("an unknown instance", instance(plainBeat(g, "s1", 2), "j"), 1)
	a.beat("an unknown instance leaves", instance(plainBeat(g, "s1", -1), "j"), 1)
	a.beat("another leaves under its instance", instance(plainBeat(g, "s2", -1), "i"), 1)
	a.beat("another is away under its instance", instance(plainBeat(g, "s2", -2), "i"), 1)
	a.beat("it says nothing of its instance", plainBeat(g, "s1", 2), 1)
	a.beat("it is away", instance(plainBeat(g, "s1", -2), "i"), 1)
	a.describe("while it is away", g)
	a.beat("it is away, and speaks", instance(plainBeat(g, "s1", 2), "i"), 1)
	a.beat("it is back with another id", instance(joinBeat(g, "s3", "codes"), "i"), 1)
	a.describe("when it is back", g)
	a.beat("the first one speaks", instance(plainBeat(g, "s1", 2), "i"), 1)
	a.beat("it leaves for good", instance(plainBeat(g, "s3", -1), "i"), 1)
	a.describe("without it", g)
}

func (a *groupAsker) subscriptions() {
	const g = "subscriptions"
	a.beat("of a topic that there isn't", joinBeat(g, "m1", "nonesuch"), 1)
	a.beat("changed", fullBeat(a.owning(plainBeat(g, "m1", 2)), "codes"), 1)
	a.beat("the same again", fullBeat(a.owning(plainBeat(g, "m1", 3), 0, 1), "codes"), 1)
	a.beat("twice the same topic", fullBeat(a.owning(plainBeat(g, "m1", 3), 0, 1), "codes", "codes"), 1)
	ranged := "range"
	req := plainBeat(g, "m1", 3)
	req.ServerAssignor = &ranged
	a.beat("another assignor", req, 1)
	a.describe("with another assignor", g)
	a.beat("of nothing", fullBeat(a.owning(plainBeat(g, "m1", 4), 0, 1)), 1)
}

func (a *groupAsker) commit(question, group, member string, epoch int32, version int16, partitions ...int32) {
	a.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = group, member, epoch
	t := kmsg.OffsetCommitRequestTopic{Topic: "codes", TopicID: a.c.topicID}
	for _, p := range partitions {
		t.Partitions = append(t.Partitions, kmsg.OffsetCommitRequestTopicPartition{Partition: p, Offset: 3, LeaderEpoch: -1})
	}
	req.Topics = []kmsg.OffsetCommitRequestTopic{t}
	a.ask(question, req, version)
}

func (a *groupAsker) commits() {
	const g = "commits"
	a.settled(joinBeat(g, "m1", "codes"), 1)
	a.settled(joinBeat(g, "m2", "codes"), 1)
	mine := a.given(a.settled(plainBeat(g, "m1", 2), 1).(*kmsg.ConsumerGroupHeartbeatResponse))
	if len(mine) != 1 {
		a.t.Fatalf("%s: the first is left with %v", a.c.name, mine)
	}
	other := 1 - mine[0]
	for _, version := range []int16{8, 9, 10} {
		a.commit("what it has", g, "m1", 2, version, mine[0])
		a.commit("what it is to let go of", g, "m1", 2, version, other)
		a.commit("both", g, "m1", 2, version, 0, 1)
		a.commit("an epoch to come", g, "m1", 3, version, mine[0])
		a.commit("an epoch gone by", g, "m1", 0, version, mine[0])
		a.commit("a member that there isn't", g, "m9", 2, version, 0)
		a.commit("no member", g, "", -1, version, 0)
		a.commit("a member without epoch", g, "m1", -1, version, mine[0])
		a.commit("what isn't its own", g, "m2", 3, version, other)
		a.commit("of no group", "nonesuch", "m1", 2, version, 0)
	}
	a.settled(a.owning(plainBeat(g, "m1", 2), mine...), 1)
	a.settled(plainBeat(g, "m2", 3), 1)
	for _, version := range []int16{9, 10} {
		a.commit("in the epoch in which it was given it", g, "m1", 2, version, mine[0])
		a.commit("what it has let go of, in its epoch", g, "m1", 2, version, other)
		a.commit("before it was given it", g, "m2", 2, version, other)
		a.commit("when it has it", g, "m2", 3, version, other)
	}
	member, nobody := "m1", "m9"
	for _, version := range []int16{9, 10} {
		f := func(question, group string, member *string, epoch int32) {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: group, MemberID: member, MemberEpoch: epoch,
				Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "codes", TopicID: a.c.topicID, Partitions: []int32{0}}}}}
			a.ask(question, req, version)
		}
		f("its epoch", g, &member, 3)
		f("an epoch gone by", g, &member, 2)
		f("an epoch to come", g, &member, 4)
		f("no epoch", g, &member, -1)
		f("a member that there isn't", g, &nobody, 3)
		f("an epoch without member", g, nil, 3)
		f("no member", g, nil, -1)
		f("of no group", "nonesuch", &member, 3)
	}
	p := a.producer("group-commits")
	a.settled(addOffsets(p, g), 4)
	for _, version := range []int16{3, 5} {
		f := func(question, member string, epoch int32) {
			a.ask(question, txnCommitRequest(p, g, member, epoch, "codes", a.c.topicID), version)
		}
		f("a member of the new protocol", "m1", 3)
		f("in an epoch gone by", "m1", 0)
		f("in an epoch to come", "m1", 4)
		f("no member of the group", "m9", 3)
		f("nobody of a group with members", "", -1)
	}
}

// otherRequests are those of classic groups, about a group of the new protocol with a member.
func (a *groupAsker) otherRequests() {
	const g = "others"
	a.settled(joinBeat(g, "m1", "codes"), 1)
	for _, version := range []int16{5, 6} {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{g}
		resp := a.ask("a group of the new protocol", req, version).(*kmsg.DescribeGroupsResponse)
		a.keep(fmt.Sprintf("DescribeGroups v%d: its state", version), resp.Groups[0].State)
	}
	for _, types := range [][]string{nil, {"consumer"}, {"Consumer"}, {"classic"}, {"share"}} {
		req := kmsg.NewPtrListGroupsRequest()
		req.TypesFilter = types
		resp := a.settled(req, 5).(*kmsg.ListGroupsResponse)
		answer := "not listed"
		for _, l := range resp.Groups {
			if l.Group == g {
				answer = fmt.Sprint(l.ProtocolType, " ", l.GroupState, " ", l.GroupType)
			}
		}
		a.keep(fmt.Sprintf("ListGroups v5: of types %v", types), codeName(resp.ErrorCode)+" "+answer)
	}
	a.ask("with a member of the new protocol", classicJoin(g, ""), 3)
	a.ask("a member of the new protocol, by the classic one", classicJoin(g, "m1"), 3)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = g, "m1", 2
	a.ask("a member of the new protocol", sync, 3)
	heartbeat := kmsg.NewPtrHeartbeatRequest()
	heartbeat.Group, heartbeat.MemberID, heartbeat.Generation = g, "x", 1
	a.ask("a stranger to a group of the new protocol", heartbeat, 3)
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.Members = g, []kmsg.LeaveGroupRequestMember{{MemberID: "x"}}
	a.ask("a stranger to a group of the new protocol", leave, 3)
	deletion := kmsg.NewPtrDeleteGroupsRequest()
	deletion.Groups = []string{g}
	a.ask("with a member of the new protocol", deletion, 2)
	offsets := kmsg.NewPtrOffsetDeleteRequest()
	offsets.Group, offsets.Topics = g, []kmsg.OffsetDeleteRequestTopic{{Topic: "codes", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
	a.ask("of a topic that members read", offsets, 0)
	a.settled(plainBeat(g, "m1", -1), 1)
	a.ask("without members of the new protocol", offsets, 0)
	a.ask("without members of the new protocol", deletion, 2)
	a.ask("of a group that is gone", deletion, 2)
	a.describe("which is gone", g)
}

func classicJoin(group, member string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = group, member, "consumer", 30000, 30000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 1, 0, 0, 0, 1, 0, 5, 'c', 'o', 'd', 'e', 's', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}}}
	return req
}

// classics are groups that change their protocol, or may not.
func (a *groupAsker) classics() {
	const g = "classics"
	a.commit("of a group of offsets", g, "", -1, 8, 0)
	a.beat("a member of an empty classic group", plainBeat(g, "m", 3), 1)
	a.describe("which is classic", g)
	joined := a.ask("into a group of offsets", classicJoin(g, ""), 3).(*kmsg.JoinGroupResponse)
	a.beat("into a classic group with members", joinBeat(g, "m1", "codes"), 1)
	a.beat("a member of a classic group", plainBeat(g, "m", 3), 1)
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID, leave.Members = g, joined.MemberID, []kmsg.LeaveGroupRequestMember{{MemberID: joined.MemberID}}
	a.settled(leave, 3)
	a.beat("into a classic group without members", joinBeat(g, "m1", "codes"), 1)
	a.describe("which was classic", g)
	a.settled(plainBeat(g, "m1", -1), 1)
	a.ask("into a group that was of the new protocol", classicJoin(g, ""), 3)
}
