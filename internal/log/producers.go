package log

import (
	"errors"
	"io/fs"
	"slices"

	"tidemark/internal/batch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// maxSnapshotBytes bounds what is read of a snapshot: 20 million producers.
const maxSnapshotBytes = 1 << 30

// snapshots lists the offsets of the .snapshot files, rising.
func (l *Log) snapshots() ([]types.Offset, error) {
	names, err := l.fs.List(l.dir)
	if err != nil {
		return nil, err
	}
	var out []types.Offset
	for _, name := range names {
		if o, suffix, ok := parseFileName(name); ok && suffix == snapshotSuffix {
			out = append(out, o)
		}
	}
	return out, nil
}

// producersBelow reads the newest readable snapshot at or below o. Without one
// the state is empty at the log's first offset: a replay from there on is whole.
// Unreadable ones are passed over; the next open removes them.
func (l *Log) producersBelow(o types.Offset) (*txn.State, error) {
	snaps, err := l.snapshots()
	if err != nil {
		return nil, err
	}
	for _, at := range slices.Backward(snaps) {
		if at > o || at < l.segs[0].base {
			continue
		}
		b, err := vfs.ReadFile(l.fs, join(l.dir, FileName(at, snapshotSuffix)), maxSnapshotBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		state, err := txn.DecodeSnapshot(b, at)
		if err == nil {
			return state, nil
		}
		l.badSnapshots = append(l.badSnapshots, at)
		l.log.Warn("producer snapshot can't be read and is passed over", "partition", l.o.TopicPartition.String(), "offset", int64(at), "err", err)
	}
	return txn.New(min(l.segs[0].base, o)), nil
}

// rebuildProducers makes the producer state that the batches imply, and the
// aborted indexes of the segments that were checked, whose bases lie at or
// above from. Segments below from have theirs already.
func (l *Log) rebuildProducers(from types.Offset, r *Recovery) (*txn.State, error) {
	state, err := l.producersBelow(from)
	if err != nil {
		return nil, err
	}
	if !r.Clean || l.now()-state.Newest() < recallAge {
		l.recall(state)
	}
	r.ProducersReplayed, err = l.replayInto(state, l.marks.end, func(s *segment, a txn.Aborted) {
		if s.base >= from {
			s.aborted = append(s.aborted, a)
		}
	})
	if err != nil {
		return nil, err
	}
	for _, s := range l.segs {
		if s.base >= from && !r.Clean {
			if err := l.writeAborted(s); err != nil {
				return nil, err
			}
		}
	}
	return state, nil
}

// recallBytes is how much of the log below a snapshot is searched for the batches
// before the newest one of each producer: what several clients have on their way.
const recallBytes = 2 << 20

// recallAge is for how long after its last record a producer may still send again
// what it sent before a clean restart: longer than clients try.
const recallAge = 10 * 60 * 1000

// recall looks below a snapshot for the batches before the newest one of each
// producer, which a snapshot doesn't hold. A client that has heard of none of its
// last batches sends the oldest of them first: if that one is not known to be a
// repetition it is refused as out of order, and the client writes them all anew.
// What can't be read is left out: without it the state is what Kafka's would be.
func (l *Log) recall(state *txn.State) {
	if state.Len() == 0 {
		return
	}
	from, err := l.below(state.End(), recallBytes)
	if err == nil {
		older := txn.New(from)
		if _, err = l.replayInto(older, state.End(), func(*segment, txn.Aborted) {}); err == nil {
			state.Recall(older)
		}
	}
	if err != nil {
		l.log.Warn("the log below a producer snapshot can't be read; a retry may be written twice", "partition", l.o.TopicPartition.String(), "offset", int64(state.End()), "err", err)
	}
}

// below gives the base offset of a batch that lies about so many bytes below an offset.
func (l *Log) below(o types.Offset, bytes int64) (types.Offset, error) {
	for i := l.segmentAt(o - 1); ; i-- {
		s := l.segs[i]
		if s.size < bytes && i > 0 {
			bytes -= s.size
			continue
		}
		p := s.look()
		pos, err := p.floorByPos(max(0, s.size-bytes))
		if err != nil {
			return s.base, err
		}
		f, err := p.file()
		if err != nil {
			return s.base, err
		}
		w := seek(f, pos, s.size)
		defer w.done()
		if !w.next() {
			return s.base, w.err
		}
		return w.h.BaseOffset, nil
	}
}

// replayInto replays the batches from the state's end up to end. aborted gets
// each aborted transaction with the segment of its marker.
func (l *Log) replayInto(state *txn.State, end types.Offset, aborted func(*segment, txn.Aborted)) (batches int, err error) {
	for _, s := range l.segs {
		if s.next <= state.End() || s.base >= end || s.size == 0 {
			continue
		}
		p := s.look()
		f, err := p.file()
		if err != nil {
			return batches, err
		}
		pos, err := p.floor(state.End())
		if err != nil {
			return batches, err
		}
		stop := s.size
		if s.next > end {
			if _, stop, _, err = find(f, pos, s.size, end); err != nil {
				return batches, err
			}
		}
		n, err := replay(f, pos, stop, state, func(a txn.Aborted) { aborted(s, a) })
		batches += n
		if err != nil {
			return batches, err
		}
	}
	state.Advance(end)
	return batches, nil
}

// replay tells the state of the batches in [pos, end) of a file that lie at or above its end.
func replay(f vfs.File, pos, end int64, state *txn.State, aborted func(txn.Aborted)) (batches int, err error) {
	var raw []byte
	w := walk(f, pos, end)
	defer w.done()
	for w.next() {
		if w.h.LastOffset() < state.End() {
			continue
		}
		if w.h.IsControl() {
			if raw, err = w.raw(raw); err != nil {
				return batches, err
			}
		}
		if a, ok := noteProducer(state, &w.h, raw); ok {
			aborted(a)
		}
		batches++
	}
	return batches, w.err
}

// noteProducer tells the state of one batch that the log holds. raw is needed
// for control batches only.
func noteProducer(state *txn.State, h *batch.Header, raw []byte) (txn.Aborted, bool) {
	if !h.IsControl() {
		state.Append(producerBatch(h, h.BaseOffset))
		return txn.Aborted{}, false
	}
	m, err := batch.ParseMarker(raw)
	switch {
	case err == nil && m.Kind == batch.PIDReset:
		state.Reset(h.NextOffset())
	case err == nil && (m.Kind == batch.Commit || m.Kind == batch.Abort):
		return state.AppendMarker(txn.Marker{
			ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch, CoordinatorEpoch: m.CoordinatorEpoch,
			Abort: m.Kind == batch.Abort, Offset: h.LastOffset(), Timestamp: h.MaxTimestamp,
		})
	default: // a control record that means nothing to producers, or one emptied by compaction
		state.Advance(h.NextOffset())
	}
	return txn.Aborted{}, false
}

// producerBatch is a data batch as the state sees it, at the given base offset.
func producerBatch(h *batch.Header, base types.Offset) txn.Batch {
	return txn.Batch{
		ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, FirstSequence: h.BaseSequence, LastSequence: h.LastSequence(),
		FirstOffset: base, LastOffset: base + types.Offset(h.LastOffsetDelta), MaxTimestamp: h.MaxTimestamp, Transactional: h.IsTransactional(),
	}
}

// takeSnapshot writes the producer state at the log end. It is synced by the
// next flush; a torn one is passed over by its checksum.
func (l *Log) takeSnapshot() error {
	name := FileName(l.marks.end, snapshotSuffix)
	if err := writeFile(l.fs, join(l.dir, name), l.producers.EncodeSnapshot()); err != nil {
		return err
	}
	l.folderChanged = true
	if !slices.Contains(l.unsyncedSnapshots, name) {
		l.unsyncedSnapshots = append(l.unsyncedSnapshots, name)
	}
	return nil
}
