package wire

import (
	"encoding/binary"

	"tidemark/internal/core/types"
)

// Tags of DescribeClusterMirrors' request.
const (
	tagClusterID = 0
	tagLookups   = 1
)

// AppendTo implements kmsg.Request.
func (r *DescribeClusterMirrorsRequest) AppendTo(b []byte) []byte {
	b = append(appendStrings(b, r.Names), bit(r.AuthorizedOperations))
	var tags [][]byte
	if r.ClusterID != nil {
		tags = append(tags, appendNullableString([]byte{tagClusterID}, r.ClusterID))
	}
	if len(r.Lookups) > 0 {
		value := appendCount([]byte{tagLookups}, len(r.Lookups))
		for _, l := range r.Lookups {
			value = appendCount(append(value, l.TopicID[:]...), len(l.Partitions))
			for _, p := range l.Partitions {
				value = binary.BigEndian.AppendUint32(value, uint32(p))
			}
			value = append(value, noTags)
		}
		tags = append(tags, value)
	}
	b = binary.AppendUvarint(b, uint64(len(tags)))
	for _, t := range tags {
		b = binary.AppendUvarint(append(b, t[0]), uint64(len(t)-1))
		b = append(b, t[1:]...)
	}
	return b
}

// ReadFrom implements kmsg.Request.
func (r *DescribeClusterMirrorsRequest) ReadFrom(b []byte) error {
	in := reader{rest: b}
	out := DescribeClusterMirrorsRequest{Version: r.Version, Names: in.strings(), AuthorizedOperations: in.bool()}
	last := int64(-1)
	for range in.uvarint(1 << 16) {
		tag, size := int64(in.uvarint(1<<30)), int(in.uvarint(1<<30))
		value := reader{rest: in.take(size, "a tagged field")}
		if in.err == nil && tag <= last {
			in.fail("tagged fields out of order")
		}
		last = tag
		if in.err != nil {
			break
		}
		switch tag {
		case tagClusterID:
			out.ClusterID = value.nullableString()
		case tagLookups:
			out.Lookups = value.lookups()
		default:
			continue // of a newer version
		}
		if err := value.done(); err != nil {
			in.err = err
		}
	}
	if err := in.done(); err != nil {
		return err
	}
	*r = out
	return nil
}

// uvarint reads an unsigned number of at most most.
func (r *reader) uvarint(most uint64) uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > most {
		r.fail("a number is out of range")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) lookups() []MirrorLookup {
	var list []MirrorLookup
	total := 0
	for range r.count(18, MirrorLookupsMax) {
		l := MirrorLookup{TopicID: types.TopicID(r.uuid())}
		n := r.count(4, MirrorLookupsMax-total)
		total += n
		for range n {
			l.Partitions = append(l.Partitions, r.int32())
		}
		r.tags()
		list = append(list, l)
	}
	return list
}

// AppendTo implements kmsg.Response.
func (r *DescribeClusterMirrorsResponse) AppendTo(b []byte) []byte {
	b = appendRefusal(binary.BigEndian.AppendUint32(b, uint32(r.ThrottleMillis)), r.ErrorCode, r.ErrorMessage)
	b = appendCount(b, len(r.Mirrors))
	for _, m := range r.Mirrors {
		b = appendRefusal(b, m.ErrorCode, m.ErrorMessage)
		b = appendString(appendString(appendString(b, m.Name), m.SourceBootstrap), m.SourceClusterID)
		b = binary.BigEndian.AppendUint32(b, uint32(m.AuthorizedOperations))
		b = appendCount(b, len(m.Topics))
		for _, t := range m.Topics {
			b = appendCount(appendString(b, t.Name), len(t.Partitions))
			for i := range t.Partitions {
				b = t.Partitions[i].appendTo(b)
			}
			b = append(b, noTags)
		}
		b = append(b, noTags)
	}
	return append(b, noTags)
}

func (p *DescribedMirrorPartition) appendTo(b []byte) []byte {
	b = appendString(binary.BigEndian.AppendUint32(b, uint32(p.Partition)), p.State)
	b = binary.BigEndian.AppendUint16(appendNullableString(b, p.ErrorMessage), uint16(p.Retries))
	b = binary.BigEndian.AppendUint64(b, uint64(p.SourceOffset))
	b = binary.BigEndian.AppendUint64(b, uint64(p.DestinationOffset))
	b = binary.BigEndian.AppendUint32(b, uint32(p.LastMirrorEpoch))
	return append(binary.BigEndian.AppendUint64(b, uint64(p.LastMirrorOffset)), noTags)
}

// ReadFrom implements kmsg.Response.
func (r *DescribeClusterMirrorsResponse) ReadFrom(b []byte) error {
	in := reader{rest: b}
	out := DescribeClusterMirrorsResponse{Version: r.Version, ThrottleMillis: in.int32(), ErrorCode: ErrCode(in.int16()), ErrorMessage: in.nullableString()}
	for range in.count(12, ClusterMirrorsMax) {
		m := DescribedClusterMirror{ErrorCode: ErrCode(in.int16()), ErrorMessage: in.nullableString()}
		m.Name, m.SourceBootstrap, m.SourceClusterID = in.string(MirrorTextBytesMax), in.string(MirrorTextBytesMax), in.string(MirrorTextBytesMax)
		m.AuthorizedOperations = in.int32()
		for range in.count(3, ClusterMirrorsMax) {
			t := DescribedMirrorTopic{Name: in.string(MirrorTextBytesMax)}
			for range in.count(37, MirrorLookupsMax) {
				t.Partitions = append(t.Partitions, in.mirrorPartition())
			}
			in.tags()
			m.Topics = append(m.Topics, t)
		}
		in.tags()
		out.Mirrors = append(out.Mirrors, m)
	}
	in.tags()
	if err := in.done(); err != nil {
		return err
	}
	*r = out
	return nil
}

func (r *reader) mirrorPartition() DescribedMirrorPartition {
	p := DescribedMirrorPartition{Partition: r.int32(), State: r.string(MirrorTextBytesMax), ErrorMessage: r.nullableString(), Retries: r.int16()}
	p.SourceOffset, p.DestinationOffset = types.Offset(r.int64()), types.Offset(r.int64())
	p.LastMirrorEpoch, p.LastMirrorOffset = types.LeaderEpoch(r.int32()), types.Offset(r.int64())
	r.tags()
	return p
}
