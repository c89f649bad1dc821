package sim

import (
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tidemark/internal/probe"
)

// Search says what to look through.
type Search struct {
	From    uint64 // the first seed
	Count   int    // runs; 0: as many as the time allows
	For     time.Duration
	Workers int // runs at a time, each on its own goroutine; 0: 1
	Profile string
	// Profiles, if not empty, are taken in turns in the place of Profile: a seed with the first one, the next with the second, and so on.
	Profiles []string
	Mutation string
	// Mixtures, if not empty, are taken in turns, each with its own profile (Run.Mixture).
	Mixtures []string
	// Stop ends the search at the first failure.
	Stop bool
	// Found is told of each failure, one at a time.
	Found func(*Result)
}

// Totals are the figures of a search.
type Totals struct {
	Runs, Steps int
	Virtual     time.Duration
	Took        time.Duration
	Failures    map[string]int // by invariant
	Probes      map[string]int
	Shares      map[string]*Share // by profile
}

// Share is one profile's part of a search.
type Share struct {
	Runs, Steps, Failed int
	Virtual             time.Duration
}

// Look makes one run after another until the count or the time is used up. Runs
// share nothing, so that several go at once; which seeds are run doesn't depend on it but for the time.
func Look(s Search) (Totals, error) {
	began := time.Now()
	t := Totals{Failures: map[string]int{}, Probes: map[string]int{}, Shares: map[string]*Share{}}
	before := probe.Counts()
	var mu sync.Mutex // guards t, next, fault
	next, stopped := s.From, false
	var fault error
	work := func() {
		for {
			mu.Lock()
			over := stopped || fault != nil || s.Count > 0 && next-s.From >= uint64(s.Count) || s.For > 0 && time.Since(began) >= s.For
			seed := next
			next++
			mu.Unlock()
			if over {
				return
			}
			r, err := Make(s.runOf(seed))
			mu.Lock()
			if err != nil {
				fault = err
			} else {
				t.add(r)
				if r.Failure != nil {
					stopped = stopped || s.Stop
					if s.Found != nil {
						s.Found(r)
					}
				}
			}
			mu.Unlock()
		}
	}
	var workers sync.WaitGroup
	for range max(s.Workers, 1) {
		workers.Go(work)
	}
	workers.Wait()
	t.Took = time.Since(began)
	for name, n := range probe.Counts() {
		if n -= before[name]; n > 0 {
			t.Probes[codeProbe+name] += int(n)
		}
	}
	return t, fault
}

// codeProbe begins the name of a probe that stands in the product (package probe).
const codeProbe = "code: "

// Profiles lists the mixtures that runs can be made with.
func Profiles() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for _, list := range []iter.Seq[string]{maps.Keys(profiles), maps.Keys(clusterProfiles), maps.Keys(mirrorsProfiles)} {
			for name := range list {
				if !yield(name) {
					return
				}
			}
		}
	})
}

func (s *Search) runOf(seed uint64) Run {
	if n := uint64(len(s.Mixtures)); n > 0 {
		return Run{Seed: seed, Mixture: s.Mixtures[(seed-s.From)%n]}
	}
	return Run{Seed: seed, Profile: s.profileOf(seed), Mutation: s.Mutation}
}

func (s *Search) profileOf(seed uint64) string {
	if len(s.Profiles) == 0 {
		return s.Profile
	}
	return s.Profiles[(seed-s.From)%uint64(len(s.Profiles))]
}

func (t *Totals) add(r *Result) {
	t.Runs++
	t.Steps += r.Steps
	t.Virtual += r.Virtual
	for name, n := range r.Probes {
		t.Probes[name] += n
	}
	share := t.Shares[r.Run.Profile]
	if share == nil {
		share = &Share{}
		t.Shares[r.Run.Profile] = share
	}
	share.Runs++
	share.Steps += r.Steps
	share.Virtual += r.Virtual
	if r.Failure != nil {
		share.Failed++
		t.Failures[r.Failure.Invariant]++
	}
}

// String gives the figures: what was run, how fast, what was found.
func (t Totals) String() string {
	s := max(t.Took.Seconds(), 1e-9)
	out := fmt.Sprintf("%d runs, %d steps, %.1f virtual hours in %v: %.0f steps a second, %.0f times real time",
		t.Runs, t.Steps, t.Virtual.Hours(), t.Took.Round(time.Millisecond), float64(t.Steps)/s, t.Virtual.Seconds()/s)
	if len(t.Failures) == 0 {
		return out + "; nothing found"
	}
	for _, name := range slices.Sorted(maps.Keys(t.Failures)) {
		out += fmt.Sprintf("; %s broken in %d", name, t.Failures[name])
	}
	return out
}

// Table gives the figures, a line for each profile before the sum.
func (t Totals) Table() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(t.Shares)) {
		s := t.Shares[name]
		fmt.Fprintf(&b, "%-18s %7d runs %11d steps %8.1f virtual hours %4d failed\n", name, s.Runs, s.Steps, s.Virtual.Hours(), s.Failed)
	}
	return b.String() + t.String()
}

// Shrink looks for fewer actions that still break the same invariant, within a
// bound of runs: whole halves first, then smaller and smaller pieces (ddmin).
func Shrink(r *Result, runsMost int) (*Result, error) {
	if r.Failure == nil {
		return r, nil
	}
	best := r
	keep := r.Run.Keep
	if keep == nil {
		for _, a := range r.plan {
			if a.at <= r.Failure.At {
				keep = append(keep, a.number)
			}
		}
	}
	try := func(numbers []int) (bool, error) {
		runsMost--
		run := r.Run
		run.Keep, run.Story = append([]int{}, numbers...), false
		out, err := Make(run)
		if err != nil || out.Failure == nil || out.Failure.Invariant != r.Failure.Invariant {
			return false, err
		}
		best, keep = out, run.Keep
		return true, nil
	}
	if _, err := try(keep); err != nil {
		return nil, err
	}
	for piece := (len(keep) + 1) / 2; piece >= 1; {
		removed := false
		for at := 0; at < len(keep) && runsMost > 0; {
			fewer := slices.Delete(slices.Clone(keep), at, min(at+piece, len(keep)))
			ok, err := try(fewer)
			if err != nil {
				return nil, err
			}
			if ok {
				removed = true
			} else {
				at += piece
			}
		}
		if runsMost <= 0 || piece == 1 && !removed {
			break
		}
		piece = max(piece/2, 1)
	}
	return best, nil
}

// SeedLine is a run as a line of the seeds file: what tests replay for ever.
func SeedLine(r Run, note string) string {
	line := fmt.Sprintf("seed=%d profile=%s", r.Seed, r.Profile)
	if r.Mutation != "" {
		line += " mutation=" + r.Mutation
	}
	if r.Mixture != "" {
		line += " mixture=" + r.Mixture
	}
	if r.Keep != nil {
		words := make([]string, len(r.Keep))
		for i, n := range r.Keep {
			words[i] = strconv.Itoa(n)
		}
		line += " keep=" + strings.Join(words, ",")
	}
	if note != "" {
		line += " # " + note
	}
	return line
}

// ParseSeeds reads a seeds file; empty lines and what follows a # say nothing to it.
func ParseSeeds(text string) ([]Run, error) {
	var out []Run
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		var r Run
		for _, word := range strings.Fields(line) {
			key, value, _ := strings.Cut(word, "=")
			if err := r.set(key, value); err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
		}
		out = append(out, r)
	}
	return out, nil
}

func (r *Run) set(key, value string) (err error) {
	switch key {
	case "seed":
		r.Seed, err = strconv.ParseUint(value, 10, 64)
	case "profile":
		r.Profile = value
	case "mutation":
		r.Mutation = value
	case "mixture":
		r.Mixture = value
	case "keep":
		r.Keep = []int{}
		for _, word := range strings.Split(value, ",") {
			n, err := strconv.Atoi(word)
			if err != nil {
				return err
			}
			r.Keep = append(r.Keep, n)
		}
	default:
		err = fmt.Errorf("unknown word %q", key)
	}
	return err
}

// WritePlan prints the actions that a run kept.
func (r *Result) WritePlan(w io.Writer) error {
	for _, a := range r.plan {
		if r.Run.Keep != nil && !slices.Contains(r.Run.Keep, a.number) {
			continue
		}
		if _, err := fmt.Fprintln(w, a); err != nil {
			return err
		}
	}
	return nil
}
