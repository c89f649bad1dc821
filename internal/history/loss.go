package history

import (
	"slices"

	"tidemark/internal/core/types"
)

// checkWindows judges a history between its losses: each part by itself, since
// across a loss offsets may be given anew; and that losses took ends of logs only.
func (h *History) checkWindows() []Finding {
	var found []Finding
	from := int64(-1)
	for i := range len(h.Losses) + 1 {
		last := i == len(h.Losses)
		inside := func(at int64) bool { return at > from && (last || at <= h.Losses[i].At) }
		found = append(found, h.window(from, inside, last).checkWindow(i == 0, last)...)
		if !last {
			from = h.Losses[i].At
		}
	}
	return append(found, h.holes()...)
}

// window is what happened between two losses, the first of them at from. What was
// acknowledged outside it may be there or not. A record that was under way when
// the log lost what it knew of its producer may be written twice, or after later ones;
// and its acknowledgement may have come from before the loss to a slow client, so that
// only a reader inside the window shows that it was there after it. A coordinator that
// lost the end of its log may leave a transaction open for good, and with it whatever lies
// above it: after a loss no commit binds, and of the aborted ones only those that began then.
func (h *History) window(from int64, inside func(int64) bool, last bool) *History {
	w := &History{Txns: h.Txns, Starts: h.Starts, Final: h.Final && last}
	type written struct {
		tp     types.TopicPartition
		offset types.Offset
		value  string
	}
	underWay := map[written]bool{} // straddles the loss; true: read after it
	for _, s := range h.Sends {
		if s.Began <= from && s.Outcome == Acked && inside(s.At) {
			underWay[written{s.Partition, s.Offset, s.Value}] = false
		}
	}
	for _, p := range h.Polls {
		at := written{p.Partition, p.Offset, p.Value}
		if _, ok := underWay[at]; ok && inside(p.At) {
			underWay[at] = true
		}
	}
	old := map[string]bool{} // transactions that began before the loss
	for _, s := range h.Sends {
		if s.Txn != "" && s.Began <= from {
			old[s.Txn] = true
		}
	}
	for _, s := range h.Sends {
		if s.Txn != "" && from >= 0 && (s.Outcome == Acked || old[s.Txn]) {
			s.Outcome, s.Offset = Unknown, types.NoOffset
		}
		s.straddles = s.Began <= from
		read := !s.straddles || underWay[written{s.Partition, s.Offset, s.Value}]
		if s.Outcome == Acked && (!inside(s.At) || !read) {
			s.Outcome, s.Offset = Unknown, types.NoOffset
		}
		w.Sends = append(w.Sends, s)
	}
	for _, p := range h.Polls {
		if inside(p.At) {
			w.Polls = append(w.Polls, p)
		}
	}
	for _, m := range h.Commits {
		if inside(m.Began) && inside(m.Ended) {
			w.Commits = append(w.Commits, m)
		}
	}
	return w
}

// checkWindow is Check without the rules that need all of a group's reads, or, before
// the last window, a reading of everything. After a loss a group whose offset lies
// above the log's end is set back by its consumers, and commits that.
func (h *History) checkWindow(first, last bool) []Finding {
	c := newChecker(h)
	c.offsets()
	c.duplicates()
	c.reads()
	if last {
		c.lost()
	}
	c.polls()
	c.sendOrder()
	if first {
		c.commits()
	}
	return c.found
}

// holes: of what was acknowledged before a loss, and after the one before, only the
// end of a log may be missing after it; of transactions it says nothing. What straddled the one before may belong to either side of it.
func (h *History) holes() []Finding {
	if !h.Final {
		return nil
	}
	c := newChecker(&History{})
	after := h.Losses[len(h.Losses)-1].At
	read := map[string]bool{} // in the end
	for _, p := range h.Polls {
		if p.At > after {
			read[p.Value] = true
		}
	}
	from := int64(-1)
	for _, loss := range h.Losses {
		kept := map[types.TopicPartition]Send{} // the highest that is still there
		isOld := func(s Send) bool {
			return s.Outcome == Acked && !s.Weak && s.Txn == "" && s.Began > from && s.At <= loss.At
		}
		for _, s := range h.Sends {
			if top, ok := kept[s.Partition]; isOld(s) && read[s.Value] && (!ok || s.Offset > top.Offset) {
				kept[s.Partition] = s
			}
		}
		for _, s := range h.Sends {
			top, ok := kept[s.Partition]
			if isOld(s) && !read[s.Value] && ok && s.Offset < top.Offset && !h.isDeleted(s.Partition, s.Offset) {
				c.report(HoleAfterLoss, place{s.Partition, s.Offset}, "%q of %s is gone, and %q above it at %d is not", brief(s.Value), s.Producer, brief(top.Value), top.Offset)
			}
		}
		from = loss.At
	}
	return slices.CompactFunc(c.found, func(a, b Finding) bool { return a == b })
}
