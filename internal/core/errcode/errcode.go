// Package errcode holds Kafka's protocol error codes: the number and the name of
// each, once for the whole product.
//
// It owns no decision about when a code is given. Package wire shows the codes that
// answers carry under its own names; the core's packages take them from here.
package errcode

import "strconv"

// Code is a Kafka error code as it stands in an answer (org.apache.kafka.common.protocol.Errors).
//
// It is an error itself, so that it can be returned where an error is wanted. None is a
// code too: who returns a code as an error looks for it first.
type Code int16

// The error codes of Apache Kafka 4.4, by Kafka's names.
const (
	None                                   Code = 0
	UnknownServerError                     Code = -1
	OffsetOutOfRange                       Code = 1
	CorruptMessage                         Code = 2
	UnknownTopicOrPartition                Code = 3
	InvalidFetchSize                       Code = 4
	LeaderNotAvailable                     Code = 5
	NotLeaderOrFollower                    Code = 6
	RequestTimedOut                        Code = 7
	BrokerNotAvailable                     Code = 8
	ReplicaNotAvailable                    Code = 9
	MessageTooLarge                        Code = 10
	StaleControllerEpoch                   Code = 11
	OffsetMetadataTooLarge                 Code = 12
	NetworkException                       Code = 13
	CoordinatorLoadInProgress              Code = 14
	CoordinatorNotAvailable                Code = 15
	NotCoordinator                         Code = 16
	InvalidTopic                           Code = 17
	RecordListTooLarge                     Code = 18
	NotEnoughReplicas                      Code = 19
	NotEnoughReplicasAfterAppend           Code = 20
	InvalidRequiredAcks                    Code = 21
	IllegalGeneration                      Code = 22
	InconsistentGroupProtocol              Code = 23
	InvalidGroupID                         Code = 24
	UnknownMemberID                        Code = 25
	InvalidSessionTimeout                  Code = 26
	RebalanceInProgress                    Code = 27
	InvalidCommitOffsetSize                Code = 28
	TopicAuthorizationFailed               Code = 29
	GroupAuthorizationFailed               Code = 30
	ClusterAuthorizationFailed             Code = 31
	InvalidTimestamp                       Code = 32
	UnsupportedSaslMechanism               Code = 33
	IllegalSaslState                       Code = 34
	UnsupportedVersion                     Code = 35
	TopicAlreadyExists                     Code = 36
	InvalidPartitions                      Code = 37
	InvalidReplicationFactor               Code = 38
	InvalidReplicaAssignment               Code = 39
	InvalidConfig                          Code = 40
	NotController                          Code = 41
	InvalidRequest                         Code = 42
	UnsupportedForMessageFormat            Code = 43
	PolicyViolation                        Code = 44
	OutOfOrderSequenceNumber               Code = 45
	DuplicateSequenceNumber                Code = 46
	InvalidProducerEpoch                   Code = 47
	InvalidTxnState                        Code = 48
	InvalidProducerIDMapping               Code = 49
	InvalidTransactionTimeout              Code = 50
	ConcurrentTransactions                 Code = 51
	TransactionCoordinatorFenced           Code = 52
	TransactionalIDAuthorizationFailed     Code = 53
	SecurityDisabled                       Code = 54
	OperationNotAttempted                  Code = 55
	KafkaStorageError                      Code = 56
	LogDirNotFound                         Code = 57
	SaslAuthenticationFailed               Code = 58
	UnknownProducerID                      Code = 59
	ReassignmentInProgress                 Code = 60
	DelegationTokenAuthDisabled            Code = 61
	DelegationTokenNotFound                Code = 62
	DelegationTokenOwnerMismatch           Code = 63
	DelegationTokenRequestNotAllowed       Code = 64
	DelegationTokenAuthorizationFailed     Code = 65
	DelegationTokenExpired                 Code = 66
	InvalidPrincipalType                   Code = 67
	NonEmptyGroup                          Code = 68
	GroupIDNotFound                        Code = 69
	FetchSessionIDNotFound                 Code = 70
	InvalidFetchSessionEpoch               Code = 71
	ListenerNotFound                       Code = 72
	TopicDeletionDisabled                  Code = 73
	FencedLeaderEpoch                      Code = 74
	UnknownLeaderEpoch                     Code = 75
	UnsupportedCompressionType             Code = 76
	StaleBrokerEpoch                       Code = 77
	OffsetNotAvailable                     Code = 78
	MemberIDRequired                       Code = 79
	PreferredLeaderNotAvailable            Code = 80
	GroupMaxSizeReached                    Code = 81
	FencedInstanceID                       Code = 82
	EligibleLeadersNotAvailable            Code = 83
	ElectionNotNeeded                      Code = 84
	NoReassignmentInProgress               Code = 85
	GroupSubscribedToTopic                 Code = 86
	InvalidRecord                          Code = 87
	UnstableOffsetCommit                   Code = 88
	ThrottlingQuotaExceeded                Code = 89
	ProducerFenced                         Code = 90
	ResourceNotFound                       Code = 91
	DuplicateResource                      Code = 92
	UnacceptableCredential                 Code = 93
	InconsistentVoterSet                   Code = 94
	InvalidUpdateVersion                   Code = 95
	FeatureUpdateFailed                    Code = 96
	PrincipalDeserializationFailure        Code = 97
	SnapshotNotFound                       Code = 98
	PositionOutOfRange                     Code = 99
	UnknownTopicID                         Code = 100
	DuplicateBrokerRegistration            Code = 101
	BrokerIDNotRegistered                  Code = 102
	InconsistentTopicID                    Code = 103
	InconsistentClusterID                  Code = 104
	TransactionalIDNotFound                Code = 105
	FetchSessionTopicIDError               Code = 106
	IneligibleReplica                      Code = 107
	NewLeaderElected                       Code = 108
	OffsetMovedToTieredStorage             Code = 109
	FencedMemberEpoch                      Code = 110
	UnreleasedInstanceID                   Code = 111
	UnsupportedAssignor                    Code = 112
	StaleMemberEpoch                       Code = 113
	MismatchedEndpointType                 Code = 114
	UnsupportedEndpointType                Code = 115
	UnknownControllerID                    Code = 116
	UnknownSubscriptionID                  Code = 117
	TelemetryTooLarge                      Code = 118
	InvalidRegistration                    Code = 119
	TransactionAbortable                   Code = 120
	InvalidRecordState                     Code = 121
	ShareSessionNotFound                   Code = 122
	InvalidShareSessionEpoch               Code = 123
	FencedStateEpoch                       Code = 124
	InvalidVoterKey                        Code = 125
	DuplicateVoter                         Code = 126
	VoterNotFound                          Code = 127
	InvalidRegularExpression               Code = 128
	RebootstrapRequired                    Code = 129
	StreamsInvalidTopology                 Code = 130
	StreamsInvalidTopologyEpoch            Code = 131
	StreamsTopologyFenced                  Code = 132
	ShareSessionLimitReached               Code = 133
	GroupDeletionFailed                    Code = 134
	StreamsTopologyDescriptionUpdateFailed Code = 135
	ControllerIDNotRegistered              Code = 136
)

// Error gives Kafka's name of the code.
func (c Code) Error() string { return c.String() }

// String gives Kafka's name of the code, or the number if it has none.
func (c Code) String() string {
	if s, ok := names[c]; ok {
		return s
	}
	return "error " + strconv.Itoa(int(c))
}

var names = map[Code]string{
	None:                                   "NONE",
	UnknownServerError:                     "UNKNOWN_SERVER_ERROR",
	OffsetOutOfRange:                       "OFFSET_OUT_OF_RANGE",
	CorruptMessage:                         "CORRUPT_MESSAGE",
	UnknownTopicOrPartition:                "UNKNOWN_TOPIC_OR_PARTITION",
	InvalidFetchSize:                       "INVALID_FETCH_SIZE",
	LeaderNotAvailable:                     "LEADER_NOT_AVAILABLE",
	NotLeaderOrFollower:                    "NOT_LEADER_OR_FOLLOWER",
	RequestTimedOut:                        "REQUEST_TIMED_OUT",
	BrokerNotAvailable:                     "BROKER_NOT_AVAILABLE",
	ReplicaNotAvailable:                    "REPLICA_NOT_AVAILABLE",
	MessageTooLarge:                        "MESSAGE_TOO_LARGE",
	StaleControllerEpoch:                   "STALE_CONTROLLER_EPOCH",
	OffsetMetadataTooLarge:                 "OFFSET_METADATA_TOO_LARGE",
	NetworkException:                       "NETWORK_EXCEPTION",
	CoordinatorLoadInProgress:              "COORDINATOR_LOAD_IN_PROGRESS",
	CoordinatorNotAvailable:                "COORDINATOR_NOT_AVAILABLE",
	NotCoordinator:                         "NOT_COORDINATOR",
	InvalidTopic:                           "INVALID_TOPIC_EXCEPTION",
	RecordListTooLarge:                     "RECORD_LIST_TOO_LARGE",
	NotEnoughReplicas:                      "NOT_ENOUGH_REPLICAS",
	NotEnoughReplicasAfterAppend:           "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
	InvalidRequiredAcks:                    "INVALID_REQUIRED_ACKS",
	IllegalGeneration:                      "ILLEGAL_GENERATION",
	InconsistentGroupProtocol:              "INCONSISTENT_GROUP_PROTOCOL",
	InvalidGroupID:                         "INVALID_GROUP_ID",
	UnknownMemberID:                        "UNKNOWN_MEMBER_ID",
	InvalidSessionTimeout:                  "INVALID_SESSION_TIMEOUT",
	RebalanceInProgress:                    "REBALANCE_IN_PROGRESS",
	InvalidCommitOffsetSize:                "INVALID_COMMIT_OFFSET_SIZE",
	TopicAuthorizationFailed:               "TOPIC_AUTHORIZATION_FAILED",
	GroupAuthorizationFailed:               "GROUP_AUTHORIZATION_FAILED",
	ClusterAuthorizationFailed:             "CLUSTER_AUTHORIZATION_FAILED",
	InvalidTimestamp:                       "INVALID_TIMESTAMP",
	UnsupportedSaslMechanism:               "UNSUPPORTED_SASL_MECHANISM",
	IllegalSaslState:                       "ILLEGAL_SASL_STATE",
	UnsupportedVersion:                     "UNSUPPORTED_VERSION",
	TopicAlreadyExists:                     "TOPIC_ALREADY_EXISTS",
	InvalidPartitions:                      "INVALID_PARTITIONS",
	InvalidReplicationFactor:               "INVALID_REPLICATION_FACTOR",
	InvalidReplicaAssignment:               "INVALID_REPLICA_ASSIGNMENT",
	InvalidConfig:                          "INVALID_CONFIG",
	NotController:                          "NOT_CONTROLLER",
	InvalidRequest:                         "INVALID_REQUEST",
	UnsupportedForMessageFormat:            "UNSUPPORTED_FOR_MESSAGE_FORMAT",
	PolicyViolation:                        "POLICY_VIOLATION",
	OutOfOrderSequenceNumber:               "OUT_OF_ORDER_SEQUENCE_NUMBER",
	DuplicateSequenceNumber:                "DUPLICATE_SEQUENCE_NUMBER",
	InvalidProducerEpoch:                   "INVALID_PRODUCER_EPOCH",
	InvalidTxnState:                        "INVALID_TXN_STATE",
	InvalidProducerIDMapping:               "INVALID_PRODUCER_ID_MAPPING",
	InvalidTransactionTimeout:              "INVALID_TRANSACTION_TIMEOUT",
	ConcurrentTransactions:                 "CONCURRENT_TRANSACTIONS",
	TransactionCoordinatorFenced:           "TRANSACTION_COORDINATOR_FENCED",
	TransactionalIDAuthorizationFailed:     "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
	SecurityDisabled:                       "SECURITY_DISABLED",
	OperationNotAttempted:                  "OPERATION_NOT_ATTEMPTED",
	KafkaStorageError:                      "KAFKA_STORAGE_ERROR",
	LogDirNotFound:                         "LOG_DIR_NOT_FOUND",
	SaslAuthenticationFailed:               "SASL_AUTHENTICATION_FAILED",
	UnknownProducerID:                      "UNKNOWN_PRODUCER_ID",
	ReassignmentInProgress:                 "REASSIGNMENT_IN_PROGRESS",
	DelegationTokenAuthDisabled:            "DELEGATION_TOKEN_AUTH_DISABLED",
	DelegationTokenNotFound:                "DELEGATION_TOKEN_NOT_FOUND",
	DelegationTokenOwnerMismatch:           "DELEGATION_TOKEN_OWNER_MISMATCH",
	DelegationTokenRequestNotAllowed:       "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
	DelegationTokenAuthorizationFailed:     "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
	DelegationTokenExpired:                 "DELEGATION_TOKEN_EXPIRED",
	InvalidPrincipalType:                   "INVALID_PRINCIPAL_TYPE",
	NonEmptyGroup:                          "NON_EMPTY_GROUP",
	GroupIDNotFound:                        "GROUP_ID_NOT_FOUND",
	FetchSessionIDNotFound:                 "FETCH_SESSION_ID_NOT_FOUND",
	InvalidFetchSessionEpoch:               "INVALID_FETCH_SESSION_EPOCH",
	ListenerNotFound:                       "LISTENER_NOT_FOUND",
	TopicDeletionDisabled:                  "TOPIC_DELETION_DISABLED",
	FencedLeaderEpoch:                      "FENCED_LEADER_EPOCH",
	UnknownLeaderEpoch:                     "UNKNOWN_LEADER_EPOCH",
	UnsupportedCompressionType:             "UNSUPPORTED_COMPRESSION_TYPE",
	StaleBrokerEpoch:                       "STALE_BROKER_EPOCH",
	OffsetNotAvailable:                     "OFFSET_NOT_AVAILABLE",
	MemberIDRequired:                       "MEMBER_ID_REQUIRED",
	PreferredLeaderNotAvailable:            "PREFERRED_LEADER_NOT_AVAILABLE",
	GroupMaxSizeReached:                    "GROUP_MAX_SIZE_REACHED",
	FencedInstanceID:                       "FENCED_INSTANCE_ID",
	EligibleLeadersNotAvailable:            "ELIGIBLE_LEADERS_NOT_AVAILABLE",
	ElectionNotNeeded:                      "ELECTION_NOT_NEEDED",
	NoReassignmentInProgress:               "NO_REASSIGNMENT_IN_PROGRESS",
	GroupSubscribedToTopic:                 "GROUP_SUBSCRIBED_TO_TOPIC",
	InvalidRecord:                          "INVALID_RECORD",
	UnstableOffsetCommit:                   "UNSTABLE_OFFSET_COMMIT",
	ThrottlingQuotaExceeded:                "THROTTLING_QUOTA_EXCEEDED",
	ProducerFenced:                         "PRODUCER_FENCED",
	ResourceNotFound:                       "RESOURCE_NOT_FOUND",
	DuplicateResource:                      "DUPLICATE_RESOURCE",
	UnacceptableCredential:                 "UNACCEPTABLE_CREDENTIAL",
	InconsistentVoterSet:                   "INCONSISTENT_VOTER_SET",
	InvalidUpdateVersion:                   "INVALID_UPDATE_VERSION",
	FeatureUpdateFailed:                    "FEATURE_UPDATE_FAILED",
	PrincipalDeserializationFailure:        "PRINCIPAL_DESERIALIZATION_FAILURE",
	SnapshotNotFound:                       "SNAPSHOT_NOT_FOUND",
	PositionOutOfRange:                     "POSITION_OUT_OF_RANGE",
	UnknownTopicID:                         "UNKNOWN_TOPIC_ID",
	DuplicateBrokerRegistration:            "DUPLICATE_BROKER_REGISTRATION",
	BrokerIDNotRegistered:                  "BROKER_ID_NOT_REGISTERED",
	InconsistentTopicID:                    "INCONSISTENT_TOPIC_ID",
	InconsistentClusterID:                  "INCONSISTENT_CLUSTER_ID",
	TransactionalIDNotFound:                "TRANSACTIONAL_ID_NOT_FOUND",
	FetchSessionTopicIDError:               "FETCH_SESSION_TOPIC_ID_ERROR",
	IneligibleReplica:                      "INELIGIBLE_REPLICA",
	NewLeaderElected:                       "NEW_LEADER_ELECTED",
	OffsetMovedToTieredStorage:             "OFFSET_MOVED_TO_TIERED_STORAGE",
	FencedMemberEpoch:                      "FENCED_MEMBER_EPOCH",
	UnreleasedInstanceID:                   "UNRELEASED_INSTANCE_ID",
	UnsupportedAssignor:                    "UNSUPPORTED_ASSIGNOR",
	StaleMemberEpoch:                       "STALE_MEMBER_EPOCH",
	MismatchedEndpointType:                 "MISMATCHED_ENDPOINT_TYPE",
	UnsupportedEndpointType:                "UNSUPPORTED_ENDPOINT_TYPE",
	UnknownControllerID:                    "UNKNOWN_CONTROLLER_ID",
	UnknownSubscriptionID:                  "UNKNOWN_SUBSCRIPTION_ID",
	TelemetryTooLarge:                      "TELEMETRY_TOO_LARGE",
	InvalidRegistration:                    "INVALID_REGISTRATION",
	TransactionAbortable:                   "TRANSACTION_ABORTABLE",
	InvalidRecordState:                     "INVALID_RECORD_STATE",
	ShareSessionNotFound:                   "SHARE_SESSION_NOT_FOUND",
	InvalidShareSessionEpoch:               "INVALID_SHARE_SESSION_EPOCH",
	FencedStateEpoch:                       "FENCED_STATE_EPOCH",
	InvalidVoterKey:                        "INVALID_VOTER_KEY",
	DuplicateVoter:                         "DUPLICATE_VOTER",
	VoterNotFound:                          "VOTER_NOT_FOUND",
	InvalidRegularExpression:               "INVALID_REGULAR_EXPRESSION",
	RebootstrapRequired:                    "REBOOTSTRAP_REQUIRED",
	StreamsInvalidTopology:                 "STREAMS_INVALID_TOPOLOGY",
	StreamsInvalidTopologyEpoch:            "STREAMS_INVALID_TOPOLOGY_EPOCH",
	StreamsTopologyFenced:                  "STREAMS_TOPOLOGY_FENCED",
	ShareSessionLimitReached:               "SHARE_SESSION_LIMIT_REACHED",
	GroupDeletionFailed:                    "GROUP_DELETION_FAILED",
	StreamsTopologyDescriptionUpdateFailed: "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
	ControllerIDNotRegistered:              "CONTROLLER_ID_NOT_REGISTERED",
}
