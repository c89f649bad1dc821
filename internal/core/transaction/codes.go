package transaction

import "strconv"

// ErrorCode is one of Kafka's protocol error codes, by the numbers of package wire.
type ErrorCode int16

// The codes that requests about transactions are answered with.
const (
	None                      ErrorCode = 0
	CoordinatorLoadInProgress ErrorCode = 14
	CoordinatorNotAvailable   ErrorCode = 15
	NotCoordinator            ErrorCode = 16
	InvalidRequest            ErrorCode = 42
	InvalidTxnState           ErrorCode = 48
	InvalidProducerIDMapping  ErrorCode = 49
	InvalidTransactionTimeout ErrorCode = 50
	ConcurrentTransactions    ErrorCode = 51
	ProducerFenced            ErrorCode = 90
	TransactionalIDNotFound   ErrorCode = 105
	TransactionAbortable      ErrorCode = 120
)

var codeNames = map[ErrorCode]string{
	None:                      "NONE",
	CoordinatorLoadInProgress: "COORDINATOR_LOAD_IN_PROGRESS",
	CoordinatorNotAvailable:   "COORDINATOR_NOT_AVAILABLE",
	NotCoordinator:            "NOT_COORDINATOR",
	InvalidRequest:            "INVALID_REQUEST",
	InvalidTxnState:           "INVALID_TXN_STATE",
	InvalidProducerIDMapping:  "INVALID_PRODUCER_ID_MAPPING",
	InvalidTransactionTimeout: "INVALID_TRANSACTION_TIMEOUT",
	ConcurrentTransactions:    "CONCURRENT_TRANSACTIONS",
	ProducerFenced:            "PRODUCER_FENCED",
	TransactionalIDNotFound:   "TRANSACTIONAL_ID_NOT_FOUND",
	TransactionAbortable:      "TRANSACTION_ABORTABLE",
}

// String gives Kafka's name of the code.
func (c ErrorCode) String() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return "ERROR_" + strconv.Itoa(int(c))
}
