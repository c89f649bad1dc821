package coordinator

import (
	"errors"
	"log/slog"

	"tidemark/internal/batch"
	"tidemark/internal/probe"
)

var (
	probeWriteFailed = probe.New("coordinator: a write failed")
	probeResigned    = probe.New("coordinator: resigned with requests waiting")
)

// load replays the partition into the table, as it is served in the loop's own leader epoch.
func (l *loop) load() error {
	r := loader{loop: l}
	done, err := l.Load(r.replay)
	if err != nil {
		return err
	}
	l.log = done.Log
	level := slog.LevelInfo
	if r.records == 0 {
		level = slog.LevelDebug // fifty of these are nothing to tell at a first start
	}
	l.Logger.Log(l.Context, level, "group coordinator loaded its groups",
		"groups", l.table.Groups(), "records", r.records, "skipped", r.skipped, "from", done.Start, "to", done.End)
	return nil
}

// loader replays batches into the loop's table.
type loader struct {
	loop    *loop
	scratch batch.Scratch
	records int
	skipped int
}

// replay takes one batch. Records of a transaction count when its COMMIT marker comes.
func (r *loader) replay(h *batch.Header, raw []byte) error {
	if h.IsControl() {
		m, err := batch.ParseMarker(raw)
		if err != nil {
			return nil // another kind of control record: nothing of groups
		}
		if m.Kind == batch.Commit || m.Kind == batch.Abort {
			r.loop.table.ReplayMarker(h.ProducerID, m.Kind == batch.Commit)
		}
		return nil
	}
	it := batch.Records(raw, &r.scratch)
	for it.Next() {
		r.records++
		// Decoded records outlive the buffer they are read from.
		rec, err := decodeRecord(it.Record.Key, cloneKeepNil(it.Record.Value), it.Record.Timestamp)
		if err != nil {
			r.skipped++
			if !errors.Is(err, errOtherRecord) {
				r.loop.Logger.Warn("unreadable record in the offsets topic is passed over", "offset", it.Record.Offset, "err", err)
			}
			continue
		}
		if h.IsTransactional() {
			if r.loop.c.o.Rules.ForgetPending {
				continue
			}
			r.loop.table.ReplayTxn(h.ProducerID, rec)
			continue
		}
		r.loop.table.Replay(rec)
	}
	return it.Err()
}

func cloneKeepNil(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}
