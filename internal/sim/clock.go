package sim

import (
	"time"

	"tidemark/internal/core/types"
)

// epoch2026 is the wall clock's time when a run begins, in Unix milliseconds.
const epoch2026 = types.Millis(1_767_225_600_000)

// wallClock is one machine's wall clock: it drifts and jumps. Monotonic time is the kernel's.
type wallClock struct {
	k      *kernel
	offset time.Duration
	drift  float64 // parts of one
}

func (c *wallClock) now() types.Millis {
	t := c.k.now + c.offset + time.Duration(float64(c.k.now)*c.drift)
	return epoch2026 + types.Millis(t/time.Millisecond)
}
