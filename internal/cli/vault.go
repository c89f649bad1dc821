package cli

import (
	"context"
	"fmt"

	"tidemark/internal/vault"
)

// vaultCmd is `tidemark vault …`.
type vaultCmd struct {
	List   vaultListCmd   `cmd:"" help:"List what cuts removed."`
	Show   vaultShowCmd   `cmd:"" help:"Show one entry's manifest."`
	Export vaultExportCmd `cmd:"" help:"Write one entry's records to standard output."`
	Purge  vaultPurgeCmd  `cmd:"" help:"Remove one entry for good."`
}

type vaultListCmd struct{ Target }

func (c *vaultListCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	l, err := cl.Vault(ctx)
	if err != nil {
		return err
	}
	return c.print(s.Out, l.Entries, func() table { return vaultTable(l.Entries) })
}

func vaultTable(entries []vault.Entry) table {
	out := table{columns: []string{"ID", "TOPIC", "PARTITION", "CAUSE", "FROM", "TO", "RECORDS", "BYTES", "AT", "BELOW-HW", "NOTE", "DAMAGED"}, wideFrom: 9}
	for _, e := range entries {
		out.rows = append(out.rows, []string{e.ID, e.Topic, fmt.Sprint(e.Partition), string(e.Cause), fmt.Sprint(e.From), fmt.Sprint(e.To), fmt.Sprint(e.Records), bytesText(e.Bytes),
			millisText(int64(e.At)), fmt.Sprint(e.BelowHighWatermark), orDash(e.Note), orDash(e.Damaged)})
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
	cl, err := c.client()
	if err != nil {
		return err
	}
	e, err := cl.VaultShow(ctx, c.ID)
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
	Format string `help:"json: one record a line; segments: the raw batches, as in a segment file." enum:"json,segments" default:"json"`
}

func (c *vaultExportCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	return cl.VaultExport(ctx, c.ID, vault.Format(c.Format), s.Out)
}

type vaultPurgeCmd struct {
	entryArg
	Yes bool `short:"y" help:"Don't ask."`
}

func (c *vaultPurgeCmd) Run(ctx context.Context, s Streams) error {
	if err := confirm(s, c.Yes, "This removes the vault's entry "+c.ID+" for good: its records exist nowhere else in this cluster.", c.ID); err != nil {
		return err
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	if err := cl.VaultPurge(ctx, c.ID); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "purged %s\n", c.ID)
	return nil
}
