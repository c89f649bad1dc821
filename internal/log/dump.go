package log

import (
	"fmt"
	"math"
	"path"

	"tidemark/internal/batch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// DumpOptions choose what DumpSegment decodes.
type DumpOptions struct {
	Records bool // decode records
	From    types.Offset
	Limit   int // batches to visit; 0: all
}

// DumpedBatch is one batch as it lies in a segment file.
type DumpedBatch struct {
	Pos      types.Position
	Header   batch.Header
	CRCError error          // nil: the checksum holds
	Records  []batch.Record // with DumpOptions.Records; their bytes are the visitor's to keep
	Headers  [][]batch.RecordHeader
	// RecordsError says why Records ends early.
	RecordsError error
	// Marker is set for control batches that can be read.
	Marker *batch.Marker
}

// DumpSegment walks a .log file, also one of a log that is in use or damaged,
// and shows each batch. It returns a *CorruptError that names the place where
// bytes begin that are no batch, nil at a clean end, or the visitor's error.
// Nothing is changed.
func DumpSegment(fsys vfs.FS, name string, o DumpOptions, visit func(*DumpedBatch) error) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	w := walk(f, 0, size)
	defer w.done()
	seen := 0
	for w.next() && (o.Limit == 0 || seen < o.Limit) {
		if w.h.LastOffset() < o.From {
			continue
		}
		seen++
		raw, err := w.raw(nil)
		if err != nil {
			return err
		}
		if err := visit(dumpBatch(raw, &w, o)); err != nil {
			return err
		}
	}
	if w.err != nil && !isReadError(w.err) {
		return &CorruptError{File: name, Pos: types.Position(w.pos), Reason: fmt.Sprintf("%d bytes that are no batch", size-w.pos), Err: w.err}
	}
	return w.err
}

func dumpBatch(raw []byte, w *walker, o DumpOptions) *DumpedBatch {
	d := &DumpedBatch{Pos: types.Position(w.at), Header: w.h, CRCError: batch.VerifyCRC(raw)}
	if w.h.IsControl() {
		if m, err := batch.ParseMarker(raw); err == nil {
			d.Marker = &m
		}
	}
	if !o.Records {
		return d
	}
	it := batch.Records(raw, nil) // own memory for each batch: the visitor may keep it
	for it.Next() {
		d.Records = append(d.Records, it.Record)
		d.Headers = append(d.Headers, it.Record.Headers())
	}
	d.RecordsError = it.Err()
	return d
}

// IndexEntry is one entry of an .index file.
type IndexEntry struct {
	Offset   types.Offset // last offset of the batch at Position
	Position types.Position
}

// TimeIndexEntry is one entry of a .timeindex file.
type TimeIndexEntry struct {
	Timestamp types.Millis
	Offset    types.Offset
}

// segmentBase takes the base offset from a file's name.
func segmentBase(name, suffix string) (types.Offset, error) {
	base, got, ok := parseFileName(path.Base(name))
	if !ok || got != suffix {
		return 0, fmt.Errorf("%s is not named as 20 digits and %s", name, suffix)
	}
	return base, nil
}

// DumpIndex reads an .index file. whole is false if bytes that are no rising
// entries follow: zeros of a preallocated file, or damage.
func DumpIndex(fsys vfs.FS, name string) (entries []IndexEntry, whole bool, err error) {
	base, err := segmentBase(name, indexSuffix)
	if err != nil {
		return nil, false, err
	}
	b, err := vfs.ReadFile(fsys, name, math.MaxInt32)
	if err != nil {
		return nil, false, err
	}
	raw, whole := decodeIndex(b, math.MaxInt32)
	for _, e := range raw {
		entries = append(entries, IndexEntry{base + types.Offset(e.rel), types.Position(e.pos)})
	}
	return entries, whole, nil
}

// DumpTimeIndex reads a .timeindex file; whole as for DumpIndex.
func DumpTimeIndex(fsys vfs.FS, name string) (entries []TimeIndexEntry, whole bool, err error) {
	base, err := segmentBase(name, timeSuffix)
	if err != nil {
		return nil, false, err
	}
	b, err := vfs.ReadFile(fsys, name, math.MaxInt32)
	if err != nil {
		return nil, false, err
	}
	raw, whole := decodeTimes(b, math.MaxInt64)
	for _, e := range raw {
		entries = append(entries, TimeIndexEntry{e.ts, base + types.Offset(e.rel)})
	}
	return entries, whole, nil
}

// DumpTxnIndex reads a .txnindex file.
func DumpTxnIndex(fsys vfs.FS, name string) ([]txn.Aborted, error) {
	return loadAborted(fsys, name, math.MaxInt64)
}

// DumpSnapshot reads a .snapshot file.
func DumpSnapshot(fsys vfs.FS, name string) ([]txn.Producer, error) {
	at, err := segmentBase(name, snapshotSuffix)
	if err != nil {
		return nil, err
	}
	b, err := vfs.ReadFile(fsys, name, maxSnapshotBytes)
	if err != nil {
		return nil, err
	}
	s, err := txn.DecodeSnapshot(b, at)
	if err != nil {
		return nil, &CorruptError{File: name, Pos: -1, Reason: "unreadable", Err: err}
	}
	return s.Producers(), nil
}
