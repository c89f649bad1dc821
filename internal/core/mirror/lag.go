package mirror

import "tidemark/internal/core/types"

// LagNow is how far the copy is behind, as known here.
type LagNow struct {
	// Records is the source's end minus ours, 0 if not known yet.
	Records int64
	// Bytes is an estimate from the mean size per offset of what was copied last.
	Bytes int64
	// Millis is the age of the oldest source record that we lack, counted from
	// when we first saw the source's end pass it; 0 if we lack none.
	Millis types.Millis
}
