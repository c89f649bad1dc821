package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"tidemark/internal/batch"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/source"
)

// vouch asks whether the source's history reaches down to an epoch (R28). A
// source that can't say doesn't vouch: the vault then keeps a little more.
func (r *run) vouch(c *copier, e core.AskVouch) {
	yes, err := vouched(r.ctx, r.client, c.tp, c.leader.Load(), e.Epoch, e.Offset)
	if err != nil && source.IsRetriable(err) {
		c.step(failure(e.Ticket, err), nil)
		return
	}
	c.step(core.Vouched{Ticket: e.Ticket, Yes: yes && err == nil}, nil)
}

// probe compares the last own batch below an offset with the source's (R26).
func (r *run) probe(c *copier, e core.Probe) {
	result, err := r.compareLast(r.ctx, c, e)
	if err != nil {
		c.step(failure(e.Ticket, err), nil)
		return
	}
	result.Ticket = e.Ticket
	c.step(result, nil)
}

func (r *run) compareLast(ctx context.Context, c *copier, e core.Probe) (core.Probed, error) {
	own, h, ok, err := lastBatchBelow(c.part.Log(), e.Below)
	if err != nil || !ok {
		return core.Probed{Result: core.ProbeMissing}, err
	}
	leader := c.leader.Load()
	if leader == nil || r.client == nil {
		return core.Probed{}, &source.Error{Kind: source.ErrUnreachable, Sentence: "the source's leader is not known"}
	}
	p, a, err := r.client.FetchAt(ctx, leader.broker, source.FetchPartition{
		TopicPartition: c.tp, TopicID: leader.topic, Offset: h.BaseOffset, CurrentEpoch: e.LeaderEpoch,
		LastEpoch: types.NoLeaderEpoch, MaxBytes: int32(len(own)) + probeBytesOver,
	})
	if err != nil {
		return core.Probed{}, err
	}
	defer a.Release()
	out := core.Probed{Base: h.BaseOffset, Last: h.LastOffset()}
	switch {
	case p.Err != nil:
		return core.Probed{}, p.Err
	case p.Code == source.CodeOffsetOutOfRange:
		out.Result = core.ProbeMissing // below the source's log start: nothing to compare
		return out, nil
	case p.Code != 0:
		return core.Probed{}, fmt.Errorf("the source answers %s", p.Code)
	}
	compacted := r.isCompacted(c)
	out.Result, err = compareWith(own, h, p.Records, compacted)
	return out, err
}

// probeBytesOver is asked for beyond the own batch's size: a compacted source may have other bounds.
const probeBytesOver = 64 << 10

// isCompacted reports whether the topic here has compaction.
func (r *run) isCompacted(c *copier) bool {
	t, ok := r.m.o.Node.Image().Topic(c.id.Topic)
	return ok && r.m.o.Config.Topic(t.Record.Configs).Compact
}

// lastBatchBelow reads the last own batch that lies wholly below an offset, and
// not below the log start; ok is false if there is none.
func lastBatchBelow(l *log.Log, below types.Offset) (raw []byte, h batch.Header, ok bool, err error) {
	if l == nil {
		return nil, h, false, errLogNotOpen
	}
	for at := below - 1; at >= l.View().LogStart; at = h.BaseOffset - 1 {
		raw, h, err = batchAt(l, at)
		if errors.Is(err, log.ErrOutOfRange) || (err == nil && raw == nil) {
			return nil, h, false, nil
		}
		if err != nil {
			return nil, h, false, err
		}
		if h.LastOffset() < below {
			return raw, h, true, nil
		}
	}
	return nil, h, false, nil
}

// errLogNotOpen: a partition closes, or its disk is offline, while it is looked at.
var errLogNotOpen = errors.New("the log is not open")

// batchAt reads the batch that holds an offset, or, in a gap left by compaction, the last one before it.
func batchAt(l *log.Log, at types.Offset) ([]byte, batch.Header, error) {
	if l == nil {
		return nil, batch.Header{}, errLogNotOpen
	}
	for from := at; ; {
		raw, err := readLog(l, from, l.View().LogEnd, 1)
		if err != nil {
			return nil, batch.Header{}, err
		}
		if raw != nil {
			h, err := batch.ParseHeader(raw)
			if err != nil {
				return nil, h, err
			}
			if h.BaseOffset <= at {
				return raw[:h.Size()], h, nil
			}
		}
		if from <= l.View().LogStart {
			return nil, batch.Header{}, nil
		}
		from = max(l.View().LogStart, from-max(1, (at-from)*2))
	}
}

// readLog copies whole batches of the own log from an offset on: one at least,
// and as many as fit into bytesMax.
func readLog(l *log.Log, from, to types.Offset, bytesMax int) ([]byte, error) {
	if l == nil {
		return nil, errLogNotOpen
	}
	chunk, err := l.Read(from, log.ReadLimit{To: to, MaxBytes: bytesMax, MinOne: true})
	if err != nil {
		return nil, err
	}
	defer chunk.Release()
	var out []byte
	for _, s := range chunk.Slices {
		at := len(out)
		out = append(out, make([]byte, s.Len)...)
		if _, err := s.File.ReadAt(out[at:], s.Pos); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// compareWith compares an own batch with what the source has from its base offset on.
func compareWith(own []byte, h batch.Header, theirs []byte, compacted bool) (core.ProbeResult, error) {
	if compacted {
		return compareRecords(own, h, theirs)
	}
	if len(theirs) < batch.HeaderSize {
		return core.ProbeMissing, nil
	}
	t, err := batch.ParseHeader(theirs)
	if err != nil {
		return 0, &source.Error{Kind: source.ErrProtocol, Sentence: "the batch to compare can't be read", Cause: err}
	}
	switch {
	case t.BaseOffset > h.LastOffset():
		return core.ProbeMissing, nil
	case t.BaseOffset != h.BaseOffset, t.LastOffset() != h.LastOffset(), t.Size() != h.Size(), t.CRC != h.CRC, t.PartitionLeaderEpoch != h.PartitionLeaderEpoch:
		return core.ProbeDifferent, nil
	case len(theirs) >= t.Size() && !bytes.Equal(own, theirs[:t.Size()]):
		return core.ProbeDifferent, nil
	}
	return core.ProbeSame, nil
}
