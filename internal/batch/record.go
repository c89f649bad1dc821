package batch

import (
	"tidemark/internal/core/types"
)

// RecordHeader is one key-value pair of a record (KIP-82). Value nil is null.
type RecordHeader struct {
	Key   string
	Value []byte
}

// Record is one decoded record. Slices point into the decompressed batch and
// hold until the next use of the Scratch that decoded it.
type Record struct {
	Attributes     int8
	OffsetDelta    int32
	TimestampDelta int64
	Offset         types.Offset
	Timestamp      types.Millis // the batch's MaxTimestamp under LogAppendTime
	Key, Value     []byte       // nil is null
	Headers        []RecordHeader
}
