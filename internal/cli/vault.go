package cli

import (
	"context"
	"fmt"
)

// vaultCmd is `tidemark vault …`.
type vaultCmd struct {
	List vaultListCmd `cmd:"" help:"List what cuts removed."`
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
	return c.print(s.Out, l.Entries, func() table {
		out := table{columns: []string{"ID", "TOPIC", "PARTITION", "CAUSE", "FROM", "TO", "RECORDS", "BYTES", "AT"}}
		for _, e := range l.Entries {
			out.rows = append(out.rows, []string{e.ID, e.Topic, fmt.Sprint(e.Partition), string(e.Cause), fmt.Sprint(e.From), fmt.Sprint(e.To), fmt.Sprint(e.Records), bytesText(e.Bytes), millisText(int64(e.At))})
		}
		return out
	})
}
