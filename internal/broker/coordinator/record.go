package coordinator

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
)

// Versions of the records that are written. Keys: 1 for offsets, 2 for groups.
// Values are those that Kafka 4 writes: offsets in 4, which has a place for the topic's
// id (a tagged field; 3 where the id isn't known, 1 when they carry an expiry of their own,
// which 4 has no place for), groups in 3. Every program that coordinated groups reads 4.
const (
	offsetKeyVersion         = 1
	groupKeyVersion          = 2
	offsetValueVersion       = 4
	offsetValueVersionNoID   = 3
	offsetValueVersionExpiry = 1
	groupValueVersion        = 3
	newestOffsetValueVersion = 4
	newestGroupValueVersion  = 4
)

// errOtherRecord is a record of a kind that isn't ours to read (share and streams
// groups): it is passed over.
var errOtherRecord = errors.New("record of another kind")

// encodeRecord gives the key and value of a record as Kafka writes them; a nil
// value is a tombstone.
func encodeRecord(r group.Record) (key, value []byte) {
	switch r := r.(type) {
	case group.OffsetRecord:
		k := kmsg.NewOffsetCommitKey()
		k.Version, k.Group, k.Topic, k.Partition = offsetKeyVersion, r.Group, r.Topic, r.Partition
		key = k.AppendTo(nil)
		if r.Value != nil {
			value = encodeOffset(r.Value)
		}
	case group.GroupRecord:
		k := kmsg.NewGroupMetadataKey()
		k.Version, k.Group = groupKeyVersion, r.Group
		key = k.AppendTo(nil)
		if r.Value != nil {
			value = encodeGroup(r.Value)
		}
	case group.ConsumerRecord:
		return encodeConsumer(r.Group, r.Record)
	}
	return key, value
}

func encodeOffset(c *group.Committed) []byte {
	v := kmsg.NewOffsetCommitValue()
	v.Version = offsetValueVersion
	v.Offset, v.LeaderEpoch, v.Metadata = int64(c.Offset), int32(c.LeaderEpoch), c.Metadata
	v.CommitTimestamp, v.TopicID = int64(c.CommittedAt), c.TopicID
	switch {
	case c.ExpiresAt != types.NoTimestamp:
		v.Version, v.ExpireTimestamp = offsetValueVersionExpiry, int64(c.ExpiresAt)
	case c.TopicID.IsZero():
		v.Version = offsetValueVersionNoID
	}
	return v.AppendTo(nil)
}

func encodeGroup(m *group.Metadata) []byte {
	v := kmsg.NewGroupMetadataValue()
	v.Version = groupValueVersion
	v.ProtocolType, v.Generation, v.CurrentStateTimestamp = m.ProtocolType, m.Generation, int64(m.StateSince)
	v.Protocol, v.Leader = nullable(m.Protocol), nullable(m.Leader)
	for _, member := range m.Members {
		mv := kmsg.NewGroupMetadataValueMember()
		mv.MemberID, mv.InstanceID = member.MemberID, nullable(member.InstanceID)
		mv.ClientID, mv.ClientHost = member.ClientID, member.ClientHost
		mv.RebalanceTimeoutMillis, mv.SessionTimeoutMillis = int32(member.RebalanceTimeout), int32(member.SessionTimeout)
		mv.Subscription, mv.Assignment = notNil(member.Subscription), notNil(member.Assignment)
		v.Members = append(v.Members, mv)
	}
	return v.AppendTo(nil)
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// decodeRecord reads a record that was written at a time. errOtherRecord means that it is none of ours.
func decodeRecord(key, value []byte, at types.Millis) (group.Record, error) {
	if len(key) < 2 {
		return nil, fmt.Errorf("key of %d bytes", len(key))
	}
	switch version := int16(key[0])<<8 | int16(key[1]); version {
	case 0, offsetKeyVersion:
		return decodeOffset(key, value)
	case groupKeyVersion:
		return decodeGroup(key, value)
	case consumerEpochKey, consumerProfileKey, consumerTargetEpochKey, consumerTargetKey, consumerPositionKey, consumerRegexKey:
		return decodeConsumer(version, key, value, at)
	default:
		return nil, fmt.Errorf("%w: key version %d", errOtherRecord, version)
	}
}

func decodeOffset(key, value []byte) (group.Record, error) {
	k := kmsg.NewOffsetCommitKey()
	if err := k.ReadFrom(key); err != nil {
		return nil, fmt.Errorf("offset key: %w", err)
	}
	r := group.OffsetRecord{Group: k.Group, TopicPartition: types.TopicPartition{Topic: k.Topic, Partition: k.Partition}}
	if value == nil {
		return r, nil
	}
	if err := valueVersion(value, newestOffsetValueVersion); err != nil {
		return nil, fmt.Errorf("offset of group %q at %v: %w", k.Group, r.TopicPartition, err)
	}
	v := kmsg.NewOffsetCommitValue()
	v.LeaderEpoch, v.ExpireTimestamp = -1, -1 // what old versions don't say
	if err := v.ReadFrom(value); err != nil {
		return nil, fmt.Errorf("offset of group %q at %v: %w", k.Group, r.TopicPartition, err)
	}
	r.Value = &group.Committed{
		TopicID: v.TopicID, Offset: types.Offset(v.Offset), LeaderEpoch: types.LeaderEpoch(v.LeaderEpoch), Metadata: v.Metadata,
		CommittedAt: types.Millis(v.CommitTimestamp), ExpiresAt: types.NoTimestamp,
	}
	if v.ExpireTimestamp >= 0 {
		r.Value.ExpiresAt = types.Millis(v.ExpireTimestamp)
	}
	return r, nil
}

func decodeGroup(key, value []byte) (group.Record, error) {
	k := kmsg.NewGroupMetadataKey()
	if err := k.ReadFrom(key); err != nil {
		return nil, fmt.Errorf("group key: %w", err)
	}
	r := group.GroupRecord{Group: k.Group}
	if value == nil {
		return r, nil
	}
	if err := valueVersion(value, newestGroupValueVersion); err != nil {
		return nil, fmt.Errorf("group %q: %w", k.Group, err)
	}
	v := kmsg.NewGroupMetadataValue()
	v.CurrentStateTimestamp = -1
	if err := v.ReadFrom(value); err != nil {
		return nil, fmt.Errorf("group %q: %w", k.Group, err)
	}
	m := &group.Metadata{
		ProtocolType: v.ProtocolType, Generation: v.Generation, Protocol: text(v.Protocol), Leader: text(v.Leader),
		StateSince: types.Millis(v.CurrentStateTimestamp),
	}
	for _, mv := range v.Members {
		rebalance := mv.RebalanceTimeoutMillis
		if v.Version < 1 || rebalance < 0 {
			rebalance = mv.SessionTimeoutMillis
		}
		m.Members = append(m.Members, group.MemberMetadata{
			MemberID: mv.MemberID, InstanceID: text(mv.InstanceID), ClientID: mv.ClientID, ClientHost: mv.ClientHost,
			RebalanceTimeout: types.Millis(rebalance), SessionTimeout: types.Millis(mv.SessionTimeoutMillis),
			Subscription: mv.Subscription, Assignment: mv.Assignment,
		})
	}
	r.Value = m
	return r, nil
}

func valueVersion(value []byte, newest int16) error {
	if len(value) < 2 {
		return fmt.Errorf("value of %d bytes", len(value))
	}
	if v := int16(value[0])<<8 | int16(value[1]); v < 0 || v > newest {
		return fmt.Errorf("%w: value version %d", errOtherRecord, v)
	}
	return nil
}
