package compare

import (
	"context"
	"fmt"

	"tidemark/internal/core/types"
)

// Read visits the raw batches of one partition from an offset (or the log start,
// if that is higher) to the end that a consumer sees, and gives both. raw holds until the next one.
func Read(ctx context.Context, s Side, tp types.TopicPartition, from types.Offset, visit func(raw []byte) error) (start, end types.Offset, err error) {
	layout, err := layoutOf(ctx, s, []string{tp.Topic})
	if err != nil {
		return 0, 0, err
	}
	p, ok := layout[tp]
	if !ok {
		return 0, 0, fmt.Errorf("%s does not have %s", s.Name, tp)
	}
	if start, end, err = bounds(ctx, s, p); err != nil {
		return 0, 0, err
	}
	start = max(start, from)
	for r := newReader(s, p, start); ; {
		raw, err := r.next(ctx, end)
		if err != nil || raw == nil {
			return start, end, err
		}
		if err := visit(raw); err != nil {
			return start, end, err
		}
	}
}
