package batch

import (
	"fmt"
	"sync"

	"tidemark/internal/core/types"
)

// RecordHeader is one key-value pair of a record (KIP-82). Value nil is null.
type RecordHeader struct {
	Key   string
	Value []byte
}

// Record is one decoded record. Its slices point into the batch, or into the
// Scratch where the batch is compressed, and hold until the Scratch's next use.
type Record struct {
	Attributes     int8 // unused by Kafka, kept
	OffsetDelta    int32
	TimestampDelta int64
	Offset         types.Offset
	Timestamp      types.Millis // the batch's MaxTimestamp under LogAppendTime
	Key, Value     []byte       // nil is null

	headers []byte // encoded headers, already checked
	count   int32
}

// HeaderCount is the number of headers.
func (r *Record) HeaderCount() int { return int(r.count) }

// Headers decodes the headers, nil if there are none. It allocates.
func (r *Record) Headers() []RecordHeader {
	if r.count == 0 {
		return nil
	}
	out := make([]RecordHeader, 0, r.count)
	b := r.headers
	for range r.count {
		var key, value []byte
		key, b, _ = sized(b)
		value, b, _ = sized(b)
		out = append(out, RecordHeader{Key: string(key), Value: value})
	}
	return out
}

// DefaultMaxDecoded bounds the decompressed size of a batch, in bytes, unless a
// Scratch says otherwise. A batch that holds more is refused with ErrTooLarge.
const DefaultMaxDecoded = 128 << 20

// Scratch holds the memory that decoding reuses. The zero value is ready. It
// serves one goroutine at a time; records decoded with it end with its next use.
type Scratch struct {
	MaxDecoded int // bytes; 0 means DefaultMaxDecoded

	decoded []byte
}

func (s *Scratch) limit() int {
	if s.MaxDecoded > 0 {
		return s.MaxDecoded
	}
	return DefaultMaxDecoded
}

var scratches = sync.Pool{New: func() any { return new(Scratch) }}

// maxPooled is the largest buffer in bytes that stays allocated between batches.
const maxPooled = 4 << 20

// borrowScratch gives shared memory with the limit of s, which may be nil.
func borrowScratch(s *Scratch) *Scratch {
	shared := scratches.Get().(*Scratch)
	shared.MaxDecoded = 0
	if s != nil {
		shared.MaxDecoded = s.MaxDecoded
	}
	return shared
}

// giveBack ends the use of everything decoded with a borrowed scratch.
func (s *Scratch) giveBack() {
	if cap(s.decoded) > maxPooled {
		s.decoded = nil
	}
	scratches.Put(s)
}

// RecordIterator walks the records of one batch:
//
//	for it := batch.Records(raw, &scratch); it.Next(); {
//		use(it.Record)
//	}
//
// Err tells after the last Next whether all records announced were there and
// nothing else was.
type RecordIterator struct {
	Record Record

	header Header
	rest   []byte
	left   int32
	err    error
}

// Records starts a walk over the records of raw, exactly one whole batch, and
// decompresses them if need be. scratch may be nil.
func Records(raw []byte, scratch *Scratch) RecordIterator {
	h, err := ParseHeader(raw)
	if err != nil {
		return RecordIterator{err: err}
	}
	if h.Size() != len(raw) {
		return RecordIterator{err: fmt.Errorf("%w: batch of %d bytes in %d", ErrCorrupt, h.Size(), len(raw))}
	}
	it := RecordIterator{header: h, left: h.RecordsCount}
	if scratch == nil {
		scratch = &Scratch{}
	}
	it.rest, it.err = scratch.decompress(h.Compression(), raw[HeaderSize:])
	return it
}

// Next decodes the next record; false after the last one or at damage.
func (it *RecordIterator) Next() bool {
	if it.err != nil {
		return false
	}
	if it.left == 0 {
		if len(it.rest) > 0 {
			it.err = fmt.Errorf("%w: %d bytes after the last record", ErrInvalidRecord, len(it.rest))
		}
		return false
	}
	if it.rest, it.err = it.Record.parse(it.rest); it.err != nil {
		it.err = fmt.Errorf("record %d of %d: %w", it.header.RecordsCount-it.left, it.header.RecordsCount, it.err)
		return false
	}
	it.left--
	r := &it.Record
	r.Offset = it.header.BaseOffset + types.Offset(r.OffsetDelta)
	r.Timestamp = it.header.BaseTimestamp + types.Millis(r.TimestampDelta)
	if it.header.IsLogAppendTime() {
		r.Timestamp = it.header.MaxTimestamp
	}
	return true
}

// Err is nil if the walk ended where the batch did.
func (it *RecordIterator) Err() error { return it.err }

// parse decodes one record from the front of b and returns what follows it.
func (r *Record) parse(b []byte) (rest []byte, err error) {
	length, n := varint(b)
	if n == 0 || length < 0 || int(length) > len(b)-n {
		return nil, fmt.Errorf("%w: length %d, %d bytes left", ErrInvalidRecord, length, len(b)-n)
	}
	body, rest := b[n:n+int(length)], b[n+int(length):]
	if len(body) == 0 {
		return nil, fmt.Errorf("%w: no attributes", ErrInvalidRecord)
	}
	r.Attributes, body = int8(body[0]), body[1:]
	if r.TimestampDelta, n = varlong(body); n == 0 {
		return nil, fmt.Errorf("%w: timestamp delta", ErrInvalidRecord)
	}
	body = body[n:]
	if r.OffsetDelta, n = varint(body); n == 0 {
		return nil, fmt.Errorf("%w: offset delta", ErrInvalidRecord)
	}
	body = body[n:]
	if r.Key, body, err = sized(body); err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if r.Value, body, err = sized(body); err != nil {
		return nil, fmt.Errorf("value: %w", err)
	}
	if r.count, n = varint(body); n == 0 || r.count < 0 || int(r.count) > len(body)/2 {
		return nil, fmt.Errorf("%w: %d headers in %d bytes", ErrInvalidRecord, r.count, len(body))
	}
	r.headers = body[n:]
	return rest, r.checkHeaders()
}

// checkHeaders walks the encoded headers, so that Headers can't fail.
func (r *Record) checkHeaders() (err error) {
	b := r.headers
	for range r.count {
		var key []byte
		if key, b, err = sized(b); err != nil || key == nil {
			return fmt.Errorf("%w: header key", ErrInvalidRecord)
		}
		if _, b, err = sized(b); err != nil {
			return fmt.Errorf("header value: %w", err)
		}
	}
	if len(b) > 0 {
		return fmt.Errorf("%w: %d bytes after the headers", ErrInvalidRecord, len(b))
	}
	return nil
}

// sized reads a length and that many bytes; length -1 is null.
func sized(b []byte) (value, rest []byte, err error) {
	length, n := varint(b)
	if n == 0 || length < -1 || int(length) > len(b)-n {
		return nil, nil, fmt.Errorf("%w: length %d, %d bytes left", ErrInvalidRecord, length, len(b)-n)
	}
	if length < 0 {
		return nil, b[n:], nil
	}
	end := n + int(length)
	return b[n:end:end], b[end:], nil
}
