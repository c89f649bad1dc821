package group

import "tidemark/internal/core/types"

// timers order the groups that have a deadline by when they wake: a binary
// heap. A group whose wake is brought forward is put in once more; its older
// entry is stale and falls out when its time comes. Groups without a deadline,
// such as the many that are only offsets, aren't in it at all.
type timers []timer

type timer struct {
	at types.Millis
	g  *group
}

// next gives the time of the first entry.
func (t timers) next() (types.Millis, bool) {
	if len(t) == 0 {
		return 0, false
	}
	return t[0].at, true
}

// push puts in a group at its present wake.
func (t *timers) push(g *group) {
	h := append(*t, timer{at: g.wake, g: g})
	*t = h
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if h[parent].at <= h[i].at {
			break
		}
		h[parent], h[i] = h[i], h[parent]
		i = parent
	}
}

// due takes out a group that wakes at or before now; nil if there is none.
func (t *timers) due(now types.Millis) *group {
	for len(*t) > 0 && (*t)[0].at <= now {
		first := t.pop()
		if first.g.wake == first.at {
			// A second entry of the same time must not wake it again.
			first.g.wake = 0
			return first.g
		}
	}
	return nil
}

func (t *timers) pop() timer {
	h := *t
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], timer{}
	h = h[:last]
	*t = h
	for i := 0; ; {
		least, left, right := i, 2*i+1, 2*i+2
		if left < last && h[left].at < h[least].at {
			least = left
		}
		if right < last && h[right].at < h[least].at {
			least = right
		}
		if least == i {
			return first
		}
		h[least], h[i] = h[i], h[least]
		i = least
	}
}
