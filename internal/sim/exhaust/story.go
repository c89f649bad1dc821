package exhaust

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// Story is a counterexample: the shortest way to a broken invariant.
type Story struct {
	Invariant, Detail string
	// Depth is the number of its steps.
	Depth int
	// Lines tell it, step by step.
	Lines []string

	path []action
}

// tell plays the story once more and writes it down.
func (t *Story) tell(w *world, s *state) {
	t.Lines = append(t.Lines, "first: "+w.about)
	t.Lines = append(t.Lines, describeState(w, s)...)
	for i, a := range t.path {
		x := &step{w: w, s: s.clone(), telling: true}
		x.carryOut(a)
		s = x.s
		line := fmt.Sprintf("%2d. %s", i+1, a)
		if len(x.notes) > 0 {
			line += ": " + strings.Join(x.notes, "; ")
		}
		t.Lines = append(t.Lines, line)
	}
	t.Lines = append(t.Lines, fmt.Sprintf("%s: %s", t.Invariant, t.Detail))
	t.Lines = append(t.Lines, describeState(w, s)...)
}

// Write prints the story.
func (t *Story) Write(w io.Writer) error {
	_, err := io.WriteString(w, strings.Join(t.Lines, "\n")+"\n")
	return err
}

// describeState writes a state in a line for each cluster and replica.
func describeState(w *world, s *state) []string {
	var lines []string
	for c := range s.c {
		if w.only && c > 0 {
			break
		}
		k := &s.c[c]
		lines = append(lines, fmt.Sprintf("    %s: %s", clusterIDs[c], describe(k.rec)))
		for i, n := range k.nodes {
			state := "down"
			switch {
			case n.up && n.serves():
				state = "serves"
			case n.up:
				state = "up"
			}
			lines = append(lines, fmt.Sprintf("    %s %s: %s, high watermark %d, history %v, applied %s, %d vault entries",
				name(c, i), state, n.log.String(), n.log.HighWatermark, &n.log.History, describeList(n.point.List), len(n.vault)))
		}
	}
	return lines
}

// CollisionChance is the chance that two of so many states had one fingerprint,
// so that one of them, and what follows from it, was not looked at.
func CollisionChance(states int64) float64 {
	n := float64(states)
	return -math.Expm1(-n * (n - 1) / 2 / math.Pow(2, 64))
}

// String is the level as one line of a table.
func (l Level) String() string {
	return fmt.Sprintf("%5d %14d %14d %16d %10d %12.0f %8d MiB", l.Depth, l.States, l.Total, l.Steps, l.Rested, float64(l.Total)/l.Took.Seconds(), l.MemoryBytes>>20)
}

// TableHead is the line above levels.
const TableHead = "depth     new states         states            steps     rested     states/s   memory"

// seen is the number of states that were looked at.
func (r *Result) seen() int64 {
	if n := len(r.Levels); n > 0 {
		return r.Levels[n-1].Total + r.Beyond
	}
	return 1 + r.Beyond
}

// Summary says in words how far a search came.
func (r *Result) Summary() string {
	seen := r.seen()
	s := fmt.Sprintf("%d states, complete to depth %d", seen, r.Complete)
	switch {
	case r.Exhausted:
		s += ", and nothing lies beyond"
	case r.Partial:
		s += fmt.Sprintf(" (%d of them of the next depth, which was not finished)", r.Beyond)
	}
	return s + fmt.Sprintf("; %v, %.0f states/s, chance of a missed state below %.1e", r.Took.Round(100*time.Millisecond), float64(seen)/r.Took.Seconds(), CollisionChance(seen))
}
