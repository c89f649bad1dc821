package log

import (
	"errors"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// Tail (R) describes the batch that holds the last offset below at; at the log end, the
// log's last one. It isn't known where there is nothing to compare by: the log is empty,
// or was compacted, so that equal histories may have unequal batches.
func (l *Log) Tail(at types.Offset) (types.Tail, error) {
	v := l.View()
	if at <= v.LogStart || at > v.LogEnd || v.History == nil || l.Cleaned() > 0 {
		return types.Tail{}, nil
	}
	h, ok, err := l.headerOf(at - 1)
	if err != nil || !ok {
		return types.Tail{}, err
	}
	t := types.Tail{Base: h.BaseOffset, Next: h.NextOffset(), Epoch: h.PartitionLeaderEpoch, Sum: h.CRC, EpochStart: types.NoOffset, Known: true}
	// A log start may have passed the beginning of the epoch.
	if e, ok := v.History.Entry(t.Epoch); ok && e.Start > v.LogStart {
		t.EpochStart = e.Start
	}
	return t, nil
}

// headerOf reads the header of the batch that holds an offset, or of the first one above;
// ok is false if the log has none any more.
func (l *Log) headerOf(o types.Offset) (h batch.Header, ok bool, err error) {
	chunk, err := l.Read(o, ReadLimit{To: l.View().LogEnd, MaxBytes: 1, MinOne: true})
	if errors.Is(err, ErrOutOfRange) || errors.Is(err, ErrClosed) {
		return h, false, nil
	}
	if err != nil {
		return h, false, err
	}
	defer chunk.Release()
	if len(chunk.Slices) == 0 {
		return h, false, nil
	}
	var b [batch.HeaderSize]byte
	if _, err := chunk.Slices[0].File.ReadAt(b[:], chunk.Slices[0].Pos); err != nil {
		return h, false, err
	}
	h, err = batch.ParseHeader(b[:])
	return h, err == nil, err
}
