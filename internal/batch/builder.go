package batch

import (
	"encoding/binary"
	"fmt"
	"math"

	"tidemark/internal/assert"
	"tidemark/internal/core/types"
)

// BuilderOptions describe the batch that a Builder makes. The zero value makes
// an uncompressed CreateTime batch at offset 0 with neither epoch nor producer.
type BuilderOptions struct {
	Codec         Codec
	BaseOffset    types.Offset
	LeaderEpoch   types.LeaderEpoch // 0 is an epoch: say NoLeaderEpoch for none
	Producer      *Producer         // nil: neither idempotent nor transactional
	Transactional bool
	Control       bool
	// LogAppendTime, if not nil, makes the batch carry the broker's time.
	LogAppendTime *types.Millis
	// DeleteHorizon, if not nil, is the time from which compaction may drop the
	// batch's tombstones (KIP-534); it takes the place of the base timestamp.
	DeleteHorizon *types.Millis
	// LastOffset, if not nil, is kept as the batch's last offset also if no
	// record has it: compaction never renumbers. It is at least the last record's.
	LastOffset *types.Offset
}

// Producer identifies the writer of an idempotent batch (KIP-98).
type Producer struct {
	ID           types.ProducerID
	Epoch        int16
	BaseSequence int32
}

// Builder makes one batch from records. Append the records in offset order, then
// Build. A Builder may be reused after Reset.
//
// Invariant I-02: the offsets of a batch's records rise and lie within 31 bits of its base offset.
type Builder struct {
	opts    BuilderOptions
	records []byte
	count   int32
	base    types.Millis
	max     types.Millis
	last    types.Offset
}

// NewBuilder starts a batch.
func NewBuilder(opts BuilderOptions) *Builder {
	b := &Builder{}
	b.Reset(opts)
	return b
}

// Reset starts another batch and keeps the memory.
func (b *Builder) Reset(opts BuilderOptions) {
	*b = Builder{opts: opts, records: b.records[:0], max: types.NoTimestamp, base: types.NoTimestamp, last: opts.BaseOffset - 1}
	if opts.DeleteHorizon != nil {
		b.base = *opts.DeleteHorizon
	}
}

// Count is the number of records appended.
func (b *Builder) Count() int { return int(b.count) }

// Size is the batch's size in bytes before compression.
func (b *Builder) Size() int { return HeaderSize + len(b.records) }

// Append adds a record at the next offset. nil key or value is null.
func (b *Builder) Append(ts types.Millis, key, value []byte, headers ...RecordHeader) {
	b.AppendAt(b.last+1, ts, key, value, headers...)
}

// AppendAt adds a record at an offset that is above all before it.
func (b *Builder) AppendAt(offset types.Offset, ts types.Millis, key, value []byte, headers ...RecordHeader) {
	size := varintSize(int32(len(headers)))
	for _, h := range headers {
		size += sizedSize(len(h.Key), false) + sizedSize(len(h.Value), h.Value == nil)
	}
	b.start(offset, ts, 0, key, value, size)
	b.records = appendVarint(b.records, int32(len(headers)))
	for _, h := range headers {
		b.records = appendVarint(b.records, int32(len(h.Key)))
		b.records = append(b.records, h.Key...)
		b.records = appendSized(b.records, h.Value)
	}
}

// AppendRecord adds a decoded record at its own offset and time, headers as they are.
func (b *Builder) AppendRecord(r *Record) {
	b.start(r.Offset, r.Timestamp, r.Attributes, r.Key, r.Value, varintSize(r.count)+len(r.headers))
	b.records = appendVarint(b.records, r.count)
	b.records = append(b.records, r.headers...)
}

// start writes everything of a record up to its headers, which will take headersSize bytes.
func (b *Builder) start(offset types.Offset, ts types.Millis, attributes int8, key, value []byte, headersSize int) {
	if offset <= b.last || offset-b.opts.BaseOffset > math.MaxInt32 { // arguments are built on failure only
		assert.That(false, "I-02: record at %d after %d in a batch from %d", offset, b.last, b.opts.BaseOffset)
	}
	if b.count == 0 && b.opts.DeleteHorizon == nil {
		b.base = ts
	}
	b.count++
	b.last = offset
	b.max = max(b.max, ts)
	deltaTime, deltaOffset := int64(ts-b.base), int32(offset-b.opts.BaseOffset)
	size := 1 + varlongSize(deltaTime) + varintSize(deltaOffset) + sizedSize(len(key), key == nil) + sizedSize(len(value), value == nil) + headersSize
	b.records = appendVarint(b.records, int32(size))
	b.records = append(b.records, byte(attributes))
	b.records = appendVarlong(b.records, deltaTime)
	b.records = appendVarint(b.records, deltaOffset)
	b.records = appendSized(b.records, key)
	b.records = appendSized(b.records, value)
}

// Build gives the batch. A batch without records is fine where LastOffset is set
// (compaction leaves those), else it is refused, as is one beyond 31 bits of
// size or offset span.
func (b *Builder) Build() ([]byte, error) {
	last := b.last
	if b.opts.LastOffset != nil {
		last = max(last, *b.opts.LastOffset)
	}
	span := last - b.opts.BaseOffset
	if span < 0 || span > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d records over offsets %d to %d", ErrInvalidRecord, b.count, b.opts.BaseOffset, last)
	}
	raw := make([]byte, HeaderSize, HeaderSize+len(b.records))
	codec := b.opts.Codec
	if b.count == 0 {
		codec = None
	}
	raw, err := compress(raw, codec, b.records)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxLength {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(raw))
	}
	b.writeHeader(raw, codec, int32(span))
	return raw, nil
}

func (b *Builder) writeHeader(raw []byte, codec Codec, lastOffsetDelta int32) {
	attributes, maxTimestamp := uint16(codec), b.max
	if b.opts.LogAppendTime != nil {
		attributes |= attrLogAppendTime
		maxTimestamp = *b.opts.LogAppendTime
	}
	if b.opts.Transactional {
		attributes |= attrTransactional
	}
	if b.opts.Control {
		attributes |= attrControl
	}
	if b.opts.DeleteHorizon != nil {
		attributes |= attrDeleteHorizon
	}
	producer := Producer{ID: types.NoProducer, Epoch: -1, BaseSequence: -1}
	if b.opts.Producer != nil {
		producer = *b.opts.Producer
	}
	be := binary.BigEndian
	be.PutUint64(raw[posBaseOffset:], uint64(b.opts.BaseOffset))
	be.PutUint32(raw[posLength:], uint32(len(raw)-Overhead))
	be.PutUint32(raw[posLeaderEpoch:], uint32(b.opts.LeaderEpoch))
	raw[posMagic] = Magic
	be.PutUint16(raw[posAttributes:], attributes)
	be.PutUint32(raw[posLastOffsetDelta:], uint32(lastOffsetDelta))
	be.PutUint64(raw[posBaseTimestamp:], uint64(b.base))
	be.PutUint64(raw[posMaxTimestamp:], uint64(maxTimestamp))
	be.PutUint64(raw[posProducerID:], uint64(producer.ID))
	be.PutUint16(raw[posProducerEpoch:], uint16(producer.Epoch))
	be.PutUint32(raw[posBaseSequence:], uint32(producer.BaseSequence))
	be.PutUint32(raw[posRecordsCount:], uint32(b.count))
	SetChecksum(raw)
}

func appendSized(b, v []byte) []byte {
	if v == nil {
		return appendVarint(b, -1)
	}
	return append(appendVarint(b, int32(len(v))), v...)
}

func sizedSize(n int, null bool) int {
	if null {
		return 1
	}
	return varintSize(int32(n)) + n
}
