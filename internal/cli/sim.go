package cli

import (
	"errors"
	"fmt"
	"io"
	"time"

	"tidemark/internal/sim"
)

// simCmd replays one run of the simulator, or searches for runs that fail.
type simCmd struct {
	exhaustFlags `embed:""`

	Seed     uint64        `help:"The run's seed; with --search the first one."`
	Steps    int           `help:"End the run after so many events; 0: at its end."`
	Profile  string        `help:"The mixture of features and faults (${sim_profiles}); with --search also several, by commas, or all." default:"swarm"`
	Mutation string        `help:"Switch one rule off, to see that it is found; list prints them."`
	Mixture  string        `help:"With all rules on, the features and faults in which a mutation is looked for; with --search also several, by commas, or all, each with its profile." placeholder:"NAME"`
	Keep     string        `help:"Only these actions of the plan, by number, as a shrunk run names them." placeholder:"N,N,..."`
	Lines    int           `help:"Print only the newest lines of the story; 0: all." default:"0"`
	Quiet    bool          `short:"q" help:"No story, only the outcome."`
	Search   bool          `help:"Look through seeds until the time is used up or a run fails."`
	For      time.Duration `help:"How long to search." default:"1m"`
	Jobs     int           `short:"j" help:"Runs at a time." default:"1"`
	Fresh    bool          `help:"Begin the search at a seed that nobody has run before."`
	All      bool          `help:"Go on searching after a failure."`
	Out      string        `help:"Folder for the stories of what failed, shrunk, and for their seeds." placeholder:"DIR"`
	Shrink   int           `help:"Shrink a failure within so many runs; 0: don't." default:"300"`
	Probes   string        `help:"Which rare branches were reached: print the table, or require that none is missing in it." enum:"none,print,require" default:"none"`
}

// Run makes the run or the search. A failure is exit code 1.
func (c *simCmd) Run(s Streams) error {
	if c.Exhaustive {
		return c.run(s, c)
	}
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
	if c.Probes != "none" {
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
	if c.Mixture != "" && c.Profile == "swarm" {
		line = fmt.Sprintf("seed=%d", c.Seed) // the mixture's own
	}
	if c.Mutation != "" {
		line += " mutation=" + c.Mutation
	}
	if c.Mixture != "" {
		line += " mixture=" + c.Mixture
	}
	if c.Keep != "" {
		line += " keep=" + c.Keep
	}
	return line
}
