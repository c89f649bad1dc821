package history

import (
	"cmp"
	"maps"
	"slices"

	"tidemark/internal/core/types"
)

// groups: what a group has committed past was given to one of its members. It
// is for groups that begin at the start of the log.
func (c *checker) groups() {
	type group struct {
		name string
		tp   types.TopicPartition
	}
	given, ends := map[group]map[types.Offset]bool{}, map[group]types.Offset{}
	for _, p := range c.h.Polls {
		if p.Group == "" {
			continue
		}
		g := group{p.Group, p.Partition}
		if given[g] == nil {
			given[g] = map[types.Offset]bool{}
		}
		given[g][p.Offset] = true
	}
	members := map[string]bool{}
	for g := range given {
		members[g.name] = true
	}
	for _, m := range c.h.Commits {
		if g := (group{m.Group, m.Partition}); members[m.Group] && m.Offset > ends[g] {
			ends[g] = m.Offset
		}
	}
	known := c.knownOffsets()
	keys := slices.SortedFunc(maps.Keys(ends), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.name, b.name), place{tp: a.tp}.compare(place{tp: b.tp}))
	})
	for _, g := range keys {
		for _, at := range known[g.tp] {
			if at < ends[g] && !given[g][at] {
				c.report(GroupSkip, place{g.tp, at}, "group %s committed %d, and none of its members was given this record", g.name, ends[g])
			}
		}
	}
}

// transactions: nothing of them is seen before the producer asks for their end,
// and in the end all of one is visible, or nothing.
func (c *checker) transactions() {
	byValue, began := map[string]Send{}, map[string]int64{}
	for _, t := range c.h.Txns {
		began[t.Name] = t.EndBegan
	}
	type parts struct{ seen, unseen []Send }
	all, visible := map[string]*parts{}, map[string]bool{}
	for _, s := range c.h.Sends {
		if s.Txn != "" {
			byValue[s.Value] = s
		}
	}
	for _, p := range c.h.Polls {
		s, ok := byValue[p.Value]
		if !ok {
			continue
		}
		visible[p.Value] = true
		if at, asked := began[s.Txn]; !asked || p.At < at {
			c.report(PrecommittedRead, place{p.Partition, p.Offset}, "%s was given %q of transaction %s before its producer asked to commit it", p.Consumer, brief(p.Value), s.Txn)
		}
	}
	for _, s := range c.h.Sends {
		if s.Txn == "" || s.Outcome != Unknown { // of the others, other rules speak
			continue
		}
		if all[s.Txn] == nil {
			all[s.Txn] = &parts{}
		}
		if visible[s.Value] {
			all[s.Txn].seen = append(all[s.Txn].seen, s)
		} else {
			all[s.Txn].unseen = append(all[s.Txn].unseen, s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if p := all[name]; c.h.Final && len(p.seen) > 0 && len(p.unseen) > 0 {
			c.report(TornTransaction, place{p.unseen[0].Partition, types.NoOffset}, "%q of transaction %s can't be read, %q can", brief(p.unseen[0].Value), name, brief(p.seen[0].Value))
		}
	}
}
