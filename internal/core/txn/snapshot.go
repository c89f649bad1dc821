package txn

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"tidemark/internal/core/types"
)

// Layout of a producer snapshot, version 1, all big-endian: int16 version,
// uint32 CRC-32C over everything behind it, int32 count, then entries of
// entrySize bytes. docs/format/producer-snapshot.md has the picture.
const (
	snapshotVersion = 1
	headSize        = 2 + 4
	countSize       = 4
	entrySize       = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

// ErrSnapshot is the kind of every error of DecodeSnapshot.
var ErrSnapshot = errors.New("not a producer snapshot")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// EncodeSnapshot gives the bytes of a .snapshot file of the state: for each
// producer its epoch, its last batch, its coordinator epoch and the first
// offset of its open transaction. Producers are written by id, so that equal
// states are equal bytes.
func (s *State) EncodeSnapshot() []byte {
	ids := slices.SortedFunc(maps.Keys(s.producers), cmp.Compare[types.ProducerID])
	b := make([]byte, 0, headSize+countSize+len(ids)*entrySize)
	b = binary.BigEndian.AppendUint16(b, snapshotVersion)
	b = binary.BigEndian.AppendUint32(b, 0) // CRC, below
	b = binary.BigEndian.AppendUint32(b, uint32(len(ids)))
	for _, id := range ids {
		p := s.producers[id]
		last := batchMeta{lastSeq: NoSequence, lastOffset: types.NoOffset, firstOffset: types.NoOffset}
		if p.n > 0 {
			last = p.batches[p.n-1]
		}
		txnFirst := types.NoOffset
		if p.txnOpen {
			txnFirst = p.txnFirst
		}
		b = binary.BigEndian.AppendUint64(b, uint64(id))
		b = binary.BigEndian.AppendUint16(b, uint16(p.epoch))
		b = binary.BigEndian.AppendUint32(b, uint32(last.lastSeq))
		b = binary.BigEndian.AppendUint64(b, uint64(last.lastOffset))
		b = binary.BigEndian.AppendUint32(b, uint32(last.lastOffset-last.firstOffset))
		b = binary.BigEndian.AppendUint64(b, uint64(p.lastTimestamp))
		b = binary.BigEndian.AppendUint32(b, uint32(p.coordinatorEpoch))
		b = binary.BigEndian.AppendUint64(b, uint64(txnFirst))
	}
	binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[headSize:], castagnoli))
	return b
}

// DecodeSnapshot reads a .snapshot file whose name says that it reaches to end.
// Producers keep their last batch only: a snapshot holds no more.
func DecodeSnapshot(b []byte, end types.Offset) (*State, error) {
	if len(b) < headSize+countSize {
		return nil, fmt.Errorf("%w: %d bytes are too few", ErrSnapshot, len(b))
	}
	if v := int16(binary.BigEndian.Uint16(b)); v != snapshotVersion {
		return nil, fmt.Errorf("%w: version %d, known is %d", ErrSnapshot, v, snapshotVersion)
	}
	if want, got := binary.BigEndian.Uint32(b[2:]), crc32.Checksum(b[headSize:], castagnoli); want != got {
		return nil, fmt.Errorf("%w: checksum is %08x, file says %08x", ErrSnapshot, got, want)
	}
	n := int64(int32(binary.BigEndian.Uint32(b[headSize:])))
	body := b[headSize+countSize:]
	if n < 0 || int64(len(body)) != n*entrySize {
		return nil, fmt.Errorf("%w: %d entries don't fit %d bytes", ErrSnapshot, n, len(body))
	}
	s := New(end)
	s.whole = false // who was forgotten before isn't in it
	for ; len(body) > 0; body = body[entrySize:] {
		if err := s.decodeEntry(body[:entrySize]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *State) decodeEntry(e []byte) error {
	id := types.ProducerID(binary.BigEndian.Uint64(e))
	lastSeq := int32(binary.BigEndian.Uint32(e[10:]))
	lastOffset := types.Offset(binary.BigEndian.Uint64(e[14:]))
	delta := int32(binary.BigEndian.Uint32(e[22:]))
	txnFirst := types.Offset(binary.BigEndian.Uint64(e[38:]))
	p := &producer{
		epoch:            int16(binary.BigEndian.Uint16(e[8:])),
		lastTimestamp:    types.Millis(binary.BigEndian.Uint64(e[26:])),
		coordinatorEpoch: int32(binary.BigEndian.Uint32(e[34:])),
	}
	if _, twice := s.producers[id]; twice || id < 0 || delta < 0 || lastOffset >= s.end || txnFirst >= s.end {
		return fmt.Errorf("%w: bad entry of producer %d (offsets %d, %d, delta %d, end %d)", ErrSnapshot, id, lastOffset, txnFirst, delta, s.end)
	}
	if lastOffset >= 0 {
		p.remember(batchMeta{firstSequence(lastSeq, delta), lastSeq, lastOffset - types.Offset(delta), lastOffset, p.lastTimestamp})
	}
	if txnFirst >= 0 {
		p.txnOpen, p.txnFirst = true, txnFirst
		s.openTxn(Txn{id, txnFirst, -1})
	}
	s.producers[id] = p
	return nil
}

// firstSequence goes delta numbers back from last; numbers wrap below 0 to 2^31-1.
func firstSequence(last, delta int32) int32 {
	first := int64(last) - int64(delta)
	if first < 0 && last >= 0 {
		first += 1 << 31
	}
	return int32(first)
}
