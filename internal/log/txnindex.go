package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// A .txnindex file lists the aborted transactions whose marker lies in its
// segment, in marker order: entries of 34 bytes, version 0
// (docs/format/index.md). It exists only where a transaction was aborted.
const (
	txnEntrySize    = 2 + 4*8
	txnEntryVersion = 0
)

func encodeAborted(dst []byte, entries []txn.Aborted) []byte {
	for _, a := range entries {
		dst = binary.BigEndian.AppendUint16(dst, txnEntryVersion)
		dst = binary.BigEndian.AppendUint64(dst, uint64(a.ProducerID))
		dst = binary.BigEndian.AppendUint64(dst, uint64(a.FirstOffset))
		dst = binary.BigEndian.AppendUint64(dst, uint64(a.LastOffset))
		dst = binary.BigEndian.AppendUint64(dst, uint64(a.LastStable))
	}
	return dst
}

// decodeAborted reads a whole file; end bounds the offsets (the segment's next
// offset, or the largest offset where unknown).
func decodeAborted(b []byte, end types.Offset) ([]txn.Aborted, error) {
	if len(b)%txnEntrySize != 0 {
		return nil, fmt.Errorf("%d bytes are no whole number of entries", len(b))
	}
	var out []txn.Aborted
	for ; len(b) > 0; b = b[txnEntrySize:] {
		if v := binary.BigEndian.Uint16(b); v != txnEntryVersion {
			return out, fmt.Errorf("entry %d: version %d", len(out), v)
		}
		a := txn.Aborted{
			ProducerID:  types.ProducerID(binary.BigEndian.Uint64(b[2:])),
			FirstOffset: types.Offset(binary.BigEndian.Uint64(b[10:])),
			LastOffset:  types.Offset(binary.BigEndian.Uint64(b[18:])),
			LastStable:  types.Offset(binary.BigEndian.Uint64(b[26:])),
		}
		if a.ProducerID < 0 || a.FirstOffset < 0 || a.FirstOffset >= a.LastOffset || a.LastOffset >= end || a.LastStable < 0 || a.LastStable > a.LastOffset+1 {
			return out, fmt.Errorf("entry %d: impossible offsets %+v", len(out), a)
		}
		if n := len(out); n > 0 && a.LastOffset <= out[n-1].LastOffset {
			return out, fmt.Errorf("entry %d: markers don't rise", n)
		}
		out = append(out, a)
	}
	return out, nil
}

// loadAborted reads a segment's aborted index; none if the file is absent.
func loadAborted(fsys vfs.FS, name string, end types.Offset) ([]txn.Aborted, error) {
	b, err := vfs.ReadFile(fsys, name, 1<<31-1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a, err := decodeAborted(b, end)
	if err != nil {
		return nil, &CorruptError{File: name, Pos: types.Position(len(a) * txnEntrySize), Reason: err.Error()}
	}
	return a, nil
}
