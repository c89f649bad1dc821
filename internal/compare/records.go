package compare

import (
	"bytes"
	"context"
	"fmt"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// flatRecord is one record with what its batch says of it.
type flatRecord struct {
	offset types.Offset
	epoch  types.LeaderEpoch
	batch.Record
}

// compareRecords walks two logs of which either may lack records: those that both hold must be equal.
func compareRecords(ctx context.Context, ra, rb *reader, r Result) (Result, error) {
	sa, sb := &recordStream{r: ra}, &recordStream{r: rb}
	x, err := sa.next(ctx, r.To)
	if err != nil {
		return r, err
	}
	y, err := sb.next(ctx, r.To)
	if err != nil {
		return r, err
	}
	for x != nil && y != nil {
		switch {
		case x.offset < y.offset:
			x, err = sa.next(ctx, r.To)
		case y.offset < x.offset:
			y, err = sb.next(ctx, r.To)
		default:
			if what := recordDifference(x, y); what != "" {
				r.Difference = fmt.Sprintf("record at offset %d differs between %s and %s: %s", x.offset, ra.side.Name, rb.side.Name, what)
				return r, nil
			}
			r.Batches++
			r.Bytes += int64(len(x.Key) + len(x.Value))
			if x, err = sa.next(ctx, r.To); err == nil {
				y, err = sb.next(ctx, r.To)
			}
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// recordDifference names the first field in which two records differ, or "".
func recordDifference(x, y *flatRecord) string {
	switch {
	case x.epoch != y.epoch:
		return fmt.Sprintf("leader epoch %d and %d", x.epoch, y.epoch)
	case x.Timestamp != y.Timestamp:
		return fmt.Sprintf("timestamp %d and %d", x.Timestamp, y.Timestamp)
	case !bytes.Equal(x.Key, y.Key) || (x.Key == nil) != (y.Key == nil):
		return "key"
	case !bytes.Equal(x.Value, y.Value) || (x.Value == nil) != (y.Value == nil):
		return "value"
	case len(x.Headers) != len(y.Headers):
		return fmt.Sprintf("%d and %d headers", len(x.Headers), len(y.Headers))
	}
	for i := range x.Headers {
		if !equalHeader(x.Headers[i], y.Headers[i]) {
			return fmt.Sprintf("header %d", i)
		}
	}
	return ""
}

// recordStream gives a reader's records one at a time.
type recordStream struct {
	r       *reader
	pending []*flatRecord
}
