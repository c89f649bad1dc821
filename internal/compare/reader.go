package compare

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// fetchBytes is how much one fetch asks for.
const fetchBytes = 4 << 20

// emptyFetchesMax bounds how often a side may answer with nothing below its own end before that is an error.
const emptyFetchesMax = 20

// errStuck means that a side served nothing at an offset below the end that it had named itself.
var errStuck = errors.New("serves nothing below its own end")

// reader gives one partition's raw batches in order.
type reader struct {
	side  Side
	place place
	at    types.Offset
	buf   []byte
}

func newReader(s Side, p place, from types.Offset) *reader {
	return &reader{side: s, place: p, at: from}
}

// next gives the next batch that begins below to, or nil when there is none.
// The bytes stay valid until the reader's next fetch.
func (r *reader) next(ctx context.Context, to types.Offset) ([]byte, error) {
	for empty := 0; r.at < to; {
		raw, h, err := r.buffered()
		if err != nil {
			return nil, err
		}
		if raw != nil {
			r.at = h.NextOffset()
			return raw, nil
		}
		if empty++; empty > emptyFetchesMax {
			return nil, fmt.Errorf("%s at offset %d of %d: %w", r.side.Name, r.at, to, errStuck)
		}
		if err := r.fetch(ctx); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// buffered takes the next whole batch from what was fetched; batches that end at or below the reader's place are passed over.
func (r *reader) buffered() ([]byte, batch.Header, error) {
	for len(r.buf) >= batch.HeaderSize {
		h, err := batch.ParseHeader(r.buf)
		if err != nil {
			return nil, h, fmt.Errorf("%s at offset %d: %w", r.side.Name, r.at, err)
		}
		if h.Size() > len(r.buf) {
			break
		}
		raw := r.buf[:h.Size()]
		r.buf = r.buf[h.Size():]
		if h.LastOffset() >= r.at {
			return raw, h, batch.VerifyCRC(raw)
		}
	}
	r.buf = nil
	return nil, batch.Header{}, nil
}

func (r *reader) fetch(ctx context.Context) error {
	return withLeader(ctx, r.side, &r.place, func(leader int32) error { return r.fetchFrom(ctx, leader) })
}

func (r *reader) fetchFrom(ctx context.Context, leader int32) error {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, 500, 1, fetchBytes, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.place.tp.Topic, r.place.id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = r.place.tp.Partition, int64(r.at), fetchBytes
	p.CurrentLeaderEpoch, p.LastFetchedEpoch = -1, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	raw, err := r.side.Client.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return fmt.Errorf("fetch from %s: %w", r.side.Name, err)
	}
	resp := raw.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("fetch from %s: %w", r.side.Name, err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return fmt.Errorf("fetch from %s: the answer lacks the partition", r.side.Name)
	}
	rp := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
		return fmt.Errorf("fetch from %s at %d: %w", r.side.Name, r.at, err)
	}
	r.buf = rp.RecordBatches
	return nil
}
