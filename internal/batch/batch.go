// Package batch reads, checks, stamps and builds record batches of format v2,
// the bytes that producers send, disks hold and consumers get.
//
// It owns the format alone: no files, no protocol messages, no producer state.
// A batch is a byte slice and stays one: the header is a view over it, stamping
// writes two fields in place that lie outside the checksum, and records are
// decoded only where a rule needs them. All functions are total over arbitrary
// bytes: damage gives a typed error, never a panic, and decompression is bounded.
//
// Formats 0 and 1 are refused with ErrMagic. Tested by the record_batch vectors,
// by round trips against kmsg and the codecs of franz-go, by fuzz targets and by
// allocation counts; docs/format/segment.md draws the bytes.
package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"tidemark/internal/core/types"
)

// Sizes in bytes.
const (
	Overhead   = 12 // base offset and length: what Length doesn't count
	HeaderSize = 61 // the fixed part, up to and with the records count
	Magic      = 2  // the only format written and read
)

// Places of the header's fields, in bytes from the batch's start.
const (
	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posRecordsCount    = 57
)

// Attribute bits.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// Errors. ErrShort alone means that more bytes may make the batch whole.
var (
	ErrShort                  = errors.New("batch cut short")
	ErrMagic                  = errors.New("unsupported batch format")
	ErrLength                 = errors.New("impossible batch length")
	ErrCRC                    = errors.New("batch checksum differs")
	ErrCorrupt                = errors.New("corrupt batch")
	ErrInvalidRecord          = errors.New("invalid record")
	ErrTooLarge               = errors.New("batch too large")
	ErrUnsupportedCompression = errors.New("unsupported compression")
	ErrInvalidTimestamp       = errors.New("timestamp out of range")
)

// Codec is a compression of the records, as in the attributes' low three bits.
type Codec int8

// The codecs.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

// String is the name as in compression.type.
func (c Codec) String() string {
	if !c.Valid() {
		return fmt.Sprintf("codec(%d)", int8(c))
	}
	return codecNames[c]
}

// Valid reports whether c is one of the five.
func (c Codec) Valid() bool { return c >= None && c <= Zstd }

// ParseCodec is the inverse of String; "uncompressed" is another name of none.
func ParseCodec(s string) (Codec, bool) {
	if s == "uncompressed" {
		return None, true
	}
	for c, name := range codecNames {
		if s == name {
			return Codec(c), true
		}
	}
	return 0, false
}

// Header is the fixed part of a batch, as numbers.
type Header struct {
	BaseOffset           types.Offset      // of the first record; stamped by the leader
	Length               int32             // bytes after the length field
	PartitionLeaderEpoch types.LeaderEpoch // stamped by the leader
	Magic                int8
	CRC                  uint32 // CRC-32C from the attributes to the end
	Attributes           int16
	LastOffsetDelta      int32 // last offset minus base offset; stays when compaction removes records
	BaseTimestamp        types.Millis
	MaxTimestamp         types.Millis
	ProducerID           types.ProducerID
	ProducerEpoch        int16
	BaseSequence         int32
	RecordsCount         int32
}

// ParseHeader reads the header of the batch that b begins with. It needs
// HeaderSize bytes, not the whole batch. It refuses what no later byte can mend:
// ErrMagic, ErrLength, ErrCorrupt (negative base offset, delta or count, offsets
// beyond 63 bits); ErrShort if b ends inside the header.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("%w: %d of %d header bytes", ErrShort, len(b), HeaderSize)
	}
	h := Header{
		BaseOffset:           types.Offset(be64(b, posBaseOffset)),
		Length:               be32(b, posLength),
		PartitionLeaderEpoch: types.LeaderEpoch(be32(b, posLeaderEpoch)),
		Magic:                int8(b[posMagic]),
		CRC:                  binary.BigEndian.Uint32(b[posCRC:]),
		Attributes:           be16(b, posAttributes),
		LastOffsetDelta:      be32(b, posLastOffsetDelta),
		BaseTimestamp:        types.Millis(be64(b, posBaseTimestamp)),
		MaxTimestamp:         types.Millis(be64(b, posMaxTimestamp)),
		ProducerID:           types.ProducerID(be64(b, posProducerID)),
		ProducerEpoch:        be16(b, posProducerEpoch),
		BaseSequence:         be32(b, posBaseSequence),
		RecordsCount:         be32(b, posRecordsCount),
	}
	return h, h.check()
}

// check refuses headers that no writer produces.
func (h *Header) check() error {
	switch {
	case h.Magic != Magic:
		return fmt.Errorf("%w: magic %d", ErrMagic, h.Magic)
	case h.Length < HeaderSize-Overhead || h.Length > maxLength:
		return fmt.Errorf("%w: %d", ErrLength, h.Length)
	case h.BaseOffset < 0 || h.LastOffsetDelta < 0 || h.RecordsCount < 0:
		return fmt.Errorf("%w: base offset %d, last offset delta %d, %d records", ErrCorrupt, h.BaseOffset, h.LastOffsetDelta, h.RecordsCount)
	case h.BaseOffset+types.Offset(h.LastOffsetDelta)+1 < 0:
		return fmt.Errorf("%w: offsets from %d on overflow", ErrCorrupt, h.BaseOffset)
	}
	return nil
}

// maxLength keeps Size within 32 bits.
const maxLength = 1<<31 - 1 - Overhead

// Size is the whole batch in bytes, its 12-byte head included.
func (h *Header) Size() int { return int(h.Length) + Overhead }

// LastOffset is the offset of the last record, also if compaction removed it.
func (h *Header) LastOffset() types.Offset { return h.BaseOffset + types.Offset(h.LastOffsetDelta) }

// NextOffset is what the log end becomes when the batch is appended.
func (h *Header) NextOffset() types.Offset { return h.LastOffset() + 1 }

// Compression is the codec as stated; Valid tells whether there is such a one.
func (h *Header) Compression() Codec { return Codec(h.Attributes & attrCodec) }

// IsTransactional reports whether the batch belongs to a transaction (KIP-98).
func (h *Header) IsTransactional() bool { return h.Attributes&attrTransactional != 0 }

// IsControl reports whether the batch is a marker and not client data.
func (h *Header) IsControl() bool { return h.Attributes&attrControl != 0 }

// IsLogAppendTime reports whether MaxTimestamp is the broker's and holds for every record.
func (h *Header) IsLogAppendTime() bool { return h.Attributes&attrLogAppendTime != 0 }

// HasDeleteHorizon reports whether BaseTimestamp is a delete horizon, set by compaction (KIP-534).
func (h *Header) HasDeleteHorizon() bool { return h.Attributes&attrDeleteHorizon != 0 }

// HasProducer reports whether the batch is idempotent or transactional.
func (h *Header) HasProducer() bool { return h.ProducerID >= 0 }

// LastSequence is the sequence number of the last record; sequences wrap from
// 2^31-1 to 0. -1 without a sequence.
func (h *Header) LastSequence() int32 {
	if h.BaseSequence < 0 {
		return -1
	}
	return AddSequence(h.BaseSequence, h.LastOffsetDelta)
}

// AddSequence is seq + n with n >= 0, wrapping from 2^31-1 to 0 as Kafka's producers do.
func AddSequence(seq, n int32) int32 {
	return int32((int64(seq) + int64(n)) & (1<<31 - 1))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum computes the CRC-32C of a whole batch, from the attributes to the end.
func Checksum(raw []byte) uint32 { return crc32.Checksum(raw[posAttributes:], castagnoli) }

// VerifyCRC checks that raw, exactly one whole batch, has the checksum it states.
func VerifyCRC(raw []byte) error {
	if len(raw) < HeaderSize {
		return fmt.Errorf("%w: %d of %d header bytes", ErrShort, len(raw), HeaderSize)
	}
	if stated, computed := binary.BigEndian.Uint32(raw[posCRC:]), Checksum(raw); stated != computed {
		return fmt.Errorf("%w: stated %08x, computed %08x", ErrCRC, stated, computed)
	}
	return nil
}

// Stamp writes base offset and partition leader epoch into a batch. Both lie
// outside the checksum, so the rest of the bytes stay as received (§3 of the
// design: an append never recomputes a checksum). raw has at least HeaderSize bytes.
func Stamp(raw []byte, base types.Offset, epoch types.LeaderEpoch) {
	_ = raw[HeaderSize-1]
	binary.BigEndian.PutUint64(raw[posBaseOffset:], uint64(base))
	binary.BigEndian.PutUint32(raw[posLeaderEpoch:], uint32(epoch))
}

// SetLogAppendTime marks a batch as carrying the broker's time and recomputes
// the checksum: the one change, with recompression, that an append makes inside it.
func SetLogAppendTime(raw []byte, ts types.Millis) {
	attrs := binary.BigEndian.Uint16(raw[posAttributes:])
	binary.BigEndian.PutUint16(raw[posAttributes:], attrs|attrLogAppendTime)
	binary.BigEndian.PutUint64(raw[posMaxTimestamp:], uint64(ts))
	SetChecksum(raw)
}

// SetMaxTimestamp corrects the largest record time and recomputes the checksum.
// Kafka parity: an append does so where a client stated another one.
func SetMaxTimestamp(raw []byte, ts types.Millis) {
	binary.BigEndian.PutUint64(raw[posMaxTimestamp:], uint64(ts))
	SetChecksum(raw)
}

// SetChecksum computes and stores the checksum of a whole batch.
func SetChecksum(raw []byte) { binary.BigEndian.PutUint32(raw[posCRC:], Checksum(raw)) }

func be16(b []byte, at int) int16 { return int16(binary.BigEndian.Uint16(b[at:])) }
func be32(b []byte, at int) int32 { return int32(binary.BigEndian.Uint32(b[at:])) }
func be64(b []byte, at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
