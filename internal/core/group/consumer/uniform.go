package consumer

import (
	"cmp"
	"slices"

	"tidemark/internal/core/types"
)

// assignUniform gives members as many partitions as each other, as far as what they
// subscribe to allows, and leaves with a member what it had as far as that goes (KIP-848).
func assignUniform(subjects []subject) [][]Partition {
	u := newUniform(subjects)
	u.keep()
	if u.sameForAll() {
		u.level()
	}
	u.handOut()
	if !u.sameForAll() {
		u.balance()
	}
	targets := make([][]Partition, len(subjects))
	for i := range targets {
		targets[i] = u.held[i]
		slices.SortFunc(targets[i], Partition.Compare)
	}
	return targets
}

// uniform is one computation.
type uniform struct {
	subjects []subject
	topics   []Topic // all that anybody subscribes to
	readers  map[types.TopicID][]int
	held     [][]Partition
	free     []Partition // in nobody's hands
}

func newUniform(subjects []subject) *uniform {
	u := &uniform{subjects: subjects, readers: map[types.TopicID][]int{}, held: make([][]Partition, len(subjects))}
	for i, s := range subjects {
		for _, t := range s.topics {
			if u.readers[t.ID] == nil {
				u.topics = append(u.topics, t)
			}
			u.readers[t.ID] = append(u.readers[t.ID], i)
		}
	}
	return u
}

// sameForAll reports whether all members subscribe to the same topics.
func (u *uniform) sameForAll() bool {
	for _, t := range u.topics {
		if len(u.readers[t.ID]) != len(u.subjects) {
			return false
		}
	}
	return true
}

// keep leaves with each member what it had and may still read; the rest is free.
func (u *uniform) keep() {
	taken := map[Partition]bool{}
	for i, s := range u.subjects {
		reads := make(map[types.TopicID]int32, len(s.topics))
		for _, t := range s.topics {
			reads[t.ID] = t.Partitions
		}
		for _, p := range s.had {
			if p.Number < reads[p.Topic] && !taken[p] {
				taken[p] = true
				u.held[i] = append(u.held[i], p)
			}
		}
	}
	for _, t := range u.topics {
		for n := range t.Partitions {
			if p := (Partition{t.ID, n}); !taken[p] {
				u.free = append(u.free, p)
			}
		}
	}
}

// level takes from members what is more than their share. As many may have one more as
// the division leaves over: those who have it already, first.
func (u *uniform) level() {
	if len(u.subjects) == 0 {
		return
	}
	all := len(u.free)
	for _, held := range u.held {
		all += len(held)
	}
	share, more := all/len(u.subjects), all%len(u.subjects)
	for i, held := range u.held {
		most := share
		if len(held) > share && more > 0 {
			most, more = share+1, more-1
		}
		if len(held) > most {
			u.free = append(u.free, held[most:]...)
			u.held[i] = held[:most:most]
		}
	}
}

// handOut gives each free partition to the reader of its topic that has the fewest.
// Topics with few readers come first: theirs can go nowhere else.
func (u *uniform) handOut() {
	slices.SortStableFunc(u.free, func(a, b Partition) int { return cmp.Compare(len(u.readers[a.Topic]), len(u.readers[b.Topic])) })
	if u.sameForAll() {
		u.handOutInTurn()
		return
	}
	for _, p := range u.free {
		to := slices.MinFunc(u.readers[p.Topic], func(a, b int) int { return cmp.Compare(len(u.held[a]), len(u.held[b])) })
		u.held[to] = append(u.held[to], p)
	}
	u.free = nil
}

// handOutInTurn is handOut where all may read all: it fills up the emptiest hands, without looking for them each time.
func (u *uniform) handOutInTurn() {
	order := make([]int, len(u.subjects))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(u.held[a]), len(u.held[b])) })
	for len(u.free) > 0 {
		least := len(u.held[order[0]])
		for _, i := range order {
			if len(u.held[i]) > least || len(u.free) == 0 {
				break
			}
			u.held[i] = append(u.held[i], u.free[0])
			u.free = u.free[1:]
		}
	}
}

// balance moves partitions from a reader that has many to one that has fewer by two or
// more, until there are no such two. Each move brings the counts closer, so it ends.
func (u *uniform) balance() {
	for moved := true; moved; {
		moved = false
		for _, t := range u.topics {
			for u.moveOne(t.ID) {
				moved = true
			}
		}
	}
}

// moveOne moves one partition of a topic; false if none is to be moved.
func (u *uniform) moveOne(topic types.TopicID) bool {
	readers := u.readers[topic]
	to := slices.MinFunc(readers, func(a, b int) int { return cmp.Compare(len(u.held[a]), len(u.held[b])) })
	from, at := -1, -1
	for _, i := range readers {
		if len(u.held[i]) < len(u.held[to])+2 || from >= 0 && len(u.held[i]) <= len(u.held[from]) {
			continue
		}
		last := len(u.held[i]) - 1
		for n := last; n >= 0; n-- { // what came last goes first: the rest it may have had before
			if u.held[i][n].Topic == topic {
				from, at = i, n
				break
			}
		}
	}
	if from < 0 {
		return false
	}
	p := u.held[from][at]
	u.held[from] = slices.Delete(u.held[from], at, at+1)
	u.held[to] = append(u.held[to], p)
	return true
}
