package cli

import (
	"errors"
	"fmt"
	"runtime/debug"

	"tidemark/internal/sim/exhaust"
)

// exhaustFlags are what a search through every order has beside the simulator's own flags.
type exhaustFlags struct {
	Exhaustive bool   `help:"Try every order of every operation on two clusters of two replicas, to a depth, or as far as --for lets it."`
	Depth      int    `help:"With --exhaustive: how many steps; 0: as many as --for allows."`
	World      string `help:"With --exhaustive: where it begins: whole, cluster, mirrored, promoted, forked."`
	Memory     int64  `help:"With --exhaustive: MiB for what is remembered of states." default:"3072"`
}

// exhaustiveSample is the share of states from which convergence is tried: one of so many.
const exhaustiveSample = 256

// run tries every order of every operation on two small clusters and prints what
// each depth added. A counterexample is exit code 1.
func (f *exhaustFlags) run(s Streams, c *simCmd) error {
	debug.SetGCPercent(400) // what is kept is small, and what is made is garbage soon
	if c.Mutation == "list" || c.Mutation == "all" {
		return f.switchOff(s)
	}
	search := exhaust.Search{
		World: f.World, Mutation: c.Mutation, Depth: f.Depth, Jobs: c.Jobs, Sample: exhaustiveSample, MemoryBytes: f.Memory << 20,
		Level: func(l exhaust.Level) { _, _ = fmt.Fprintln(s.Out, l) }, // the summary below tells as well
	}
	if f.Depth == 0 {
		search.For = c.For
	}
	if _, err := fmt.Fprintln(s.Out, exhaust.TableHead); err != nil {
		return err
	}
	r, err := exhaust.Look(search)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if _, err := fmt.Fprintln(s.Out, r.Summary()); err != nil {
		return err
	}
	if r.Story == nil {
		return nil
	}
	if err := r.Story.Write(s.Out); err != nil {
		return err
	}
	return errors.New("an invariant is broken")
}

// switchOff switches each rule off and prints at which depth that was found.
func (f *exhaustFlags) switchOff(s Streams) error {
	missed := false
	err := exhaust.SwitchOff(func(one exhaust.Found) {
		missed = missed || one.Unreached == "" && one.Story == nil
		_, _ = fmt.Fprintln(s.Out, one)
	})
	if err == nil && missed {
		err = errors.New("a rule that was switched off was not found")
	}
	return err
}
