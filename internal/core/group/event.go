package group

import (
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/types"
)

// RequestID is the driver's handle of a request that waits for an answer. Each
// is used once; NoRequest means that nobody waits.
type RequestID uint64

// NoRequest marks an event, or a member, that no request waits on.
const NoRequest RequestID = 0

// Token names one append. Tokens of a table rise by one, from 1.
type Token uint64

// Event is what a Table's Step takes: one of the types of this file.
type Event interface{ event() }

// Protocol is one way to assign partitions that a member supports, with the
// member's metadata for it. A member lists its protocols in order of preference.
type Protocol struct {
	Name     string
	Metadata []byte
}

// Join is a JoinGroup request. It is answered with a JoinResponse.
type Join struct {
	Request              RequestID
	Group                string
	MemberID             string // empty: the member has none yet
	InstanceID           string // empty: a dynamic member (KIP-345)
	ClientID, ClientHost string
	// FreshMemberID is the id to give to the member if it needs a new one.
	FreshMemberID    string
	SessionTimeout   types.Millis
	RebalanceTimeout types.Millis
	ProtocolType     string
	Protocols        []Protocol
	// RequireKnownMember: the member must come back with the id it is given
	// before it is let in (KIP-394, JoinGroup v4+).
	RequireKnownMember bool
	// CanSkipAssignment: the client understands that a returning static leader
	// need not assign (KIP-814, JoinGroup v9+).
	CanSkipAssignment bool
}

// Sync is a SyncGroup request. It is answered with a SyncResponse.
type Sync struct {
	Request    RequestID
	Group      string
	MemberID   string
	InstanceID string
	Generation int32
	// ProtocolType and Protocol are checked when not empty (v5+).
	ProtocolType, Protocol string
	Assignments            []Assignment // the leader's; nil from followers
}

// Assignment is what the leader gives to one member.
type Assignment struct {
	MemberID string
	Data     []byte
}

// Heartbeat keeps a member's session. It is answered with a CodeResponse.
type Heartbeat struct {
	Request    RequestID
	Group      string
	MemberID   string
	InstanceID string
	Generation int32
}

// ConsumerHeartbeat is a ConsumerGroupHeartbeat request (KIP-848). It is answered with
// a ConsumerHeartbeatResponse.
type ConsumerHeartbeat struct {
	Request RequestID
	Group   string
	consumer.Heartbeat
}

// Leave takes members out of a group. It is answered with a LeaveResponse.
type Leave struct {
	Request RequestID
	Group   string
	Members []LeavingMember
}

// LeavingMember names a member by its id, or a static one by its instance id alone.
type LeavingMember struct{ MemberID, InstanceID string }

// Commit is an OffsetCommit request. It is answered with a CommitResponse.
type Commit struct {
	Request    RequestID
	Group      string
	MemberID   string
	InstanceID string
	Generation int32 // below 0: a consumer outside group management, or an admin
	// UnknownGroupIsNotFound: answer a member of an unknown group with
	// GROUP_ID_NOT_FOUND in place of ILLEGAL_GENERATION, and let Generation be a member
	// epoch (v9+).
	UnknownGroupIsNotFound bool
	Offsets                []CommitOffset
}

// CommitOffset is one partition of a Commit.
type CommitOffset struct {
	Topic       string
	TopicID     types.TopicID
	Partition   int32
	Offset      types.Offset
	LeaderEpoch types.LeaderEpoch
	Metadata    string
	// Retention is how long the offset is kept at least (v2-v4), or negative
	// for the broker's own retention.
	Retention types.Millis
}

// DeleteOffsets is an OffsetDelete request. It is answered with a CommitResponse.
type DeleteOffsets struct {
	Request    RequestID
	Group      string
	Partitions []types.TopicPartition
}

// DeleteGroup removes a group without members and all its offsets. It is
// answered with a CodeResponse.
type DeleteGroup struct {
	Request RequestID
	Group   string
}

// MirrorOffsets brings committed offsets from a mirrored cluster into a group
// without local members (R §6.3). It is answered with a MirrorOffsetsResponse.
type MirrorOffsets struct {
	Request RequestID
	Group   string
	Offsets []MirrorOffset
}

// MirrorOffset is one partition of MirrorOffsets. LogEnd is the local log end
// at the time of the event, or types.NoOffset if the partition isn't here.
type MirrorOffset struct {
	Topic       string
	TopicID     types.TopicID
	Partition   int32
	Offset      types.Offset
	LeaderEpoch types.LeaderEpoch
	Metadata    string
	LogEnd      types.Offset
}

// Clamp lowers committed offsets of every group to where a partition was cut
// (R §6.3, GROUP_CUT). It is answered with a ClampResponse.
type Clamp struct {
	Request RequestID
	Cuts    []Cut
}

// Cut says that a partition now ends at Offset.
type Cut struct {
	TopicPartition types.TopicPartition
	Offset         types.Offset
}

// ForgetTopics removes the committed offsets of deleted topics. It may come after
// commits for a new topic of the same name: those stay.
type ForgetTopics struct{ Topics []DeletedTopic }

// DeletedTopic is a topic that was deleted. With a zero ID it stands for what was
// committed under the name without saying for which topic.
type DeletedTopic struct {
	Name string
	ID   types.TopicID
	// Said leaves what doesn't say its topic's id: another topic has the name now, and it may be that one's.
	Said bool
}

// had reports whether an offset was committed for it, as far as that is known:
// older records of offsets don't keep the topic's id, nor do those with an expiry of their own.
func (d DeletedTopic) had(tp types.TopicPartition, c *Committed) bool {
	return d.Name == tp.Topic && (c.TopicID == d.ID || c.TopicID.IsZero() && !d.Said)
}

// SweepOffsets expires offsets by their retention and removes groups that hold nothing.
type SweepOffsets struct{}

// Appended tells that an append is durable, or that it failed with Code.
// Completions come in the order of the tokens.
type Appended struct {
	Token Token
	Code  errcode.Code
}

// Tick lets deadlines pass. The driver sends it when Deadline says so.
type Tick struct{}

// Unpark answers every join and sync that waits, or still comes, with Code: the
// node shuts down. All else goes on, and the members stay.
type Unpark struct{ Code errcode.Code }

// Resign ends the table: this node no longer coordinates its groups. Every
// waiting request is answered with Code. No event may follow.
type Resign struct{ Code errcode.Code }

func (ConsumerHeartbeat) event() {}

func (Join) event()          {}
func (Sync) event()          {}
func (Heartbeat) event()     {}
func (Leave) event()         {}
func (Commit) event()        {}
func (DeleteOffsets) event() {}
func (DeleteGroup) event()   {}
func (MirrorOffsets) event() {}
func (Clamp) event()         {}
func (ForgetTopics) event()  {}
func (SweepOffsets) event()  {}
func (Appended) event()      {}
func (Tick) event()          {}
func (Unpark) event()        {}
func (Resign) event()        {}
