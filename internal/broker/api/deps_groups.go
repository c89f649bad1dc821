package api

import (
	"context"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// Groups is the group coordinator of this broker, implemented by
// internal/broker/coordinator.
//
// Every method answers with Kafka's code for a group that this broker doesn't
// coordinate (NOT_COORDINATOR) or not yet (COORDINATOR_LOAD_IN_PROGRESS). Join
// and Sync block until the group's rebalance answers them; all of them end with
// ctx. An answer that tells of a change is given once the change is durable.
// Requests may point into the frame's buffer: what is kept is copied. The
// fields Request and FreshMemberID of the events are the coordinator's to fill in.
type Groups interface {
	// Drain answers the joins and syncs that wait, and those that still come,
	// with NOT_COORDINATOR: the node shuts down. All else goes on.
	Drain()

	// FindCoordinator gives the broker that coordinates the group. At the first
	// use it has __consumer_offsets made. COORDINATOR_NOT_AVAILABLE as long as
	// nobody leads the group's partition.
	FindCoordinator(ctx context.Context, groupID string) (types.BrokerID, error)

	Join(ctx context.Context, ev group.Join) group.JoinResponse
	Sync(ctx context.Context, ev group.Sync) group.SyncResponse
	Heartbeat(ctx context.Context, ev group.Heartbeat) errcode.Code
	Leave(ctx context.Context, ev group.Leave) group.LeaveResponse
	Commit(ctx context.Context, ev group.Commit) group.CommitResponse

	// PartitionOf gives the partition of __consumer_offsets that keeps the group, made
	// at its first use.
	PartitionOf(ctx context.Context, groupID string) (types.TopicPartition, error)
	// GuardTxn looks into a transaction that is about to have offsets of the group, before its
	// coordinator is asked: CommitTxn takes the first of them with the guard (KIP-890). None
	// where the transaction has some already.
	GuardTxn(ctx context.Context, groupID string, id types.ProducerID, epoch int16) (TxnGuard, errcode.Code)
	// CommitTxn writes offsets that wait for a transaction's marker. COORDINATOR_LOAD_IN_PROGRESS
	// if the transaction may have ended since it was looked into: it must be looked into again.
	CommitTxn(ctx context.Context, ev group.TxnCommit) group.CommitResponse
	// EndTxn writes a transaction's marker into a partition of __consumer_offsets, and
	// with it decides what the transaction has committed.
	EndTxn(ctx context.Context, partition int32, m TxnMarker) wire.ErrCode

	// Offset gives the committed offsets of partitions, in their order; an
	// entry of types.NoOffset where there is none.
	Offset(ctx context.Context, groupID string, tps []types.TopicPartition) ([]group.OffsetEntry, errcode.Code)
	// Offsets gives all committed offsets of a group, ordered by topic and partition.
	Offsets(ctx context.Context, groupID string) ([]group.OffsetEntry, errcode.Code)

	// List gives the groups that this broker coordinates, as far as they match.
	List(ctx context.Context, states, groupTypes []string) ([]group.Listing, errcode.Code)
	Describe(ctx context.Context, groupID string) (group.Description, errcode.Code)

	// ConsumerHeartbeat takes a heartbeat of a member of the new protocol (KIP-848).
	ConsumerHeartbeat(ctx context.Context, ev group.ConsumerHeartbeat) group.ConsumerHeartbeatResponse
	// DescribeConsumer gives a group of the new protocol.
	DescribeConsumer(ctx context.Context, groupID string) (group.ConsumerDescription, errcode.Code)
	// CheckFetch decides whether a member that tells its epoch may be told committed offsets.
	CheckFetch(ctx context.Context, groupID, memberID string, epoch int32) errcode.Code

	DeleteGroup(ctx context.Context, groupID string) errcode.Code
	DeleteOffsets(ctx context.Context, ev group.DeleteOffsets) group.CommitResponse
}
