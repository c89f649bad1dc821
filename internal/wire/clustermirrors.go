package wire

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
)

// The two APIs of KIP-1279 by which clusters tell of their mirrors. The proposal
// isn't final: keys and fields are its prototype's, and nobody is served them
// without mirror.kip1279.enable. kmsg doesn't know their messages.
const (
	KeyListClusterMirrors     Key = 98
	KeyDescribeClusterMirrors Key = 99
)

// Bounds of both. A message beyond them is malformed.
const (
	// ClusterMirrorsMax is the most mirrors, and topics of one, in a message.
	ClusterMirrorsMax = 10_000
	// MirrorLookupsMax is the most partitions in one request.
	MirrorLookupsMax = 100_000
	// MirrorTextBytesMax bounds a name, an address list or a sentence.
	MirrorTextBytesMax = 32 << 10
)

// AuthorizedOperationsUnknown is what a broker says that was not asked for them.
const AuthorizedOperationsUnknown int32 = -1 << 31

// draftAPIs are the rows of the table for them.
var draftAPIs = [...]API{
	{Key: KeyListClusterMirrors, Name: "ListClusterMirrors", Min: 0, Max: 0, FlexibleFrom: 0},
	{Key: KeyDescribeClusterMirrors, Name: "DescribeClusterMirrors", Min: 0, Max: 0, FlexibleFrom: 0},
}

// DraftAPIs lists the APIs of proposals that are not final, in the order of keys.
func DraftAPIs() []API { return draftAPIs[:] }

// ListClusterMirrorsRequest asks for the names of a cluster's mirrors.
type ListClusterMirrorsRequest struct {
	Version int16
	// TopicNames asks for the topics of each.
	TopicNames bool
}

// ListClusterMirrorsResponse answers it.
type ListClusterMirrorsResponse struct {
	Version        int16
	ThrottleMillis int32
	ErrorCode      ErrCode
	ErrorMessage   *string
	Mirrors        []ListedClusterMirror
}

// ListedClusterMirror is one mirror of a list.
type ListedClusterMirror struct {
	Name, SourceBootstrap, SourceClusterID string
	TopicCount                             int32
	TopicNames                             []string // nil if not asked for
}

// DescribeClusterMirrorsRequest asks for the state of mirrors' partitions.
type DescribeClusterMirrorsRequest struct {
	Version int16
	// Names are the mirrors; nil: all.
	Names                []string
	AuthorizedOperations bool
	// ClusterID, if not nil, bounds it to mirrors of that source, and Lookups to
	// those partitions: "what did you mirror of me last?"
	ClusterID *string
	Lookups   []MirrorLookup
}

// MirrorLookup names partitions of a topic.
type MirrorLookup struct {
	TopicID    types.TopicID
	Partitions []int32
}

// DescribeClusterMirrorsResponse answers it.
type DescribeClusterMirrorsResponse struct {
	Version        int16
	ThrottleMillis int32
	ErrorCode      ErrCode
	ErrorMessage   *string
	Mirrors        []DescribedClusterMirror
}

// DescribedClusterMirror is one mirror.
type DescribedClusterMirror struct {
	ErrorCode                              ErrCode
	ErrorMessage                           *string
	Name, SourceBootstrap, SourceClusterID string
	AuthorizedOperations                   int32
	Topics                                 []DescribedMirrorTopic
}

// DescribedMirrorTopic is one topic of a mirror.
type DescribedMirrorTopic struct {
	Name       string
	Partitions []DescribedMirrorPartition
}

// DescribedMirrorPartition is one partition of a mirror. What isn't known is -1.
type DescribedMirrorPartition struct {
	Partition    int32
	State        string
	ErrorMessage *string
	Retries      int16
	// SourceOffset is the source's high watermark, DestinationOffset our log end.
	SourceOffset, DestinationOffset types.Offset
	// LastMirrorEpoch and LastMirrorOffset are what was mirrored last before a stop:
	// the epoch of the last record, and the end of what all in-sync replicas had.
	LastMirrorEpoch  types.LeaderEpoch
	LastMirrorOffset types.Offset
}

var (
	_ kmsg.Request  = (*ListClusterMirrorsRequest)(nil)
	_ kmsg.Response = (*ListClusterMirrorsResponse)(nil)
	_ kmsg.Request  = (*DescribeClusterMirrorsRequest)(nil)
	_ kmsg.Response = (*DescribeClusterMirrorsResponse)(nil)
)

// Key implements kmsg.Request.
func (r *ListClusterMirrorsRequest) Key() int16 { return int16(KeyListClusterMirrors) }

// MaxVersion implements kmsg.Request.
func (r *ListClusterMirrorsRequest) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Request.
func (r *ListClusterMirrorsRequest) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Request.
func (r *ListClusterMirrorsRequest) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Request.
func (r *ListClusterMirrorsRequest) IsFlexible() bool { return true }

// ResponseKind implements kmsg.Request.
func (r *ListClusterMirrorsRequest) ResponseKind() kmsg.Response {
	return &ListClusterMirrorsResponse{Version: r.Version}
}

// Key implements kmsg.Response.
func (r *ListClusterMirrorsResponse) Key() int16 { return int16(KeyListClusterMirrors) }

// MaxVersion implements kmsg.Response.
func (r *ListClusterMirrorsResponse) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Response.
func (r *ListClusterMirrorsResponse) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Response.
func (r *ListClusterMirrorsResponse) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Response.
func (r *ListClusterMirrorsResponse) IsFlexible() bool { return true }

// RequestKind implements kmsg.Response.
func (r *ListClusterMirrorsResponse) RequestKind() kmsg.Request {
	return &ListClusterMirrorsRequest{Version: r.Version}
}

// Key implements kmsg.Request.
func (r *DescribeClusterMirrorsRequest) Key() int16 { return int16(KeyDescribeClusterMirrors) }

// MaxVersion implements kmsg.Request.
func (r *DescribeClusterMirrorsRequest) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Request.
func (r *DescribeClusterMirrorsRequest) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Request.
func (r *DescribeClusterMirrorsRequest) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Request.
func (r *DescribeClusterMirrorsRequest) IsFlexible() bool { return true }

// ResponseKind implements kmsg.Request.
func (r *DescribeClusterMirrorsRequest) ResponseKind() kmsg.Response {
	return &DescribeClusterMirrorsResponse{Version: r.Version}
}

// Key implements kmsg.Response.
func (r *DescribeClusterMirrorsResponse) Key() int16 { return int16(KeyDescribeClusterMirrors) }

// MaxVersion implements kmsg.Response.
func (r *DescribeClusterMirrorsResponse) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Response.
func (r *DescribeClusterMirrorsResponse) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Response.
func (r *DescribeClusterMirrorsResponse) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Response.
func (r *DescribeClusterMirrorsResponse) IsFlexible() bool { return true }

// RequestKind implements kmsg.Response.
func (r *DescribeClusterMirrorsResponse) RequestKind() kmsg.Request {
	return &DescribeClusterMirrorsRequest{Version: r.Version}
}

// nullableLength reads a compact length of which 0 stands for null.
func (r *reader) nullableLength(most int, what string) (n int, isNull bool) {
	if r.err == nil && len(r.rest) > 0 && r.rest[0] == 0 {
		r.rest = r.rest[1:]
		return 0, true
	}
	return r.length(most, what), false
}

func (r *reader) nullableString() *string {
	n, isNull := r.nullableLength(MirrorTextBytesMax, "a string")
	if isNull {
		return nil
	}
	s := string(r.take(n, "a string"))
	return &s
}

func appendNullableString(b []byte, s *string) []byte {
	if s == nil {
		return append(b, 0)
	}
	return appendString(b, (*s)[:min(len(*s), MirrorTextBytesMax)])
}

// strings reads an array of strings that may be null.
func (r *reader) strings() []string {
	n, isNull := r.nullableLength(ClusterMirrorsMax, "an array")
	if isNull {
		return nil
	}
	if n > len(r.rest) {
		r.fail("an array is cut short")
		n = 0
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, r.string(MirrorTextBytesMax))
	}
	return list
}

func appendStrings(b []byte, list []string) []byte {
	if list == nil {
		return append(b, 0)
	}
	b = appendCount(b, len(list))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

// AppendTo implements kmsg.Request.
func (r *ListClusterMirrorsRequest) AppendTo(b []byte) []byte {
	return append(b, bit(r.TopicNames), noTags)
}

// ReadFrom implements kmsg.Request.
func (r *ListClusterMirrorsRequest) ReadFrom(b []byte) error {
	in := reader{rest: b}
	names := in.bool()
	in.tags()
	if err := in.done(); err != nil {
		return err
	}
	r.TopicNames = names
	return nil
}

// AppendTo implements kmsg.Response.
func (r *ListClusterMirrorsResponse) AppendTo(b []byte) []byte {
	b = appendRefusal(binary.BigEndian.AppendUint32(b, uint32(r.ThrottleMillis)), r.ErrorCode, r.ErrorMessage)
	b = appendCount(b, len(r.Mirrors))
	for _, m := range r.Mirrors {
		b = appendString(appendString(appendString(b, m.Name), m.SourceBootstrap), m.SourceClusterID)
		b = binary.BigEndian.AppendUint32(b, uint32(m.TopicCount))
		b = append(appendStrings(b, m.TopicNames), noTags)
	}
	return append(b, noTags)
}

func appendRefusal(b []byte, code ErrCode, message *string) []byte {
	return appendNullableString(binary.BigEndian.AppendUint16(b, uint16(code)), message)
}

// ReadFrom implements kmsg.Response.
func (r *ListClusterMirrorsResponse) ReadFrom(b []byte) error {
	in := reader{rest: b}
	out := ListClusterMirrorsResponse{Version: r.Version, ThrottleMillis: in.int32(), ErrorCode: ErrCode(in.int16()), ErrorMessage: in.nullableString()}
	for range in.count(9, ClusterMirrorsMax) {
		m := ListedClusterMirror{Name: in.string(MirrorTextBytesMax), SourceBootstrap: in.string(MirrorTextBytesMax), SourceClusterID: in.string(MirrorTextBytesMax)}
		m.TopicCount, m.TopicNames = in.int32(), in.strings()
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
