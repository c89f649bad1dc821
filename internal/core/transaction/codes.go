package transaction

import "tidemark/internal/core/errcode"

// ErrorCode is one of Kafka's protocol error codes.
type ErrorCode = errcode.Code

// The codes that requests are answered with here.
const (
	None                      = errcode.None
	CoordinatorLoadInProgress = errcode.CoordinatorLoadInProgress
	CoordinatorNotAvailable   = errcode.CoordinatorNotAvailable
	NotCoordinator            = errcode.NotCoordinator
	InvalidRequest            = errcode.InvalidRequest
	InvalidTxnState           = errcode.InvalidTxnState
	InvalidProducerIDMapping  = errcode.InvalidProducerIDMapping
	InvalidTransactionTimeout = errcode.InvalidTransactionTimeout
	ConcurrentTransactions    = errcode.ConcurrentTransactions
	ProducerFenced            = errcode.ProducerFenced
	TransactionalIDNotFound   = errcode.TransactionalIDNotFound
	TransactionAbortable      = errcode.TransactionAbortable
)
