package cli

import (
	"context"
	"fmt"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/source"
)

type mirrorAlterCmd struct {
	named
	Source       []string          `help:"The source cluster's addresses." placeholder:"HOST:PORT"`
	SourceConfig string            `help:"A Kafka client properties file that replaces the source's." type:"existingfile" placeholder:"FILE"`
	Topics       *string           `help:"RE2 expression of the topics to mirror; empty: all." placeholder:"RE"`
	Exclude      *string           `help:"RE2 expression of topics to leave out; empty: none." placeholder:"RE"`
	Groups       *string           `help:"RE2 expression of the groups whose offsets are mirrored; empty: all." placeholder:"RE"`
	Config       map[string]string `short:"c" help:"A mirror setting; repeatable." placeholder:"KEY=VALUE" mapsep:"none"`
	Unset        []string          `help:"A mirror setting that goes back to the node's; repeatable." placeholder:"KEY"`
	DryRun       bool              `help:"Only say what would change."`
	Yes          bool              `short:"y" help:"Don't ask."`
}

func (c *mirrorAlterCmd) Run(ctx context.Context, s Streams) error {
	if err := askable(s, c.Yes || c.DryRun); err != nil {
		return err
	}
	a := mirror.Alteration{Bootstrap: c.Source, Topics: c.Topics, Exclude: c.Exclude, Groups: c.Groups, Settings: c.Config, Unset: c.Unset, DryRun: true}
	if c.SourceConfig != "" {
		props, err := source.LoadProperties(c.SourceConfig)
		if err != nil {
			return fmt.Errorf("%w: --source-config: %w", errUsage, err)
		}
		a.ClientConfig = props
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	// What it would do is said before it is asked for.
	plan, err := cl.Alter(ctx, c.Name, a)
	if err != nil {
		return err
	}
	for _, w := range plan.Warnings {
		fmt.Fprintln(s.Err, "warning:", w)
	}
	if c.DryRun || len(plan.Changes) == 0 {
		return c.print(s.Out, plan, func() table { return alteredTable("WOULD-CHANGE", plan) })
	}
	if !c.Yes {
		if err := alteredTable("CHANGES", plan).write(s.Err, false); err != nil {
			return err
		}
	}
	if err := confirm(s, c.Yes, "This changes mirror "+c.Name+" as said.", c.Name); err != nil {
		return err
	}
	a.DryRun = false
	done, err := cl.Alter(ctx, c.Name, a)
	if err != nil {
		return err
	}
	return c.print(s.Out, done, func() table { return alteredTable("CHANGED", done) })
}

func alteredTable(head string, a mirror.Altered) table {
	out := table{columns: []string{head}}
	for _, line := range a.Changes {
		out.rows = append(out.rows, []string{line})
	}
	if len(a.Changes) == 0 {
		out.rows = append(out.rows, []string{"nothing"})
	}
	return out
}
