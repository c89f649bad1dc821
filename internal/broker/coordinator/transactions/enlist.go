package transactions

import (
	"cmp"
	"context"
	"slices"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/mirror"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
)

// Enlist implements api.Transactions: it asks the coordinator of a transaction,
// wherever it is, to take partitions in, or whether they are in (KIP-890).
func (c *Coordinator) Enlist(ctx context.Context, add transaction.Add) errcode.Code {
	at, err := c.topic.Leader(ctx, add.ID)
	switch {
	case err != nil:
		return errcode.CoordinatorNotAvailable
	case at == c.o.NodeID:
		return c.Add(ctx, add)
	}
	code, err := c.o.Peers.AddPartitionsToTxn(ctx, at, add)
	if err != nil {
		c.o.Logger.Debug("a transaction's coordinator can't be asked", "broker", at, "transactionalId", add.ID, "err", err)
		return errcode.CoordinatorNotAvailable
	}
	return code
}

func sortListings(all []transaction.Listing) {
	slices.SortFunc(all, func(a, b transaction.Listing) int { return cmp.Compare(a.ID, b.ID) })
}

// leaderOf gives who leads a partition now. gone says that there is nothing to
// write a marker into: the topic was deleted, or the partition belongs to another
// cluster now, whose own coordinator ends what is open there. While the start of a
// mirror can be taken back the partition may be written again, with the
// transaction open in it: its marker waits for what becomes of the start.
func (c *Coordinator) leaderOf(tp types.TopicPartition) (leader types.BrokerID, gone bool) {
	image := c.o.Image()
	t, ok := image.TopicByName(tp.Topic)
	if !ok || tp.Partition >= t.Record.Partitions {
		_, unreadable := image.NameEntry(tp.Topic)
		return types.NoBroker, !unreadable
	}
	rec, _ := image.Partition(t.ID, tp.Partition)
	switch {
	case rec == nil:
		return types.NoBroker, false
	case rec.IsMirror():
		return types.NoBroker, isLost(rec)
	}
	return rec.Leader, false
}

// lost is the table's: the partition has become a mirror, and stays one.
func (c *Coordinator) lost(tp types.TopicPartition) bool {
	image := c.o.Image()
	t, ok := image.TopicByName(tp.Topic)
	if !ok {
		return false
	}
	rec, _ := image.Partition(t.ID, tp.Partition)
	return rec != nil && isLost(rec)
}

func isLost(rec *meta.PartitionRecord) bool { return rec.IsMirror() && !mirror.MayGoBack(rec) }
