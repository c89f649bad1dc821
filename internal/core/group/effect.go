package group

import (
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/types"
)

// Effects are what one or more steps ask of the driver.
//
// Order: Appends go to the log in the order in which they were asked for, one
// batch each; their completions come back, in that order, as Appended events.
// Replies may be sent at once: whatever must be durable before its answer is
// answered by the step that takes the Appended event.
//
// Notes are for the operator's log; nothing depends on them.
type Effects struct {
	Appends []Append
	Replies []Reply
	Notes   []Note
}

// Note tells of a step in a group's life.
type Note struct {
	Group      string
	What       string
	MemberID   string // empty if it isn't about one member
	State      State
	Generation int32
	Members    int
}

func (e *Effects) note(g *group, memberID, what string) {
	e.Notes = append(e.Notes, Note{
		Group: g.id, What: what, MemberID: memberID, State: g.state, Generation: g.generation, Members: len(g.members),
	})
}

// Reset empties the effects and keeps the memory.
func (e *Effects) Reset() {
	e.Appends = e.Appends[:0]
	e.Replies = e.Replies[:0]
	e.Notes = e.Notes[:0]
}

func (e *Effects) reply(id RequestID, r Response) {
	if id != NoRequest {
		e.Replies = append(e.Replies, Reply{Request: id, Response: r})
	}
}

// Append asks for records to be written as one batch, or for a marker.
type Append struct {
	Token   Token
	Records []Record
	// Writer, if not nil, makes the batch part of its transaction. Marker, if not nil,
	// is what is written in place of records.
	Writer *Writer
	Marker *Marker
	Guard  uint64 // TxnCommit's
}

// Reply answers a waiting request.
type Reply struct {
	Request  RequestID
	Response Response
}

// Record is an entry of __consumer_offsets: an OffsetRecord, a GroupRecord or a ConsumerRecord.
type Record interface{ record() }

// OffsetRecord sets a committed offset, or removes it when Value is nil.
type OffsetRecord struct {
	Group string
	types.TopicPartition
	Value *Committed
}

// GroupRecord sets a group's membership, or removes the group when Value is nil.
type GroupRecord struct {
	Group string
	Value *Metadata
}

// ConsumerRecord is an entry of a group of the new protocol (KIP-848).
type ConsumerRecord struct {
	Group string
	consumer.Record
}

func (OffsetRecord) record()   {}
func (GroupRecord) record()    {}
func (ConsumerRecord) record() {}

// Committed is a committed offset.
type Committed struct {
	TopicID     types.TopicID // zero: not said
	Offset      types.Offset
	LeaderEpoch types.LeaderEpoch // types.NoLeaderEpoch: not said
	Metadata    string
	CommittedAt types.Millis
	ExpiresAt   types.Millis // types.NoTimestamp: by the broker's retention
}

// Metadata is what the log keeps of a group's membership: its last completed
// rebalance (Kafka's GroupMetadataValue).
type Metadata struct {
	ProtocolType string
	Generation   int32
	Protocol     string // empty: none
	Leader       string // empty: none
	StateSince   types.Millis
	Members      []MemberMetadata
}

// MemberMetadata is one member of Metadata.
type MemberMetadata struct {
	MemberID, InstanceID, ClientID, ClientHost string
	RebalanceTimeout, SessionTimeout           types.Millis
	Subscription, Assignment                   []byte
}

// Response answers a request: one of the types below.
type Response interface{ response() }

// JoinResponse answers Join.
type JoinResponse struct {
	Code           errcode.Code
	Generation     int32
	ProtocolType   string
	Protocol       string
	Leader         string
	MemberID       string
	SkipAssignment bool
	Members        []JoinMember // for the leader only
}

// JoinMember is a member as the group's leader sees it.
type JoinMember struct {
	MemberID, InstanceID string
	Metadata             []byte
}

// SyncResponse answers Sync.
type SyncResponse struct {
	Code                   errcode.Code
	ProtocolType, Protocol string
	Assignment             []byte
}

// CodeResponse answers requests whose only outcome is an error code.
type CodeResponse struct{ Code errcode.Code }

// LeaveResponse answers Leave: a code for the request, and one for each member in its order.
type LeaveResponse struct {
	Code    errcode.Code
	Members []errcode.Code
}

// CommitResponse answers Commit and DeleteOffsets: a code for the request, and
// one for each partition in its order (nil when the request failed as a whole).
type CommitResponse struct {
	Code       errcode.Code
	Partitions []errcode.Code
}

// MirrorOffsetsResponse answers MirrorOffsets. With Code NonEmptyGroup the
// group has local members and was left alone. Results has one entry for each
// offset in its order.
type MirrorOffsetsResponse struct {
	Code    errcode.Code
	Results []MirrorResult
}

// MirrorResult says what became of one mirrored offset.
type MirrorResult int8

const (
	// MirrorApplied: written and durable.
	MirrorApplied MirrorResult = iota
	// MirrorUnchanged: the group held it already.
	MirrorUnchanged
	// MirrorPending: beyond the local log end, or the partition isn't here; to be offered again.
	MirrorPending
)

// String names the result.
func (r MirrorResult) String() string {
	return [...]string{"applied", "unchanged", "pending"}[r]
}

// ClampResponse answers Clamp: the offsets that were lowered.
type ClampResponse struct {
	Code    errcode.Code
	Lowered []Lowered
}

// Lowered is a committed offset that a cut at Cut took back from From to To. To is
// below Cut where the source's own offset had come first.
type Lowered struct {
	Group          string
	TopicPartition types.TopicPartition
	From, To, Cut  types.Offset
}

// ConsumerHeartbeatResponse answers ConsumerHeartbeat. Message is for people, empty without an error.
type ConsumerHeartbeatResponse struct {
	Code    errcode.Code
	Message string
	consumer.Answer
}

func (ConsumerHeartbeatResponse) response() {}

func (JoinResponse) response()          {}
func (SyncResponse) response()          {}
func (CodeResponse) response()          {}
func (LeaveResponse) response()         {}
func (CommitResponse) response()        {}
func (MirrorOffsetsResponse) response() {}
func (ClampResponse) response()         {}
