package sim

import (
	"fmt"
	"time"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
)

// pauseMirror pauses every mirrored partition and resumes it after a while.
func (w *world) pauseMirror(d dice) string {
	n := w.node
	if !n.alive() || !n.serving || n.closing {
		return ""
	}
	paused := 0
	for _, c := range n.parts {
		if c.changeState(core.Pause) {
			paused++
		}
	}
	if paused == 0 {
		return ""
	}
	span := d.between(500*time.Millisecond, 10*time.Second)
	w.k.after(span, "resume", w.resumeMirror)
	return fmt.Sprintf("%d partitions for %v", paused, span.Round(time.Millisecond))
}

// resumeMirror resumes whatever is paused, and tries again until it has.
func (w *world) resumeMirror() {
	n, left := w.node, false
	if !n.alive() || !n.serving || n.closing {
		left = true
	} else {
		for _, c := range n.parts {
			if rec, _ := c.record(); rec != nil && rec.Mirror != nil && rec.Mirror.State == meta.MirrorPaused {
				left = true
				c.changeState(core.Resume)
			}
			// The image may lag behind a pause that is in the store already.
			if rec := w.check.records[c.id]; rec != nil && rec.Mirror != nil && rec.Mirror.State == meta.MirrorPaused {
				left = true
			}
		}
	}
	if left {
		w.k.after(2*time.Second, "resume", w.resumeMirror)
	}
}

// changeState writes a partition's state as an operator's verb does.
func (c *copyPart) changeState(change func(*meta.PartitionRecord) (meta.PartitionRecord, error)) bool {
	rec, rev := c.record()
	if rec == nil || rec.Mirror == nil || rec.Writable || c.promoting {
		return false
	}
	next, err := change(rec)
	if err != nil || next.Mirror.State == rec.Mirror.State {
		return false
	}
	c.n.run(func() { c.n.write(newChange(c.id, rev, next)) })
	return true
}
