package log

import (
	"encoding/binary"
	"slices"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// A .timeindex file is a sorted list of entries of 12 bytes: the largest
// timestamp of the segment so far and the last offset of the batch that carries
// it, relative to the segment's base (docs/format/index.md). Timestamps rise
// strictly; the last entry of a sealed segment is the segment's largest.
const timeEntrySize = 12

type timeEntry struct {
	ts  types.Millis
	rel int32
}

func encodeTimes(dst []byte, entries []timeEntry) []byte {
	for _, e := range entries {
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.ts))
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.rel))
	}
	return dst
}

func decodeTimeEntry(b []byte) timeEntry {
	return timeEntry{types.Millis(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[8:]))}
}

// decodeTimes reads entries up to the first that doesn't rise or lies at or
// beyond the segment's end (KAFKA-10207: zero padding and entries past a cut).
func decodeTimes(b []byte, relEnd int64) (entries []timeEntry, whole bool) {
	whole = len(b)%timeEntrySize == 0
	for ; len(b) >= timeEntrySize; b = b[timeEntrySize:] {
		e := decodeTimeEntry(b)
		n := len(entries)
		if e.rel < 0 || int64(e.rel) >= relEnd || (n > 0 && (e.ts <= entries[n-1].ts || e.rel < entries[n-1].rel)) || e.ts < 0 {
			return entries, false
		}
		entries = append(entries, e)
	}
	return entries, whole
}

// floorTimes is the relative offset of the last entry with a timestamp at or
// below ts: no record at or after ts lies at or below it, unless it has ts itself.
func floorTimes(entries []timeEntry, ts types.Millis) int64 {
	i, found := slices.BinarySearchFunc(entries, ts, func(e timeEntry, ts types.Millis) int { return cmpInt(int64(e.ts), int64(ts)) })
	if found {
		return int64(entries[i].rel)
	}
	if i == 0 {
		return 0
	}
	return int64(entries[i-1].rel)
}

func floorTimesFile(f vfs.File, n int64, ts types.Millis) (rel int64, err error) {
	err = searchFile(f, n, timeEntrySize,
		func(e []byte) bool { return decodeTimeEntry(e).ts <= ts },
		func(e []byte) { rel = int64(decodeTimeEntry(e).rel) })
	return rel, err
}
