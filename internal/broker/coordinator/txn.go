package coordinator

import (
	"context"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// PartitionOf implements api.Groups.
func (c *Coordinator) PartitionOf(ctx context.Context, groupID string) (types.TopicPartition, error) {
	if _, err := c.topic.Ensure(ctx); err != nil {
		return types.TopicPartition{}, err
	}
	n, ok := c.topic.Partition(groupID)
	if !ok {
		return types.TopicPartition{}, wire.ErrCoordinatorNotAvailable
	}
	return types.TopicPartition{Topic: OffsetsTopic, Partition: n}, nil
}

// GuardTxn implements api.Groups.
func (c *Coordinator) GuardTxn(ctx context.Context, groupID string, id types.ProducerID, epoch int16) (api.TxnGuard, errcode.Code) {
	n, ok := c.topic.Partition(groupID)
	t, exists := c.o.Image().TopicByName(OffsetsTopic)
	if !ok || !exists {
		return 0, errcode.CoordinatorNotAvailable
	}
	p, err := c.o.Partitions.Get(t.ID, n)
	if err != nil {
		return 0, errcode.NotCoordinator
	}
	guard, _, err := p.Guard(ctx, id, epoch)
	return guard, codeOfAppend(err)
}

// CommitTxn implements api.Groups.
func (c *Coordinator) CommitTxn(ctx context.Context, ev group.TxnCommit) group.CommitResponse {
	if c.o.Rules.OffsetsAtOnce {
		return c.Commit(ctx, ev.Commit)
	}
	return c.change(ctx, ev.Group, func(id group.RequestID) group.Event {
		ev.Request = id
		return ev
	})
}

// EndTxn implements api.Groups. It waits for a loop that is loading.
func (c *Coordinator) EndTxn(ctx context.Context, partition int32, m api.TxnMarker) wire.ErrCode {
	r, code := submit[group.CodeResponse](ctx, c.Of(partition), true, func(id group.RequestID) group.Event {
		return group.EndTxn{Request: id, ProducerID: m.ProducerID, ProducerEpoch: m.Epoch, CoordinatorEpoch: m.CoordinatorEpoch, Commit: m.Commit, Bumped: m.Bumped}
	})
	return oneOf(code, r.Code)
}
