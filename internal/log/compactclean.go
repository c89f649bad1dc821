package log

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"tidemark/internal/batch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

func sortByFirst(a []txn.Aborted) {
	slices.SortFunc(a, func(a, b txn.Aborted) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
}

// cleaner writes what survives of old segments into new ones. One walk over all
// groups: transactions may span them.
type cleaner struct {
	c       *Compaction
	keys    *keyMap
	txns    *txnFilter
	scratch batch.Scratch
	builder *batch.Builder

	s   *segment // being written
	f   vfs.File
	out []byte // not written yet
	at  int64  // bytes written of s
}

// cleanBuffer is how many bytes a cleaner collects before it writes them.
const cleanBuffer = 256 << 10

func newCleaner(c *Compaction, keys *keyMap) *cleaner {
	cl := &cleaner{c: c, keys: keys, txns: newTxnFilter(c.aborted), builder: batch.NewBuilder(batch.BuilderOptions{})}
	cl.scratch.MaxDecoded = c.cfg.MaxDecompressedBatchLen
	return cl
}

// rewrite makes one cleaned segment of a group of old ones and syncs it. The
// segment comes back also with an error, so that its files can be removed.
func (cl *cleaner) rewrite(ctx context.Context, old []pin) (*segment, error) {
	c := cl.c
	s := newSegment(c.l.fs, c.l.dir, old[0].seg.base)
	s.temp = cleanedSuffix
	f, err := c.l.fs.Create(s.path(logSuffix))
	if err != nil {
		return s, err
	}
	s.data.set(f)
	cl.s, cl.f, cl.out, cl.at = s, f, cl.out[:0], 0
	for i := range old {
		c.counters.BytesBefore += old[i].size
		c.counters.SegmentsBefore++
		if err := old[i].eachRaw(ctx, old[i].seg.base, cl.batch); err != nil {
			return s, err
		}
	}
	if err := cl.flush(); err != nil {
		return s, err
	}
	c.counters.BytesAfter += s.size
	c.counters.SegmentsAfter++
	s.next = old[len(old)-1].next // offsets stay taken, also those without a record
	return s, cl.seal()
}

// seal writes and syncs the cleaned segment's indexes and opens what readers
// will use, while the names are still its own.
func (cl *cleaner) seal() error {
	s := cl.s
	if err := cl.f.Sync(); err != nil {
		return err
	}
	s.stamp()
	if err := s.writeIndexes(); err != nil {
		return err
	}
	if len(s.aborted) > 0 {
		if err := writeFile(s.fs, s.path(txnSuffix), encodeAborted(nil, s.aborted)); err != nil {
			return err
		}
	}
	for _, suffix := range segmentSuffixes[:3] {
		if err := ignoreAbsent(syncFile(s.fs, s.path(suffix))); err != nil {
			return err
		}
	}
	s.seal()
	s.unsynced = false
	if _, err := s.index.get(s, indexSuffix); err != nil {
		return err
	}
	_, err := s.times.get(s, timeSuffix)
	s.temp = ""
	return err
}

// verdict is what becomes of one batch.
type verdict struct {
	dropRecords bool // none of its records survives
	keepEmpty   bool // without records it stays, as its producer's last batch
	needHorizon bool // a marker of an empty transaction: its time starts now
}

// batch decides over one batch and writes what is left of it.
func (cl *cleaner) batch(h *batch.Header, raw []byte) error {
	cl.c.counters.RecordsBefore += int64(h.RecordsCount)
	v := cl.judge(h, raw)
	if v.dropRecords {
		return cl.drop(h, v)
	}
	return cl.filter(h, raw, v)
}

// judge decides what the batch's transaction and producer ask for. Kafka parity:
// Cleaner.checkBatchRetention.
func (cl *cleaner) judge(h *batch.Header, raw []byte) (v verdict) {
	v.keepEmpty = cl.isLastOfProducer(h)
	if !h.IsControl() {
		v.dropRecords = cl.txns.isAborted(h) && h.LastOffset() <= cl.keys.latest
		return v
	}
	end := cl.txns.endsWith(h, raw)
	if end.keep {
		cl.s.aborted = append(cl.s.aborted, end.aborted)
	}
	horizonPassed := h.HasDeleteHorizon() && h.BaseTimestamp <= cl.c.now
	v.dropRecords = end.empty && horizonPassed || h.RecordsCount == 0 || cl.c.l.o.Rules.DropMarkers
	v.needHorizon = end.empty && !h.HasDeleteHorizon()
	return v
}

// isLastOfProducer reports whether the batch is the last one of a producer that
// is still known: it stays, if need be without records, or the sequence numbers
// would be forgotten by a replay (KAFKA-5490).
func (cl *cleaner) isLastOfProducer(h *batch.Header) bool {
	last, known := cl.c.last[h.ProducerID]
	if !known || h.ProducerID < 0 {
		return false
	}
	if last.LastOffset >= 0 {
		return h.LastOffset() == last.LastOffset
	}
	return h.IsControl() && h.ProducerEpoch == last.Epoch
}

// drop removes a batch's records, and the batch unless it must stay.
func (cl *cleaner) drop(h *batch.Header, v verdict) error {
	if !v.keepEmpty {
		return nil
	}
	return cl.build(h, nil, cl.horizonOf(h))
}

func (cl *cleaner) horizonOf(h *batch.Header) *types.Millis {
	if !h.HasDeleteHorizon() {
		return nil
	}
	return &h.BaseTimestamp
}

// filter keeps the records that are the newest of their key, and tombstones and
// markers until their time is over (KIP-534: delete.retention.ms from the first
// compaction that sees them). An unchanged batch stays byte for byte.
func (cl *cleaner) filter(h *batch.Header, raw []byte, v verdict) error {
	var kept []batch.Record
	tombstone := v.needHorizon
	it := batch.Records(raw, &cl.scratch)
	for it.Next() {
		if !h.IsControl() && !cl.survives(h, &it.Record) {
			continue
		}
		kept = append(kept, it.Record)
		tombstone = tombstone || (!h.IsControl() && it.Record.Key != nil && it.Record.Value == nil)
	}
	if err := it.Err(); err != nil {
		return err
	}
	horizon := cl.horizonOf(h)
	setHorizon := tombstone && horizon == nil && h.LastOffset() <= cl.keys.latest
	if setHorizon {
		at := cl.c.now + cl.c.cfg.DeleteRetentionMs
		horizon = &at
	}
	switch {
	case len(kept) == 0 && !v.keepEmpty:
		return nil
	case len(kept) == int(h.RecordsCount) && !setHorizon:
		return cl.write(h, raw)
	}
	return cl.build(h, kept, horizon)
}

// survives decides over one record of a data batch.
func (cl *cleaner) survives(h *batch.Header, r *batch.Record) bool {
	if r.Offset > cl.keys.latest {
		return true
	}
	if r.Key == nil {
		return false
	}
	if newest, ok := cl.keys.newest(r.Key); ok && (newest > r.Offset || cl.c.l.o.Rules.CompactNewest) {
		return false
	}
	return r.Value != nil || !h.HasDeleteHorizon() || cl.c.now < h.BaseTimestamp
}

// build writes a batch anew from what is left of it: same offsets, codec,
// epoch, producer and sequence.
func (cl *cleaner) build(h *batch.Header, kept []batch.Record, horizon *types.Millis) error {
	last := h.LastOffset()
	o := batch.BuilderOptions{
		Codec: h.Compression(), BaseOffset: h.BaseOffset, LeaderEpoch: h.PartitionLeaderEpoch,
		Transactional: h.IsTransactional(), Control: h.IsControl(), DeleteHorizon: horizon, LastOffset: &last,
	}
	if h.HasProducer() {
		o.Producer = &batch.Producer{ID: h.ProducerID, Epoch: h.ProducerEpoch, BaseSequence: h.BaseSequence}
	}
	if h.IsLogAppendTime() {
		o.LogAppendTime = &h.MaxTimestamp
	}
	cl.builder.Reset(o)
	for i := range kept {
		cl.builder.AppendRecord(&kept[i])
	}
	raw, err := cl.builder.Build()
	if err != nil {
		return err
	}
	if len(kept) == 0 { // an empty batch keeps its time: producers expire by it
		batch.SetMaxTimestamp(raw, h.MaxTimestamp)
	}
	built, err := batch.ParseHeader(raw)
	if err != nil {
		return err
	}
	return cl.write(&built, raw)
}

// write appends a batch to the cleaned segment.
func (cl *cleaner) write(h *batch.Header, raw []byte) error {
	if _, fits := relative(h.LastOffset(), cl.s.base); !fits {
		return ErrSegmentRange
	}
	cl.c.counters.RecordsKept += int64(h.RecordsCount)
	cl.s.noteBatch(h, cl.at+int64(len(cl.out)), cl.c.cfg.IndexIntervalBytes)
	cl.out = append(cl.out, raw...)
	if len(cl.out) < cleanBuffer {
		return nil
	}
	return cl.flush()
}

func (cl *cleaner) flush() error {
	if len(cl.out) == 0 {
		return nil
	}
	n, err := cl.f.WriteAt(cl.out, cl.at)
	if err != nil {
		return errors.Join(err)
	}
	cl.at += int64(n)
	cl.out = cl.out[:0]
	return nil
}
