package statelog

import (
	"context"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/types"
)

// Steady gives time that doesn't jump, for timers, beside the wall clock's, for
// records: a wall clock that is set must end neither sessions nor transactions.
type Steady struct {
	ctx   context.Context
	start time.Time
	base  types.Millis
	wall  func() types.Millis
}

// NewSteady begins at the wall clock's time.
func NewSteady(ctx context.Context, wall func() types.Millis) Steady {
	return Steady{ctx: ctx, start: clock.Now(ctx), base: max(wall(), 1), wall: wall}
}

// Now is the time that doesn't jump.
func (s *Steady) Now() types.Millis {
	return s.base + types.Millis(clock.Since(s.ctx, s.start)/time.Millisecond)
}

// Wall is the wall clock's time.
func (s *Steady) Wall() types.Millis { return s.wall() }
