package api

import (
	"context"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// MarkerTimeout bounds the wait until a marker is replicated; it is in the log then,
// and a second one does no harm.
const MarkerTimeout = 10 * time.Second

// offsetsTopic is where consumer groups are kept: a marker there is the group
// coordinator's to write, in turn with its other records.
const offsetsTopic = "__consumer_offsets"

// MarkerWriter writes markers into partitions that this broker leads.
type MarkerWriter struct {
	Image      func() *meta.Image
	Partitions Partitions
	Groups     Groups
	Now        func() types.Millis
}

// Write writes one marker, and waits until it is replicated. Codes: those of
// Partition.Append; INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED if
// later ones are there already.
func (w MarkerWriter) Write(ctx context.Context, m TxnMarker, tp types.TopicPartition) wire.ErrCode {
	t, ok := w.Image().TopicByName(tp.Topic)
	if !ok {
		return wire.ErrUnknownTopicOrPartition
	}
	if tp.Topic == offsetsTopic {
		return w.Groups.EndTxn(ctx, tp.Partition, m)
	}
	p, err := w.Partitions.Get(t.Record.ID, tp.Partition)
	if err != nil {
		return CodeOf(err)
	}
	_, err = p.Append(ctx, m.Batch(w.Now()), AppendRequest{Acks: -1, Timeout: MarkerTimeout, LeaderEpoch: types.NoLeaderEpoch, Origin: OriginCoordinator, BumpedMarker: m.Bumped})
	return CodeOf(err)
}

// Batch is the marker as a log keeps it.
func (m TxnMarker) Batch(now types.Millis) []byte {
	kind := batch.Abort
	if m.Commit {
		kind = batch.Commit
	}
	return batch.NewMarker(kind, m.ProducerID, m.Epoch, m.CoordinatorEpoch, now)
}
