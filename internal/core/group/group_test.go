package group

import (
	"slices"
	"testing"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

func testConfig() Config {
	return Config{MinSessionTimeout: 6000, MaxSessionTimeout: 60000, MaxSize: 10, OffsetMetadataMaxBytes: 4, OffsetsRetention: 1000}
}

// one steps a fresh table once and gives the only answer.
func one(t *testing.T, table *Table, ev Event) Response {
	t.Helper()
	var fx Effects
	table.Step(1, ev, &fx)
	if len(fx.Replies) != 1 {
		t.Fatalf("%d answers to %#v, want 1", len(fx.Replies), ev)
	}
	return fx.Replies[0].Response
}

func TestJoinRefused(t *testing.T) {
	f := func(ev Join, want errcode.Code) {
		t.Helper()
		ev.Request = 1
		table := NewTable(testConfig())
		r := one(t, table, ev).(JoinResponse)
		if r.Code != want || r.Generation != -1 || r.MemberID != ev.MemberID {
			t.Errorf("join answered %+v, want %v", r, want)
		}
		if table.Groups() != 0 {
			t.Errorf("a refused join left %d groups behind", table.Groups())
		}
	}
	range1 := []Protocol{{Name: "range"}}
	f(Join{SessionTimeout: 6000, ProtocolType: "consumer", Protocols: range1}, errcode.InvalidGroupID)
	f(Join{Group: "g", SessionTimeout: 5999, ProtocolType: "consumer", Protocols: range1}, errcode.InvalidSessionTimeout)
	f(Join{Group: "g", SessionTimeout: 60001, ProtocolType: "consumer", Protocols: range1}, errcode.InvalidSessionTimeout)
	f(Join{Group: "g", MemberID: "m", SessionTimeout: 6000, ProtocolType: "consumer", Protocols: range1}, errcode.UnknownMemberID)
	f(Join{Group: "g", SessionTimeout: 6000, Protocols: range1}, errcode.InconsistentGroupProtocol)
	f(Join{Group: "g", SessionTimeout: 6000, ProtocolType: "consumer"}, errcode.InconsistentGroupProtocol)
}

// refusalOf is the code of an answer, or the first member's where the answer as a whole has none.
func refusalOf(r Response) errcode.Code {
	switch r := r.(type) {
	case JoinResponse:
		return r.Code
	case SyncResponse:
		return r.Code
	case CodeResponse:
		return r.Code
	case CommitResponse:
		return r.Code
	case LeaveResponse:
		if r.Code == errcode.None {
			return r.Members[0]
		}
		return r.Code
	case MirrorOffsetsResponse:
		return r.Code
	}
	return errcode.None
}

// An unknown group answers as an unknown member would be (Kafka parity: not GROUP_ID_NOT_FOUND).
func TestUnknownGroup(t *testing.T) {
	f := func(ev Event, want errcode.Code) {
		t.Helper()
		if got := refusalOf(one(t, NewTable(testConfig()), ev)); got != want {
			t.Errorf("%#v answered %v, want %v", ev, got, want)
		}
	}
	f(Sync{Request: 1, Group: "g", MemberID: "m"}, errcode.UnknownMemberID)
	f(Sync{Request: 1}, errcode.InvalidGroupID)
	f(Heartbeat{Request: 1, Group: "g", MemberID: "m"}, errcode.UnknownMemberID)
	f(Heartbeat{Request: 1}, errcode.InvalidGroupID)
	f(Leave{Request: 1, Group: "g", Members: []LeavingMember{{MemberID: "m"}}}, errcode.UnknownMemberID)
	f(Leave{Request: 1}, errcode.InvalidGroupID)
	f(Commit{Request: 1, Group: "g", MemberID: "m", Generation: 1}, errcode.IllegalGeneration)
	f(Commit{Request: 1, Group: "g", MemberID: "m", Generation: 1, UnknownGroupIsNotFound: true}, errcode.GroupIDNotFound)
	f(Commit{Request: 1, Generation: 1}, errcode.IllegalGeneration)
	f(Commit{Request: 1, Generation: -1}, errcode.None) // consumers of long ago have no group's name
	f(TxnCommit{Commit: Commit{Request: 1, Generation: -1}}, errcode.InvalidGroupID)
	f(DeleteOffsets{Request: 1, Group: "g"}, errcode.GroupIDNotFound)
	f(DeleteOffsets{Request: 1}, errcode.InvalidGroupID)
	f(DeleteGroup{Request: 1, Group: "g"}, errcode.GroupIDNotFound)
	f(DeleteGroup{Request: 1}, errcode.GroupIDNotFound)
	f(MirrorOffsets{Request: 1}, errcode.None)
}

// The refusals of a group with a member m1 (static, instance i1) in generation 1.
func TestMemberRefused(t *testing.T) {
	stable := func() *Table {
		table := NewTable(testConfig())
		var fx Effects
		table.Step(1, Join{
			Request: 1, Group: "g", InstanceID: "i1", FreshMemberID: "m1", SessionTimeout: 6000, RebalanceTimeout: 6000,
			ProtocolType: "consumer", Protocols: []Protocol{{Name: "range", Metadata: subscription("t")}},
		}, &fx)
		table.Step(1, Sync{Request: 2, Group: "g", MemberID: "m1", Generation: 1}, &fx)
		table.Step(1, Appended{Token: 1}, &fx)
		if s := table.Describe("g").State; s != Stable {
			t.Fatalf("group is %v", s)
		}
		return table
	}
	f := func(ev Event, want errcode.Code) {
		t.Helper()
		if got := refusalOf(one(t, stable(), ev)); got != want {
			t.Errorf("%#v answered %v, want %v", ev, got, want)
		}
	}
	join := Join{Request: 9, Group: "g", SessionTimeout: 6000, ProtocolType: "consumer", Protocols: []Protocol{{Name: "range"}}}
	stranger := join
	stranger.MemberID = "x"
	f(stranger, errcode.UnknownMemberID)
	stranger.InstanceID = "i1"
	f(stranger, errcode.FencedInstanceID)
	stranger.InstanceID = "i2"
	f(stranger, errcode.UnknownMemberID)

	f(Sync{Request: 9, Group: "g", MemberID: "x", Generation: 1}, errcode.UnknownMemberID)
	f(Sync{Request: 9, Group: "g", MemberID: "m1", Generation: 2}, errcode.IllegalGeneration)
	f(Sync{Request: 9, Group: "g", MemberID: "x", InstanceID: "i1", Generation: 1}, errcode.FencedInstanceID)
	f(Heartbeat{Request: 9, Group: "g", MemberID: "m1", Generation: 0}, errcode.IllegalGeneration)
	f(Heartbeat{Request: 9, Group: "g", MemberID: "x", InstanceID: "i1", Generation: 1}, errcode.FencedInstanceID)

	commit := Commit{Request: 9, Group: "g", Generation: -1, Offsets: []CommitOffset{{Topic: "t"}}}
	f(commit, errcode.UnknownMemberID) // not a member's, and the group has members
	commit.MemberID = "x"
	f(commit, errcode.UnknownMemberID)
	commit.MemberID, commit.Generation = "m1", 7
	f(commit, errcode.IllegalGeneration)
	commit.MemberID, commit.InstanceID = "x", "i1"
	f(commit, errcode.FencedInstanceID)
}

// Metadata beyond offset.metadata.max.bytes refuses its partition only.
func TestCommitMetadataTooLarge(t *testing.T) {
	table := NewTable(testConfig())
	var fx Effects
	table.Step(1, Commit{Request: 1, Group: "g", Generation: -1, Offsets: []CommitOffset{
		{Topic: "t", Partition: 0, Offset: 1, Metadata: "12345", Retention: -1},
		{Topic: "t", Partition: 1, Offset: 2, Metadata: "1234", Retention: -1},
	}}, &fx)
	table.Step(1, Appended{Token: 1}, &fx)
	r := fx.Replies[0].Response.(CommitResponse)
	if r.Partitions[0] != errcode.OffsetMetadataTooLarge || r.Partitions[1] != errcode.None {
		t.Errorf("codes %v", r.Partitions)
	}
	if all := table.Offsets("g"); len(all) != 1 || all[0].Partition != 1 || all[0].Metadata != "1234" {
		t.Errorf("offsets %+v", all)
	}
}

// What clients' buffers held is copied: they are used again.
func TestRequestBytesAreCopied(t *testing.T) {
	table := NewTable(testConfig())
	var fx Effects
	metadata, assignment := subscription("topic"), []byte("mine")
	table.Step(1, Join{
		Request: 1, Group: "g", FreshMemberID: "m", SessionTimeout: 6000, ProtocolType: "consumer",
		Protocols: []Protocol{{Name: "range", Metadata: metadata}},
	}, &fx)
	table.Step(1, Sync{Request: 2, Group: "g", MemberID: "m", Generation: 1, Assignments: []Assignment{{MemberID: "m", Data: assignment}}}, &fx)
	clear(metadata)
	clear(assignment)
	table.Step(1, Appended{Token: 1}, &fx)
	m := table.Describe("g").Members[0]
	if string(m.Metadata) != string(subscription("topic")) || string(m.Assignment) != "mine" {
		t.Errorf("metadata %q, assignment %q", m.Metadata, m.Assignment)
	}
}

// Records carry the wall clock's time, timers don't look at it.
func TestWallClock(t *testing.T) {
	table := NewTable(testConfig())
	table.SetWall(5000)
	var fx Effects
	table.Step(100, Commit{Request: 1, Group: "g", Generation: -1, Offsets: []CommitOffset{{Topic: "t", Offset: 1, Retention: -1}}}, &fx)
	v := fx.Appends[0].Records[0].(OffsetRecord).Value
	if v.CommittedAt != 5100 || v.ExpiresAt != types.NoTimestamp {
		t.Errorf("committed at %d, expires at %d", v.CommittedAt, v.ExpiresAt)
	}
	table.Step(100, Appended{Token: 1}, &fx)
	fx.Reset()
	table.Step(1099, SweepOffsets{}, &fx)
	if len(fx.Appends) != 0 {
		t.Error("expired a millisecond early")
	}
	table.Step(1100, SweepOffsets{}, &fx)
	if len(fx.Appends) != 1 {
		t.Error("not expired when its retention was over")
	}
}

// A deletion is told late: what has been committed for the next topic of the name stays.
func TestDeletedTopicIsToldLate(t *testing.T) {
	f := func(id types.TopicID, removes int) {
		t.Helper()
		table := NewTable(testConfig())
		var fx Effects
		table.Step(100, Commit{Request: 1, Group: "g", Generation: -1, Offsets: []CommitOffset{{Topic: "t", TopicID: id, Offset: 7, Retention: -1}}}, &fx)
		table.Step(100, Appended{Token: 1}, &fx)
		fx.Reset()
		table.Step(200, ForgetTopics{Topics: []DeletedTopic{{Name: "t", ID: types.TopicID{1}}, {Name: "u", ID: types.TopicID{2}}}}, &fx)
		if len(fx.Appends) != removes {
			t.Errorf("topic %v: %d removals, want %d", id, len(fx.Appends), removes)
		}
	}
	f(types.TopicID{1}, 1)
	f(types.TopicID{}, 1) // read from the log
	f(types.TopicID{2}, 0)
	f(types.TopicID{3}, 0)
}

// What is told of topics names those that offsets say, and those that say none; a topic
// that was made again keeps what may be its own.
func TestCommittedTopics(t *testing.T) {
	table := NewTable(testConfig())
	for i, id := range []types.TopicID{{1}, {2}, {}, {1}} {
		table.Replay(OffsetRecord{Group: "g", TopicPartition: types.TopicPartition{Topic: "t", Partition: int32(i)}, Value: &Committed{TopicID: id, Offset: 7, ExpiresAt: types.NoTimestamp}})
	}
	if got, want := table.CommittedTopics(), []DeletedTopic{{Name: "t"}, {Name: "t", ID: types.TopicID{1}}, {Name: "t", ID: types.TopicID{2}}}; !slices.Equal(got, want) {
		t.Errorf("topics %v, want %v", got, want)
	}
	f := func(d DeletedTopic, gone ...int32) {
		t.Helper()
		var fx Effects
		table.Step(200, ForgetTopics{Topics: []DeletedTopic{d}}, &fx)
		var got []int32
		for _, a := range fx.Appends {
			for _, r := range a.Records {
				got = append(got, r.(OffsetRecord).Partition)
			}
			table.Step(200, Appended{Token: a.Token, Code: errcode.CoordinatorNotAvailable}, &fx) // a failed write leaves them
		}
		if !slices.Equal(got, gone) {
			t.Errorf("%v takes %v, want %v", d, got, gone)
		}
	}
	f(DeletedTopic{Name: "t", ID: types.TopicID{1}, Said: true}, 0, 3)
	f(DeletedTopic{Name: "t", ID: types.TopicID{1}}, 0, 2, 3)
	f(DeletedTopic{Name: "t"}, 2)
	f(DeletedTopic{Name: "u", ID: types.TopicID{1}})
}

func TestSubscribedTopics(t *testing.T) {
	f := func(in []byte, want ...string) {
		t.Helper()
		got, err := subscribedTopics(in)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%q gave %q, %v; want %q", in, got, err, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%q gave %q, want %q", in, got, want)
			}
		}
	}
	f(subscription(""))
	f(subscription("a"), "a")
	f(subscription("a+bc!data"), "a", "bc")

	bad := func(in []byte) {
		t.Helper()
		if got, err := subscribedTopics(in); err == nil {
			t.Errorf("%x gave %q", in, got)
		}
	}
	bad(nil)
	bad([]byte{0, 0, 0, 0, 0})
	bad([]byte{0xff, 0xff, 0, 0, 0, 0})             // version below 0
	bad([]byte{0, 0, 0xff, 0xff, 0xff, 0xff})       // null topics
	bad([]byte{0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0}) // a count beyond the bytes
	bad([]byte{0, 0, 0, 0, 0, 1, 0, 5, 'a'})        // a name cut off
	bad([]byte{0, 0, 0, 0, 0, 1, 0xff, 0xff, 'a'})  // a null name
}
