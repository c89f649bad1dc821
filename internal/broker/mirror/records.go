package mirror

import (
	"bytes"
	"slices"

	"tidemark/internal/batch"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
)

// recordsOf decodes whole batches into their records by offset. Control batches
// and batches whose codec is unknown are left out.
func recordsOf(raw []byte, into map[types.Offset]batch.Record) error {
	for it := batch.Iterate(raw); it.Next(); {
		if it.Header.IsControl() {
			continue
		}
		records := batch.Records(it.Raw, nil)
		for records.Next() {
			into[records.Record.Offset] = records.Record
		}
		if err := records.Err(); err != nil {
			return err
		}
	}
	return nil // a partial batch at the end is what a byte limit leaves
}

// sameRecord reports whether two records are equal but for the batch they are in.
func sameRecord(a, b *batch.Record) bool {
	return a.Timestamp == b.Timestamp && bytes.Equal(a.Key, b.Key) && (a.Key == nil) == (b.Key == nil) &&
		bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil) &&
		slices.EqualFunc(a.Headers(), b.Headers(), func(x, y batch.RecordHeader) bool {
			return x.Key == y.Key && bytes.Equal(x.Value, y.Value) && (x.Value == nil) == (y.Value == nil)
		})
}

// compareRecords compares the records of an own batch of a compacted topic with
// the source's: a record that is missing says nothing.
func compareRecords(own []byte, h batch.Header, theirs []byte) (core.ProbeResult, error) {
	mine, others := map[types.Offset]batch.Record{}, map[types.Offset]batch.Record{}
	if err := recordsOf(own, mine); err != nil {
		return 0, err
	}
	if err := recordsOf(theirs, others); err != nil {
		return 0, err
	}
	result := core.ProbeMissing
	for offset, m := range mine {
		o, ok := others[offset]
		if !ok {
			continue
		}
		if !sameRecord(&m, &o) {
			return core.ProbeDifferent, nil
		}
		result = core.ProbeSame
	}
	_ = h
	return result, nil
}
