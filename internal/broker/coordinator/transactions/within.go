package transactions

import (
	"context"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
)

// Within is what one partition of the state topic says of the transactions that touch
// partitions which are closed for a switchover.
type Within struct {
	Partition int32
	transaction.WithinResponse
}

// EndWithin has the transactions end that touch any of the partitions (docs/adr/0028), of
// those that are coordinated here. A partition of the state topic that isn't
// loaded yet, or is lost meanwhile, is missing in the answer.
func (c *Coordinator) EndWithin(ctx context.Context, tps []types.TopicPartition) []Within {
	tps = transaction.SortedPartitions(tps)
	var all []Within
	for _, l := range c.All() {
		r, code := submit[transaction.WithinResponse](ctx, l, func(id transaction.RequestID) transaction.Event {
			return transaction.EndWithin{Request: id, Partitions: tps}
		})
		if code == errcode.None {
			all = append(all, Within{Partition: l.Partition, WithinResponse: r})
		}
	}
	return all
}
