package wire

import (
	"context"
	"errors"
	"fmt"

	"tidemark/internal/core/errcode"
)

// ErrCode is a Kafka error code as it stands in an answer. It is an error itself, so that
// handlers and the things they call can return it where an error is wanted; *Error adds a
// sentence for the client.
type ErrCode = errcode.Code

// The error codes that are spoken of outside the core. errcode has them all, with their numbers.
const (
	None                                  = errcode.None
	ErrUnknownServerError                 = errcode.UnknownServerError
	ErrOffsetOutOfRange                   = errcode.OffsetOutOfRange
	ErrCorruptMessage                     = errcode.CorruptMessage
	ErrUnknownTopicOrPartition            = errcode.UnknownTopicOrPartition
	ErrInvalidFetchSize                   = errcode.InvalidFetchSize
	ErrLeaderNotAvailable                 = errcode.LeaderNotAvailable
	ErrNotLeaderOrFollower                = errcode.NotLeaderOrFollower
	ErrRequestTimedOut                    = errcode.RequestTimedOut
	ErrBrokerNotAvailable                 = errcode.BrokerNotAvailable
	ErrMessageTooLarge                    = errcode.MessageTooLarge
	ErrOffsetMetadataTooLarge             = errcode.OffsetMetadataTooLarge
	ErrCoordinatorLoadInProgress          = errcode.CoordinatorLoadInProgress
	ErrCoordinatorNotAvailable            = errcode.CoordinatorNotAvailable
	ErrNotCoordinator                     = errcode.NotCoordinator
	ErrInvalidTopic                       = errcode.InvalidTopic
	ErrRecordListTooLarge                 = errcode.RecordListTooLarge
	ErrNotEnoughReplicas                  = errcode.NotEnoughReplicas
	ErrNotEnoughReplicasAfterAppend       = errcode.NotEnoughReplicasAfterAppend
	ErrInvalidRequiredAcks                = errcode.InvalidRequiredAcks
	ErrInvalidGroupID                     = errcode.InvalidGroupID
	ErrTopicAuthorizationFailed           = errcode.TopicAuthorizationFailed
	ErrGroupAuthorizationFailed           = errcode.GroupAuthorizationFailed
	ErrClusterAuthorizationFailed         = errcode.ClusterAuthorizationFailed
	ErrInvalidTimestamp                   = errcode.InvalidTimestamp
	ErrUnsupportedSaslMechanism           = errcode.UnsupportedSaslMechanism
	ErrIllegalSaslState                   = errcode.IllegalSaslState
	ErrUnsupportedVersion                 = errcode.UnsupportedVersion
	ErrTopicAlreadyExists                 = errcode.TopicAlreadyExists
	ErrInvalidPartitions                  = errcode.InvalidPartitions
	ErrInvalidReplicationFactor           = errcode.InvalidReplicationFactor
	ErrInvalidReplicaAssignment           = errcode.InvalidReplicaAssignment
	ErrInvalidConfig                      = errcode.InvalidConfig
	ErrNotController                      = errcode.NotController
	ErrInvalidRequest                     = errcode.InvalidRequest
	ErrPolicyViolation                    = errcode.PolicyViolation
	ErrOutOfOrderSequenceNumber           = errcode.OutOfOrderSequenceNumber
	ErrInvalidProducerEpoch               = errcode.InvalidProducerEpoch
	ErrInvalidTxnState                    = errcode.InvalidTxnState
	ErrInvalidProducerIDMapping           = errcode.InvalidProducerIDMapping
	ErrConcurrentTransactions             = errcode.ConcurrentTransactions
	ErrTransactionCoordinatorFenced       = errcode.TransactionCoordinatorFenced
	ErrTransactionalIDAuthorizationFailed = errcode.TransactionalIDAuthorizationFailed
	ErrSecurityDisabled                   = errcode.SecurityDisabled
	ErrOperationNotAttempted              = errcode.OperationNotAttempted
	ErrKafkaStorageError                  = errcode.KafkaStorageError
	ErrSaslAuthenticationFailed           = errcode.SaslAuthenticationFailed
	ErrUnknownProducerID                  = errcode.UnknownProducerID
	ErrFetchSessionIDNotFound             = errcode.FetchSessionIDNotFound
	ErrInvalidFetchSessionEpoch           = errcode.InvalidFetchSessionEpoch
	ErrListenerNotFound                   = errcode.ListenerNotFound
	ErrTopicDeletionDisabled              = errcode.TopicDeletionDisabled
	ErrFencedLeaderEpoch                  = errcode.FencedLeaderEpoch
	ErrUnknownLeaderEpoch                 = errcode.UnknownLeaderEpoch
	ErrUnsupportedCompressionType         = errcode.UnsupportedCompressionType
	ErrStaleBrokerEpoch                   = errcode.StaleBrokerEpoch
	ErrOffsetNotAvailable                 = errcode.OffsetNotAvailable
	ErrPreferredLeaderNotAvailable        = errcode.PreferredLeaderNotAvailable
	ErrEligibleLeadersNotAvailable        = errcode.EligibleLeadersNotAvailable
	ErrElectionNotNeeded                  = errcode.ElectionNotNeeded
	ErrNoReassignmentInProgress           = errcode.NoReassignmentInProgress
	ErrInvalidRecord                      = errcode.InvalidRecord
	ErrUnstableOffsetCommit               = errcode.UnstableOffsetCommit
	ErrProducerFenced                     = errcode.ProducerFenced
	ErrResourceNotFound                   = errcode.ResourceNotFound
	ErrDuplicateResource                  = errcode.DuplicateResource
	ErrUnacceptableCredential             = errcode.UnacceptableCredential
	ErrInvalidUpdateVersion               = errcode.InvalidUpdateVersion
	ErrUnknownTopicID                     = errcode.UnknownTopicID
	ErrBrokerIDNotRegistered              = errcode.BrokerIDNotRegistered
	ErrTransactionalIDNotFound            = errcode.TransactionalIDNotFound
	ErrFetchSessionTopicIDError           = errcode.FetchSessionTopicIDError
	ErrMismatchedEndpointType             = errcode.MismatchedEndpointType
	ErrUnsupportedEndpointType            = errcode.UnsupportedEndpointType
	ErrTransactionAbortable               = errcode.TransactionAbortable
	ErrInvalidRegularExpression           = errcode.InvalidRegularExpression
	ErrRebootstrapRequired                = errcode.RebootstrapRequired
)

// Error is an error code with a sentence that a person can act on. Answers
// whose version has no room for a message carry the code alone.
type Error struct {
	Code    ErrCode
	Message string
}

// Errorf makes an *Error. The sentence goes to the client: no paths, no internals.
func Errorf(code ErrCode, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error gives the code's name and the message.
func (e *Error) Error() string { return e.Code.String() + ": " + e.Message }

// Is makes errors.Is(err, wire.ErrX) true for an *Error with code X.
func (e *Error) Is(target error) bool {
	c, ok := target.(ErrCode)
	return ok && c == e.Code
}

// CodeOf gives the code for an answer: None for nil, the code inside an *Error
// or ErrCode however wrapped, REQUEST_TIMED_OUT for a context that has ended (by
// its deadline, or because the client or the node goes: what was begun may be done
// or not, which is what clients take that code for), and UNKNOWN_SERVER_ERROR for
// everything else.
func CodeOf(err error) ErrCode {
	if err == nil {
		return None
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if c, ok := errors.AsType[ErrCode](err); ok {
		return c
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return ErrRequestTimedOut
	}
	return ErrUnknownServerError
}

// MessageOf gives the sentence for an answer's message field: nil if err is
// nil or carries none. Errors that are neither *Error nor ErrCode give nil too:
// their text is for the log, not for clients.
func MessageOf(err error) *string {
	if e, ok := errors.AsType[*Error](err); ok && e.Message != "" {
		return &e.Message
	}
	return nil
}
