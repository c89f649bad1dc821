package coordinator

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// The bytes of Kafka's message definitions (ConsumerGroup*Key, ConsumerGroup*Value).
func TestConsumerRecordBytes(t *testing.T) {
	f := func(r consumer.Record, wantKey, wantValue string) {
		t.Helper()
		key, value := checkRecordBytes(t, group.ConsumerRecord{Group: "g", Record: r}, wantKey, wantValue)
		if value == nil != consumer.IsTombstone(r) {
			t.Errorf("%#v has the value %x", r, value)
		}
		for n := range value { // no cut value is taken for a whole one, nor harms anybody
			if r, err := decodeRecord(key, value[:n], 0); err == nil {
				t.Errorf("%x of %x gives %+v", value[:n], value, r)
			}
		}
	}
	id := types.TopicID{0: 0xab, 15: 0xcd}
	const idHex = "ab0000000000000000000000000000cd"
	// key: type 3, group. value: version 0, epoch, a tagged field: the hash.
	f(consumer.EpochRecord{Epoch: 7, Hash: 258}, "0003 0001 67", "0000 00000007 01 00 08 0000000000000102")
	f(consumer.EpochRecord{Epoch: 7}, "0003 0001 67", "0000 00000007 00")
	f(consumer.EpochRecord{Gone: true}, "0003 0001 67", "")
	// instance, rack, client, host, topics, expression, rebalance timeout, assignor.
	f(consumer.ProfileRecord{Member: "m", Value: &consumer.Profile{InstanceID: "i", RackID: "r", ClientID: "c", ClientHost: "h", Topics: []string{"s", "t"}, Regex: "x", RebalanceTimeout: 256, Assignor: "u"}},
		"0005 0001 67 0001 6d", "0000 02 69 02 72 02 63 02 68 03 02 73 02 74 02 78 00000100 02 75 00")
	f(consumer.ProfileRecord{Member: "m", Value: &consumer.Profile{ClientID: "c", ClientHost: "h"}},
		"0005 0001 67 0001 6d", "0000 00 00 02 63 02 68 01 00 00000000 00 00")
	f(consumer.ProfileRecord{Member: "m"}, "0005 0001 67 0001 6d", "")
	f(consumer.TargetEpochRecord{Epoch: 7}, "0006 0001 67", "0000 00000007 00")
	f(consumer.TargetEpochRecord{Gone: true}, "0006 0001 67", "")
	f(consumer.TargetRecord{Member: "m", Partitions: []consumer.Partition{{Topic: id, Number: 1}, {Topic: id, Number: 3}}},
		"0007 0001 67 0001 6d", "0000 02 "+idHex+" 03 00000001 00000003 00 00")
	f(consumer.TargetRecord{Member: "m", Gone: true}, "0007 0001 67 0001 6d", "")
	// epoch, previous epoch, state, assigned and revoking partitions, each topic with the epochs in which they were given.
	f(consumer.PositionRecord{Member: "m", Value: &consumer.Position{Epoch: 7, Previous: 6, State: consumer.UnrevokedPartitions,
		Assigned: consumer.Partitions{{Topic: id, Number: 1}: 5, {Topic: id, Number: 3}: 6}, Revoking: consumer.Partitions{{Topic: id, Number: 4}: 2}}},
		"0008 0001 67 0001 6d", "0000 00000007 00000006 02"+
			"02 "+idHex+" 03 00000001 00000003 01 00 09 03 00000005 00000006"+
			"02 "+idHex+" 02 00000004 01 00 05 02 00000002 00")
	f(consumer.PositionRecord{Member: "m"}, "0008 0001 67 0001 6d", "")
	f(consumer.RegexRecord{Regex: "x", Value: &consumer.Resolved{Topics: []string{"t"}, Version: 2, At: 256}},
		"0010 0001 67 0001 78", "0000 02 02 74 0000000000000002 0000000000000100 00")
	f(consumer.RegexRecord{Regex: "x"}, "0010 0001 67 0001 78", "")
}

func TestConsumerRecordsOfOthers(t *testing.T) {
	f := func(key, value []byte, other bool) {
		t.Helper()
		if r, err := decodeRecord(key, value, 0); err == nil || errors.Is(err, errOtherRecord) != other {
			t.Errorf("%x, %x: %v, %v", key, value, r, err)
		}
	}
	f([]byte{0, 4, 0, 1, 'g'}, []byte{0, 0, 1, 0}, true)       // what a group subscribes to, until Kafka 4.0
	f([]byte{0, 3, 0, 1, 'g'}, []byte{0, 1, 0, 0, 0, 1}, true) // a later version
	f([]byte{0, 3, 0, 9, 'g'}, nil, false)
	f([]byte{0, 5, 0, 1, 'g'}, nil, false) // no member
	// An unknown tagged field is passed over.
	r, err := decodeRecord([]byte{0, 6, 0, 1, 'g'}, []byte{0, 0, 0, 0, 0, 9, 1, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8}, 0)
	if err != nil || r.(group.ConsumerRecord).Record != (consumer.TargetEpochRecord{Epoch: 9}) {
		t.Errorf("%+v, %v", r, err)
	}
}

func consumerJoin(groupID, member string) group.ConsumerHeartbeat {
	return group.ConsumerHeartbeat{Group: groupID, Heartbeat: consumer.Heartbeat{
		MemberID: member, RebalanceTimeout: 5000, Topics: []string{"t"}, HasTopics: true, HasOwned: true, OwnMemberID: true, ClientID: "c", ClientHost: "/h",
	}}
}

func consumerBeat(groupID, member string, epoch int32) group.ConsumerHeartbeat {
	return group.ConsumerHeartbeat{Group: groupID, Heartbeat: consumer.Heartbeat{
		MemberID: member, Epoch: epoch, RebalanceTimeout: -1, OwnMemberID: true, ClientID: "c", ClientHost: "/h",
	}}
}

// A group of the new protocol is what its log says: it outlives its coordinator.
func TestConsumerGroupOutlivesItsCoordinator(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	joined := c.ConsumerHeartbeat(ctx, consumerJoin("g", "m"))
	if joined.Code != errcode.None || joined.Epoch != 2 || joined.MemberID != "m" {
		t.Fatalf("%+v", joined)
	}
	if r := c.Commit(ctx, group.Commit{Group: "g", MemberID: "m", Generation: 2, UnknownGroupIsNotFound: true, Offsets: []group.CommitOffset{{Topic: "data", Offset: 7, Retention: -1}}}); r.Code != errcode.None || r.Partitions[0] != errcode.None {
		t.Fatalf("commit: %+v", r)
	}
	before, code := c.DescribeConsumer(ctx, "g")
	if code != errcode.None || before.State != consumer.GroupStable || len(before.Members) != 1 {
		t.Fatalf("%+v, %v", before, code)
	}
	c.Close()
	c = n.start(t)
	n.lead(t, c)
	after, code := c.DescribeConsumer(ctx, "g")
	if diff := cmp.Diff(before, after); diff != "" || code != errcode.None {
		t.Errorf("%v, (-before +after)\n%s", code, diff)
	}
	if r := c.ConsumerHeartbeat(ctx, consumerBeat("g", "m", 2)); r.Code != errcode.None {
		t.Errorf("%+v", r)
	}
	if r := c.ConsumerHeartbeat(ctx, consumerBeat("g", "m", -1)); r.Code != errcode.None {
		t.Errorf("leaves: %+v", r)
	}
	if got := committed(t, ctx, c, "g"); got != 7 {
		t.Errorf("committed at %d", got)
	}
	if code := c.DeleteGroup(ctx, "g"); code != errcode.None {
		t.Errorf("deletion: %v", code)
	}
	c.Close()
	c = n.start(t)
	n.lead(t, c)
	if d, _ := c.DescribeConsumer(ctx, "g"); d.Code != errcode.GroupIDNotFound {
		t.Errorf("a deleted group: %+v", d)
	}
}

// A heartbeat whose change couldn't be written has changed nothing; its member tries again.
func TestConsumerHeartbeatWriteFails(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	n.parts[0].setOnAppend(func(context.Context, []byte) error { return wire.ErrNotEnoughReplicasAfterAppend })
	if r := c.ConsumerHeartbeat(ctx, consumerJoin("g", "m")); r.Code != errcode.CoordinatorNotAvailable {
		t.Errorf("%+v", r)
	}
	if d, _ := c.DescribeConsumer(ctx, "g"); len(d.Members) != 0 {
		t.Errorf("%+v", d)
	}
	n.parts[0].setOnAppend(nil)
	if r := c.ConsumerHeartbeat(ctx, consumerJoin("g", "m")); r.Code != errcode.None || r.Epoch != 2 {
		t.Errorf("%+v", r)
	}
	if r := c.ConsumerHeartbeat(ctx, consumerBeat("g", "m", 2)); r.Code != errcode.None {
		t.Errorf("%+v", r)
	}
}
