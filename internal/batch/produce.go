package batch

import (
	"errors"
	"fmt"
	"strings"

	"tidemark/internal/core/types"
)

// ProduceRules are a topic's rules for what clients append. MaxBytes 0 is off.
type ProduceRules struct {
	MaxBytes      int  // max.message.bytes, over the whole batch as received
	Compacted     bool // cleanup.policy has compact: every record needs a key
	LogAppendTime bool // message.timestamp.type: client times aren't judged
	RefuseZstd    bool // the request's version predates zstd (Produce below v7)
	// Shallow leaves compressed batches packed unless Compacted needs the keys:
	// then a lying record inside one is found by its readers only.
	// Kafka parity: not shallow.
	Shallow bool
	// Now, BeforeMax and AfterMax bound record times under CreateTime
	// (message.timestamp.{before,after}.max.ms); a negative bound is off.
	Now, BeforeMax, AfterMax types.Millis
}

// Produced is what validation found.
type Produced struct {
	Header Header
	// MaxTimestamp is the largest record time, NoTimestamp if all lack one. Where
	// it differs from the header's the log corrects that by SetMaxTimestamp.
	// Kafka parity: some clients leave the field unset.
	MaxTimestamp types.Millis
}

// MaxTimestampDiffers reports whether the header states another largest time than the records have.
func (p *Produced) MaxTimestampDiffers() bool { return p.MaxTimestamp != p.Header.MaxTimestamp }

// RecordError is one refused record of a batch.
type RecordError struct {
	Index  int // of the record in the batch, from 0
	Reason string
}

// RecordsError refuses a batch for some of its records (KIP-467). Kind is
// ErrInvalidRecord or ErrInvalidTimestamp.
type RecordsError struct {
	Kind    error
	Records []RecordError // at most maxRecordErrors
}

// add notes one more refused record; the receiver may be nil. A batch with
// records refused for both reasons is an invalid one.
func (e *RecordsError) add(index int32, kind error, reason string) *RecordsError {
	if e == nil {
		e = &RecordsError{Kind: kind}
	}
	if errors.Is(kind, ErrInvalidRecord) {
		e.Kind = kind
	}
	if len(e.Records) < maxRecordErrors {
		e.Records = append(e.Records, RecordError{Index: int(index), Reason: reason})
	}
	return e
}

// Error names the first refused records.
func (e *RecordsError) Error() string {
	words := make([]string, 0, 3)
	for _, r := range e.Records[:min(3, len(e.Records))] {
		words = append(words, fmt.Sprintf("record %d: %s", r.Index, r.Reason))
	}
	return fmt.Sprintf("%s: %s", e.Kind, strings.Join(words, "; "))
}

// Unwrap gives the kind.
func (e *RecordsError) Unwrap() error { return e.Kind }

// maxRecordErrors bounds the answer to a batch full of refused records.
const maxRecordErrors = 100

// ValidateForProduce checks what a client sent for one partition: exactly one
// whole batch of format 2, within size, with its checksum, counts, offsets,
// times and, on compacted topics, keys in order. Nothing is changed. scratch, which
// may be nil, only bounds the decompressed size: the memory is shared by all
// callers, so that a node's partitions keep none each.
//
// Errors by meaning: ErrCorrupt, ErrCRC, ErrShort and ErrLength are Kafka's
// CORRUPT_MESSAGE; ErrMagic and ErrInvalidRecord INVALID_RECORD; ErrTooLarge
// MESSAGE_TOO_LARGE; ErrUnsupportedCompression UNSUPPORTED_COMPRESSION_TYPE;
// ErrInvalidTimestamp INVALID_TIMESTAMP. Refused records come as a *RecordsError.
func ValidateForProduce(raw []byte, rules ProduceRules, scratch *Scratch) (Produced, error) {
	h, err := ParseHeader(raw)
	if err != nil {
		return Produced{}, err
	}
	if h.Size() > len(raw) {
		return Produced{}, fmt.Errorf("%w: %d of %d bytes", ErrShort, len(raw), h.Size())
	}
	if h.Size() < len(raw) {
		return Produced{}, fmt.Errorf("%w: %d bytes after the one batch allowed for a partition", ErrInvalidRecord, len(raw)-h.Size())
	}
	if rules.MaxBytes > 0 && len(raw) > rules.MaxBytes {
		return Produced{}, fmt.Errorf("%w: %d bytes, %d allowed", ErrTooLarge, len(raw), rules.MaxBytes)
	}
	if err := VerifyCRC(raw); err != nil {
		return Produced{}, err
	}
	if err := checkProducedHeader(&h, rules); err != nil {
		return Produced{}, err
	}
	p := Produced{Header: h, MaxTimestamp: h.MaxTimestamp}
	if h.Compression() != None && rules.Shallow && !rules.Compacted {
		return p, nil
	}
	p.MaxTimestamp, err = checkProducedRecords(raw, rules, scratch)
	return p, err
}

// checkProducedHeader judges what the header alone tells.
func checkProducedHeader(h *Header, rules ProduceRules) error {
	switch {
	case h.BaseOffset != 0:
		return fmt.Errorf("%w: base offset %d, a client's is 0", ErrInvalidRecord, h.BaseOffset)
	case h.RecordsCount == 0:
		return fmt.Errorf("%w: no records", ErrInvalidRecord)
	case h.RecordsCount != h.LastOffsetDelta+1:
		return fmt.Errorf("%w: %d records over %d offsets", ErrInvalidRecord, h.RecordsCount, int64(h.LastOffsetDelta)+1)
	case h.IsControl():
		return fmt.Errorf("%w: a client can't write control batches", ErrInvalidRecord)
	case h.HasProducer() && (h.BaseSequence < 0 || h.ProducerEpoch < 0):
		return fmt.Errorf("%w: producer %d with epoch %d and sequence %d", ErrInvalidRecord, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	case h.IsTransactional() && !h.HasProducer():
		return fmt.Errorf("%w: transactional without a producer id", ErrInvalidRecord)
	case !h.Compression().Valid():
		return fmt.Errorf("%w: %s", ErrInvalidRecord, h.Compression())
	case h.Compression() == Zstd && rules.RefuseZstd:
		return fmt.Errorf("%w: zstd needs Produce v7", ErrUnsupportedCompression)
	case h.IsLogAppendTime():
		return fmt.Errorf("%w: LogAppendTime is the broker's to set", ErrInvalidTimestamp)
	}
	return nil
}

// checkProducedRecords walks the records and gives the largest time.
func checkProducedRecords(raw []byte, rules ProduceRules, scratch *Scratch) (types.Millis, error) {
	maxTimestamp := types.NoTimestamp
	var refused *RecordsError
	index := int32(0)
	shared := borrowScratch(scratch)
	defer shared.giveBack()
	it := Records(raw, shared)
	for it.Next() {
		r := &it.Record
		maxTimestamp = max(maxTimestamp, r.Timestamp)
		switch {
		case r.OffsetDelta != index:
			return 0, fmt.Errorf("%w: record %d has offset delta %d", ErrInvalidRecord, index, r.OffsetDelta)
		case rules.Compacted && r.Key == nil:
			refused = refused.add(index, ErrInvalidRecord, "no key, on a compacted topic")
		case !rules.timeFits(r.Timestamp):
			refused = refused.add(index, ErrInvalidTimestamp, fmt.Sprintf("timestamp %d is out of range at %d", r.Timestamp, rules.Now))
		}
		index++
	}
	if err := it.Err(); err != nil {
		return 0, err
	}
	if refused != nil {
		return 0, refused
	}
	return maxTimestamp, nil
}

func (r *ProduceRules) timeFits(ts types.Millis) bool {
	if r.LogAppendTime || ts == types.NoTimestamp {
		return true
	}
	tooOld := r.BeforeMax >= 0 && r.Now-ts > r.BeforeMax
	tooNew := r.AfterMax >= 0 && ts-r.Now > r.AfterMax
	return !tooOld && !tooNew
}
