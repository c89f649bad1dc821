package api

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/clock"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// The first Produce versions of clients that know TRANSACTION_ABORTABLE, and of those
// that leave it to the broker to add partitions to their transactions (KIP-890).
const (
	produceKnowsAbortable = 11
	produceAddsPartitions = 12
)

// A producer's next transaction may begin while the markers of its last one are on
// their way: a broker asks again for so long before the producer has to.
const (
	enlistBackoff  = 10 * time.Millisecond
	enlistPatience = time.Second
)

// whileConcurrent asks until the answer is another one than CONCURRENT_TRANSACTIONS, or patience ends.
func (c *Call) whileConcurrent(ask func() errcode.Code) wire.ErrCode {
	start := clock.Now(c.Ctx)
	for {
		code := ask()
		if code != errcode.ConcurrentTransactions || clock.Since(c.Ctx, start) >= enlistPatience || clock.Sleep(c.Ctx, enlistBackoff) != nil {
			return code
		}
	}
}

// enlist sees to it that a batch's transaction is open and holds the partition, so
// that a late batch of a transaction that has ended can't open one that nobody ends
// (KIP-890). While the transaction is open in the log, nobody is asked.
func (c *Call) enlist(in *kmsg.ProduceRequest, j *produceJob, h *batch.Header, p Partition) error {
	add := transaction.Add{
		ID: strings.Clone(*in.TransactionID), ProducerID: h.ProducerID, Epoch: h.ProducerEpoch,
		Partitions: []types.TopicPartition{p.Name()}, VerifyOnly: in.Version < produceAddsPartitions,
	}
	var open bool
	var err error
	code := c.whileConcurrent(func() errcode.Code {
		// Each time anew: the marker that was waited for has ended the guard before.
		if j.guard, open, err = p.Guard(c.Ctx, h.ProducerID, h.ProducerEpoch); err != nil || open {
			return errcode.None
		}
		return c.Transactions.Enlist(c.Ctx, add)
	})
	switch {
	case err != nil:
		return err
	case code == wire.None:
		return nil
	}
	switch code {
	case wire.ErrConcurrentTransactions, wire.ErrCoordinatorLoadInProgress, wire.ErrCoordinatorNotAvailable, wire.ErrNotCoordinator:
		// What any producer sends again (Kafka parity).
		return wire.Errorf(wire.ErrNotEnoughReplicas, "The transaction's coordinator can't be asked about %s now: %s.", p.Name(), code)
	case wire.ErrTransactionAbortable:
		if in.Version < produceKnowsAbortable {
			code = wire.ErrInvalidTxnState
		}
		return wire.Errorf(code, "Partition %s wasn't added to the transaction.", p.Name())
	case wire.ErrProducerFenced:
		return wire.ErrInvalidProducerEpoch // Kafka parity: of Produce
	}
	return code
}
