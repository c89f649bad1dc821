package wire

import (
	"encoding/binary"

	"tidemark/internal/core/types"
)

// FetchTailTag is the tagged field of a Fetch request's partition in which a follower of
// this cluster tells the end of its log (docs/format/fetch-tail.md). Others skip it.
const FetchTailTag = 32_000

// fetchTailSize is a tail's size in bytes.
const fetchTailSize = 8 + 4 + 4 + 8

// FormatFetchTail writes a tail. Where its batch ends is the fetch offset.
func FormatFetchTail(t types.Tail) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, fetchTailSize), uint64(t.Base))
	b = binary.BigEndian.AppendUint32(b, uint32(t.Epoch))
	b = binary.BigEndian.AppendUint32(b, t.Sum)
	return binary.BigEndian.AppendUint64(b, uint64(t.EpochStart))
}

// ParseFetchTail reads the tail of a fetch from next on. What isn't one is not known: a
// later program may tell more, or otherwise.
func ParseFetchTail(b []byte, next types.Offset) types.Tail {
	if len(b) < fetchTailSize {
		return types.Tail{}
	}
	t := types.Tail{
		Base: types.Offset(binary.BigEndian.Uint64(b)), Next: next, Epoch: types.LeaderEpoch(binary.BigEndian.Uint32(b[8:])),
		Sum: binary.BigEndian.Uint32(b[12:]), EpochStart: types.Offset(binary.BigEndian.Uint64(b[16:])), Known: true,
	}
	if t.Base < 0 || t.Base >= next || t.Epoch < 0 || t.EpochStart < types.NoOffset || t.EpochStart > t.Base {
		return types.Tail{}
	}
	return t
}
