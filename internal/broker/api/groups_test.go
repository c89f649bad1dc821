package api

import (
	"context"
	"net"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// fakeGroups answers what the test says and remembers what it was asked.
type fakeGroups struct {
	Groups // whatever isn't below panics

	node    types.BrokerID
	nodeErr error

	join     group.JoinResponse
	sync     group.SyncResponse
	code     errcode.Code
	guard    errcode.Code
	leave    group.LeaveResponse
	commit   group.CommitResponse
	offsets  []group.OffsetEntry
	describe group.Description
	list     []group.Listing
	beat     group.ConsumerHeartbeatResponse
	consumer group.ConsumerDescription
	fetch    errcode.Code

	asked any // the last event, or what a look-up was about
}

func (f *fakeGroups) FindCoordinator(_ context.Context, id string) (types.BrokerID, error) {
	f.asked = id
	return f.node, f.nodeErr
}

func (f *fakeGroups) Join(_ context.Context, ev group.Join) group.JoinResponse {
	f.asked = ev
	return f.join
}

func (f *fakeGroups) Sync(_ context.Context, ev group.Sync) group.SyncResponse {
	f.asked = ev
	return f.sync
}

func (f *fakeGroups) Heartbeat(_ context.Context, ev group.Heartbeat) errcode.Code {
	f.asked = ev
	return f.code
}

func (f *fakeGroups) Leave(_ context.Context, ev group.Leave) group.LeaveResponse {
	f.asked = ev
	return f.leave
}

func (f *fakeGroups) Commit(_ context.Context, ev group.Commit) group.CommitResponse {
	f.asked = ev
	return f.commit
}

func (f *fakeGroups) DeleteOffsets(_ context.Context, ev group.DeleteOffsets) group.CommitResponse {
	f.asked = ev
	return f.commit
}

func (f *fakeGroups) DeleteGroup(_ context.Context, id string) errcode.Code {
	f.asked = id
	return f.code
}

func (f *fakeGroups) Offset(_ context.Context, _ string, tps []types.TopicPartition) ([]group.OffsetEntry, errcode.Code) {
	f.asked = tps
	if f.code != errcode.None {
		return nil, f.code
	}
	var all []group.OffsetEntry
	for _, tp := range tps {
		e := group.OffsetEntry{TopicPartition: tp, Committed: group.Committed{Offset: types.NoOffset, LeaderEpoch: types.NoLeaderEpoch}}
		for _, o := range f.offsets {
			if o.TopicPartition == tp {
				e = o
			}
		}
		all = append(all, e)
	}
	return all, errcode.None
}

func (f *fakeGroups) Offsets(_ context.Context, id string) ([]group.OffsetEntry, errcode.Code) {
	f.asked = id
	return f.offsets, f.code
}

func (f *fakeGroups) List(_ context.Context, states, groupTypes []string) ([]group.Listing, errcode.Code) {
	f.asked = [][]string{states, groupTypes}
	return f.list, f.code
}

func (f *fakeGroups) Describe(_ context.Context, id string) (group.Description, errcode.Code) {
	f.asked = id
	return f.describe, f.code
}

func (f *fakeGroups) ConsumerHeartbeat(_ context.Context, ev group.ConsumerHeartbeat) group.ConsumerHeartbeatResponse {
	f.asked = ev
	return f.beat
}

func (f *fakeGroups) DescribeConsumer(_ context.Context, id string) (group.ConsumerDescription, errcode.Code) {
	f.asked = id
	return f.consumer, f.code
}

func (f *fakeGroups) CheckFetch(context.Context, string, string, int32) errcode.Code {
	return f.fetch
}

func newGroupWorld(t *testing.T) (*world, *fakeGroups) {
	t.Helper()
	w := newWorld(t)
	f := &fakeGroups{node: 1}
	w.server.Groups = f
	return w, f
}

func wantEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestJoinGroupVersions(t *testing.T) {
	w, f := newGroupWorld(t)
	f.join = group.JoinResponse{
		Generation: 3, ProtocolType: "consumer", Protocol: "range", Leader: "m1", MemberID: "m1", SkipAssignment: true,
		Members: []group.JoinMember{{MemberID: "m1", InstanceID: "i1", Metadata: []byte("meta")}},
	}
	for version := int16(0); version <= 9; version++ {
		in := kmsg.NewPtrJoinGroupRequest()
		in.Group, in.MemberID, in.SessionTimeoutMillis, in.RebalanceTimeoutMillis, in.ProtocolType = "g", "m1", 10, 20, "consumer"
		in.InstanceID = kmsg.StringPtr("i1")
		in.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("meta")}}
		out := ask[*kmsg.JoinGroupResponse](w, in, version)
		want := group.Join{
			Group: "g", MemberID: "m1", ClientID: "test", SessionTimeout: 10, ProtocolType: "consumer",
			Protocols:          []group.Protocol{{Name: "range", Metadata: []byte("meta")}},
			RequireKnownMember: version >= 4, CanSkipAssignment: version >= 9,
		}
		if version >= 1 {
			want.RebalanceTimeout = 20
		}
		if version >= 5 {
			want.InstanceID = "i1"
		}
		wantEqual(t, "event", f.asked, any(want))
		if out.Generation != 3 || out.LeaderID != "m1" || out.Protocol == nil || *out.Protocol != "range" || len(out.Members) != 1 ||
			string(out.Members[0].ProtocolMetadata) != "meta" || out.SkipAssignment != (version >= 9) {
			t.Errorf("version %d: %+v", version, out)
		}
		if (version >= 5) != (out.Members[0].InstanceID != nil) || (version >= 7) != (out.ProtocolType != nil) {
			t.Errorf("version %d: %+v", version, out)
		}
	}
}

// An error has no protocol: "" up to v6, null from v7 on.
func TestJoinGroupRefused(t *testing.T) {
	w, f := newGroupWorld(t)
	f.join = group.JoinResponse{Code: errcode.MemberIDRequired, Generation: -1, MemberID: "given"}
	for _, version := range []int16{0, 4, 6, 7, 9} {
		out := ask[*kmsg.JoinGroupResponse](w, kmsg.NewPtrJoinGroupRequest(), version)
		if out.ErrorCode != 79 || out.Generation != -1 || out.MemberID != "given" || (out.Protocol == nil) != (version >= 7) {
			t.Errorf("version %d: %+v", version, out)
		}
	}
}

func TestClientHost(t *testing.T) {
	f := func(remote net.Addr, want string) {
		t.Helper()
		if got := clientHost(&wire.Request{Remote: remote}); got != want {
			t.Errorf("%v gave %q, want %q", remote, got, want)
		}
	}
	f(nil, "")
	f(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5}, "/10.0.0.1")
	f(&net.TCPAddr{IP: net.IPv6loopback, Port: 5}, "/::1")
	f(&net.UnixAddr{Name: "sock"}, "/sock")
}

func TestSyncGroupVersions(t *testing.T) {
	w, f := newGroupWorld(t)
	f.sync = group.SyncResponse{ProtocolType: "consumer", Protocol: "range", Assignment: []byte("mine")}
	for version := int16(0); version <= 5; version++ {
		in := kmsg.NewPtrSyncGroupRequest()
		in.Group, in.MemberID, in.Generation = "g", "m1", 3
		in.ProtocolType, in.Protocol, in.InstanceID = kmsg.StringPtr("consumer"), kmsg.StringPtr("range"), kmsg.StringPtr("i1")
		in.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: "m1", MemberAssignment: []byte("mine")}}
		out := ask[*kmsg.SyncGroupResponse](w, in, version)
		want := group.Sync{Group: "g", MemberID: "m1", Generation: 3, Assignments: []group.Assignment{{MemberID: "m1", Data: []byte("mine")}}}
		if version >= 3 {
			want.InstanceID = "i1"
		}
		if version >= 5 {
			want.ProtocolType, want.Protocol = "consumer", "range"
		}
		wantEqual(t, "event", f.asked, any(want))
		if out.ErrorCode != 0 || string(out.MemberAssignment) != "mine" || (version >= 5) != (out.Protocol != nil) {
			t.Errorf("version %d: %+v", version, out)
		}
	}
}

func TestHeartbeatVersions(t *testing.T) {
	w, f := newGroupWorld(t)
	f.code = errcode.RebalanceInProgress
	for version := int16(0); version <= 4; version++ {
		in := kmsg.NewPtrHeartbeatRequest()
		in.Group, in.MemberID, in.Generation, in.InstanceID = "g", "m1", 3, kmsg.StringPtr("i1")
		if out := ask[*kmsg.HeartbeatResponse](w, in, version); out.ErrorCode != 27 {
			t.Errorf("version %d: %+v", version, out)
		}
		want := group.Heartbeat{Group: "g", MemberID: "m1", Generation: 3}
		if version >= 3 {
			want.InstanceID = "i1"
		}
		wantEqual(t, "event", f.asked, any(want))
	}
}

// Up to v2 the one member's error is the request's.
func TestLeaveGroupVersions(t *testing.T) {
	w, f := newGroupWorld(t)
	for version := int16(0); version <= 5; version++ {
		in := kmsg.NewPtrLeaveGroupRequest()
		in.Group, in.MemberID = "g", "m1"
		in.Members = []kmsg.LeaveGroupRequestMember{{MemberID: "m1"}, {InstanceID: kmsg.StringPtr("i2")}}
		if version < 3 {
			f.leave = group.LeaveResponse{Members: []errcode.Code{errcode.UnknownMemberID}}
			if out := ask[*kmsg.LeaveGroupResponse](w, in, version); out.ErrorCode != 25 {
				t.Errorf("version %d: %+v", version, out)
			}
			wantEqual(t, "event", f.asked, any(group.Leave{Group: "g", Members: []group.LeavingMember{{MemberID: "m1"}}}))
			continue
		}
		f.leave = group.LeaveResponse{Members: []errcode.Code{errcode.None, errcode.UnknownMemberID}}
		out := ask[*kmsg.LeaveGroupResponse](w, in, version)
		if out.ErrorCode != 0 || len(out.Members) != 2 || out.Members[0].ErrorCode != 0 || out.Members[1].ErrorCode != 25 || *out.Members[1].InstanceID != "i2" {
			t.Errorf("version %d: %+v", version, out)
		}
		wantEqual(t, "event", f.asked, any(group.Leave{Group: "g", Members: []group.LeavingMember{{MemberID: "m1"}, {InstanceID: "i2"}}}))
	}
	f.leave = group.LeaveResponse{Code: errcode.NotCoordinator}
	if out := ask[*kmsg.LeaveGroupResponse](w, kmsg.NewPtrLeaveGroupRequest(), 5); out.ErrorCode != 16 || len(out.Members) != 0 {
		t.Errorf("refused: %+v", out)
	}
}

func commitRequest(topics ...kmsg.OffsetCommitRequestTopic) *kmsg.OffsetCommitRequest {
	in := kmsg.NewPtrOffsetCommitRequest()
	in.Group, in.MemberID, in.Generation, in.RetentionTimeMillis = "g", "m1", 3, 1000
	in.Topics = topics
	return in
}

func TestOffsetCommitVersions(t *testing.T) {
	w, f := newGroupWorld(t)
	id := w.topic("t", topicOptions{})
	for version := int16(2); version <= 10; version++ {
		f.commit = group.CommitResponse{Partitions: []errcode.Code{errcode.None, errcode.OffsetMetadataTooLarge}}
		p := func(n int32) kmsg.OffsetCommitRequestTopicPartition {
			return kmsg.OffsetCommitRequestTopicPartition{Partition: n, Offset: 5, LeaderEpoch: 2, Metadata: kmsg.StringPtr("md")}
		}
		out := ask[*kmsg.OffsetCommitResponse](w, commitRequest(
			kmsg.OffsetCommitRequestTopic{Topic: "none", TopicID: [16]byte{9}, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p(0)}},
			kmsg.OffsetCommitRequestTopic{Topic: "t", TopicID: id, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p(0), p(7)}},
		), version)
		ev := f.asked.(group.Commit)
		wantRetention, wantEpoch := types.Millis(-1), types.NoLeaderEpoch
		if version <= 4 {
			wantRetention = 1000
		}
		if version >= 6 {
			wantEpoch = 2
		}
		wantEqual(t, "offset", ev.Offsets[1], group.CommitOffset{
			Topic: "t", TopicID: id, Partition: 7, Offset: 5, LeaderEpoch: wantEpoch, Metadata: "md", Retention: wantRetention,
		})
		if len(ev.Offsets) != 2 || ev.Generation != 3 || ev.MemberID != "m1" || ev.UnknownGroupIsNotFound != (version >= 9) {
			t.Errorf("version %d: %+v", version, ev)
		}
		unknown := int16(wire.ErrUnknownTopicOrPartition)
		if version >= 10 {
			unknown = int16(wire.ErrUnknownTopicID)
		}
		if out.Topics[0].Partitions[0].ErrorCode != unknown || out.Topics[1].Partitions[0].ErrorCode != 0 || out.Topics[1].Partitions[1].ErrorCode != 12 {
			t.Errorf("version %d: %+v", version, out.Topics)
		}
	}
}

// An error of the request is each partition's.
func TestOffsetCommitRefused(t *testing.T) {
	w, f := newGroupWorld(t)
	w.topic("t", topicOptions{})
	f.commit = group.CommitResponse{Code: errcode.IllegalGeneration}
	parts := []kmsg.OffsetCommitRequestTopicPartition{{Partition: 0}, {Partition: 1}}
	out := ask[*kmsg.OffsetCommitResponse](w, commitRequest(kmsg.OffsetCommitRequestTopic{Topic: "t", Partitions: parts}), 8)
	if out.Topics[0].Partitions[0].ErrorCode != 22 || out.Topics[0].Partitions[1].ErrorCode != 22 {
		t.Errorf("%+v", out)
	}
	// Only unknown topics: the group isn't asked.
	f.asked = nil
	ask[*kmsg.OffsetCommitResponse](w, commitRequest(kmsg.OffsetCommitRequestTopic{Topic: "none", Partitions: parts}), 8)
	if f.asked != nil {
		t.Errorf("asked %+v", f.asked)
	}
}

// Where the error of a group stands: in the partitions (v1), at the top
// (v2-v7), in the group (v8+).
func TestOffsetFetchRefused(t *testing.T) {
	w, f := newGroupWorld(t)
	w.topic("t", topicOptions{})
	f.code = errcode.NotCoordinator
	in := kmsg.NewPtrOffsetFetchRequest()
	in.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0, 1}}}
	in.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: topicIDOf("t"), Partitions: []int32{0}}}}}
	if out := ask[*kmsg.OffsetFetchResponse](w, in, 1); out.Topics[0].Partitions[1].ErrorCode != 16 || out.Topics[0].Partitions[1].Offset != -1 {
		t.Errorf("version 1: %+v", out)
	}
	for version := int16(2); version <= 7; version++ {
		if out := ask[*kmsg.OffsetFetchResponse](w, in, version); out.ErrorCode != 16 || len(out.Topics) != 0 {
			t.Errorf("version %d: %+v", version, out)
		}
	}
	for version := int16(8); version <= 10; version++ {
		if out := ask[*kmsg.OffsetFetchResponse](w, in, version); out.Groups[0].ErrorCode != 16 || len(out.Groups[0].Topics) != 0 {
			t.Errorf("version %d: %+v", version, out)
		}
	}
}

func TestOffsetFetchAll(t *testing.T) {
	w, f := newGroupWorld(t)
	id := w.topic("t", topicOptions{})
	f.offsets = []group.OffsetEntry{
		{TopicPartition: types.TopicPartition{Topic: "gone", Partition: 0}, Committed: group.Committed{Offset: 1, LeaderEpoch: 2, Metadata: "m"}},
		{TopicPartition: types.TopicPartition{Topic: "t", Partition: 0}, Committed: group.Committed{Offset: 3}},
		{TopicPartition: types.TopicPartition{Topic: "t", Partition: 1}, Committed: group.Committed{Offset: 4}},
	}
	in := kmsg.NewPtrOffsetFetchRequest()
	in.Group, in.Groups = "g", []kmsg.OffsetFetchRequestGroup{{Group: "g"}}
	// v1 knows no "all": null topics are none.
	if out := ask[*kmsg.OffsetFetchResponse](w, in, 1); len(out.Topics) != 0 {
		t.Errorf("version 1: %+v", out)
	}
	for version := int16(2); version <= 7; version++ {
		out := ask[*kmsg.OffsetFetchResponse](w, in, version)
		if len(out.Topics) != 2 || len(out.Topics[1].Partitions) != 2 || out.Topics[1].Partitions[1].Offset != 4 || *out.Topics[0].Partitions[0].Metadata != "m" {
			t.Errorf("version %d: %+v", version, out)
		}
	}
	for version := int16(8); version <= 10; version++ {
		topics := ask[*kmsg.OffsetFetchResponse](w, in, version).Groups[0].Topics
		last := topics[len(topics)-1]
		if wantTopics := map[bool]int{true: 1, false: 2}[version >= 10]; len(topics) != wantTopics || len(last.Partitions) != 2 {
			t.Errorf("version %d: %+v", version, topics)
		}
		if version >= 10 && last.TopicID != id || version < 10 && last.Topic != "t" {
			t.Errorf("version %d: %+v", version, last)
		}
	}
}

// What was committed for a topic that had the name before isn't told to readers of the next one.
func TestOffsetFetchOfAnotherTopic(t *testing.T) {
	w, f := newGroupWorld(t)
	id := w.topic("t", topicOptions{})
	entry := func(partition int32, of types.TopicID) group.OffsetEntry {
		return group.OffsetEntry{TopicPartition: types.TopicPartition{Topic: "t", Partition: partition}, Committed: group.Committed{TopicID: of, Offset: 7, LeaderEpoch: 1}}
	}
	in := kmsg.NewPtrOffsetFetchRequest()
	for version := int16(8); version <= 10; version++ {
		f.offsets = []group.OffsetEntry{entry(0, id), entry(1, types.TopicID{9}), entry(2, types.TopicID{})}
		in.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: id, Partitions: []int32{0, 1, 2}}}}}
		var got []int64
		for _, p := range ask[*kmsg.OffsetFetchResponse](w, in, version).Groups[0].Topics[0].Partitions {
			if got = append(got, p.Offset); p.ErrorCode != 0 || p.Offset < 0 && p.LeaderEpoch != -1 {
				t.Errorf("version %d: %+v", version, p)
			}
		}
		if !slices.Equal(got, []int64{7, -1, 7}) {
			t.Errorf("version %d tells %v", version, got)
		}
		in.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g"}}
		if all := ask[*kmsg.OffsetFetchResponse](w, in, version).Groups[0].Topics; len(all) != 1 || len(all[0].Partitions) != 2 || all[0].Partitions[1].Partition != 2 {
			t.Errorf("version %d tells of all %+v", version, all)
		}
	}
}

func TestFindCoordinator(t *testing.T) {
	w, f := newGroupWorld(t)
	in := kmsg.NewPtrFindCoordinatorRequest()
	in.CoordinatorKey, in.CoordinatorKeys = "g", []string{"g"}
	one := func(version int16) kmsg.FindCoordinatorResponseCoordinator {
		t.Helper()
		out := ask[*kmsg.FindCoordinatorResponse](w, in, version)
		if version >= 4 {
			return out.Coordinators[0]
		}
		return kmsg.FindCoordinatorResponseCoordinator{
			Key: "g", ErrorCode: out.ErrorCode, ErrorMessage: out.ErrorMessage, NodeID: out.NodeID, Host: out.Host, Port: out.Port,
		}
	}
	for version := int16(0); version <= 6; version++ {
		f.node, f.nodeErr, in.CoordinatorType = 2, nil, 0
		if c := one(version); c.ErrorCode != 0 || c.NodeID != 2 || c.Host != "two.example" || c.Port != 9092 || c.Key != "g" {
			t.Errorf("version %d: %+v", version, c)
		}
		f.nodeErr = wire.Errorf(wire.ErrCoordinatorNotAvailable, "not yet")
		if c := one(version); c.ErrorCode != 15 || c.NodeID != -1 || c.Port != -1 || (version >= 1) != (c.ErrorMessage != nil) {
			t.Errorf("version %d: %+v", version, c)
		}
		f.nodeErr, f.node = nil, 3 // a broker that isn't registered
		if c := one(version); c.ErrorCode != 15 {
			t.Errorf("version %d: %+v", version, c)
		}
		for in.CoordinatorType = 2; in.CoordinatorType <= 3 && version >= 1; in.CoordinatorType++ {
			if c := one(version); c.ErrorCode != 42 || c.ErrorMessage == nil {
				t.Errorf("version %d, type %d: %+v", version, in.CoordinatorType, c)
			}
		}
	}
}

func TestDescribeGroupsVersions(t *testing.T) {
	w, f := newGroupWorld(t)
	in := kmsg.NewPtrDescribeGroupsRequest()
	in.Groups, in.IncludeAuthorizedOperations = []string{"g"}, true
	for version := int16(0); version <= 6; version++ {
		f.describe = group.Description{State: group.Dead}
		g := ask[*kmsg.DescribeGroupsResponse](w, in, version).Groups[0]
		if g.State != "Dead" || (version >= 6) != (g.ErrorCode == 69) || (version >= 6) != (g.ErrorMessage != nil) {
			t.Errorf("version %d, unknown group: %+v", version, g)
		}
		f.describe = group.Description{State: group.Stable, ProtocolType: "consumer", Protocol: "range", Members: []group.MemberDescription{
			{MemberID: "m1", InstanceID: "i1", ClientID: "c", ClientHost: "/h", Metadata: []byte("meta"), Assignment: []byte("mine")},
		}}
		g = ask[*kmsg.DescribeGroupsResponse](w, in, version).Groups[0]
		if g.ErrorCode != 0 || g.State != "Stable" || g.Protocol != "range" || len(g.Members) != 1 || string(g.Members[0].MemberAssignment) != "mine" ||
			g.Members[0].ClientHost != "/h" || (version >= 4) != (g.Members[0].InstanceID != nil) || (version >= 3) != (g.AuthorizedOperations == allGroupOperations) {
			t.Errorf("version %d: %+v", version, g)
		}
	}
	f.code = errcode.CoordinatorLoadInProgress
	if g := ask[*kmsg.DescribeGroupsResponse](w, in, 6).Groups[0]; g.ErrorCode != 14 || g.Group != "g" {
		t.Errorf("loading: %+v", g)
	}
}

func TestListGroupsVersions(t *testing.T) {
	w, f := newGroupWorld(t)
	f.list = []group.Listing{{Group: "g", ProtocolType: "consumer", State: group.Stable, Type: group.TypeClassic}}
	in := kmsg.NewPtrListGroupsRequest()
	in.StatesFilter, in.TypesFilter = []string{"Stable"}, []string{"classic"}
	for version := int16(0); version <= 5; version++ {
		out := ask[*kmsg.ListGroupsResponse](w, in, version)
		g := out.Groups[0]
		if g.Group != "g" || g.ProtocolType != "consumer" || (version >= 4) != (g.GroupState == "Stable") || (version >= 5) != (g.GroupType == "classic") {
			t.Errorf("version %d: %+v", version, g)
		}
		filters := f.asked.([][]string)
		if (version >= 4) != (len(filters[0]) == 1) || (version >= 5) != (len(filters[1]) == 1) {
			t.Errorf("version %d: filters %q", version, filters)
		}
	}
}

func TestDeleteGroupsVersions(t *testing.T) {
	w, f := newGroupWorld(t)
	in := kmsg.NewPtrDeleteGroupsRequest()
	in.Groups = []string{"g"}
	for version := int16(0); version <= 3; version++ {
		for _, code := range []errcode.Code{errcode.None, errcode.NonEmptyGroup, errcode.GroupIDNotFound} {
			f.code = code
			g := ask[*kmsg.DeleteGroupsResponse](w, in, version).Groups[0]
			if g.Group != "g" || g.ErrorCode != int16(code) || (g.ErrorMessage != nil) != (version >= 3 && code != errcode.None) {
				t.Errorf("version %d, %v: %+v", version, code, g)
			}
		}
	}
}

func TestOffsetDelete(t *testing.T) {
	w, f := newGroupWorld(t)
	w.topic("t", topicOptions{})
	in := kmsg.NewPtrOffsetDeleteRequest()
	in.Group = "g"
	in.Topics = []kmsg.OffsetDeleteRequestTopic{
		{Topic: "none", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}},
		{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 1}}},
	}
	f.commit = group.CommitResponse{Partitions: []errcode.Code{errcode.None, errcode.GroupSubscribedToTopic}}
	out := ask[*kmsg.OffsetDeleteResponse](w, in, 0)
	if out.ErrorCode != 0 || out.Topics[0].Partitions[0].ErrorCode != 3 || out.Topics[1].Partitions[0].ErrorCode != 0 || out.Topics[1].Partitions[1].ErrorCode != 86 {
		t.Errorf("%+v", out)
	}
	f.commit = group.CommitResponse{Code: errcode.NonEmptyGroup}
	if out = ask[*kmsg.OffsetDeleteResponse](w, in, 0); out.ErrorCode != 68 || len(out.Topics) != 0 {
		t.Errorf("%+v", out)
	}
}
