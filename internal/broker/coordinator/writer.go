package coordinator

import (
	"context"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// mergedBatchBytes bounds how many bytes of small appends go into one batch;
// an append of its own that is larger still goes alone.
const mergedBatchBytes = 256 << 10

// encoded is one append, ready to be written.
type encoded struct {
	token   group.Token
	time    types.Millis
	records []keyValue
	size    int // bytes of keys and values
}

type keyValue struct{ key, value []byte }

// completion is the outcome of one append.
type completion struct {
	token group.Token
	code  group.ErrorCode
}

// encode gives an append's records, all with time now.
func encode(a group.Append, now types.Millis) encoded {
	e := encoded{token: a.Token, time: now, records: make([]keyValue, 0, len(a.Records))}
	for _, r := range a.Records {
		key, value := encodeRecord(r)
		e.records = append(e.records, keyValue{key, value})
		e.size += len(key) + len(value) + recordOverhead
	}
	return e
}

// recordOverhead is about what a record takes beside its key and value, in bytes.
const recordOverhead = 16

// writeAll appends in order; small appends that follow each other go as one batch.
func writeAll(ctx context.Context, log api.Partition, epoch types.LeaderEpoch, o Options, appends []encoded) []completion {
	all := make([]completion, 0, len(appends))
	for len(appends) > 0 {
		n, size := 1, appends[0].size
		for n < len(appends) && size+appends[n].size <= mergedBatchBytes {
			size += appends[n].size
			n++
		}
		code := codeOfAppend(writeOne(ctx, log, epoch, o, appends[:n]))
		if code != group.None {
			probeWriteFailed.Reached()
		}
		for _, a := range appends[:n] {
			all = append(all, completion{token: a.token, code: code})
		}
		appends = appends[n:]
	}
	return all
}

func writeOne(ctx context.Context, log api.Partition, epoch types.LeaderEpoch, o Options, appends []encoded) error {
	b := batch.NewBuilder(batch.BuilderOptions{Codec: batch.Codec(o.Config.Compression), LeaderEpoch: types.NoLeaderEpoch})
	for _, a := range appends {
		for _, r := range a.records {
			b.Append(a.time, r.key, r.value)
		}
	}
	raw, err := b.Build()
	if err != nil {
		return err
	}
	acks := int16(-1)
	if o.Rules.AckUnreplicated {
		acks = 1
	}
	_, err = log.Append(ctx, raw, api.AppendRequest{
		Acks: acks, Timeout: o.Config.CommitTimeout, LeaderEpoch: epoch, Origin: api.OriginCoordinator,
	})
	return err
}

// codeOfAppend turns the log's refusal into what group members are told, as
// Kafka's coordinator does.
func codeOfAppend(err error) group.ErrorCode {
	switch api.CodeOf(err) {
	case wire.None:
		return group.None
	case wire.ErrNotLeaderOrFollower, wire.ErrKafkaStorageError, wire.ErrFencedLeaderEpoch, wire.ErrUnknownLeaderEpoch:
		return group.NotCoordinator
	case wire.ErrMessageTooLarge, wire.ErrRecordListTooLarge, wire.ErrInvalidFetchSize:
		return group.InvalidCommitOffsetSize
	}
	return group.CoordinatorNotAvailable
}
