package statelog

import (
	"context"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/core/types"
)

// MergedBytes bounds how many bytes of small records go into one batch; what is
// larger by itself still goes alone.
const MergedBytes = 256 << 10

// Record is one entry of a coordinator's log; a nil Value is a tombstone.
type Record struct {
	Time       types.Millis
	Key, Value []byte
}

// WriteOptions say how a batch is written.
type WriteOptions struct {
	// Epoch is the leader epoch that the loop was elected in: it fences the write.
	Epoch   types.LeaderEpoch
	Acks    int16
	Timeout time.Duration
	Codec   batch.Codec
	// Producer, if not nil, makes the batch a part of its transaction.
	Producer *batch.Producer
	// Guard and BumpedMarker are api.AppendRequest's.
	Guard        api.TxnGuard
	BumpedMarker bool
}

// Write appends the records as one batch and waits for its acknowledgement. The
// errors are api.Partition.Append's.
func Write(ctx context.Context, log api.Partition, records []Record, o WriteOptions) error {
	b := batch.NewBuilder(batch.BuilderOptions{Codec: o.Codec, LeaderEpoch: types.NoLeaderEpoch, Producer: o.Producer, Transactional: o.Producer != nil})
	for _, r := range records {
		b.Append(r.Time, r.Key, r.Value)
	}
	raw, err := b.Build()
	if err != nil {
		return err
	}
	return WriteBatch(ctx, log, raw, o)
}

// WriteBatch is Write for a batch that is made already: a marker.
func WriteBatch(ctx context.Context, log api.Partition, raw []byte, o WriteOptions) error {
	_, err := log.Append(ctx, raw, api.AppendRequest{Acks: o.Acks, Timeout: o.Timeout, LeaderEpoch: o.Epoch, Origin: api.OriginCoordinator, Guard: o.Guard, BumpedMarker: o.BumpedMarker})
	return err
}
