package log

import (
	"encoding/binary"
	"io"
	"slices"
	"sync"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// An .index file is a sorted list of entries of 8 bytes: the last offset of a
// batch relative to the segment's base, and the position of that batch's first
// byte (docs/format/index.md). It is sparse: one entry per
// index.interval.bytes of data.
const indexEntrySize = 8

type indexEntry struct {
	rel int32 // last offset of the batch - base offset of the segment
	pos int32 // where the batch begins
}

func encodeIndex(dst []byte, entries []indexEntry) []byte {
	for _, e := range entries {
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.rel))
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.pos))
	}
	return dst
}

func decodeIndexEntry(b []byte) indexEntry {
	return indexEntry{int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[4:]))}
}

// decodeIndex reads entries up to the first that doesn't rise: what Kafka's
// preallocation or a crash left behind them is not part of the index. whole
// says whether all of b was entries.
func decodeIndex(b []byte, size int64) (entries []indexEntry, whole bool) {
	whole = len(b)%indexEntrySize == 0
	for ; len(b) >= indexEntrySize; b = b[indexEntrySize:] {
		e := decodeIndexEntry(b)
		if n := len(entries); e.rel < 0 || e.pos < 0 || int64(e.pos) >= size ||
			(n > 0 && (e.rel <= entries[n-1].rel || e.pos <= entries[n-1].pos)) || (e == indexEntry{} && size > 0 && n > 0) {
			return entries, false
		}
		entries = append(entries, e)
	}
	return entries, whole
}

// floorIndex is the position of the last entry in memory that lies at or below rel; 0 if none.
//
// An entry names the last offset of its batch, so the batch that holds rel
// begins at the entry's position or behind it only if the entry is below rel,
// or equal to it; a batch that begins below rel and ends above it may carry
// the next entry. Starting at the entry before is always right.
func floorIndex(entries []indexEntry, rel int64) int64 {
	i, found := slices.BinarySearchFunc(entries, rel, func(e indexEntry, rel int64) int { return cmpInt(int64(e.rel), rel) })
	if found {
		return int64(entries[i].pos)
	}
	if i == 0 {
		return 0
	}
	return int64(entries[i-1].pos)
}

// floorIndexByPos is the position of the last entry at or below pos.
func floorIndexByPos(entries []indexEntry, pos int64) int64 {
	i, found := slices.BinarySearchFunc(entries, pos, func(e indexEntry, pos int64) int { return cmpInt(int64(e.pos), pos) })
	if !found {
		i--
	}
	if i < 0 {
		return 0
	}
	return int64(entries[i].pos)
}

func cmpInt(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// searchBlock is how many bytes of an index are read at once at the end of a
// search on disk; one page holds 512 offset entries.
const searchBlock = 4096

var searchBuffers = sync.Pool{New: func() any { b := make([]byte, searchBlock); return &b }}

// searchFile finds the last of n entries of the given size for which below
// holds, by halving; below is true for a prefix of the file. The entry is
// passed to found; it is not called if there is none.
func searchFile(f vfs.File, n int64, size int, below func(entry []byte) bool, found func(entry []byte)) error {
	buf := searchBuffers.Get().(*[]byte)
	defer searchBuffers.Put(buf)
	best := int64(-1)
	lo, hi := int64(0), n // entries below lo satisfy below, those from hi on don't
	for hi-lo > int64(searchBlock/size) {
		mid := lo + (hi-lo)/2
		e := (*buf)[:size]
		if err := readFull(f, e, mid*int64(size)); err != nil {
			return err
		}
		if below(e) {
			best, lo = mid, mid+1
			found(e)
		} else {
			hi = mid
		}
	}
	block := (*buf)[:int(hi-lo)*size]
	if err := readFull(f, block, lo*int64(size)); err != nil {
		return err
	}
	for at := 0; at < len(block) && below(block[at:at+size]); at += size {
		best = lo + int64(at/size)
	}
	if best >= lo {
		found(block[int(best-lo)*size:][:size])
	}
	return nil
}

// readFull reads len(b) bytes at off or fails with io.ErrUnexpectedEOF.
func readFull(f vfs.File, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// floorIndexFile is floorIndex on a sealed segment's file of n entries.
func floorIndexFile(f vfs.File, n int64, rel int64) (pos int64, err error) {
	err = searchFile(f, n, indexEntrySize,
		func(e []byte) bool { return int64(decodeIndexEntry(e).rel) <= rel },
		func(e []byte) { pos = int64(decodeIndexEntry(e).pos) })
	return pos, err
}

// floorIndexFileByPos is floorIndexByPos on a file.
func floorIndexFileByPos(f vfs.File, n int64, at int64) (pos int64, err error) {
	err = searchFile(f, n, indexEntrySize,
		func(e []byte) bool { return int64(decodeIndexEntry(e).pos) <= at },
		func(e []byte) { pos = int64(decodeIndexEntry(e).pos) })
	return pos, err
}

// relative gives o as an offset within a segment; false if it doesn't fit 31 bits.
func relative(o, base types.Offset) (int32, bool) {
	d := o - base
	return int32(d), d >= 0 && d <= 1<<31-1
}
