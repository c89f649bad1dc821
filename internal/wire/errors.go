package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// ErrCode is a Kafka error code as it stands in an answer (org.apache.kafka.common.protocol.Errors).
//
// It is an error itself, so that handlers and the things they call can return
// it where an error is wanted; *Error adds a sentence for the client.
type ErrCode int16

// The error codes of Apache Kafka 4.4, by Kafka's names.
const (
	None                                      ErrCode = 0
	ErrUnknownServerError                     ErrCode = -1
	ErrOffsetOutOfRange                       ErrCode = 1
	ErrCorruptMessage                         ErrCode = 2
	ErrUnknownTopicOrPartition                ErrCode = 3
	ErrInvalidFetchSize                       ErrCode = 4
	ErrLeaderNotAvailable                     ErrCode = 5
	ErrNotLeaderOrFollower                    ErrCode = 6
	ErrRequestTimedOut                        ErrCode = 7
	ErrBrokerNotAvailable                     ErrCode = 8
	ErrReplicaNotAvailable                    ErrCode = 9
	ErrMessageTooLarge                        ErrCode = 10
	ErrStaleControllerEpoch                   ErrCode = 11
	ErrOffsetMetadataTooLarge                 ErrCode = 12
	ErrNetworkException                       ErrCode = 13
	ErrCoordinatorLoadInProgress              ErrCode = 14
	ErrCoordinatorNotAvailable                ErrCode = 15
	ErrNotCoordinator                         ErrCode = 16
	ErrInvalidTopic                           ErrCode = 17
	ErrRecordListTooLarge                     ErrCode = 18
	ErrNotEnoughReplicas                      ErrCode = 19
	ErrNotEnoughReplicasAfterAppend           ErrCode = 20
	ErrInvalidRequiredAcks                    ErrCode = 21
	ErrIllegalGeneration                      ErrCode = 22
	ErrInconsistentGroupProtocol              ErrCode = 23
	ErrInvalidGroupID                         ErrCode = 24
	ErrUnknownMemberID                        ErrCode = 25
	ErrInvalidSessionTimeout                  ErrCode = 26
	ErrRebalanceInProgress                    ErrCode = 27
	ErrInvalidCommitOffsetSize                ErrCode = 28
	ErrTopicAuthorizationFailed               ErrCode = 29
	ErrGroupAuthorizationFailed               ErrCode = 30
	ErrClusterAuthorizationFailed             ErrCode = 31
	ErrInvalidTimestamp                       ErrCode = 32
	ErrUnsupportedSaslMechanism               ErrCode = 33
	ErrIllegalSaslState                       ErrCode = 34
	ErrUnsupportedVersion                     ErrCode = 35
	ErrTopicAlreadyExists                     ErrCode = 36
	ErrInvalidPartitions                      ErrCode = 37
	ErrInvalidReplicationFactor               ErrCode = 38
	ErrInvalidReplicaAssignment               ErrCode = 39
	ErrInvalidConfig                          ErrCode = 40
	ErrNotController                          ErrCode = 41
	ErrInvalidRequest                         ErrCode = 42
	ErrUnsupportedForMessageFormat            ErrCode = 43
	ErrPolicyViolation                        ErrCode = 44
	ErrOutOfOrderSequenceNumber               ErrCode = 45
	ErrDuplicateSequenceNumber                ErrCode = 46
	ErrInvalidProducerEpoch                   ErrCode = 47
	ErrInvalidTxnState                        ErrCode = 48
	ErrInvalidProducerIDMapping               ErrCode = 49
	ErrInvalidTransactionTimeout              ErrCode = 50
	ErrConcurrentTransactions                 ErrCode = 51
	ErrTransactionCoordinatorFenced           ErrCode = 52
	ErrTransactionalIDAuthorizationFailed     ErrCode = 53
	ErrSecurityDisabled                       ErrCode = 54
	ErrOperationNotAttempted                  ErrCode = 55
	ErrKafkaStorageError                      ErrCode = 56
	ErrLogDirNotFound                         ErrCode = 57
	ErrSaslAuthenticationFailed               ErrCode = 58
	ErrUnknownProducerID                      ErrCode = 59
	ErrReassignmentInProgress                 ErrCode = 60
	ErrDelegationTokenAuthDisabled            ErrCode = 61
	ErrDelegationTokenNotFound                ErrCode = 62
	ErrDelegationTokenOwnerMismatch           ErrCode = 63
	ErrDelegationTokenRequestNotAllowed       ErrCode = 64
	ErrDelegationTokenAuthorizationFailed     ErrCode = 65
	ErrDelegationTokenExpired                 ErrCode = 66
	ErrInvalidPrincipalType                   ErrCode = 67
	ErrNonEmptyGroup                          ErrCode = 68
	ErrGroupIDNotFound                        ErrCode = 69
	ErrFetchSessionIDNotFound                 ErrCode = 70
	ErrInvalidFetchSessionEpoch               ErrCode = 71
	ErrListenerNotFound                       ErrCode = 72
	ErrTopicDeletionDisabled                  ErrCode = 73
	ErrFencedLeaderEpoch                      ErrCode = 74
	ErrUnknownLeaderEpoch                     ErrCode = 75
	ErrUnsupportedCompressionType             ErrCode = 76
	ErrStaleBrokerEpoch                       ErrCode = 77
	ErrOffsetNotAvailable                     ErrCode = 78
	ErrMemberIDRequired                       ErrCode = 79
	ErrPreferredLeaderNotAvailable            ErrCode = 80
	ErrGroupMaxSizeReached                    ErrCode = 81
	ErrFencedInstanceID                       ErrCode = 82
	ErrEligibleLeadersNotAvailable            ErrCode = 83
	ErrElectionNotNeeded                      ErrCode = 84
	ErrNoReassignmentInProgress               ErrCode = 85
	ErrGroupSubscribedToTopic                 ErrCode = 86
	ErrInvalidRecord                          ErrCode = 87
	ErrUnstableOffsetCommit                   ErrCode = 88
	ErrThrottlingQuotaExceeded                ErrCode = 89
	ErrProducerFenced                         ErrCode = 90
	ErrResourceNotFound                       ErrCode = 91
	ErrDuplicateResource                      ErrCode = 92
	ErrUnacceptableCredential                 ErrCode = 93
	ErrInconsistentVoterSet                   ErrCode = 94
	ErrInvalidUpdateVersion                   ErrCode = 95
	ErrFeatureUpdateFailed                    ErrCode = 96
	ErrPrincipalDeserializationFailure        ErrCode = 97
	ErrSnapshotNotFound                       ErrCode = 98
	ErrPositionOutOfRange                     ErrCode = 99
	ErrUnknownTopicID                         ErrCode = 100
	ErrDuplicateBrokerRegistration            ErrCode = 101
	ErrBrokerIDNotRegistered                  ErrCode = 102
	ErrInconsistentTopicID                    ErrCode = 103
	ErrInconsistentClusterID                  ErrCode = 104
	ErrTransactionalIDNotFound                ErrCode = 105
	ErrFetchSessionTopicIDError               ErrCode = 106
	ErrIneligibleReplica                      ErrCode = 107
	ErrNewLeaderElected                       ErrCode = 108
	ErrOffsetMovedToTieredStorage             ErrCode = 109
	ErrFencedMemberEpoch                      ErrCode = 110
	ErrUnreleasedInstanceID                   ErrCode = 111
	ErrUnsupportedAssignor                    ErrCode = 112
	ErrStaleMemberEpoch                       ErrCode = 113
	ErrMismatchedEndpointType                 ErrCode = 114
	ErrUnsupportedEndpointType                ErrCode = 115
	ErrUnknownControllerID                    ErrCode = 116
	ErrUnknownSubscriptionID                  ErrCode = 117
	ErrTelemetryTooLarge                      ErrCode = 118
	ErrInvalidRegistration                    ErrCode = 119
	ErrTransactionAbortable                   ErrCode = 120
	ErrInvalidRecordState                     ErrCode = 121
	ErrShareSessionNotFound                   ErrCode = 122
	ErrInvalidShareSessionEpoch               ErrCode = 123
	ErrFencedStateEpoch                       ErrCode = 124
	ErrInvalidVoterKey                        ErrCode = 125
	ErrDuplicateVoter                         ErrCode = 126
	ErrVoterNotFound                          ErrCode = 127
	ErrInvalidRegularExpression               ErrCode = 128
	ErrRebootstrapRequired                    ErrCode = 129
	ErrStreamsInvalidTopology                 ErrCode = 130
	ErrStreamsInvalidTopologyEpoch            ErrCode = 131
	ErrStreamsTopologyFenced                  ErrCode = 132
	ErrShareSessionLimitReached               ErrCode = 133
	ErrGroupDeletionFailed                    ErrCode = 134
	ErrStreamsTopologyDescriptionUpdateFailed ErrCode = 135
	ErrControllerIDNotRegistered              ErrCode = 136
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

// Error gives Kafka's name of the code.
func (c ErrCode) Error() string { return c.String() }

// String gives Kafka's name of the code, or the number if it has none.
func (c ErrCode) String() string {
	if s, ok := errNames[c]; ok {
		return s
	}
	return "error " + strconv.Itoa(int(c))
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

var errNames = map[ErrCode]string{
	0:   "NONE",
	-1:  "UNKNOWN_SERVER_ERROR",
	1:   "OFFSET_OUT_OF_RANGE",
	2:   "CORRUPT_MESSAGE",
	3:   "UNKNOWN_TOPIC_OR_PARTITION",
	4:   "INVALID_FETCH_SIZE",
	5:   "LEADER_NOT_AVAILABLE",
	6:   "NOT_LEADER_OR_FOLLOWER",
	7:   "REQUEST_TIMED_OUT",
	8:   "BROKER_NOT_AVAILABLE",
	9:   "REPLICA_NOT_AVAILABLE",
	10:  "MESSAGE_TOO_LARGE",
	11:  "STALE_CONTROLLER_EPOCH",
	12:  "OFFSET_METADATA_TOO_LARGE",
	13:  "NETWORK_EXCEPTION",
	14:  "COORDINATOR_LOAD_IN_PROGRESS",
	15:  "COORDINATOR_NOT_AVAILABLE",
	16:  "NOT_COORDINATOR",
	17:  "INVALID_TOPIC_EXCEPTION",
	18:  "RECORD_LIST_TOO_LARGE",
	19:  "NOT_ENOUGH_REPLICAS",
	20:  "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
	21:  "INVALID_REQUIRED_ACKS",
	22:  "ILLEGAL_GENERATION",
	23:  "INCONSISTENT_GROUP_PROTOCOL",
	24:  "INVALID_GROUP_ID",
	25:  "UNKNOWN_MEMBER_ID",
	26:  "INVALID_SESSION_TIMEOUT",
	27:  "REBALANCE_IN_PROGRESS",
	28:  "INVALID_COMMIT_OFFSET_SIZE",
	29:  "TOPIC_AUTHORIZATION_FAILED",
	30:  "GROUP_AUTHORIZATION_FAILED",
	31:  "CLUSTER_AUTHORIZATION_FAILED",
	32:  "INVALID_TIMESTAMP",
	33:  "UNSUPPORTED_SASL_MECHANISM",
	34:  "ILLEGAL_SASL_STATE",
	35:  "UNSUPPORTED_VERSION",
	36:  "TOPIC_ALREADY_EXISTS",
	37:  "INVALID_PARTITIONS",
	38:  "INVALID_REPLICATION_FACTOR",
	39:  "INVALID_REPLICA_ASSIGNMENT",
	40:  "INVALID_CONFIG",
	41:  "NOT_CONTROLLER",
	42:  "INVALID_REQUEST",
	43:  "UNSUPPORTED_FOR_MESSAGE_FORMAT",
	44:  "POLICY_VIOLATION",
	45:  "OUT_OF_ORDER_SEQUENCE_NUMBER",
	46:  "DUPLICATE_SEQUENCE_NUMBER",
	47:  "INVALID_PRODUCER_EPOCH",
	48:  "INVALID_TXN_STATE",
	49:  "INVALID_PRODUCER_ID_MAPPING",
	50:  "INVALID_TRANSACTION_TIMEOUT",
	51:  "CONCURRENT_TRANSACTIONS",
	52:  "TRANSACTION_COORDINATOR_FENCED",
	53:  "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
	54:  "SECURITY_DISABLED",
	55:  "OPERATION_NOT_ATTEMPTED",
	56:  "KAFKA_STORAGE_ERROR",
	57:  "LOG_DIR_NOT_FOUND",
	58:  "SASL_AUTHENTICATION_FAILED",
	59:  "UNKNOWN_PRODUCER_ID",
	60:  "REASSIGNMENT_IN_PROGRESS",
	61:  "DELEGATION_TOKEN_AUTH_DISABLED",
	62:  "DELEGATION_TOKEN_NOT_FOUND",
	63:  "DELEGATION_TOKEN_OWNER_MISMATCH",
	64:  "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
	65:  "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
	66:  "DELEGATION_TOKEN_EXPIRED",
	67:  "INVALID_PRINCIPAL_TYPE",
	68:  "NON_EMPTY_GROUP",
	69:  "GROUP_ID_NOT_FOUND",
	70:  "FETCH_SESSION_ID_NOT_FOUND",
	71:  "INVALID_FETCH_SESSION_EPOCH",
	72:  "LISTENER_NOT_FOUND",
	73:  "TOPIC_DELETION_DISABLED",
	74:  "FENCED_LEADER_EPOCH",
	75:  "UNKNOWN_LEADER_EPOCH",
	76:  "UNSUPPORTED_COMPRESSION_TYPE",
	77:  "STALE_BROKER_EPOCH",
	78:  "OFFSET_NOT_AVAILABLE",
	79:  "MEMBER_ID_REQUIRED",
	80:  "PREFERRED_LEADER_NOT_AVAILABLE",
	81:  "GROUP_MAX_SIZE_REACHED",
	82:  "FENCED_INSTANCE_ID",
	83:  "ELIGIBLE_LEADERS_NOT_AVAILABLE",
	84:  "ELECTION_NOT_NEEDED",
	85:  "NO_REASSIGNMENT_IN_PROGRESS",
	86:  "GROUP_SUBSCRIBED_TO_TOPIC",
	87:  "INVALID_RECORD",
	88:  "UNSTABLE_OFFSET_COMMIT",
	89:  "THROTTLING_QUOTA_EXCEEDED",
	90:  "PRODUCER_FENCED",
	91:  "RESOURCE_NOT_FOUND",
	92:  "DUPLICATE_RESOURCE",
	93:  "UNACCEPTABLE_CREDENTIAL",
	94:  "INCONSISTENT_VOTER_SET",
	95:  "INVALID_UPDATE_VERSION",
	96:  "FEATURE_UPDATE_FAILED",
	97:  "PRINCIPAL_DESERIALIZATION_FAILURE",
	98:  "SNAPSHOT_NOT_FOUND",
	99:  "POSITION_OUT_OF_RANGE",
	100: "UNKNOWN_TOPIC_ID",
	101: "DUPLICATE_BROKER_REGISTRATION",
	102: "BROKER_ID_NOT_REGISTERED",
	103: "INCONSISTENT_TOPIC_ID",
	104: "INCONSISTENT_CLUSTER_ID",
	105: "TRANSACTIONAL_ID_NOT_FOUND",
	106: "FETCH_SESSION_TOPIC_ID_ERROR",
	107: "INELIGIBLE_REPLICA",
	108: "NEW_LEADER_ELECTED",
	109: "OFFSET_MOVED_TO_TIERED_STORAGE",
	110: "FENCED_MEMBER_EPOCH",
	111: "UNRELEASED_INSTANCE_ID",
	112: "UNSUPPORTED_ASSIGNOR",
	113: "STALE_MEMBER_EPOCH",
	114: "MISMATCHED_ENDPOINT_TYPE",
	115: "UNSUPPORTED_ENDPOINT_TYPE",
	116: "UNKNOWN_CONTROLLER_ID",
	117: "UNKNOWN_SUBSCRIPTION_ID",
	118: "TELEMETRY_TOO_LARGE",
	119: "INVALID_REGISTRATION",
	120: "TRANSACTION_ABORTABLE",
	121: "INVALID_RECORD_STATE",
	122: "SHARE_SESSION_NOT_FOUND",
	123: "INVALID_SHARE_SESSION_EPOCH",
	124: "FENCED_STATE_EPOCH",
	125: "INVALID_VOTER_KEY",
	126: "DUPLICATE_VOTER",
	127: "VOTER_NOT_FOUND",
	128: "INVALID_REGULAR_EXPRESSION",
	129: "REBOOTSTRAP_REQUIRED",
	130: "STREAMS_INVALID_TOPOLOGY",
	131: "STREAMS_INVALID_TOPOLOGY_EPOCH",
	132: "STREAMS_TOPOLOGY_FENCED",
	133: "SHARE_SESSION_LIMIT_REACHED",
	134: "GROUP_DELETION_FAILED",
	135: "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
	136: "CONTROLLER_ID_NOT_REGISTERED",
}
