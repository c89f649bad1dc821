package exhaust

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tidemark/internal/assert"
)

// Search says what to look through.
type Search struct {
	// World is where it begins; empty: "whole", or where the mutation shows best.
	World    string
	Mutation string // a rule that is switched off; empty: none
	// Depth is the number of steps to search to, 0: as far as it goes within For.
	Depth int
	// For bounds the time, 0: not bounded.
	For time.Duration
	// Jobs is how many states are worked on at a time, at least 1.
	Jobs int
	// MemoryBytes bounds what is remembered of states; 0: 3 GiB.
	MemoryBytes int64
	// Sample is the share of states that convergence is tried from: one of so many; 0: none.
	Sample uint64
	// Level is told of each depth when it is complete; may be nil.
	Level func(Level)
}

// Level is what one depth added.
type Level struct {
	Depth int
	// States are new at this depth, Total up to it.
	States, Total int64
	// Steps are the transitions computed so far; Rested the states from which convergence was tried.
	Steps, Rested int64
	Took          time.Duration
	MemoryBytes   int64
}

// Result is what a search found.
type Result struct {
	Levels []Level
	// Complete is the deepest depth all of whose states were seen; Partial, that the
	// next one was begun, of which Beyond states were seen.
	Complete int
	Partial  bool
	Beyond   int64
	// Exhausted: no state has a successor that was not seen.
	Exhausted bool
	Took      time.Duration
	Story     *Story // the shortest counterexample, nil if there is none
}

// entry is one state in the tree of steps: the step that leads to it, and how
// many states were first seen from it.
type entry uint32

func (e entry) action() action { return action(e & 0xffff) }
func (e entry) kids() int      { return int(e >> 16) }

// branch is a part of the tree: the steps to its root, and below it, level by
// level, the states that were first seen there. The kids of a level's states
// follow each other in the next one.
type branch struct {
	path   []action
	levels [][]entry
}

// searcher is a search under way.
type searcher struct {
	Search
	w        *world
	began    time.Time
	first    *state
	visited  visited
	branches []*branch
	depth    int // of the states that are being looked for

	states, added, steps, rested, entries atomic.Int64
	stop                                  atomic.Bool

	mu    sync.Mutex // guards the following
	story *Story
}

// Look searches. The error says that the search can't be made as asked for.
func Look(s Search) (*Result, error) {
	m, err := mutationNamed(s.Mutation)
	if err != nil {
		return nil, err
	}
	name := s.World
	if name == "" {
		name = cmp.Or(m.world, "whole")
	}
	w, err := worldNamed(name)
	if err != nil {
		return nil, err
	}
	w.rules = m.rules
	w.rules.name = m.name
	if s.World == "" {
		w.narrow(m)
		if s.Depth == 0 {
			s.Depth = m.depth
		}
	}
	return look(s, w)
}

func look(s Search, w *world) (*Result, error) {
	if s.MemoryBytes == 0 {
		s.MemoryBytes = 3 << 30
	}
	first, err := w.first()
	if err != nil {
		return nil, err
	}
	x := &searcher{Search: s, w: w, began: time.Now(), first: first, branches: []*branch{{}}}
	x.Jobs = max(x.Jobs, 1)
	x.visited.add(fingerprintOf(newEncoder().encode(first)))
	x.states.Store(1)
	return x.run(), nil
}

func (x *searcher) run() *Result {
	out := &Result{}
	for x.depth = 1; x.Depth == 0 || x.depth <= x.Depth; x.depth++ {
		x.added.Store(0)
		x.level()
		added := x.added.Load()
		if x.stop.Load() {
			out.Partial, out.Beyond = true, added
			break
		}
		if added == 0 {
			out.Exhausted = true
			break
		}
		l := Level{Depth: x.depth, States: added, Total: x.states.Load(), Steps: x.steps.Load(), Rested: x.rested.Load(), Took: time.Since(x.began), MemoryBytes: x.memory()}
		out.Levels, out.Complete = append(out.Levels, l), x.depth
		if x.Level != nil {
			x.Level(l)
		}
		x.split()
	}
	out.Took = time.Since(x.began)
	if x.story != nil {
		out.Story = x.story
		out.Story.tell(x.w, x.first)
	}
	return out
}

// memory is what is remembered of states, in bytes.
func (x *searcher) memory() int64 { return x.visited.bytes() + 4*x.entries.Load() }

// level expands all states of the deepest level.
func (x *searcher) level() {
	var next atomic.Int64
	var work sync.WaitGroup
	for range x.Jobs {
		work.Go(func() {
			e := &explorer{x: x, encoder: newEncoder()}
			for !x.stop.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(x.branches) {
					return
				}
				e.expandBranch(x.branches[i])
			}
		})
	}
	work.Wait()
}

// branchesWanted is how many branches there should be for the jobs to share.
const branchesWanted = 256

// split makes each state of the deepest level a branch of its own, once there are enough.
func (x *searcher) split() {
	if len(x.branches) > 1 || x.added.Load() < branchesWanted {
		return
	}
	root := x.branches[0]
	var list []*branch
	cursors := make([]int, len(root.levels))
	var path []action
	var visit func(level, kids int)
	visit = func(level, kids int) {
		for range kids {
			e := root.levels[level][cursors[level]]
			cursors[level]++
			path = append(path, e.action())
			if level == len(root.levels)-1 {
				list = append(list, &branch{path: slices.Clone(path)})
			} else {
				visit(level+1, e.kids())
			}
			path = path[:len(path)-1]
		}
	}
	visit(0, len(root.levels[0]))
	x.branches = list
}

// explorer is one job of a search.
type explorer struct {
	x       *searcher
	encoder *encoder
	buf     []action
	path    []action
	added   []entry
}

// expandBranch makes the branch's states again, and looks at every successor of the deepest ones.
func (e *explorer) expandBranch(b *branch) {
	s := e.x.first
	for _, a := range b.path {
		s = e.again(s, a)
	}
	e.path = append(e.path[:0], b.path...)
	e.added = e.added[:0]
	if len(b.levels) == 0 {
		e.expand(s)
	} else {
		e.walk(b, s, 0, len(b.levels[0]), make([]int, len(b.levels)))
	}
	b.levels = append(b.levels, slices.Clone(e.added))
	e.x.entries.Add(int64(len(e.added)))
}

func (e *explorer) walk(b *branch, s *state, level, kids int, cursors []int) {
	for range kids {
		at := &b.levels[level][cursors[level]]
		cursors[level]++
		last := level == len(b.levels)-1
		if e.x.stop.Load() || !last && at.kids() == 0 {
			continue
		}
		child := e.again(s, at.action())
		e.path = append(e.path, at.action())
		if last {
			n := e.expand(child)
			*at |= entry(n) << 16
		} else {
			e.walk(b, child, level+1, at.kids(), cursors)
		}
		e.path = e.path[:len(e.path)-1]
	}
}

// again is the state that a step is known to lead to.
func (e *explorer) again(s *state, a action) *state {
	x := &step{w: e.x.w, s: s.clone()}
	// Invariant I-300: a step that led to a state leads to it again.
	assert.That(x.do(a), "I-300: %v is not possible any more", a)
	return x.s
}

// expand looks at every successor of a state, and counts the new ones.
func (e *explorer) expand(s *state) (kids int) {
	e.buf = s.candidates(e.buf[:0], e.x.w.only)
	for _, a := range e.buf {
		if e.x.stop.Load() {
			break
		}
		x, ok := e.try(s, a)
		if !ok {
			continue
		}
		kids += e.take(x, a)
		for part := 1; part <= x.cutParts; part++ {
			if y, ok := e.try(s, a.cutBefore(part)); ok {
				kids += e.take(y, a.cutBefore(part))
			}
		}
		if !a.kind().writesRecord() {
			continue
		}
		for timing := late; timing <= mineLags; timing++ {
			if y, ok := e.try(s, a.timed(timing)); ok {
				kids += e.take(y, a.timed(timing))
			}
		}
	}
	return kids
}

func (e *explorer) try(s *state, a action) (*step, bool) {
	if !s.left.has(a.cost()) {
		return nil, false
	}
	x := &step{w: e.x.w, s: s.clone()}
	ok := x.carryOut(a)
	return x, ok
}

// take looks at what a step led to; 1 if the state is new.
func (e *explorer) take(x *step, a action) int {
	steps := e.x.steps.Add(1)
	if x.problem != nil {
		e.found(x.problem, a)
		return 0
	}
	f := fingerprintOf(e.encoder.encode(x.s))
	if !e.x.visited.add(f) {
		return 0
	}
	if e.x.Sample > 0 && f%e.x.Sample == 0 {
		e.x.rested.Add(1)
		if v := e.x.w.converge(x.s, e.encoder); v != nil {
			e.found(v, a)
			return 0
		}
	}
	if steps%1024 == 0 && e.x.isOver() {
		e.x.stop.Store(true)
	}
	e.x.states.Add(1)
	e.x.added.Add(1)
	e.added = append(e.added, entry(a))
	return 1
}

// isOver reports whether time or memory are used up.
func (x *searcher) isOver() bool {
	return x.For > 0 && time.Since(x.began) > x.For || x.memory()+4*x.added.Load() > x.MemoryBytes
}

// found keeps the first counterexample and ends the search.
func (e *explorer) found(v *violation, a action) {
	x := e.x
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.story == nil {
		x.story = &Story{Invariant: v.invariant, Detail: v.detail, Depth: len(e.path) + 1, path: append(slices.Clone(e.path), a)}
	}
	x.stop.Store(true)
}
