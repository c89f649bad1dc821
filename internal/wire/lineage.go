package wire

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
)

// SoftwareName is the client name (KIP-511) by which Tidemark's own clients ask
// for API versions: only for them the APIs of our own are listed.
const SoftwareName = "tidemark"

// Bounds of DescribeLineage (docs/format/lineage-api.md). A message beyond them is malformed.
const (
	// LineagePartitionsMax is the most partitions in one request, or one answer.
	LineagePartitionsMax = 2000
	// LineageTimelinesMax is the most entries in one list: each promotion takes
	// 65,536 of 2³¹ leader epochs (R23).
	LineageTimelinesMax = 1 << 15
	// LineagePathMax is the most clusters in one mirror path.
	LineagePathMax = 64
	// LineageIDBytesMax bounds a timeline's id, ClusterIDBytesMax a cluster's.
	LineageIDBytesMax = 64
	ClusterIDBytesMax = 255
	// LineageAnswerBytes is the size from which an answer takes in no more
	// partitions: the rest gets MESSAGE_TOO_LARGE, and is asked for again.
	LineageAnswerBytes = 4 << 20
)

// LineageRequest asks a leader for the lineage of partitions (key 32000).
type LineageRequest struct {
	Version int16
	Topics  []LineageRequestTopic
}

// LineageRequestTopic names partitions of one topic.
type LineageRequestTopic struct {
	ID         types.TopicID
	Partitions []int32
}

// LineageResponse answers a LineageRequest.
type LineageResponse struct {
	Version int16
	// ErrorCode refuses the whole request.
	ErrorCode ErrCode
	Topics    []LineageResponseTopic
}

// LineageResponseTopic holds the partitions of one topic.
type LineageResponseTopic struct {
	ID         types.TopicID
	Partitions []LineagePartition
}

// LineagePartition is what a leader says of one partition. Everything but
// LastEpoch comes from one partition record (R18).
type LineagePartition struct {
	Partition   int32
	ErrorCode   ErrCode
	LeaderEpoch types.LeaderEpoch
	// Timelines is the record's list (R16); empty on a mirror that has not
	// adopted its own source's list yet.
	Timelines []Timeline
	// Writable: clients may write. IsMirror: the partition follows a source; a
	// partition that is neither is fenced.
	Writable, IsMirror bool
	// LastEpoch is the epoch of the log's last record, NoLeaderEpoch if it holds none.
	LastEpoch types.LeaderEpoch
	// Path are the clusters that a mirror copies from, the nearest first, its own excluded (R25).
	Path []string
}

// Timeline is one entry of a list of timelines.
type Timeline struct {
	ID          string
	FirstEpoch  types.LeaderEpoch
	FirstOffset types.Offset
}

// The messages are kmsg messages, so that they go the way of all others.
var (
	_ kmsg.Request  = (*LineageRequest)(nil)
	_ kmsg.Response = (*LineageResponse)(nil)
)

// Key implements kmsg.Request.
func (r *LineageRequest) Key() int16 { return int16(KeyDescribeLineage) }

// MaxVersion implements kmsg.Request.
func (r *LineageRequest) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Request.
func (r *LineageRequest) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Request.
func (r *LineageRequest) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Request.
func (r *LineageRequest) IsFlexible() bool { return true }

// ResponseKind implements kmsg.Request.
func (r *LineageRequest) ResponseKind() kmsg.Response { return &LineageResponse{Version: r.Version} }

// Key implements kmsg.Response.
func (r *LineageResponse) Key() int16 { return int16(KeyDescribeLineage) }

// MaxVersion implements kmsg.Response.
func (r *LineageResponse) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Response.
func (r *LineageResponse) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Response.
func (r *LineageResponse) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Response.
func (r *LineageResponse) IsFlexible() bool { return true }

// RequestKind implements kmsg.Response.
func (r *LineageResponse) RequestKind() kmsg.Request { return &LineageRequest{Version: r.Version} }

// AppendTo implements kmsg.Request.
func (r *LineageRequest) AppendTo(b []byte) []byte {
	b = appendCount(b, len(r.Topics))
	for _, t := range r.Topics {
		b = append(b, t.ID[:]...)
		b = appendCount(b, len(t.Partitions))
		for _, p := range t.Partitions {
			b = append(binary.BigEndian.AppendUint32(b, uint32(p)), noTags)
		}
		b = append(b, noTags)
	}
	return append(b, noTags)
}

// ReadFrom implements kmsg.Request.
func (r *LineageRequest) ReadFrom(b []byte) error {
	in := reader{rest: b}
	total := 0
	topicCount := in.count(18, LineagePartitionsMax)
	topics := make([]LineageRequestTopic, 0, topicCount)
	for range topicCount {
		t := LineageRequestTopic{ID: in.uuid()}
		n := in.count(5, LineagePartitionsMax-total)
		total += n
		t.Partitions = make([]int32, 0, n)
		for range n {
			t.Partitions = append(t.Partitions, in.int32())
			in.tags()
		}
		in.tags()
		topics = append(topics, t)
	}
	in.tags()
	if err := in.done(); err != nil {
		return err
	}
	r.Topics = topics
	return nil
}

// AppendTo implements kmsg.Response.
func (r *LineageResponse) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(r.ErrorCode))
	b = appendCount(b, len(r.Topics))
	for i := range r.Topics {
		t := &r.Topics[i]
		b = append(b, t.ID[:]...)
		b = appendCount(b, len(t.Partitions))
		for j := range t.Partitions {
			b = t.Partitions[j].appendTo(b)
		}
		b = append(b, noTags)
	}
	return append(b, noTags)
}

func (p *LineagePartition) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(p.Partition))
	b = binary.BigEndian.AppendUint16(b, uint16(p.ErrorCode))
	b = binary.BigEndian.AppendUint32(b, uint32(p.LeaderEpoch))
	b = appendCount(b, len(p.Timelines))
	for _, l := range p.Timelines {
		b = appendString(b, l.ID)
		b = binary.BigEndian.AppendUint32(b, uint32(l.FirstEpoch))
		b = append(binary.BigEndian.AppendUint64(b, uint64(l.FirstOffset)), noTags)
	}
	b = append(b, bit(p.Writable), bit(p.IsMirror))
	b = binary.BigEndian.AppendUint32(b, uint32(p.LastEpoch))
	b = appendCount(b, len(p.Path))
	for _, id := range p.Path {
		b = appendString(b, id)
	}
	return append(b, noTags)
}

// Size is about how many bytes the partition takes in an answer, never less.
func (p *LineagePartition) Size() int {
	n := 32
	for _, l := range p.Timelines {
		n += len(l.ID) + 15
	}
	for _, id := range p.Path {
		n += len(id) + 2
	}
	return n
}

// ReadFrom implements kmsg.Response.
func (r *LineageResponse) ReadFrom(b []byte) error {
	in := reader{rest: b}
	code := ErrCode(in.int16())
	total := 0
	topicCount := in.count(18, LineagePartitionsMax)
	topics := make([]LineageResponseTopic, 0, topicCount)
	for range topicCount {
		t := LineageResponseTopic{ID: in.uuid()}
		n := in.count(19, LineagePartitionsMax-total)
		total += n
		t.Partitions = make([]LineagePartition, 0, n)
		for range n {
			t.Partitions = append(t.Partitions, in.lineage())
		}
		in.tags()
		topics = append(topics, t)
	}
	in.tags()
	if err := in.done(); err != nil {
		return err
	}
	r.ErrorCode, r.Topics = code, topics
	return nil
}

func (in *reader) lineage() LineagePartition {
	p := LineagePartition{Partition: in.int32(), ErrorCode: ErrCode(in.int16()), LeaderEpoch: types.LeaderEpoch(in.int32())}
	for range in.count(14, LineageTimelinesMax) {
		p.Timelines = append(p.Timelines, Timeline{
			ID: in.string(LineageIDBytesMax), FirstEpoch: types.LeaderEpoch(in.int32()), FirstOffset: types.Offset(in.int64()),
		})
		in.tags()
	}
	p.Writable, p.IsMirror = in.bool(), in.bool()
	p.LastEpoch = types.LeaderEpoch(in.int32())
	for range in.count(1, LineagePathMax) {
		p.Path = append(p.Path, in.string(ClusterIDBytesMax))
	}
	in.tags()
	return p
}
