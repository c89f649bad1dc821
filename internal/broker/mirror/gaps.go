package mirror

import (
	"context"
	"slices"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
)

// awaitGaps waits, for a while, until the records of partitions led here say that they stand
// at a gap where their copiers do: the status has told it by then, and a verb for those
// partitions would hear that there are none.
func (m *Mirrors) awaitGaps(ctx context.Context, p part) {
	r := m.run(p.Mirror)
	if r == nil {
		return
	}
	ctx, cancel := clock.WithTimeout(ctx, runPatience)
	defer cancel()
	for slices.ContainsFunc(r.all(), func(c *copier) bool { return p.names(c.tp.Topic) && m.owesGap(c) }) {
		if !pause(ctx, 10*time.Millisecond) {
			return
		}
	}
}

// owesGap reports whether a copier stands at a gap that its partition's record is yet to say.
func (m *Mirrors) owesGap(c *copier) bool {
	s := c.status.Load()
	rec, _ := m.o.Node.Image().Partition(c.id.Topic, c.id.Number)
	if s == nil || s.Reason != core.SourceGap || rec == nil || rec.Leader != m.o.Node.Me().ID {
		return false
	}
	return rec.IsMirror() && (rec.Mirror.State == meta.MirrorMirroring || rec.Mirror.State == meta.MirrorLogAlignment)
}
