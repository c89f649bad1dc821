package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"tidemark/internal/sim"
)

// failuresMost is how many failures a search explains; the rest is counted.
const failuresMost = 20

func (c *simCmd) search(s Streams) error {
	debug.SetGCPercent(400) // runs are short and make much garbage
	profiles, err := c.profiles()
	if err != nil {
		return err
	}
	if c.Fresh {
		c.Seed = uint64(time.Now().UnixNano()) // any will do that differs from the last one
	}
	var failed []*sim.Result
	totals, err := sim.Look(sim.Search{
		From: c.Seed, For: c.For, Workers: c.Jobs, Profiles: profiles, Mutation: c.Mutation, Mixtures: c.mixtures(), Stop: !c.All,
		Found: func(r *sim.Result) {
			if len(failed) < failuresMost {
				failed = append(failed, r)
			}
			_, _ = fmt.Fprintln(s.Out, r.Summary()) // the totals below tell as well
		},
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if _, err := fmt.Fprintln(s.Out, totals.Table()); err != nil {
		return err
	}
	var faults []error
	known := sim.KnownProbesOf(profiles...)
	if c.Probes != "none" {
		if _, err := io.WriteString(s.Out, sim.ProbeTable(totals.Probes, known)); err != nil {
			return err
		}
	}
	if never := sim.Never(totals.Probes, known); c.Probes == "require" && len(never) > 0 {
		faults = append(faults, fmt.Errorf("never reached: %s", strings.Join(never, "; ")))
	}
	for _, r := range failed {
		faults = append(faults, c.explain(s, r))
		if c.Out == "" {
			break
		}
	}
	return errors.Join(faults...)
}

// profiles are those that are searched.
func (c *simCmd) profiles() ([]string, error) {
	known := sim.Profiles()
	if c.Profile == "all" {
		return known, nil
	}
	list := strings.Split(c.Profile, ",")
	for _, p := range list {
		if !slices.Contains(known, p) {
			return nil, fmt.Errorf("%w: no profile %q; there are %s", errUsage, p, strings.Join(known, ", "))
		}
	}
	return list, nil
}

// mixtures are those that are searched in the place of profiles; none without the flag.
func (c *simCmd) mixtures() []string {
	switch c.Mixture {
	case "":
		return nil
	case "all":
		return sim.Mixtures()
	}
	return strings.Split(c.Mixture, ",")
}

// explain shrinks a failure and prints its story and its line for the seeds file,
// here or into the folder of failures.
func (c *simCmd) explain(s Streams, r *sim.Result) error {
	small, err := sim.Shrink(r, c.Shrink)
	if err != nil {
		return err
	}
	run := small.Run
	run.Story, run.StoryLines = true, c.Lines
	again, err := sim.Make(run)
	if err != nil {
		return err
	}
	line := sim.SeedLine(run, small.Failure.Invariant)
	if err := c.tell(s, again, line); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.Out, "\n%d of %d actions are left; for internal/sim/testdata/seeds.txt:\n%s\n", len(run.Keep), r.Actions, line); err != nil {
		return err
	}
	return fmt.Errorf("seed %d of %s failed", r.Run.Seed, r.Run.Profile)
}

// tell writes a story: to the screen, or into a file of its own beside the line for the seeds file.
func (c *simCmd) tell(s Streams, r *sim.Result, line string) error {
	if c.Out == "" {
		return r.WriteStory(s.Out)
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(c.Out, fmt.Sprintf("%s-%d.txt", r.Run.Profile, r.Run.Seed)))
	if err != nil {
		return err
	}
	if err := errors.Join(r.WriteStory(f), f.Close()); err != nil {
		return err
	}
	seeds, err := os.OpenFile(filepath.Join(c.Out, "seeds.txt"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(seeds, line)
	return errors.Join(err, seeds.Close())
}
