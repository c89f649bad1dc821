package api

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// What a member says reaches the coordinator; what it leaves out stays out.
func TestConsumerGroupHeartbeat(t *testing.T) {
	w, f := newGroupWorld(t)
	id := topicIDOf("t")
	f.beat.Answer = consumer.Answer{MemberID: "m", Epoch: 5, HeartbeatInterval: 3000, HasAssignment: true,
		Assignment: []consumer.Partition{{Topic: id, Number: 1}, {Topic: id, Number: 4}}}
	in := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	in.Group, in.MemberID, in.MemberEpoch = "g", "m", 4
	for version := int16(0); version <= 1; version++ {
		out := ask[*kmsg.ConsumerGroupHeartbeatResponse](w, in, version)
		if out.ErrorCode != 0 || *out.MemberID != "m" || out.MemberEpoch != 5 || out.HeartbeatIntervalMillis != 3000 ||
			len(out.Assignment.Topics) != 1 || !slices.Equal(out.Assignment.Topics[0].Partitions, []int32{1, 4}) {
			t.Errorf("version %d: %+v", version, out)
		}
		ev := f.asked.(group.ConsumerHeartbeat)
		if ev.Group != "g" || ev.MemberID != "m" || ev.Epoch != 4 || ev.RebalanceTimeout >= 0 || ev.HasTopics || ev.HasOwned ||
			ev.Regex != nil || ev.InstanceID != nil || ev.Assignor != nil || ev.OwnMemberID != (version == 1) {
			t.Errorf("version %d: %+v", version, ev)
		}
	}
	f.beat.HasAssignment = false
	in.InstanceID, in.RackID, in.RebalanceTimeoutMillis, in.ServerAssignor = ptr("i"), ptr("r"), 100, ptr("range")
	in.SubscribedTopicNames, in.SubscribedTopicRegex = []string{}, ptr("t.*")
	in.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{TopicID: id, Partitions: []int32{1, 2}}}
	for version := int16(0); version <= 1; version++ {
		if out := ask[*kmsg.ConsumerGroupHeartbeatResponse](w, in, version); out.Assignment != nil {
			t.Errorf("version %d: %+v", version, out)
		}
		ev := f.asked.(group.ConsumerHeartbeat)
		if !ev.HasTopics || len(ev.Topics) != 0 || len(ev.Owned) != 2 || ev.Owned[1] != (consumer.Partition{Topic: id, Number: 2}) ||
			*ev.InstanceID != "i" || *ev.RackID != "r" || *ev.Assignor != "range" || ev.RebalanceTimeout != 100 || (ev.Regex != nil) != (version == 1) {
			t.Errorf("version %d: %+v", version, ev)
		}
	}
	f.beat = group.ConsumerHeartbeatResponse{Code: errcode.FencedMemberEpoch, Message: "why"}
	if out := ask[*kmsg.ConsumerGroupHeartbeatResponse](w, in, 1); out.ErrorCode != 110 || *out.ErrorMessage != "why" {
		t.Errorf("%+v", out)
	}
}

func TestConsumerGroupDescribe(t *testing.T) {
	w, f := newGroupWorld(t)
	id, gone := topicIDOf("t"), topicIDOf("gone")
	f.consumer = group.ConsumerDescription{
		Description: consumer.Description{State: consumer.GroupReconciling, Epoch: 7, TargetEpoch: 6, Assignor: "uniform", Members: []consumer.MemberDescription{{
			ID: "m", Epoch: 6, Profile: consumer.Profile{InstanceID: "i", RackID: "r", ClientID: "c", ClientHost: "/h", Topics: []string{"t"}, Regex: "x"},
			Owned: []consumer.Partition{{Topic: gone}, {Topic: id, Number: 2}}, Target: []consumer.Partition{{Topic: id, Number: 2}, {Topic: id, Number: 3}},
		}}},
		Topics: map[types.TopicID]string{id: "t"},
	}
	in := kmsg.NewPtrConsumerGroupDescribeRequest()
	in.Groups, in.IncludeAuthorizedOperations = []string{"g"}, true
	for version := int16(0); version <= 1; version++ {
		got := ask[*kmsg.ConsumerGroupDescribeResponse](w, in, version).Groups[0]
		want := kmsg.NewConsumerGroupDescribeResponseGroup()
		want.Group, want.State, want.Epoch, want.AssignmentEpoch, want.AssignorName, want.AuthorizedOperations = "g", "Reconciling", 7, 6, "uniform", allGroupOperations
		m := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		m.MemberID, m.InstanceID, m.RackID, m.MemberEpoch, m.ClientID, m.ClientHost = "m", ptr("i"), ptr("r"), 6, "c", "/h"
		m.SubscribedTopics, m.SubscribedTopicRegex = []string{"t"}, ptr("x")
		m.Assignment.TopicPartitions = []kmsg.AssignmentTopicPartition{{TopicID: id, Topic: "t", Partitions: []int32{2}}}
		m.TargetAssignment.TopicPartitions = []kmsg.AssignmentTopicPartition{{TopicID: id, Topic: "t", Partitions: []int32{2, 3}}}
		if version >= 1 {
			m.MemberType = 1
		}
		want.Members = append(want.Members, m)
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b kmsg.Tags) bool { return a.Len() == b.Len() })); diff != "" {
			t.Errorf("version %d: (-want +got)\n%s", version, diff)
		}
	}
	f.consumer = group.ConsumerDescription{Code: errcode.GroupIDNotFound, Message: "none"}
	if out := ask[*kmsg.ConsumerGroupDescribeResponse](w, in, 1).Groups[0]; out.ErrorCode != 69 || *out.ErrorMessage != "none" {
		t.Errorf("%+v", out)
	}
	f.code = errcode.NotCoordinator
	if out := ask[*kmsg.ConsumerGroupDescribeResponse](w, in, 1).Groups[0]; out.ErrorCode != 16 {
		t.Errorf("%+v", out)
	}
}

// Who may not describe a topic isn't told who reads it.
func TestConsumerGroupDescribeHidesTopics(t *testing.T) {
	f := func(want wire.ErrCode, acls ...string) {
		t.Helper()
		w := secretWorld(t).guarded(append(acls, "allow DESCRIBE GROUP literal g")...)
		w.server.Groups = &fakeGroups{node: 1, consumer: group.ConsumerDescription{
			Description: consumer.Description{Members: []consumer.MemberDescription{{ID: "m", Profile: consumer.Profile{Topics: []string{"secret"}}}}},
			Topics:      map[types.TopicID]string{topicIDOf("other"): "other"},
		}}
		in := kmsg.NewPtrConsumerGroupDescribeRequest()
		in.Groups = []string{"g"}
		out, err := w.by("User:alice", in, 1)
		if err != nil {
			t.Fatal(err)
		}
		if g := out.(*kmsg.ConsumerGroupDescribeResponse).Groups[0]; wire.ErrCode(g.ErrorCode) != want || want != wire.None && len(g.Members) > 0 {
			t.Errorf("%q: %+v", acls, g)
		}
	}
	f(wire.ErrTopicAuthorizationFailed)
	f(wire.ErrTopicAuthorizationFailed, "allow DESCRIBE TOPIC literal secret")
	f(wire.ErrTopicAuthorizationFailed, "allow DESCRIBE TOPIC literal other")
	f(wire.None, "allow DESCRIBE TOPIC literal other", "allow DESCRIBE TOPIC literal secret")
}

// Below group.version 1 the APIs aren't shown, and say so when they are asked nonetheless.
func TestConsumerGroupsNeedTheirLevel(t *testing.T) {
	w, _ := newGroupWorld(t)
	shown := func() bool {
		in := kmsg.NewPtrApiVersionsRequest()
		in.ClientSoftwareName, in.ClientSoftwareVersion = "kgo", "1"
		return slices.ContainsFunc(ask[*kmsg.ApiVersionsResponse](w, in, 4).ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == 68 })
	}
	if !shown() {
		t.Error("not shown at level 1")
	}
	w.apply(map[string][]byte{meta.KeysOf(testCluster).Features(): meta.FeaturesRecord{Levels: map[string]int16{meta.FeatureMetadata: 1}}.Encode()})
	if shown() {
		t.Error("shown at level 0")
	}
	if out := ask[*kmsg.ConsumerGroupHeartbeatResponse](w, kmsg.NewPtrConsumerGroupHeartbeatRequest(), 1); out.ErrorCode != 35 {
		t.Errorf("%+v", out)
	}
	in := kmsg.NewPtrConsumerGroupDescribeRequest()
	in.Groups = []string{"g"}
	if out := ask[*kmsg.ConsumerGroupDescribeResponse](w, in, 1); out.Groups[0].ErrorCode != 35 {
		t.Errorf("%+v", out)
	}
}

// A member that isn't in its epoch isn't told committed offsets; v9 is the first to tell epochs.
func TestOffsetFetchOfAMember(t *testing.T) {
	w, f := newGroupWorld(t)
	f.fetch = errcode.StaleMemberEpoch
	in := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberID, g.MemberEpoch = "g", ptr("m"), 3
	in.Groups = []kmsg.OffsetFetchRequestGroup{g}
	for version := int16(8); version <= 10; version++ {
		want := int16(113)
		if version == 8 {
			want = 0
		}
		if out := ask[*kmsg.OffsetFetchResponse](w, in, version); out.Groups[0].ErrorCode != want {
			t.Errorf("version %d: %+v", version, out.Groups[0])
		}
	}
	in.Groups[0].MemberID, in.Groups[0].MemberEpoch = nil, -1
	if out := ask[*kmsg.OffsetFetchResponse](w, in, 10); out.Groups[0].ErrorCode != 0 {
		t.Errorf("who is no member: %+v", out.Groups[0])
	}
}
