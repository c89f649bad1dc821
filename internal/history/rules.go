package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"tidemark/internal/core/types"
)

// place is one offset of one partition.
type place struct {
	tp types.TopicPartition
	at types.Offset
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.tp.Topic, q.tp.Topic), cmp.Compare(p.tp.Partition, q.tp.Partition), cmp.Compare(p.at, q.at))
}

// checker holds the indexes that the rules share.
type checker struct {
	h       *History
	values  map[place][]string // distinct values seen at an offset, by sends or polls
	places  map[string][]place // distinct offsets at which a value was seen
	polled  map[place]bool
	highest map[types.TopicPartition]types.Offset // of the polls
	repeats map[string]bool                       // values that may be there twice
	found   []Finding
}

func newChecker(h *History) *checker {
	c := &checker{h: h, values: map[place][]string{}, places: map[string][]place{}, polled: map[place]bool{}, highest: map[types.TopicPartition]types.Offset{}, repeats: map[string]bool{}}
	for _, s := range h.Sends {
		if s.Weak || s.straddles {
			c.repeats[s.Value] = true
		}
		if s.Outcome == Acked && !s.Weak {
			c.see(place{s.Partition, s.Offset}, s.Value)
		}
	}
	for _, p := range h.Polls {
		at := place{p.Partition, p.Offset}
		c.see(at, p.Value)
		c.polled[at] = true
		if top, ok := c.highest[p.Partition]; !ok || p.Offset > top {
			c.highest[p.Partition] = p.Offset
		}
	}
	return c
}

func (c *checker) see(at place, value string) {
	if !slices.Contains(c.values[at], value) {
		c.values[at] = append(c.values[at], value)
	}
	if !slices.Contains(c.places[value], at) {
		c.places[value] = append(c.places[value], at)
	}
}

func (c *checker) report(rule Rule, at place, format string, args ...any) {
	c.found = append(c.found, Finding{Rule: rule, Partition: at.tp, Offset: at.at, Text: fmt.Sprintf(format, args...)})
}

// offsets: no offset has two values.
func (c *checker) offsets() {
	for _, at := range slices.SortedFunc(maps.Keys(c.values), place.compare) {
		if vs := c.values[at]; len(vs) > 1 {
			briefs := make([]string, len(vs))
			for i, v := range vs {
				briefs[i] = brief(v)
			}
			c.report(InconsistentOffset, at, "values %q", briefs)
		}
	}
}

// duplicates: no value has two offsets.
func (c *checker) duplicates() {
	for _, v := range slices.Sorted(maps.Keys(c.places)) {
		if ps := c.places[v]; len(ps) > 1 && !c.repeats[v] {
			slices.SortFunc(ps, place.compare)
			c.report(Duplicate, ps[0], "%q is also at %s %d", brief(v), ps[1].tp, ps[1].at)
		}
	}
}

// reads: polls see what was sent to that partition and didn't fail.
func (c *checker) reads() {
	sent := make(map[string]Send, len(c.h.Sends))
	for _, s := range c.h.Sends {
		sent[s.Value] = s
	}
	for _, p := range c.h.Polls {
		at := place{p.Partition, p.Offset}
		switch s, ok := sent[p.Value]; {
		case !ok || s.Partition != p.Partition:
			c.report(PhantomRead, at, "%s was given %q, which nobody sent there", p.Consumer, brief(p.Value))
		case s.Outcome == Failed:
			c.report(AbortedRead, at, "%s was given %q, a write of %s that failed", p.Consumer, brief(p.Value), s.Producer)
		}
	}
}

// lost: whatever was acknowledged was polled by somebody, or retention deleted it before.
func (c *checker) lost() {
	for _, s := range c.h.Sends {
		at := place{s.Partition, s.Offset}
		if s.Outcome != Acked || s.Weak || c.polled[at] || c.h.isDeleted(s.Partition, s.Offset) {
			continue
		}
		if top, ok := c.highest[s.Partition]; ok && s.Offset <= top {
			c.report(LostWrite, at, "%q of %s was acknowledged, and nobody was given it; polls went up to %d", brief(s.Value), s.Producer, top)
		} else if c.h.Final {
			c.report(Unseen, at, "%q of %s was acknowledged, and the final phase ended below it", brief(s.Value), s.Producer)
		}
	}
}

// polls: within one assignment a consumer is given each known record once, in order.
func (c *checker) polls() {
	known := c.knownOffsets()
	type reader struct {
		consumer   string
		assignment int
		tp         types.TopicPartition
	}
	last := map[reader]types.Offset{}
	for _, p := range c.h.Polls {
		r := reader{p.Consumer, p.Assignment, p.Partition}
		before, again := last[r]
		last[r] = p.Offset
		if !again {
			continue
		}
		at := place{p.Partition, p.Offset}
		if p.Offset <= before {
			c.report(NonMonotonicPoll, at, "%s was given %d after %d", p.Consumer, p.Offset, before)
			continue
		}
		all := known[p.Partition]
		i, _ := slices.BinarySearch(all, before+1)
		if i < len(all) && all[i] < p.Offset {
			c.report(PollSkip, at, "%s went from %d to %d; there is a record at %d", p.Consumer, before, p.Offset, all[i])
		}
	}
}

// knownOffsets are those that are known to hold records, in order.
func (c *checker) knownOffsets() map[types.TopicPartition][]types.Offset {
	known := map[types.TopicPartition][]types.Offset{}
	for at := range c.values {
		known[at.tp] = append(known[at.tp], at.at)
	}
	for _, all := range known {
		slices.Sort(all)
	}
	return known
}

// sendOrder: what one producer sends to one partition lies there in the order of sending.
func (c *checker) sendOrder() {
	type writer struct {
		producer string
		tp       types.TopicPartition
	}
	last := map[writer]Send{}
	for _, s := range c.h.Sends {
		if s.Outcome != Acked || s.Weak || s.straddles {
			continue
		}
		w := writer{s.Producer, s.Partition}
		if before, ok := last[w]; ok && s.Offset < before.Offset {
			c.report(SendOrder, place{s.Partition, s.Offset}, "%s sent %q after %q, which is at %d", s.Producer, brief(s.Value), brief(before.Value), before.Offset)
		}
		last[w] = s
	}
}

// commits: an answer that lists a group's offset is at or above everything that
// was acknowledged or listed before it was asked for.
func (c *checker) commits() {
	type group struct {
		name string
		tp   types.TopicPartition
	}
	all := map[group][]Commit{}
	for _, m := range c.h.Commits {
		g := group{m.Group, m.Partition}
		all[g] = append(all[g], m)
	}
	keys := slices.SortedFunc(maps.Keys(all), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.name, b.name), place{tp: a.tp}.compare(place{tp: b.tp}))
	})
	for _, g := range keys {
		byEnd := slices.SortedStableFunc(slices.Values(all[g]), func(a, b Commit) int { return cmp.Compare(a.Ended, b.Ended) })
		byBegin := slices.SortedStableFunc(slices.Values(all[g]), func(a, b Commit) int { return cmp.Compare(a.Began, b.Began) })
		top, done := Commit{Offset: types.NoOffset}, 0
		for _, m := range byBegin {
			for ; done < len(byEnd) && byEnd[done].Ended < m.Began; done++ {
				if byEnd[done].Offset > top.Offset {
					top = byEnd[done]
				}
			}
			if m.Listed && m.Offset < top.Offset {
				c.report(CommitFalls, place{g.tp, m.Offset}, "group %s: %d was %s before", g.name, top.Offset, how(top))
			}
		}
	}
}

func how(m Commit) string {
	if m.Listed {
		return "listed"
	}
	return "acknowledged"
}
