package group

import "tidemark/internal/core/errcode"

// ErrorCode is one of Kafka's protocol error codes.
type ErrorCode = errcode.Code

// The codes that requests are answered with here.
const (
	None                      = errcode.None
	OffsetMetadataTooLarge    = errcode.OffsetMetadataTooLarge
	CoordinatorLoadInProgress = errcode.CoordinatorLoadInProgress
	CoordinatorNotAvailable   = errcode.CoordinatorNotAvailable
	NotCoordinator            = errcode.NotCoordinator
	IllegalGeneration         = errcode.IllegalGeneration
	InconsistentGroupProtocol = errcode.InconsistentGroupProtocol
	InvalidGroupID            = errcode.InvalidGroupID
	UnknownMemberID           = errcode.UnknownMemberID
	InvalidSessionTimeout     = errcode.InvalidSessionTimeout
	RebalanceInProgress       = errcode.RebalanceInProgress
	InvalidCommitOffsetSize   = errcode.InvalidCommitOffsetSize
	NonEmptyGroup             = errcode.NonEmptyGroup
	GroupIDNotFound           = errcode.GroupIDNotFound
	MemberIDRequired          = errcode.MemberIDRequired
	GroupMaxSizeReached       = errcode.GroupMaxSizeReached
	FencedInstanceID          = errcode.FencedInstanceID
	GroupSubscribedToTopic    = errcode.GroupSubscribedToTopic
	UnsupportedVersion        = errcode.UnsupportedVersion
	InvalidRequest            = errcode.InvalidRequest
	FencedMemberEpoch         = errcode.FencedMemberEpoch
	UnreleasedInstanceID      = errcode.UnreleasedInstanceID
	UnsupportedAssignor       = errcode.UnsupportedAssignor
	StaleMemberEpoch          = errcode.StaleMemberEpoch
	InvalidRegularExpression  = errcode.InvalidRegularExpression
)
