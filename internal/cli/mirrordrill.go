package cli

import (
	"context"
	"fmt"
	"strings"

	"tidemark/internal/broker/mirror"
)

// mirrorDrillCmd is `tidemark mirror drill …`.
type mirrorDrillCmd struct {
	Make   mirrorDrillRunCmd    `cmd:"" name:"run" default:"withargs" help:"Make a writable, throw-away fork of mirrored topics and groups, and tell what a failover now would take at most, and lack. The mirror isn't touched."`
	List   mirrorDrillListCmd   `cmd:"" help:"List the forks that drills made."`
	Delete mirrorDrillDeleteCmd `cmd:"" help:"Delete a drill's topics, and with them its groups' offsets; give up one that is being made."`
}

type mirrorDrillRunCmd struct {
	named
	Drill  string `arg:"" help:"The drill's name: its topics and groups begin with drill.NAME." name:"drill"`
	Topics string `help:"RE2 expression of the mirror's topics to fork (whole names; default: all)." placeholder:"RE"`
	Groups string `help:"RE2 expression of the groups whose offsets are copied (default: all)." placeholder:"RE"`
	DryRun bool   `help:"Only say what would be forked, and what a failover now would lack."`
}

func (c *mirrorDrillRunCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	report, err := cl.Drill(ctx, c.Name, mirror.DrillRequest{Drill: c.Drill, Topics: c.Topics, Groups: c.Groups, DryRun: c.DryRun})
	if err != nil {
		return err
	}
	for _, line := range report.Message {
		fmt.Fprintln(s.Err, line)
	}
	if c.Output == "table" || c.Output == "wide" {
		for _, show := range []table{drillStepTable(report), drillGroupTable(report)} {
			if len(show.rows) == 0 {
				continue
			}
			if err := show.write(s.Out, c.Output == "wide"); err != nil {
				return err
			}
			fmt.Fprintln(s.Out)
		}
	}
	if err := c.print(s.Out, report, func() table { return drillTable(report) }); err != nil {
		return err
	}
	if n := unproved(report); n > 0 {
		return fmt.Errorf("%d partitions or groups of the drill don't work: see FAULT", n)
	}
	return nil
}

// unproved counts what of a drill that was made doesn't work.
func unproved(r mirror.DrillReport) int {
	n := 0
	for _, p := range r.Partitions {
		if !p.Proved && !r.DryRun {
			n++
		}
	}
	for _, g := range r.Groups {
		if g.Fault != "" {
			n++
		}
	}
	return n
}

func drillStepTable(r mirror.DrillReport) table {
	out := table{columns: []string{"STEP", "MS", "OF-A-FAILOVER"}}
	for _, st := range r.Steps {
		out.rows = append(out.rows, []string{st.Name, fmt.Sprintf("%.1f", st.Ms), fmt.Sprint(st.Failover)})
	}
	return out
}

func drillGroupTable(r mirror.DrillReport) table {
	out := table{columns: []string{"GROUP", "OFFSETS", "CLAMPED", "FAULT"}}
	for _, g := range r.Groups {
		out.rows = append(out.rows, []string{g.Group, fmt.Sprint(g.Offsets), fmt.Sprint(g.Clamped), orDash(g.Fault)})
	}
	return out
}

func drillTable(r mirror.DrillReport) table {
	out := table{columns: []string{"TOPIC", "PARTITION", "END", "AT-MOST-RECORDS", "AT-MOST-MS", "IN-SYNC", "PROVED", "FAULT", "START", "EPOCH", "LEADER", "OF"}, wideFrom: 8}
	for _, p := range r.Partitions {
		inSync := make([]string, len(p.InSync))
		for i, id := range p.InSync {
			inSync[i] = fmt.Sprint(id)
		}
		loss := lossColumns(mirror.PartitionStatus{Loss: p.Loss})
		out.rows = append(out.rows, []string{p.Topic, fmt.Sprint(p.Partition), fmt.Sprint(p.End), loss[0], loss[1], strings.Join(inSync, ","), fmt.Sprint(p.Proved),
			orDash(p.Fault), fmt.Sprint(p.Start), fmt.Sprint(p.Epoch), fmt.Sprint(p.Leader), p.Of})
	}
	return out
}

type mirrorDrillListCmd struct{ Target }

func (c *mirrorDrillListCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	list, err := cl.Drills(ctx)
	if err != nil {
		return err
	}
	return c.printDrills(s, list)
}

func (t Target) printDrills(s Streams, list []mirror.Drill) error {
	err := t.print(s.Out, list, func() table {
		out := table{columns: []string{"DRILL", "MIRROR", "STATE", "BEGUN-AT", "TOPICS", "PARTITIONS", "OFFLINE", "TOPIC-NAMES"}, wideFrom: 7}
		for _, d := range list {
			out.rows = append(out.rows, []string{d.Drill, d.Mirror, d.State, millisText(int64(d.At)), fmt.Sprint(len(d.Topics)), fmt.Sprint(d.Partitions), fmt.Sprint(d.Offline), strings.Join(d.Topics, " ")})
		}
		return out
	})
	if err != nil || t.Output == "json" || t.Output == "yaml" {
		return err
	}
	for _, d := range list {
		for _, fault := range d.Faults {
			fmt.Fprintln(s.Err, fault)
		}
		if d.Offline > len(d.Faults) {
			fmt.Fprintf(s.Err, "… and %d more partitions of drill %s\n", d.Offline-len(d.Faults), d.Drill)
		}
	}
	return nil
}

type mirrorDrillDeleteCmd struct {
	Target
	Drill  string `arg:"" help:"The drill's name."`
	DryRun bool   `help:"Only say what would be deleted."`
	Yes    bool   `short:"y" help:"Don't ask."`
}

func (c *mirrorDrillDeleteCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	if err := askable(s, c.Yes || c.DryRun); err != nil {
		return err
	}
	if !c.DryRun {
		if _, err := cl.DeleteDrill(ctx, c.Drill, true); err != nil {
			return err
		}
		if err := confirm(s, c.Yes, "This deletes the topics of drill "+c.Drill+" and what was written to them. The mirror stays as it is.", c.Drill); err != nil {
			return err
		}
	}
	words, err := cl.DeleteDrill(ctx, c.Drill, c.DryRun)
	for _, line := range words {
		fmt.Fprintln(s.Out, line)
	}
	return err
}
