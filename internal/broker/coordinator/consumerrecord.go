package coordinator

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"

	"tidemark/internal/core/group"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/types"
)

// Records of the new protocol's groups (KIP-848), as Kafka 4 writes them. Keys have no
// tagged fields, values have. Kafka's key type 4, the topics that a group subscribes to,
// is written by no broker from 4.1 on: a hash with the epoch stands for them.
const (
	consumerEpochKey       int16 = 3
	consumerProfileKey     int16 = 5
	consumerTargetEpochKey int16 = 6
	consumerTargetKey      int16 = 7
	consumerPositionKey    int16 = 8
	consumerRegexKey       int16 = 16

	consumerValueVersion int16 = 0
)

func encodeConsumer(groupID string, r consumer.Record) (key, value []byte) {
	switch r := r.(type) {
	case consumer.EpochRecord:
		return consumerKey(consumerEpochKey, groupID), encodeEpoch(r)
	case consumer.ProfileRecord:
		return consumerKey(consumerProfileKey, groupID, r.Member), encodeProfile(r.Value)
	case consumer.TargetEpochRecord:
		return consumerKey(consumerTargetEpochKey, groupID), encodeTargetEpoch(r)
	case consumer.TargetRecord:
		return consumerKey(consumerTargetKey, groupID, r.Member), encodeTarget(r)
	case consumer.PositionRecord:
		return consumerKey(consumerPositionKey, groupID, r.Member), encodePosition(r.Value)
	case consumer.RegexRecord:
		return consumerKey(consumerRegexKey, groupID, r.Regex), encodeRegex(r.Value)
	}
	return nil, nil
}

func consumerKey(kind int16, fields ...string) []byte {
	key := kbin.AppendInt16(nil, kind)
	for _, f := range fields {
		key = kbin.AppendString(key, f)
	}
	return key
}

// noTags ends a structure without tagged fields.
func noTags(b []byte) []byte { return kbin.AppendUvarint(b, 0) }

// tag begins a structure's only tagged field, number 0, of size bytes.
func tag(b []byte, size int) []byte {
	return kbin.AppendUvarint(kbin.AppendUvarint(kbin.AppendUvarint(b, 1), 0), uint32(size))
}

func encodeEpoch(r consumer.EpochRecord) []byte {
	if r.Gone {
		return nil
	}
	b := kbin.AppendInt32(kbin.AppendInt16(nil, consumerValueVersion), r.Epoch)
	if r.Hash == 0 {
		return noTags(b)
	}
	return kbin.AppendInt64(tag(b, 8), r.Hash)
}

func encodeTargetEpoch(r consumer.TargetEpochRecord) []byte {
	if r.Gone {
		return nil
	}
	return noTags(kbin.AppendInt32(kbin.AppendInt16(nil, consumerValueVersion), r.Epoch))
}

func encodeProfile(p *consumer.Profile) []byte {
	if p == nil {
		return nil
	}
	b := kbin.AppendInt16(nil, consumerValueVersion)
	b = kbin.AppendCompactNullableString(b, nullable(p.InstanceID))
	b = kbin.AppendCompactNullableString(b, nullable(p.RackID))
	b = kbin.AppendCompactString(b, p.ClientID)
	b = kbin.AppendCompactString(b, p.ClientHost)
	b = appendStrings(b, p.Topics)
	b = kbin.AppendCompactNullableString(b, nullable(p.Regex))
	b = kbin.AppendInt32(b, int32(p.RebalanceTimeout))
	b = kbin.AppendCompactNullableString(b, nullable(p.Assignor))
	return noTags(b)
}

func appendStrings(b []byte, all []string) []byte {
	b = kbin.AppendCompactArrayLen(b, len(all))
	for _, s := range all {
		b = kbin.AppendCompactString(b, s)
	}
	return b
}

func encodeTarget(r consumer.TargetRecord) []byte {
	if r.Gone {
		return nil
	}
	return noTags(appendPartitions(kbin.AppendInt16(nil, consumerValueVersion), r.Partitions, nil))
}

func encodePosition(p *consumer.Position) []byte {
	if p == nil {
		return nil
	}
	b := kbin.AppendInt16(nil, consumerValueVersion)
	b = kbin.AppendInt32(b, p.Epoch)
	b = kbin.AppendInt32(b, p.Previous)
	b = kbin.AppendInt8(b, int8(p.State))
	b = appendPartitions(b, p.Assigned.Sorted(), p.Assigned)
	b = appendPartitions(b, p.Revoking.Sorted(), p.Revoking)
	return noTags(b)
}

// appendPartitions writes sorted partitions by topic, with the epochs in which they were given if those are told.
func appendPartitions(b []byte, sorted []consumer.Partition, epochs consumer.Partitions) []byte {
	var topics [][]consumer.Partition
	for i, p := range sorted {
		if i == 0 || sorted[i-1].Topic != p.Topic {
			topics = append(topics, nil)
		}
		topics[len(topics)-1] = append(topics[len(topics)-1], p)
	}
	b = kbin.AppendCompactArrayLen(b, len(topics))
	for _, of := range topics {
		b = kbin.AppendUuid(b, of[0].Topic)
		b = kbin.AppendCompactArrayLen(b, len(of))
		for _, p := range of {
			b = kbin.AppendInt32(b, p.Number)
		}
		if epochs == nil {
			b = noTags(b)
			continue
		}
		given := kbin.AppendCompactArrayLen(nil, len(of))
		for _, p := range of {
			given = kbin.AppendInt32(given, epochs[p])
		}
		b = append(tag(b, len(given)), given...)
	}
	return b
}

func encodeRegex(r *consumer.Resolved) []byte {
	if r == nil {
		return nil
	}
	b := appendStrings(kbin.AppendInt16(nil, consumerValueVersion), r.Topics)
	return noTags(kbin.AppendInt64(kbin.AppendInt64(b, r.Version), int64(r.At)))
}

// decodeConsumer reads a record of the new protocol's groups; at is the record's own time.
func decodeConsumer(kind int16, key, value []byte, at types.Millis) (group.Record, error) {
	k := kbin.Reader{Src: key[2:]}
	r := group.ConsumerRecord{Group: k.String()}
	name := ""
	if kind != consumerEpochKey && kind != consumerTargetEpochKey {
		name = k.String()
	}
	if err := k.Complete(); err != nil {
		return nil, fmt.Errorf("key of kind %d: %w", kind, err)
	}
	v := valueReader{Reader: kbin.Reader{Src: value}}
	if value != nil {
		if version := v.Int16(); version != consumerValueVersion {
			return nil, fmt.Errorf("%w: group %q, kind %d, value version %d", errOtherRecord, r.Group, kind, version)
		}
	}
	switch kind {
	case consumerEpochKey:
		r.Record = v.epoch(value == nil, at)
	case consumerProfileKey:
		r.Record = consumer.ProfileRecord{Member: name, Value: v.profile(value == nil)}
	case consumerTargetEpochKey:
		r.Record = v.targetEpoch(value == nil)
	case consumerTargetKey:
		r.Record = v.target(name, value == nil)
	case consumerPositionKey:
		r.Record = consumer.PositionRecord{Member: name, Value: v.position(value == nil)}
	case consumerRegexKey:
		r.Record = consumer.RegexRecord{Regex: name, Value: v.regex(value == nil)}
	}
	if err := v.Complete(); value != nil && err != nil {
		return nil, fmt.Errorf("group %q, kind %d: %w", r.Group, kind, err)
	}
	return r, nil
}

// valueReader reads values; what a tombstone stands for is nothing.
type valueReader struct{ kbin.Reader }

// tags reads a structure's tagged fields: f that of number 0, the others are passed over.
func (v *valueReader) tags(f func(field *valueReader)) {
	for n := v.Uvarint(); n > 0 && v.Ok(); n-- {
		number, size := v.Uvarint(), v.Uvarint()
		field := valueReader{Reader: kbin.Reader{Src: v.Span(int(size))}}
		if number == 0 && f != nil {
			f(&field)
		}
	}
}

func (v *valueReader) epoch(gone bool, at types.Millis) consumer.EpochRecord {
	r := consumer.EpochRecord{Gone: gone, Time: at}
	if !gone {
		r.Epoch = v.Int32()
		v.tags(func(field *valueReader) { r.Hash = field.Int64() })
	}
	return r
}

func (v *valueReader) targetEpoch(gone bool) consumer.TargetEpochRecord {
	r := consumer.TargetEpochRecord{Gone: gone}
	if !gone {
		r.Epoch = v.Int32()
		v.tags(nil)
	}
	return r
}

func (v *valueReader) profile(gone bool) *consumer.Profile {
	if gone {
		return nil
	}
	p := &consumer.Profile{InstanceID: text(v.CompactNullableString()), RackID: text(v.CompactNullableString()), ClientID: v.CompactString(), ClientHost: v.CompactString()}
	p.Topics = v.strings()
	p.Regex = text(v.CompactNullableString())
	p.RebalanceTimeout = types.Millis(v.Int32())
	p.Assignor = text(v.CompactNullableString())
	v.tags(nil)
	return p
}

// strings reads an array of strings, sorted.
func (v *valueReader) strings() []string {
	var all []string
	for n := v.CompactArrayLen(); n > 0 && v.Ok(); n-- {
		all = append(all, v.CompactString())
	}
	slices.Sort(all)
	return all
}

func (v *valueReader) target(member string, gone bool) consumer.TargetRecord {
	r := consumer.TargetRecord{Member: member, Gone: gone}
	if !gone {
		r.Partitions = v.partitions().Sorted()
		v.tags(nil)
	}
	return r
}

func (v *valueReader) position(gone bool) *consumer.Position {
	if gone {
		return nil
	}
	p := &consumer.Position{Epoch: v.Int32(), Previous: v.Int32(), State: consumer.State(v.Int8())}
	p.Assigned, p.Revoking = v.partitions(), v.partitions()
	v.tags(nil)
	return p
}

func (v *valueReader) partitions() consumer.Partitions {
	all := consumer.Partitions{}
	for n := v.CompactArrayLen(); n > 0 && v.Ok(); n-- {
		var of []consumer.Partition
		id := types.TopicID(v.Uuid())
		for m := v.CompactArrayLen(); m > 0 && v.Ok(); m-- {
			of = append(of, consumer.Partition{Topic: id, Number: v.Int32()})
		}
		given := make([]int32, len(of))
		v.tags(func(field *valueReader) {
			if int(field.CompactArrayLen()) == len(of) {
				for i := range given {
					given[i] = field.Int32()
				}
			}
		})
		for i, p := range of {
			all[p] = given[i]
		}
	}
	return all
}

func (v *valueReader) regex(gone bool) *consumer.Resolved {
	if gone {
		return nil
	}
	r := &consumer.Resolved{Topics: v.strings(), Version: v.Int64(), At: types.Millis(v.Int64())}
	v.tags(nil)
	return r
}
