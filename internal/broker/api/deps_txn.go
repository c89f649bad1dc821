package api

import (
	"context"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
)

// Transactions is the transaction coordinator of this broker, implemented by
// internal/broker/coordinator/transactions.
//
// Every method but FindCoordinator and Enlist answers NOT_COORDINATOR for an id
// that this broker doesn't coordinate, and COORDINATOR_LOAD_IN_PROGRESS not yet. All
// of them end with ctx. An answer that tells of a change is given once the change
// is durable. The fields Request and FreshProducerID of the events are the
// coordinator's to fill in.
type Transactions interface {
	// FindCoordinator gives the broker that coordinates the transactional id. At the
	// first use it has __transaction_state made. COORDINATOR_NOT_AVAILABLE as long as
	// nobody leads the id's partition.
	FindCoordinator(ctx context.Context, id string) (types.BrokerID, error)
	Init(ctx context.Context, ev transaction.Init) transaction.InitResponse
	// Add answers an Add for an id that this broker coordinates; Enlist asks
	// whichever broker does.
	Add(ctx context.Context, ev transaction.Add) errcode.Code
	Enlist(ctx context.Context, ev transaction.Add) errcode.Code
	End(ctx context.Context, ev transaction.End) transaction.EndResponse
	Describe(ctx context.Context, id string) (transaction.Metadata, errcode.Code)
	// List gives the ids that this broker coordinates, as far as they match, in order.
	List(ctx context.Context, f transaction.Filter) ([]transaction.Listing, errcode.Code)
}

// TxnMarker is the decision of a transaction, for some partitions.
type TxnMarker struct {
	ProducerID       types.ProducerID
	Epoch            int16
	Commit           bool
	CoordinatorEpoch int32
	// Bumped: Epoch is above that of the transaction's batches (KIP-890).
	Bumped     bool
	Partitions []types.TopicPartition
}

// TxnGuard stands for one look of a partition's leader into a transaction (KIP-890):
// the first batch of a transaction is taken with it, unless a marker of its producer
// has come in between. The zero value is none.
type TxnGuard uint64
