package coordinator

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/group"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/types"
)

// checkRecordBytes checks that a record is written as these bytes, in hex with spaces, and read back as itself.
func checkRecordBytes(t *testing.T, r group.Record, wantKey, wantValue string) (key, value []byte) {
	t.Helper()
	key, value = encodeRecord(r)
	if got := hex.EncodeToString(key); got != strings.ReplaceAll(wantKey, " ", "") {
		t.Errorf("key %s, want %s", got, wantKey)
	}
	if got := hex.EncodeToString(value); got != strings.ReplaceAll(wantValue, " ", "") {
		t.Errorf("value %s, want %s", got, wantValue)
	}
	back, err := decodeRecord(key, value, 0)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	if diff := cmp.Diff(r, back); diff != "" {
		t.Errorf("a record changed on its way (-written +read):\n%s", diff)
	}
	return key, value
}

// The bytes, field by field, of Kafka's message definitions (OffsetCommitKey,
// OffsetCommitValue, GroupMetadataKey, GroupMetadataValue).
func TestRecordBytes(t *testing.T) {
	f := func(r group.Record, wantKey, wantValue string) {
		t.Helper()
		checkRecordBytes(t, r, wantKey, wantValue)
	}
	tp := types.TopicPartition{Topic: "tt", Partition: 3}
	// version 4: compact strings, and the topic's id as tag 0.
	f(group.OffsetRecord{Group: "g", TopicPartition: tp, Value: &group.Committed{
		TopicID: types.TopicID{0: 0xab, 15: 0xcd}, Offset: 5, LeaderEpoch: 2, Metadata: "md", CommittedAt: 256, ExpiresAt: types.NoTimestamp,
	}},
		"0001 0001 67 0002 7474 00000003",
		"0004 0000000000000005 00000002 03 6d64 0000000000000100 01 00 10 ab0000000000000000000000000000cd")
	// key: version 1, group, topic, partition. value, of a topic whose id isn't known: version 3, offset, leader epoch, metadata, commit time.
	f(group.OffsetRecord{Group: "g", TopicPartition: tp, Value: &group.Committed{
		Offset: 5, LeaderEpoch: 2, Metadata: "md", CommittedAt: 256, ExpiresAt: types.NoTimestamp,
	}},
		"0001 0001 67 0002 7474 00000003",
		"0003 0000000000000005 00000002 0002 6d64 0000000000000100")
	// version 1 has no leader epoch, no topic id, and an expiry.
	f(group.OffsetRecord{Group: "g", TopicPartition: tp, Value: &group.Committed{
		Offset: 5, LeaderEpoch: -1, CommittedAt: 256, ExpiresAt: 512,
	}},
		"0001 0001 67 0002 7474 00000003",
		"0001 0000000000000005 0000 0000000000000100 0000000000000200")
	f(group.OffsetRecord{Group: "g", TopicPartition: tp}, "0001 0001 67 0002 7474 00000003", "")
	f(group.GroupRecord{Group: "g"}, "0002 0001 67", "")
	// version 3: protocol type, generation, protocol, leader, state time, members
	// (id, instance, client, host, rebalance and session timeout, subscription, assignment).
	f(group.GroupRecord{Group: "g", Value: &group.Metadata{
		ProtocolType: "consumer", Generation: 4, Protocol: "range", Leader: "m", StateSince: 256,
		Members: []group.MemberMetadata{{
			MemberID: "m", InstanceID: "i", ClientID: "c", ClientHost: "/h", RebalanceTimeout: 2, SessionTimeout: 1,
			Subscription: []byte{0xaa}, Assignment: []byte{0xbb, 0xcc},
		}},
	}},
		"0002 0001 67",
		"0003 0008 636f6e73756d6572 00000004 0005 72616e6765 0001 6d 0000000000000100 00000001"+
			"0001 6d 0001 69 0001 63 0002 2f68 00000002 00000001 00000001 aa 00000002 bbcc")
	// an empty group: no protocol, no leader.
	f(group.GroupRecord{Group: "g", Value: &group.Metadata{ProtocolType: "consumer", Generation: 5, StateSince: 256}},
		"0002 0001 67",
		"0003 0008 636f6e73756d6572 00000005 ffff ffff 0000000000000100 00000000")
}

// What older and newer Kafkas have written is read.
func TestRecordVersions(t *testing.T) {
	offset := func(version int16, set func(v *kmsg.OffsetCommitValue)) *group.Committed {
		t.Helper()
		k := kmsg.OffsetCommitKey{Version: 0, Group: "g", Topic: "t", Partition: 1}
		v := kmsg.OffsetCommitValue{Version: version, Offset: 9, Metadata: "m", CommitTimestamp: 7}
		if set != nil {
			set(&v)
		}
		r, err := decodeRecord(k.AppendTo(nil), v.AppendTo(nil), 0)
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		return r.(group.OffsetRecord).Value
	}
	want := &group.Committed{Offset: 9, LeaderEpoch: -1, Metadata: "m", CommittedAt: 7, ExpiresAt: -1}
	if diff := cmp.Diff(want, offset(2, nil)); diff != "" {
		t.Error(diff)
	}
	if got := offset(4, func(v *kmsg.OffsetCommitValue) { v.LeaderEpoch, v.TopicID = 3, [16]byte{1} }); got.TopicID != (types.TopicID{1}) || got.LeaderEpoch != 3 {
		t.Errorf("version 4 gave %+v", got)
	}
	k := kmsg.GroupMetadataKey{Version: 2, Group: "g"}
	for version := int16(0); version <= 4; version++ {
		v := kmsg.GroupMetadataValue{Version: version, ProtocolType: "consumer", Generation: 1, CurrentStateTimestamp: 5}
		v.Members = []kmsg.GroupMetadataValueMember{{MemberID: "m", SessionTimeoutMillis: 10, RebalanceTimeoutMillis: 20}}
		r, err := decodeRecord(k.AppendTo(nil), v.AppendTo(nil), 0)
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		m := r.(group.GroupRecord).Value
		wantRebalance, wantSince := types.Millis(20), types.Millis(5)
		if version < 1 {
			wantRebalance = 10 // the session timeout stood for both
		}
		if version < 2 {
			wantSince = types.NoTimestamp
		}
		if m.Members[0].RebalanceTimeout != wantRebalance || m.StateSince != wantSince {
			t.Errorf("version %d gave %+v", version, m)
		}
	}
}

func TestRecordRefused(t *testing.T) {
	f := func(key, value []byte, other bool) {
		t.Helper()
		r, err := decodeRecord(key, value, 0)
		if err == nil {
			t.Fatalf("%x, %x gave %#v", key, value, r)
		}
		if errors.Is(err, errOtherRecord) != other {
			t.Errorf("%x, %x: %v", key, value, err)
		}
	}
	offsetKey, groupKey := []byte{0, 1, 0, 1, 'g', 0, 1, 't', 0, 0, 0, 0}, []byte{0, 2, 0, 1, 'g'}
	f(nil, nil, false)
	f([]byte{0}, nil, false)
	f([]byte{0, 10, 0, 1, 'g'}, nil, true) // a share group's
	f([]byte{0, 1, 0, 9, 'g'}, nil, false)
	f(offsetKey, []byte{0}, false)
	f(offsetKey, []byte{0, 3, 1}, false)
	f(offsetKey, []byte{0, 9, 1}, true)
	f(groupKey, []byte{}, false)
	f(groupKey, []byte{0, 3, 0}, false)
	f(groupKey, []byte{0, 5, 0}, true)
}

func FuzzDecodeRecord(f *testing.F) {
	key, value := encodeRecord(group.GroupRecord{Group: "g", Value: &group.Metadata{ProtocolType: "consumer", Members: []group.MemberMetadata{{MemberID: "m"}}}})
	f.Add(key, value)
	key, value = encodeRecord(group.OffsetRecord{Group: "g", TopicPartition: types.TopicPartition{Topic: "t"}, Value: &group.Committed{}})
	f.Add(key, value)
	id := types.TopicID{1}
	for _, r := range []consumer.Record{
		consumer.EpochRecord{Epoch: 3, Hash: 5}, consumer.TargetEpochRecord{Epoch: 3}, consumer.ProfileRecord{Member: "m", Value: &consumer.Profile{Topics: []string{"t"}}},
		consumer.TargetRecord{Member: "m", Partitions: []consumer.Partition{{Topic: id}}}, consumer.RegexRecord{Regex: "x", Value: &consumer.Resolved{Topics: []string{"t"}}},
		consumer.PositionRecord{Member: "m", Value: &consumer.Position{Epoch: 3, State: consumer.Stable, Assigned: consumer.Partitions{{Topic: id}: 3}}},
	} {
		key, value = encodeRecord(group.ConsumerRecord{Group: "g", Record: r})
		f.Add(key, value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		r, err := decodeRecord(key, value, 0)
		if err != nil {
			return
		}
		k, v := encodeRecord(r)
		if _, err := decodeRecord(k, v, 0); err != nil {
			t.Fatalf("%#v can't be read back: %v", r, err)
		}
	})
}
