package group

import "strconv"

// ErrorCode is one of Kafka's protocol error codes. The core names the ones it
// answers with; the wire package has the whole table under the same numbers.
type ErrorCode int16

// The error codes that group requests are answered with, by Kafka's numbers.
const (
	None                      ErrorCode = 0
	OffsetMetadataTooLarge    ErrorCode = 12
	CoordinatorLoadInProgress ErrorCode = 14
	CoordinatorNotAvailable   ErrorCode = 15
	NotCoordinator            ErrorCode = 16
	IllegalGeneration         ErrorCode = 22
	InconsistentGroupProtocol ErrorCode = 23
	InvalidGroupID            ErrorCode = 24
	UnknownMemberID           ErrorCode = 25
	InvalidSessionTimeout     ErrorCode = 26
	RebalanceInProgress       ErrorCode = 27
	InvalidCommitOffsetSize   ErrorCode = 28
	NonEmptyGroup             ErrorCode = 68
	GroupIDNotFound           ErrorCode = 69
	MemberIDRequired          ErrorCode = 79
	GroupMaxSizeReached       ErrorCode = 81
	FencedInstanceID          ErrorCode = 82
	GroupSubscribedToTopic    ErrorCode = 86

	// Those of the new protocol (KIP-848).
	UnsupportedVersion       ErrorCode = 35
	InvalidRequest           ErrorCode = 42
	FencedMemberEpoch        ErrorCode = 110
	UnreleasedInstanceID     ErrorCode = 111
	UnsupportedAssignor      ErrorCode = 112
	StaleMemberEpoch         ErrorCode = 113
	InvalidRegularExpression ErrorCode = 128
)

var codeNames = map[ErrorCode]string{
	None:                      "NONE",
	OffsetMetadataTooLarge:    "OFFSET_METADATA_TOO_LARGE",
	CoordinatorLoadInProgress: "COORDINATOR_LOAD_IN_PROGRESS",
	CoordinatorNotAvailable:   "COORDINATOR_NOT_AVAILABLE",
	NotCoordinator:            "NOT_COORDINATOR",
	IllegalGeneration:         "ILLEGAL_GENERATION",
	InconsistentGroupProtocol: "INCONSISTENT_GROUP_PROTOCOL",
	InvalidGroupID:            "INVALID_GROUP_ID",
	UnknownMemberID:           "UNKNOWN_MEMBER_ID",
	InvalidSessionTimeout:     "INVALID_SESSION_TIMEOUT",
	RebalanceInProgress:       "REBALANCE_IN_PROGRESS",
	InvalidCommitOffsetSize:   "INVALID_COMMIT_OFFSET_SIZE",
	NonEmptyGroup:             "NON_EMPTY_GROUP",
	GroupIDNotFound:           "GROUP_ID_NOT_FOUND",
	MemberIDRequired:          "MEMBER_ID_REQUIRED",
	GroupMaxSizeReached:       "GROUP_MAX_SIZE_REACHED",
	FencedInstanceID:          "FENCED_INSTANCE_ID",
	GroupSubscribedToTopic:    "GROUP_SUBSCRIBED_TO_TOPIC",
	UnsupportedVersion:        "UNSUPPORTED_VERSION",
	InvalidRequest:            "INVALID_REQUEST",
	FencedMemberEpoch:         "FENCED_MEMBER_EPOCH",
	UnreleasedInstanceID:      "UNRELEASED_INSTANCE_ID",
	UnsupportedAssignor:       "UNSUPPORTED_ASSIGNOR",
	StaleMemberEpoch:          "STALE_MEMBER_EPOCH",
	InvalidRegularExpression:  "INVALID_REGULAR_EXPRESSION",
}

// String gives Kafka's name of the code.
func (c ErrorCode) String() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return "ERROR_" + strconv.Itoa(int(c))
}
