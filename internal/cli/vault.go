package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"tidemark/internal/console"
	"tidemark/internal/core/types"
	"tidemark/internal/vault"
)

// vaultCmd is `tidemark vault …`.
type vaultCmd struct {
	List   vaultListCmd   `cmd:"" help:"List what cuts removed, on all nodes."`
	Show   vaultShowCmd   `cmd:"" help:"Show one entry's manifest."`
	Export vaultExportCmd `cmd:"" help:"Write one entry's records to standard output, or to a topic."`
	Replay vaultReplayCmd `cmd:"" help:"Write one entry's records into its topic again, or into another; repeating it writes nothing twice."`
	Purge  vaultPurgeCmd  `cmd:"" help:"Remove entries for good."`
}

// nodeEntry is a vault entry and the node that keeps it.
type nodeEntry struct {
	vault.Entry
	Node   types.BrokerID  `json:"node"`
	client *console.Client // the node's API
}

// entries lists the vaults of all nodes, oldest entry first, and tells how full they are.
func (t Target) entries(ctx context.Context, s Streams) ([]nodeEntry, []string, error) {
	list := []nodeEntry{}
	var usage []string
	err := t.eachNode(ctx, s, func(id types.BrokerID, cl *console.Client) error {
		l, err := cl.Vault(ctx)
		if err != nil {
			return err
		}
		for _, e := range l.Entries {
			list = append(list, nodeEntry{Entry: e, Node: id, client: cl})
		}
		usage = append(usage, usageText(id, l.Usage))
		return nil
	})
	slices.SortStableFunc(list, func(a, b nodeEntry) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID)) })
	return list, usage, err
}

func usageText(id types.BrokerID, u vault.Usage) string {
	line := fmt.Sprintf("node %d keeps %s in %d entries", id, bytesText(u.Bytes), u.Entries)
	switch {
	case u.MaxBytes == 0:
		line += ", of none allowed (vault.max.bytes)"
	case u.MaxBytes > 0:
		line += fmt.Sprintf(", %.0f%% of %s (vault.max.bytes)", 100*float64(u.Bytes)/float64(u.MaxBytes), bytesText(u.MaxBytes))
	}
	if u.DroppedRecords > 0 {
		line += fmt.Sprintf("; %d uncommitted records were dropped unkept since the node's start, because it was full", u.DroppedRecords)
	}
	return line
}

// entry finds an entry on whichever node keeps it; replicas that made the same cut each keep one.
func (a entryArg) entry(ctx context.Context, s Streams) (nodeEntry, error) {
	list, _, err := a.entries(ctx, s)
	if err != nil {
		return nodeEntry{}, err
	}
	for _, e := range list {
		if e.ID == a.ID {
			return e, nil
		}
	}
	return nodeEntry{}, fmt.Errorf("no vault entry %q on any node that answers (vault list shows what there is)", a.ID)
}

type vaultListCmd struct {
	Target
	Topic string `help:"Only this topic's." placeholder:"NAME"`
}

func (c *vaultListCmd) Run(ctx context.Context, s Streams) error {
	list, usage, err := c.entries(ctx, s)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(e nodeEntry) bool { return c.Topic != "" && e.Topic != c.Topic })
	if err := c.print(s.Out, list, func() table { return vaultTable(list) }); err != nil {
		return err
	}
	if c.Output == "table" || c.Output == "wide" {
		fmt.Fprintln(s.Err, strings.Join(usage, "\n"))
	}
	return nil
}

func vaultTable(entries []nodeEntry) table {
	out := table{columns: []string{"ID", "TOPIC", "PARTITION", "CAUSE", "FROM", "TO", "RECORDS", "BYTES", "AT", "NODE", "REPLAYED-TO", "ORDERED-BY", "BELOW-HW", "NOTE", "DAMAGED"}, wideFrom: 12}
	for _, e := range entries {
		var to []string
		for _, r := range e.Replays {
			to = append(to, fmt.Sprintf("%s-%d", r.Topic, r.Partition))
		}
		out.rows = append(out.rows, []string{e.ID, e.Topic, fmt.Sprint(e.Partition), string(e.Cause), fmt.Sprint(e.From), fmt.Sprint(e.To), fmt.Sprint(e.Records), bytesText(e.Bytes),
			millisText(int64(e.At)), fmt.Sprint(e.Node), orDash(strings.Join(to, ",")), orDash(string(e.OrderedBy)), fmt.Sprint(e.BelowHighWatermark), orDash(e.Note), orDash(e.Damaged)})
	}
	return out
}

// entryArg names one entry.
type entryArg struct {
	Target
	ID string `arg:"" help:"The entry's id, as vault list prints it."`
}

type vaultShowCmd struct{ entryArg }

func (c *vaultShowCmd) Run(ctx context.Context, s Streams) error {
	e, err := c.entry(ctx, s)
	if err != nil {
		return err
	}
	if c.Output == "table" || c.Output == "wide" {
		c.Output = "yaml" // one manifest reads best as one
	}
	return c.print(s.Out, e, nil)
}

type vaultExportCmd struct {
	entryArg
	Format  string `help:"json: one record a line; segments: the raw batches, as in a segment file." enum:"json,segments" default:"json"`
	ToTopic string `help:"Write the records into this topic instead, as vault replay does; it is made if it is missing." placeholder:"NAME"`
}

func (c *vaultExportCmd) Run(ctx context.Context, s Streams) error {
	e, err := c.entry(ctx, s)
	if err != nil {
		return err
	}
	if c.ToTopic != "" {
		r := vaultReplayCmd{entryArg: c.entryArg, Topic: c.ToTopic, Partition: -1, Create: true, Yes: true}
		return r.Run(ctx, s)
	}
	return e.client.VaultExport(ctx, c.ID, vault.Format(c.Format), s.Out)
}

type vaultPurgeCmd struct {
	Target
	ID        []string      `arg:"" optional:"" help:"The entries' ids, as vault list prints them."`
	Topic     string        `help:"All entries of this topic." placeholder:"NAME"`
	OlderThan time.Duration `help:"Only entries that are older." placeholder:"DURATION"`
	DryRun    bool          `help:"Only say what would go."`
	Yes       bool          `short:"y" help:"Don't ask."`
}

func (c *vaultPurgeCmd) Run(ctx context.Context, s Streams) error {
	if err := askable(s, c.Yes || c.DryRun); err != nil {
		return err
	}
	if len(c.ID) == 0 && c.Topic == "" && c.OlderThan == 0 {
		return fmt.Errorf("%w: name entries, or choose them with --topic or --older-than", errUsage)
	}
	all, _, err := c.entries(ctx, s)
	if err != nil {
		return err
	}
	list, err := c.chosen(all)
	if err != nil {
		return err
	}
	var bytes int64
	for _, e := range list {
		bytes += e.Bytes
	}
	if c.DryRun {
		fmt.Fprintf(s.Err, "would remove %d entries, %s; nothing was changed\n", len(list), bytesText(bytes))
		return c.print(s.Out, list, func() table { return vaultTable(list) })
	}
	if len(list) == 0 {
		fmt.Fprintln(s.Err, "there is nothing to purge")
		return nil
	}
	word := fmt.Sprintf("purge %d", len(list))
	if len(list) == 1 {
		word = list[0].ID
	}
	warning := fmt.Sprintf("This removes %d entries (%s) from the vault for good: their records exist nowhere else in this cluster.", len(list), bytesText(bytes))
	if err := confirm(s, c.Yes, warning, word); err != nil {
		return err
	}
	for _, e := range list {
		if err := e.client.VaultPurge(ctx, e.ID); err != nil {
			return fmt.Errorf("node %d: %w", e.Node, err)
		}
		fmt.Fprintf(s.Out, "purged %s\n", e.ID)
	}
	return nil
}

// chosen are the entries to purge; an id that isn't there is an error.
func (c *vaultPurgeCmd) chosen(all []nodeEntry) ([]nodeEntry, error) {
	var missing []error
	for _, id := range c.ID {
		if !slices.ContainsFunc(all, func(e nodeEntry) bool { return e.ID == id }) {
			missing = append(missing, fmt.Errorf("no vault entry %q on any node that answers", id))
		}
	}
	before := types.Millis(time.Now().Add(-c.OlderThan).UnixMilli())
	list := slices.DeleteFunc(all, func(e nodeEntry) bool {
		return (len(c.ID) > 0 && !slices.Contains(c.ID, e.ID)) || (c.Topic != "" && e.Topic != c.Topic) || (c.OlderThan > 0 && e.At >= before)
	})
	return list, errors.Join(missing...)
}

// open gives an entry's raw batches, each time anew.
func (e *nodeEntry) open(ctx context.Context) (io.ReadCloser, error) {
	return e.client.VaultOpen(ctx, e.ID)
}
