package coordinator

import (
	"context"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// encoded is one append, ready to be written.
type encoded struct {
	token   group.Token
	records []statelog.Record
	size    int // bytes of keys and values
	// writer and marker are as in group.Append: such an append is a batch of its own.
	writer *group.Writer
	marker *group.Marker
	guard  api.TxnGuard
	time   types.Millis
}

// completion is the outcome of one append.
type completion struct {
	token group.Token
	code  errcode.Code
}

// encode gives an append's records, all with time now.
func encode(a group.Append, now types.Millis) encoded {
	e := encoded{token: a.Token, time: now, records: make([]statelog.Record, 0, len(a.Records)), writer: a.Writer, marker: a.Marker, guard: api.TxnGuard(a.Guard)}
	for _, r := range a.Records {
		key, value := encodeRecord(r)
		e.records = append(e.records, statelog.Record{Time: now, Key: key, Value: value})
		e.size += len(key) + len(value) + recordOverhead
	}
	return e
}

// isAlone reports whether nothing else may share the append's batch.
func (e *encoded) isAlone() bool { return e.writer != nil || e.marker != nil }

// recordOverhead is about what a record takes beside its key and value, in bytes.
const recordOverhead = 16

// writeAll appends in order; small appends that follow each other go as one batch.
func writeAll(ctx context.Context, log api.Partition, epoch types.LeaderEpoch, o Options, appends []encoded) []completion {
	all := make([]completion, 0, len(appends))
	for len(appends) > 0 {
		n, size := 1, appends[0].size
		for n < len(appends) && size+appends[n].size <= statelog.MergedBytes && !appends[0].isAlone() && !appends[n].isAlone() {
			size += appends[n].size
			n++
		}
		code := codeOfAppend(writeOne(ctx, log, epoch, o, appends[:n]))
		if code != errcode.None {
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
	w := statelog.WriteOptions{Epoch: epoch, Acks: -1, Timeout: o.Config.CommitTimeout, Codec: batch.Codec(o.Config.Compression)}
	if o.Rules.AckUnreplicated {
		w.Acks = 1
	}
	first := &appends[0]
	if m := first.marker; m != nil {
		marker := api.TxnMarker{ProducerID: m.ProducerID, Epoch: m.Epoch, Commit: m.Commit, CoordinatorEpoch: m.CoordinatorEpoch}
		w.BumpedMarker = m.Bumped
		return statelog.WriteBatch(ctx, log, marker.Batch(first.time), w)
	}
	if first.writer != nil {
		// Offsets of a transaction have no sequence: nobody sends them twice but its producer.
		w.Producer, w.Guard = &batch.Producer{ID: first.writer.ProducerID, Epoch: first.writer.Epoch, BaseSequence: -1}, first.guard
	}
	var records []statelog.Record
	for i := range appends {
		records = append(records, appends[i].records...)
	}
	return statelog.Write(ctx, log, records, w)
}

// codeOfAppend turns the log's refusal into what group members are told, as
// Kafka's coordinator does.
func codeOfAppend(err error) errcode.Code {
	switch api.CodeOf(err) {
	case wire.None:
		return errcode.None
	case wire.ErrNotLeaderOrFollower, wire.ErrKafkaStorageError, wire.ErrFencedLeaderEpoch, wire.ErrUnknownLeaderEpoch:
		return errcode.NotCoordinator
	case wire.ErrInvalidProducerEpoch, wire.ErrTransactionCoordinatorFenced:
		return api.CodeOf(err) // a later transaction's, or a later coordinator's, is there already
	case wire.ErrInvalidTxnState:
		// Its guard is over: the transaction has ended, or only the leadership in which it was
		// looked into. Who asks again is told which; INVALID_TXN_STATE would end a producer.
		return errcode.CoordinatorLoadInProgress
	case wire.ErrMessageTooLarge, wire.ErrRecordListTooLarge, wire.ErrInvalidFetchSize:
		return errcode.InvalidCommitOffsetSize
	}
	return errcode.CoordinatorNotAvailable
}
