package sim

import (
	"bytes"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
)

// crashing takes note of what the process has made durable; it runs at the moment
// of the crash. power: what was not synced may be lost. A process that ends before
// it has opened a log takes nothing back of what the one before it lost.
func (k *checker) crashing(n *standby, power bool) {
	for _, c := range n.parts {
		if v, ok := c.inline.Partition().View(); ok {
			k.of(c).synced = v.RecoveryPoint
		}
	}
	for _, s := range k.shadows {
		s.lostPower = s.lostPower || power
	}
}

// opened judges a log after a start: what was durable is there, or in the vault
// (a cut was under way), and nothing else than what was there before.
func (k *checker) opened(c *copyPart) {
	l := c.inline.Partition().Log()
	v := l.View()
	s := k.of(c)
	fresh, err := readFrom(l, v.LogStart)
	if err != nil {
		k.fail("LogReadable", "%s after a start: %v", c.tp, err)
		return
	}
	old, oldEnd, lost := s.batches, s.end, s.lostPower
	s.lostPower = false
	for o := range s.own { // what was lost may be written again
		if o >= v.LogEnd {
			delete(s.own, o)
		}
	}
	s.batches, s.start, s.end = nil, v.LogStart, v.LogEnd
	s.known = true
	known := shadow{batches: old}
	for i := range fresh {
		b := &fresh[i]
		if j := known.index(b.base); j < len(old) && old[j].base == b.base && bytes.Equal(old[j].raw, b.raw) {
			s.batches = append(s.batches, old[j])
			continue
		}
		k.append(c, s, fresh[i:], -1)
		break
	}
	s.served = 0
	for i := range old {
		b := &old[i]
		durable := !lost || b.next <= s.synced
		if !durable || b.next <= s.start || s.has(b) || k.w.node.vault.Usage().DroppedRecords > 0 {
			continue
		}
		if !k.inVault(c, b.raw) {
			k.fail("VaultComplete", "%s: %s was durable (synced to %d, log end %d) when the process ended; it is neither in the log [%d, %d) nor in the vault",
				c.tp, b, s.synced, oldEnd, s.start, s.end)
			return
		}
	}
	k.laterKept = 0
	k.history(c, s, v)
}

// history compares a log's leader epoch history with the one that its batches
// imply (EpochHistory): an entry for every rise, at the log end before the batch
// (R4), and at the most one more at the end, the leader's own.
func (k *checker) history(c *copyPart, s *shadow, v log.View) {
	if k.w.k.failure != nil || v.History == nil {
		return
	}
	entries := v.History.Entries()
	bad := func(format string, args ...any) {
		k.fail("EpochHistory", "%s: history %v of log [%d, %d): "+format, append([]any{c.tp, v.History, v.LogStart, v.LogEnd}, args...)...)
	}
	i := 0
	for j := range s.batches {
		b := &s.batches[j]
		if b.next <= v.LogStart {
			continue
		}
		if i > 0 && entries[i-1].Epoch == b.epoch {
			continue
		}
		if i == len(entries) || entries[i].Epoch != b.epoch {
			bad("no entry for %s", b)
			return
		}
		if why := misplaced(entries[i], b, before(s.batches, j), v.LogStart, i == 0); why != "" {
			bad("%s", why)
			return
		}
		i++
	}
	rest := entries[i:]
	rec := k.record(c) // an image that isn't published yet may have shown it
	own := rec != nil && rec.Writable && len(rest) == 1 && rest[0].Start == v.LogEnd
	if len(rest) > 0 && !own {
		bad("entries %v have no records", rest)
	}
}

// before is the offset behind the batch below batches[j], -1 if there is none.
func before(batches []shadowBatch, j int) types.Offset {
	if j == 0 {
		return -1
	}
	return batches[j-1].next
}

// misplaced says what is wrong with where an entry begins.
func misplaced(e epoch.Entry, b *shadowBatch, prev, logStart types.Offset, first bool) string {
	switch {
	case e.Start > b.base && e.Start > logStart:
		return "entry " + e.String() + " begins above its batch " + b.String()
	case first && (prev < 0 || prev <= logStart):
		return "" // where it began was deleted, or never seen
	case e.Start == prev || b.oldEnd >= 0 && e.Start == b.oldEnd || prev < 0:
		return ""
	case b.oldEnd < 0 && e.Start >= prev && e.Start < b.base:
		return "" // the log end lay in a gap, and nobody saw it
	}
	return "entry " + e.String() + " doesn't begin where the log ended before " + b.String()
}
