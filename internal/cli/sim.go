package cli

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"tidemark/internal/sim"
)

// simCmd replays one run of the simulator, or searches for runs that fail.
type simCmd struct {
	Seed     uint64        `help:"The run's seed; with --search the first one."`
	Steps    int           `help:"End the run after so many events; 0: at its end."`
	Profile  string        `help:"The mixture of features and faults: swarm, calm, crashes, divergence, elections; of brokers: cluster, cluster-calm, cluster-crashes, cluster-cuts, cluster-elections." default:"swarm"`
	Mutation string        `help:"Switch one rule off, to see that it is found; list prints them."`
	Keep     string        `help:"Only these actions of the plan, by number, as a shrunk run names them." placeholder:"N,N,..."`
	Lines    int           `help:"Print only the newest lines of the story; 0: all." default:"0"`
	Quiet    bool          `short:"q" help:"No story, only the outcome."`
	Search   bool          `help:"Look through seeds until the time is used up or a run fails."`
	For      time.Duration `help:"How long to search." default:"1m"`
	Jobs     int           `short:"j" help:"Runs at a time." default:"1"`
	All      bool          `help:"Go on searching after a failure."`
	Shrink   int           `help:"Shrink a failure within so many runs; 0: don't." default:"300"`
	Probes   bool          `help:"Print which rare branches were reached."`
}

// Run makes the run or the search. A failure is exit code 1.
func (c *simCmd) Run(s Streams) error {
	if c.Mutation == "list" {
		for _, m := range sim.Mutations() {
			if _, err := fmt.Fprintf(s.Out, "%-16s %s\n", m.Name, m.Rule); err != nil {
				return err
			}
		}
		return nil
	}
	if c.Search {
		return c.search(s)
	}
	return c.replay(s)
}

func (c *simCmd) replay(s Streams) error {
	runs, err := sim.ParseSeeds(c.line())
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	r := runs[0]
	r.Steps, r.Story, r.StoryLines = c.Steps, !c.Quiet, c.Lines
	began := time.Now()
	out, err := sim.Make(r)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	took := time.Since(began)
	if c.Quiet {
		_, err = fmt.Fprintln(s.Out, out.Summary())
	} else {
		err = out.WriteStory(s.Out)
	}
	if err != nil {
		return err
	}
	if c.Probes {
		if _, err := io.WriteString(s.Out, "\n"+sim.ProbeTable(out.Probes, nil)); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(s.Err, "%v: %.0f steps a second, %.0f times real time\n", took.Round(time.Millisecond),
		float64(out.Steps)/took.Seconds(), out.Virtual.Seconds()/took.Seconds()); err != nil {
		return err
	}
	if out.Failure != nil {
		return errors.New("the run failed")
	}
	return nil
}

// line is the run as the seeds file writes it.
func (c *simCmd) line() string {
	line := fmt.Sprintf("seed=%d profile=%s", c.Seed, c.Profile)
	if c.Mutation != "" {
		line += " mutation=" + c.Mutation
	}
	if c.Keep != "" {
		line += " keep=" + c.Keep
	}
	return line
}

func (c *simCmd) search(s Streams) error {
	debug.SetGCPercent(400) // runs are short and make much garbage
	var first *sim.Result
	totals, err := sim.Look(sim.Search{
		From: c.Seed, For: c.For, Workers: c.Jobs, Profile: c.Profile, Mutation: c.Mutation, Stop: !c.All,
		Found: func(r *sim.Result) {
			if first == nil {
				first = r
			}
			_, _ = fmt.Fprintln(s.Out, r.Summary()) // the totals below tell as well
		},
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if _, err := fmt.Fprintln(s.Out, totals); err != nil {
		return err
	}
	if c.Probes {
		if _, err := io.WriteString(s.Out, sim.ProbeTable(totals.Probes, sim.KnownProbesOf(c.Profile))); err != nil {
			return err
		}
	}
	if first == nil {
		return nil
	}
	return c.explain(s, first)
}

// explain shrinks a failure and prints its story and its line for the seeds file.
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
	if err := again.WriteStory(s.Out); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.Out, "\n%d of %d actions are left; for internal/sim/testdata/seeds.txt:\n%s\n",
		len(run.Keep), r.Actions, sim.SeedLine(run, small.Failure.Invariant)); err != nil {
		return err
	}
	return errors.New("a run failed")
}
