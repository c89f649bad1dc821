package sim

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// WriteStory prints what happened, one line an event, with the options before and the failure after.
func (r *Result) WriteStory(w io.Writer) error {
	head := fmt.Sprintf("seed %d, profile %s\n%s\n\n%s\n", r.Run.Seed, r.Run.Profile, r.Options, legend)
	if r.Run.Mixture != "" {
		head = fmt.Sprintf("mixture %s\n%s", r.Run.Mixture, head)
	}
	if r.Run.Mutation != "" {
		m, err := MutationNamed(r.Run.Mutation)
		if err != nil {
			return err
		}
		head = fmt.Sprintf("MUTATION %s: %s\n%s", m.Name, m.Rule, head)
	}
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	if err := r.story.write(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", r.Summary())
	return err
}

// Summary is the outcome in one line.
func (r *Result) Summary() string {
	verdict := "nothing found"
	if r.Failure != nil {
		verdict = "FAILED: " + r.Failure.String()
	}
	seed := fmt.Sprintf("seed %d", r.Run.Seed)
	if r.Run.Mixture != "" {
		seed += " with mixture " + r.Run.Mixture
	}
	return fmt.Sprintf("%s: %d steps, %v virtual, %d actions planned, trace %016x: %s", seed, r.Steps, r.Virtual.Round(1e6), r.Actions, r.Trace, verdict)
}

// ProbeTable prints how often each rare branch was reached, those of known that never were included.
func ProbeTable(reached map[string]int, known []string) string {
	names := slices.Collect(maps.Keys(reached))
	for _, k := range known {
		if reached[k] == 0 {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range slices.Compact(names) {
		count := fmt.Sprint(reached[name])
		if reached[name] == 0 {
			count = "never"
		}
		fmt.Fprintf(&b, "%10s  %s\n", count, name)
	}
	return b.String()
}
