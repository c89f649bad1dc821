// Package replay writes records that a cut removed, and that a vault kept, into
// a topic again, as any Kafka client could.
//
// Each replayed record keeps its key, value, headers and timestamp and gets
// headers that name where it was: topic, partition, offset, leader epoch,
// timeline and vault entry. By these a replay recognises what an earlier one
// wrote, also one that was interrupted: repeating it writes nothing twice, as
// long as the topic still has what was written. Control records, records of aborted
// transactions and, unless asked for, records of transactions that the entry leaves open are left out.
//
// It doesn't read vault files and decides nothing about logs. Tested in test/e2e
// against running nodes.
package replay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/batch"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/vault"
)

// Names of the headers that a replayed record gets behind its own.
const (
	HeaderTopic     = "tidemark.origin.topic"
	HeaderPartition = "tidemark.origin.partition"
	HeaderOffset    = "tidemark.origin.offset"
	HeaderEpoch     = "tidemark.origin.epoch"
	HeaderTimeline  = "tidemark.origin.timeline"
	HeaderEntry     = "tidemark.origin.vault-entry"
)

// Request says what is replayed and where to.
type Request struct {
	// Entry is the vault's entry; Open gives its raw batches, one behind the other, each time anew.
	Entry vault.Entry
	Open  func(ctx context.Context) (io.ReadCloser, error)
	// Bootstrap are the target cluster's addresses.
	Bootstrap []string
	// Connect says what they want: TLS and a log-in; nil for neither.
	Connect []kgo.Opt
	// Topic and Partition are the target; an empty topic means the entry's own.
	Topic     string
	Partition int32
	// OpenTransactions: also records of transactions that the entry neither commits nor aborts.
	OpenTransactions bool
	// DryRun: only count.
	DryRun bool
	// Progress is called now and then with the records looked at; nil for none.
	Progress func(done int64)
}

// Result says what a replay did, or would do.
type Result struct {
	Entry     string `json:"entry"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	DryRun    bool   `json:"dryRun"`
	// Replayed were written now; Present were there from an earlier replay.
	Replayed int64 `json:"replayed"`
	Present  int64 `json:"present"`
	// Control, Aborted and Open records were left out.
	Control int64 `json:"control"`
	Aborted int64 `json:"aborted"`
	Open    int64 `json:"open"`
	// FirstOffset and LastOffset are where the replayed records went, -1 if none did.
	FirstOffset types.Offset `json:"firstOffset"`
	LastOffset  types.Offset `json:"lastOffset"`
}

// origin is a record's identity: no two records of a topic share it.
type origin struct {
	topic     string
	partition string
	offset    string
	epoch     string
	timeline  string
}

// Run replays an entry.
func Run(ctx context.Context, r Request) (Result, error) {
	if r.Topic == "" {
		r.Topic = r.Entry.Topic
	}
	out := Result{Entry: r.Entry.ID, Topic: r.Topic, Partition: r.Partition, DryRun: r.DryRun, FirstOffset: types.NoOffset, LastOffset: types.NoOffset}
	if r.Entry.DamagedBytes > 0 {
		return out, fmt.Errorf("entry %s holds %d bytes that are no whole batch: export it as segments and look at them", r.Entry.ID, r.Entry.DamagedBytes)
	}
	lists, err := lineage(&r.Entry)
	if err != nil {
		return out, err
	}
	fates, err := transactions(ctx, &r)
	if err != nil {
		return out, err
	}
	t, err := openTarget(ctx, &r)
	if err != nil {
		return out, err
	}
	defer t.client.Close()
	present, err := t.present(ctx, r.from())
	if err != nil {
		return out, fmt.Errorf("look for what was replayed before: %w", err)
	}
	w := &writer{target: t, out: &out}
	n := int64(0)
	err = walk(ctx, &r, func(h *batch.Header, raw []byte) error {
		fate := fates[h.BaseOffset]
		return eachRecord(raw, func(rec *batch.Record) error {
			if n++; r.Progress != nil && n%1000 == 0 {
				r.Progress(n)
			}
			if rec.Offset < r.Entry.From || rec.Offset >= r.Entry.To { // a segment's batches below the log start went with it
				return nil
			}
			if out.leftOut(h, fate, r.OpenTransactions) {
				return nil
			}
			id := origin{r.Entry.Topic, strconv.Itoa(int(r.Entry.Partition)), strconv.FormatInt(int64(rec.Offset), 10), strconv.Itoa(int(h.PartitionLeaderEpoch)), lists.nameOf(h.PartitionLeaderEpoch)}
			switch {
			case present[id]:
				out.Present++
			case r.DryRun:
				out.Replayed++
			default:
				return w.write(ctx, record(&r, id, rec))
			}
			return nil
		})
	})
	return out, errors.Join(err, w.flush(ctx))
}

// from is the first target offset that may hold something replayed: into the
// topic it came from that can only lie at the cut or above it.
func (r *Request) from() types.Offset {
	if r.Topic == r.Entry.Topic && r.Partition == r.Entry.Partition {
		return r.Entry.From
	}
	return 0
}

// leftOut counts a record that isn't to be replayed.
func (out *Result) leftOut(h *batch.Header, f fate, open bool) bool {
	switch {
	case h.IsControl():
		out.Control++
	case f == aborted:
		out.Aborted++
	case f == undecided && !open:
		out.Open++
	default:
		return false
	}
	return true
}

// names are the timelines of an entry's records.
type names struct{ list timeline.List }

func lineage(e *vault.Entry) (names, error) {
	text, ok := e.TimelinesBefore.(string)
	if !ok {
		return names{}, nil
	}
	c, err := timeline.ParseCheckpoint([]byte(text))
	if err != nil {
		return names{}, fmt.Errorf("timelines of entry %s: %w", e.ID, err)
	}
	return names{c.List}, nil
}

// nameOf is the timeline on which records of an epoch were written; empty if it isn't known.
func (n names) nameOf(epoch types.LeaderEpoch) string {
	name := ""
	for _, t := range n.list {
		if t.FirstEpoch <= epoch {
			name = t.ID
		}
	}
	return name
}

// record is what is written for a kept record.
func record(r *Request, id origin, rec *batch.Record) *kgo.Record {
	out := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: rec.Key, Value: rec.Value, Timestamp: timeOf(rec.Timestamp)}
	for _, h := range rec.Headers() {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	for _, h := range [][2]string{{HeaderTopic, id.topic}, {HeaderPartition, id.partition}, {HeaderOffset, id.offset}, {HeaderEpoch, id.epoch}, {HeaderTimeline, id.timeline}, {HeaderEntry, r.Entry.ID}} {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
	}
	return out
}

// originOf reads the headers that record writes; of a record that was replayed twice the last ones count.
func originOf(headers []kgo.RecordHeader) (origin, bool) {
	var id origin
	var found bool
	for _, h := range headers {
		switch h.Key {
		case HeaderTopic:
			id.topic = string(h.Value)
		case HeaderPartition:
			id.partition = string(h.Value)
		case HeaderOffset:
			id.offset, found = string(h.Value), true
		case HeaderEpoch:
			id.epoch = string(h.Value)
		case HeaderTimeline:
			id.timeline = string(h.Value)
		}
	}
	return id, found
}

// fate is what became of a transactional batch, as far as the entry says.
type fate int8

const (
	plain fate = iota // not transactional
	committed
	aborted
	undecided
)

// transactions walks the entry once and decides the fate of each transactional batch, by its base offset.
func transactions(ctx context.Context, r *Request) (map[types.Offset]fate, error) {
	fates := map[types.Offset]fate{}
	open := map[types.ProducerID][]types.Offset{}
	err := walk(ctx, r, func(h *batch.Header, raw []byte) error {
		switch {
		case !h.IsTransactional():
		case !h.IsControl():
			fates[h.BaseOffset] = undecided
			open[h.ProducerID] = append(open[h.ProducerID], h.BaseOffset)
		default:
			m, err := batch.ParseMarker(raw)
			if err != nil {
				return nil // a control record that is no marker ends nothing
			}
			end := aborted
			if m.Kind == batch.Commit {
				end = committed
			}
			for _, base := range open[h.ProducerID] {
				fates[base] = end
			}
			delete(open, h.ProducerID)
		}
		return nil
	})
	return fates, err
}

// walk visits the entry's batches in order; raw holds until the next one.
func walk(ctx context.Context, r *Request, visit func(h *batch.Header, raw []byte) error) error {
	body, err := r.Open(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	in := bufio.NewReaderSize(body, 1<<20)
	var raw []byte
	for {
		head, err := in.Peek(batch.HeaderSize)
		if errors.Is(err, io.EOF) && len(head) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("entry %s: %w", r.Entry.ID, err)
		}
		h, err := batch.ParseHeader(head)
		if err != nil {
			return fmt.Errorf("entry %s: %w", r.Entry.ID, err)
		}
		if cap(raw) < h.Size() {
			raw = make([]byte, h.Size())
		}
		raw = raw[:h.Size()]
		if _, err := io.ReadFull(in, raw); err != nil {
			return fmt.Errorf("entry %s: %w", r.Entry.ID, err)
		}
		if err := batch.VerifyCRC(raw); err != nil {
			return fmt.Errorf("entry %s, batch at offset %d: %w", r.Entry.ID, h.BaseOffset, err)
		}
		if err := visit(&h, raw); err != nil {
			return err
		}
	}
}

// eachRecord visits the records of a batch; their bytes are their own.
func eachRecord(raw []byte, visit func(*batch.Record) error) error {
	own := append([]byte(nil), raw...) // what is produced is sent after the next batch was read
	it := batch.Records(own, nil)
	for it.Next() {
		if err := visit(&it.Record); err != nil {
			return err
		}
	}
	return it.Err()
}
