package broker

import (
	"errors"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/probe"
	"tidemark/internal/wire"
)

var probeEpochTwice = probe.New("replica: a follower holds other records in an epoch of its leader")

// replicaLog is a log as core/replica sees it.
func replicaLog(v log.View) replica.Log {
	r := replica.Log{LogStart: v.LogStart, LogEnd: v.LogEnd, HighWatermark: v.HighWatermark}
	if v.History != nil {
		r.History = *v.History
	}
	return r
}

// Read implements api.Partition.
//
// An offset between the high watermark and the log end gives a consumer nothing
// rather than OFFSET_OUT_OF_RANGE: after a restart the mark may lie below what
// the consumer has seen, and a reset would be wrong (Kafka parity: UnifiedLog.read).
func (p *Partition) Read(from types.Offset, req api.ReadRequest, out *api.ReadResult) error {
	*out = api.ReadResult{Records: out.Records[:0], Aborted: out.Aborted[:0]}
	s := p.serving.Load()
	if err := p.mayRead(s, req); err != nil {
		return err
	}
	v := s.log.View()
	out.HighWatermark, out.LastStable, out.LogStart = v.HighWatermark, v.LastStable, v.LogStart
	r := replicaLog(v)
	a := replica.AnswerRequest(&r, s.epoch, replica.Request{Offset: from, LastEpoch: req.LastFetchedEpoch, LeaderEpoch: types.NoLeaderEpoch})
	switch a.Kind {
	case replica.AnswerDiverging:
		if s.err != nil {
			return wire.ErrOffsetOutOfRange // what a follower lacks proves nothing
		}
		if req.Replica != types.NoBroker {
			p.env.metrics.Replication.Diverged.Inc()
		}
		out.HasDiverging = true
		out.Diverging = api.EpochEnd{Epoch: a.Diverging.Epoch, End: a.Diverging.End}
		return nil
	case replica.AnswerOutOfRange:
		return wire.ErrOffsetOutOfRange
	}
	if d, differs := p.tailDiffers(s, &r, from, req); differs {
		out.HasDiverging = true
		out.Diverging = api.EpochEnd{Epoch: d.Epoch, End: d.End}
		return nil
	}
	to := v.HighWatermark
	switch {
	case req.Replica != types.NoBroker:
		to = v.LogEnd
		out.ReplicaEnd = v.LogEnd
		// Only now: a fetch answered with an error or a divergence proves nothing (KAFKA-13141).
		p.noteFetch(replica.FollowerFetch{
			Replica: req.Replica, BrokerEpoch: req.ReplicaEpoch, Offset: from, LogStart: req.ReplicaStart, LeaderEpoch: s.epoch, Now: p.env.ticks(),
		})
	case req.Committed:
		to = v.LastStable
	}
	if from >= to || req.MaxBytes <= 0 || req.Replica != types.NoBroker && p.holdsBack(req.Replica) {
		return nil
	}
	err := p.readRecords(s.log, from, to, req, out)
	if req.Replica != types.NoBroker {
		p.gave(out.Bytes)
	}
	return err
}

// tailDiffers compares the end of a follower's log with what this leader holds there (R26).
// What can't be read, or was compacted, proves nothing.
func (p *Partition) tailDiffers(s *serving, own *replica.Log, from types.Offset, req api.ReadRequest) (replica.EpochEnd, bool) {
	if req.Replica == types.NoBroker || !req.ReplicaTail.Known || s.readOnly || p.compacts.Load() || p.env.rules.TrustEpochs {
		return replica.EpochEnd{}, false
	}
	t, err := s.log.Tail(from)
	if err != nil {
		return replica.EpochEnd{}, false
	}
	d, differs := replica.TailDiverges(own, from, req.ReplicaTail, t)
	if differs {
		probeEpochTwice.Reached()
		p.env.metrics.Replication.Diverged.Inc()
		p.env.logger.Error("a leader epoch was given out twice: a follower holds other records in it, which it cuts; was the metadata put back?",
			"partition", p.tp.String(), "follower", req.Replica, "leaderEpoch", req.ReplicaTail.Epoch, "from", int64(d.End), "below", int64(from))
	}
	return d, differs
}

// mayRead judges a read before it looks at the log. Handlers hold a partition for
// as long as a fetch session lasts, so that the registration is asked for each time (R10).
func (p *Partition) mayRead(s *serving, req api.ReadRequest) error {
	err := s.err
	if req.AnyReplica {
		err = s.readErr
	}
	switch {
	case err != nil:
		return err
	case s.err != nil: // as a follower
		if p.env.lapsed != nil && p.env.lapsed() {
			return errLapsed
		}
	case p.env.ended != nil && p.env.ended(s.registration):
		return errLapsed
	}
	return s.fence(req.CurrentLeaderEpoch)
}

// Readers implements api.Partition.
func (p *Partition) Readers() []replica.Reader {
	if list := p.readers.Load(); list != nil {
		return *list
	}
	return nil
}

func (p *Partition) readRecords(l *log.Log, from, to types.Offset, req api.ReadRequest, out *api.ReadResult) error {
	chunk, err := l.Read(from, log.ReadLimit{To: to, MaxBytes: req.MaxBytes, MinOne: req.MinOne})
	if err != nil {
		return readFault(err)
	}
	for _, s := range chunk.Slices {
		out.Records = append(out.Records, wire.Piece{File: s.File, Off: s.Pos, Len: s.Len})
	}
	out.Bytes, out.Release = chunk.Bytes, chunk.Release
	if req.Committed && chunk.Bytes > 0 {
		for _, t := range l.AbortedTxns(from, to) {
			out.Aborted = append(out.Aborted, api.AbortedTxn{ProducerID: t.ProducerID, FirstOffset: t.FirstOffset})
		}
	}
	return nil
}

// readFault turns an error of a read into what a client gets. A read's I/O
// error doesn't take the log dir offline: the file may be the only bad one.
func readFault(err error) error {
	var corrupt *log.CorruptError
	switch {
	case errors.Is(err, log.ErrOutOfRange):
		return wire.ErrOffsetOutOfRange
	case errors.As(err, &corrupt):
		return wire.Errorf(wire.ErrCorruptMessage, "the log is damaged at this offset")
	case errors.Is(err, log.ErrClosed):
		return errNotLeader("the log was closed")
	default:
		return wire.Errorf(wire.ErrKafkaStorageError, "the log could not be read")
	}
}

// ListOffset implements api.Partition.
func (p *Partition) ListOffset(q api.OffsetQuery) (api.OffsetAnswer, error) {
	none := api.OffsetAnswer{Offset: types.NoOffset, Timestamp: types.NoTimestamp, LeaderEpoch: types.NoLeaderEpoch}
	s := p.serving.Load()
	if s.err != nil {
		return none, s.err
	}
	if err := s.fence(q.CurrentLeaderEpoch); err != nil {
		return none, err
	}
	v := s.log.View()
	end := v.HighWatermark
	switch {
	case q.Replica != types.NoBroker:
		end = v.LogEnd
	case q.Committed:
		end = v.LastStable
	}
	// A new leader may know less of the mark than what its predecessor showed (KIP-207).
	behind := q.Replica == types.NoBroker && v.HighWatermark < s.epochStart
	switch q.Timestamp {
	case api.TimestampLatest:
		if behind {
			return none, wire.ErrOffsetNotAvailable
		}
		return answerAt(v, end), nil
	case api.TimestampEarliest, api.TimestampEarliestLocal:
		return answerAt(v, v.LogStart), nil
	case api.TimestampLatestTiered, api.TimestampEarliestPending:
		return none, nil
	}
	var t log.TimestampOffset
	var ok bool
	var err error
	if q.Timestamp == api.TimestampMax {
		t, ok, err = s.log.MaxTimestamp()
	} else {
		t, ok, err = s.log.OffsetForTimestamp(q.Timestamp, end)
	}
	switch {
	case err != nil:
		return none, readFault(err)
	case ok && t.Offset >= end && behind:
		return none, wire.ErrOffsetNotAvailable
	case !ok || t.Offset >= end:
		return none, nil
	}
	return api.OffsetAnswer{Offset: t.Offset, Timestamp: t.Timestamp, LeaderEpoch: t.Epoch}, nil
}

// answerAt gives an offset with the epoch that the history has for it (R6): at
// the log end that of the last entry.
func answerAt(v log.View, o types.Offset) api.OffsetAnswer {
	a := api.OffsetAnswer{Offset: o, Timestamp: types.NoTimestamp, LeaderEpoch: types.NoLeaderEpoch}
	if v.History == nil {
		return a
	}
	if e, ok := v.History.EpochForOffset(o); ok {
		a.LeaderEpoch = e
	}
	return a
}

// EpochEnd implements api.Partition.
func (p *Partition) EpochEnd(current, asked types.LeaderEpoch) (types.LeaderEpoch, types.Offset, error) {
	s := p.serving.Load()
	if s.err != nil {
		return types.NoLeaderEpoch, types.NoOffset, s.err
	}
	if err := s.fence(current); err != nil {
		return types.NoLeaderEpoch, types.NoOffset, err
	}
	if asked < 0 || asked > s.epoch {
		return types.NoLeaderEpoch, types.NoOffset, nil
	}
	v := s.log.View()
	r := replicaLog(v)
	e, end := r.History.EndOffsetFor(asked, v.LogStart, v.LogEnd)
	return e, end, nil
}

// LastEpoch implements api.Partition.
func (p *Partition) LastEpoch(current types.LeaderEpoch) (types.LeaderEpoch, error) {
	s := p.serving.Load()
	if s.err != nil {
		return types.NoLeaderEpoch, s.err
	}
	if err := s.fence(current); err != nil {
		return types.NoLeaderEpoch, err
	}
	r := replicaLog(s.log.View())
	last, _ := r.LastEpoch()
	return last, nil
}
