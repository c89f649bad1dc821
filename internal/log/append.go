package log

import (
	"errors"
	"fmt"
	"math"

	"tidemark/internal/assert"
	"tidemark/internal/batch"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
)

// AppendAsLeader (W) appends one batch: validate, check the producer's
// sequence, stamp base offset and epoch in place, write. raw is changed and
// belongs to the log during the call. The checksum and the compression stay as
// received, except under LogAppendTime and a compression.type of the topic's own.
//
// epoch is the latest one given to AssignEpoch (invariant I-22).
//
// Errors: package batch's and package txn's kinds, ErrNoSpace, ErrOffline. After
// an error nothing was appended.
func (l *Log) AppendAsLeader(raw []byte, epoch types.LeaderEpoch, a LeaderAppend) (Appended, error) {
	if err := l.usable(); err != nil {
		return Appended{}, err
	}
	if l.epochOwed {
		l.payEpoch(epoch)
	}
	if last, ok := l.history.Latest(); !ok || last.Epoch != epoch {
		assert.That(false, "I-22: append in epoch %d, the history ends with %v", epoch, last)
	}
	now := l.now()
	raw, h, err := l.validate(raw, a, now)
	if err != nil {
		return Appended{}, err
	}
	dup, err := l.checkProducer(&h, raw, a)
	if err != nil {
		return Appended{}, err
	}
	if dup.Duplicate {
		return Appended{First: dup.FirstOffset, Last: dup.LastOffset, NextOffset: l.marks.end, Duplicate: true, LogStart: l.marks.start, AppendTime: l.duplicateTime(dup)}, nil
	}
	h.BaseOffset, h.PartitionLeaderEpoch = l.marks.end, epoch
	batch.Stamp(raw, h.BaseOffset, epoch)
	out := Appended{First: h.BaseOffset, Last: h.LastOffset(), NextOffset: h.NextOffset(), Bytes: len(raw), Batches: 1, LogStart: l.marks.start, AppendTime: types.NoTimestamp}
	if h.IsLogAppendTime() {
		out.AppendTime = h.MaxTimestamp
	}
	l.headers = append(l.headers[:0], h)
	if err := l.write(raw, nil); err != nil {
		return Appended{}, err
	}
	return out, nil
}

// duplicateTime is the append time that the answer for a duplicate tells.
func (l *Log) duplicateTime(v txn.Verdict) types.Millis {
	if l.cfg.LogAppendTime {
		return v.Timestamp
	}
	return types.NoTimestamp
}

// validate checks a leader's batch and applies what the topic asks for inside it.
func (l *Log) validate(raw []byte, a LeaderAppend, now types.Millis) ([]byte, batch.Header, error) {
	if a.Origin == OriginCoordinator {
		return l.validateOwn(raw)
	}
	rules := batch.ProduceRules{
		MaxBytes: l.cfg.MaxMessageBytes, Compacted: l.cfg.Compact, LogAppendTime: l.cfg.LogAppendTime, RefuseZstd: a.RefuseZstd,
		Now: now, BeforeMax: orOff(l.cfg.TimestampBeforeMaxMs), AfterMax: orOff(l.cfg.TimestampAfterMaxMs),
	}
	if a.MaxBytes > 0 {
		rules.MaxBytes = a.MaxBytes
	}
	l.scratch.MaxDecoded = l.cfg.MaxDecompressedBatchLen
	p, err := batch.ValidateForProduce(raw, rules, &l.scratch)
	if err != nil {
		return raw, p.Header, err
	}
	h := p.Header
	if codec, ok := batch.ParseCodec(l.cfg.Compression); ok && codec != h.Compression() {
		if raw, err = l.recompress(raw, &h, codec); err != nil {
			return raw, h, err
		}
		if rules.MaxBytes > 0 && len(raw) > rules.MaxBytes {
			return raw, h, fmt.Errorf("%w: %d bytes as the topic's %s, %d allowed", batch.ErrTooLarge, len(raw), codec, rules.MaxBytes)
		}
		h, err = batch.ParseHeader(raw)
		if err != nil {
			return raw, h, err
		}
	}
	switch {
	case l.cfg.LogAppendTime:
		batch.SetLogAppendTime(raw, now)
	case p.MaxTimestampDiffers():
		batch.SetMaxTimestamp(raw, p.MaxTimestamp)
	default:
		return raw, h, nil
	}
	h, err = batch.ParseHeader(raw)
	return raw, h, err
}

// orOff turns "0: no limit" into package batch's negative.
func orOff(limit types.Millis) types.Millis {
	if limit <= 0 {
		return -1
	}
	return limit
}

// validateOwn checks what this broker's own coordinators built.
func (l *Log) validateOwn(raw []byte) ([]byte, batch.Header, error) {
	h, err := batch.ParseHeader(raw)
	if err == nil && h.Size() != len(raw) {
		err = fmt.Errorf("%w: %d bytes, batch has %d", batch.ErrInvalidRecord, len(raw), h.Size())
	}
	if err == nil {
		err = batch.VerifyCRC(raw)
	}
	return raw, h, err
}

// recompress makes the batch anew with the topic's codec (compression.type).
func (l *Log) recompress(raw []byte, h *batch.Header, codec batch.Codec) ([]byte, error) {
	o := batch.BuilderOptions{Codec: codec, Transactional: h.IsTransactional(), LeaderEpoch: types.NoLeaderEpoch}
	if h.HasProducer() {
		o.Producer = &batch.Producer{ID: h.ProducerID, Epoch: h.ProducerEpoch, BaseSequence: h.BaseSequence}
	}
	b := batch.NewBuilder(o)
	it := batch.Records(raw, &l.scratch)
	for it.Next() {
		b.AppendRecord(&it.Record)
	}
	if err := it.Err(); err != nil {
		return nil, err
	}
	return b.Build()
}

// checkProducer asks the producer state about a leader's batch.
func (l *Log) checkProducer(h *batch.Header, raw []byte, a LeaderAppend) (txn.Verdict, error) {
	if !h.HasProducer() {
		return txn.Verdict{}, nil
	}
	if !h.IsControl() {
		if a.Origin == OriginCoordinator {
			return txn.Verdict{}, l.producers.CheckEpoch(producerBatch(h, l.marks.end))
		}
		if a.RefuseGaps {
			if err := l.producers.CheckBegin(producerBatch(h, l.marks.end)); err != nil {
				return txn.Verdict{}, err
			}
		}
		return l.producers.Check(producerBatch(h, l.marks.end))
	}
	m, err := batch.ParseMarker(raw)
	if err != nil {
		return txn.Verdict{}, err
	}
	if l.o.Rules.AnyCoordinatorEpoch {
		m.CoordinatorEpoch = math.MaxInt32
	}
	return txn.Verdict{}, l.producers.CheckMarker(txn.Marker{ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch, CoordinatorEpoch: m.CoordinatorEpoch, Bumped: a.BumpedMarker, Offset: l.marks.end})
}

// AppendAsFollower (W) appends whole valid batches up to the first bad one
// (R13): offsets may not step back, epochs may neither fall nor exceed maxEpoch,
// checksums hold. Why it stopped is Appended.StoppedBy; the error is for I/O.
// Batches appended before an I/O error stay. A new history entry (R4) is synced
// before the call returns.
func (l *Log) AppendAsFollower(raw []byte, maxEpoch types.LeaderEpoch) (Appended, error) {
	out := Appended{First: l.marks.end, Last: l.marks.end - 1, NextOffset: l.marks.end, LogStart: l.marks.start, AppendTime: types.NoTimestamp}
	if err := l.usable(); err != nil {
		return out, err
	}
	l.leads = false
	chain := batch.Chain{LogEnd: l.marks.end, LastEpoch: l.viewLocked().LastEpoch}
	l.headers = l.headers[:0]
	history, changed := *l.history, false
	owed := l.historyOwed
	accepted := batch.Accept(raw, chain, maxEpoch, func(h *batch.Header, _ []byte, before batch.Chain) error {
		from := before.LogEnd
		if l.o.Rules.EpochAtBatch {
			from = h.BaseOffset
		}
		ch, err := history.AppendedBatch(h.PartitionLeaderEpoch, from)
		if err != nil {
			return err
		}
		if h.LastOffset()-h.BaseOffset > 1<<31-1 {
			return ErrSegmentRange
		}
		changed = changed || ch
		l.headers = append(l.headers, *h)
		return nil
	})
	out.StoppedBy = accepted.Stopped
	if accepted.Batches == 0 {
		return out, nil
	}
	out.First = l.headers[0].BaseOffset
	if !changed && !owed {
		return l.writeRuns(raw[:accepted.Bytes], nil, out)
	}
	out.EpochsChanged = changed
	return l.writeRuns(raw[:accepted.Bytes], &history, out)
}

// writeRuns writes accepted batches segment by segment: a run ends where the
// log rolls. The history belongs to the whole of them and goes with the last
// run; runs before it get the history as far as they reach.
func (l *Log) writeRuns(raw []byte, history *epoch.History, out Appended) (Appended, error) {
	all := l.headers
	headers := all
	defer func() { l.headers = all[:0] }()
	for len(headers) > 0 {
		if err := l.usable(); err != nil {
			return out, err // the run before it owes something
		}
		n, bytes := l.runLength(headers)
		l.headers = headers[:n]
		var h *epoch.History
		if history != nil {
			part := *history
			part.TruncateFromEnd(headers[n-1].NextOffset())
			h = &part
		}
		if err := l.write(raw[:bytes], h); err != nil {
			return out, err
		}
		last := &headers[n-1]
		out.Last, out.NextOffset = last.LastOffset(), last.NextOffset()
		out.Batches += n
		out.Bytes += bytes
		headers, raw = headers[n:], raw[bytes:]
	}
	return out, nil
}

// runLength is how many of the batches go into one segment: the active one if
// the first fits, else the next one.
func (l *Log) runLength(headers []batch.Header) (n, bytes int) {
	room := int64(l.cfg.SegmentBytes)
	base := l.active().base
	if l.rollNeeded(&headers[0], headers[0].Size()) {
		base = l.rollBase(&headers[0])
	} else {
		room -= l.active().size
	}
	for ; n < len(headers); n++ {
		h := &headers[n]
		_, fits := relative(h.LastOffset(), base)
		if n > 0 && (!fits || int64(bytes+h.Size()) > room) {
			break
		}
		bytes += h.Size()
	}
	return n, bytes
}

// write puts the batches of l.headers, whose bytes are raw, at the log end, in
// one segment. Nothing is visible before all of it has succeeded; after a full
// disk nothing of it is left. history, if not nil, is synced first and becomes
// the history with the batches.
func (l *Log) write(raw []byte, history *epoch.History) error {
	first := &l.headers[0]
	if err := l.leaveDeleted(first); err != nil {
		return err
	}
	if l.rollNeeded(first, len(raw)) {
		if err := l.roll(l.rollBase(first)); err != nil {
			return err
		}
	}
	l.untouched = false
	s := l.active()
	f, err := s.data.get(s, logSuffix)
	if err != nil {
		return l.fail("open active segment", err)
	}
	if s.shared { // Invariant I-310: a file that is written has one name.
		assert.That(false, "I-310: segment %d of %s is written, and a fork holds it", s.base, l.dir)
	}
	if _, err := f.WriteAt(raw, s.size); err != nil {
		return l.unwrite(s, "append", err)
	}
	if history != nil {
		if err := l.writeHistory(history); err != nil {
			return l.unwrite(s, "write epoch history", err)
		}
	}
	if aborted := l.publish(s, raw, history); aborted > 0 {
		return l.indexAborted(s, aborted)
	}
	return nil
}

// indexAborted notes a segment's newest n aborted transactions in its .txnindex.
// Their markers are in the log already: where there is no room, the index is owed.
func (l *Log) indexAborted(s *segment, n int) error {
	err := l.owe(func() error {
		if err := l.appendAborted(s, n); err != nil {
			return l.refuse("write aborted index", err)
		}
		return nil
	})
	if errors.Is(err, ErrNoSpace) {
		return nil
	}
	return err
}

// unwrite takes the bytes beyond the segment's size back after a failed append.
// With a full disk the log goes on from there; any other failure is final.
func (l *Log) unwrite(s *segment, doing string, cause error) error {
	f, err := s.data.get(s, logSuffix)
	if err == nil {
		err = f.Truncate(s.size)
	}
	if err != nil {
		return l.fail(doing, fmt.Errorf("%w; and then: %w", cause, err))
	}
	return l.refuse(doing, cause)
}

// publish makes the written batches part of the log for readers.
func (l *Log) publish(s *segment, raw []byte, history *epoch.History) (aborted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pos, before := s.size, s.size
	for i := range l.headers {
		h := &l.headers[i]
		b := raw[:h.Size()]
		if h.BaseOffset < s.next {
			assert.That(false, "I-26: batch at %d behind offset %d", h.BaseOffset, s.next)
		}
		if a, ok := noteProducer(l.producers, h, b); ok {
			s.aborted = append(s.aborted, a)
			aborted++
		}
		s.noteBatch(h, pos, l.cfg.IndexIntervalBytes)
		pos += int64(h.Size())
		raw = raw[h.Size():]
	}
	l.size += s.size - before
	l.marks.end = s.next
	if history != nil {
		l.history = history
	}
	l.settle()
	return aborted
}

// appendAborted adds the newest n entries to the segment's .txnindex.
func (l *Log) appendAborted(s *segment, n int) error {
	f, err := l.fs.OpenReadWrite(s.path(txnSuffix))
	if err != nil {
		return err
	}
	l.folderChanged, s.unsynced = true, true
	old := len(s.aborted) - n
	if _, err := f.WriteAt(encodeAborted(nil, s.aborted[old:]), int64(old*txnEntrySize)); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
