package log

import (
	"context"
	"crypto/md5"
	"errors"
	"slices"

	"tidemark/internal/batch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
)

// keyMap remembers the newest offset of each key of the dirty segments. Keys are
// kept as 128-bit digests, as Kafka does: a false match needs about 2^64 keys.
type keyMap struct {
	offsets map[[md5.Size]byte]types.Offset
	latest  types.Offset // up to here every key is in the map
	max     int
	// goesByLater says that transactions count whose marker lies above latest.
	goesByLater bool
}

// errMapFull ends the building of a map; what is in it is whole up to latest.
var errMapFull = errors.New("key map is full")

func (m *keyMap) put(key []byte, o types.Offset) { m.offsets[md5.Sum(key)] = o }

// newest gives the newest offset of a key; false if the dirty segments lack it.
func (m *keyMap) newest(key []byte) (types.Offset, bool) {
	o, ok := m.offsets[md5.Sum(key)]
	return o, ok
}

// buildMap reads the keys of the dirty segments. Records of aborted
// transactions don't count, nor do control records.
func (c *Compaction) buildMap(ctx context.Context) (*keyMap, error) {
	m := &keyMap{offsets: make(map[[md5.Size]byte]types.Offset), latest: c.from - 1, max: c.limits.MaxKeys}
	// What has ended below the walk's start can't end in it.
	t := newTxnFilter(slices.DeleteFunc(slices.Clone(c.aborted), func(a txn.Aborted) bool { return a.LastOffset < c.from || c.l.o.Rules.CompactAborted }))
	defer func() { m.goesByLater = len(t.committed) > 0 }()
	for i := range c.segs {
		p := &c.segs[i]
		if p.next <= c.from {
			continue
		}
		err := p.eachRaw(ctx, c.from, func(h *batch.Header, raw []byte) error { return m.addBatch(h, raw, t, c.from) })
		if errors.Is(err, errMapFull) {
			return m, nil
		}
		if err != nil {
			return nil, err
		}
		m.latest = max(m.latest, p.next-1)
	}
	return m, nil
}

// addBatch takes one batch's keys, or none of them if they don't fit.
func (m *keyMap) addBatch(h *batch.Header, raw []byte, t *txnFilter, from types.Offset) error {
	if h.IsControl() {
		t.endsWith(h, raw)
	} else if !t.isAborted(h) {
		if len(m.offsets) > 0 && len(m.offsets)+int(h.RecordsCount) > m.max {
			return errMapFull
		}
		it := batch.Records(raw, nil)
		for it.Next() {
			if it.Record.Key != nil && it.Record.Offset >= from {
				m.put(it.Record.Key, it.Record.Offset)
			}
		}
		if err := it.Err(); err != nil {
			return err
		}
	}
	m.latest = max(m.latest, h.LastOffset())
	return nil
}

// eachRaw visits the whole batches of a segment that reach to or above from.
// Damage is a *CorruptError that names the place.
func (p *pin) eachRaw(ctx context.Context, from types.Offset, visit func(*batch.Header, []byte) error) error {
	if p.size == 0 {
		return nil
	}
	f, err := p.file()
	if err != nil {
		return err
	}
	pos, err := p.floor(from)
	if err != nil {
		return err
	}
	var raw []byte
	w := walk(f, pos, p.size)
	defer w.done()
	for w.next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if w.h.LastOffset() < from {
			continue
		}
		if raw, err = w.raw(raw); err != nil {
			return err
		}
		if err := batch.VerifyCRC(raw); err != nil {
			return &CorruptError{File: f.Name(), Pos: types.Position(w.at), Reason: "batch can't be compacted", Err: err}
		}
		if err := visit(&w.h, raw); err != nil {
			if errors.Is(err, batch.ErrCorrupt) || errors.Is(err, batch.ErrInvalidRecord) || errors.Is(err, batch.ErrTooLarge) {
				return &CorruptError{File: f.Name(), Pos: types.Position(w.at), Reason: "batch can't be compacted", Err: err}
			}
			return err
		}
	}
	if w.err != nil && !isReadError(w.err) {
		return &CorruptError{File: f.Name(), Pos: types.Position(w.pos), Reason: "no batch", Err: w.err}
	}
	return w.err
}

// txnFilter follows the transactions of a walk in offset order and tells which
// batches belong to aborted ones and which markers have no batch left.
type txnFilter struct {
	pending []txn.Aborted // by first offset, not begun yet
	aborted map[types.ProducerID]*openAborted
	// committed are producers with a data batch seen since their last marker.
	committed map[types.ProducerID]bool
}

type openAborted struct {
	entry txn.Aborted
	seen  bool // a batch of it was seen on this walk
}

func newTxnFilter(aborted []txn.Aborted) *txnFilter {
	t := &txnFilter{aborted: map[types.ProducerID]*openAborted{}, committed: map[types.ProducerID]bool{}}
	t.pending = append(t.pending, aborted...)
	sortByFirst(t.pending)
	return t
}

// reach begins the aborted transactions up to the offset.
func (t *txnFilter) reach(o types.Offset) {
	for len(t.pending) > 0 && t.pending[0].FirstOffset <= o {
		t.aborted[t.pending[0].ProducerID] = &openAborted{entry: t.pending[0]}
		t.pending = t.pending[1:]
	}
}

// isAborted reports whether a data batch belongs to an aborted transaction.
func (t *txnFilter) isAborted(h *batch.Header) bool {
	t.reach(h.LastOffset())
	if !h.IsTransactional() {
		return false
	}
	if a := t.aborted[h.ProducerID]; a != nil {
		a.seen = true
		return true
	}
	t.committed[h.ProducerID] = true
	return false
}

// ending is what a control batch ended.
type ending struct {
	empty   bool // a transaction of which no batch is left: the marker may go in time
	aborted txn.Aborted
	keep    bool // aborted still belongs in the aborted index
}

// endsWith takes note of a control batch. Anything but a readable transaction
// marker ends nothing and must stay.
func (t *txnFilter) endsWith(h *batch.Header, raw []byte) ending {
	t.reach(h.LastOffset())
	m, err := batch.ParseMarker(raw)
	if err != nil {
		return ending{empty: h.RecordsCount == 0} // emptied by an earlier compaction
	}
	switch m.Kind {
	case batch.Abort:
		a := t.aborted[h.ProducerID]
		delete(t.aborted, h.ProducerID)
		if a == nil || !a.seen {
			return ending{empty: true}
		}
		return ending{aborted: a.entry, keep: true}
	case batch.Commit:
		had := t.committed[h.ProducerID]
		delete(t.committed, h.ProducerID)
		return ending{empty: !had}
	}
	return ending{}
}
