package cli

import (
	"context"
)

// metaCmd is `tidemark meta`.
type metaCmd struct {
	Target
	Prefix string `arg:"" optional:"" help:"Only keys that begin so, such as topics/ or partitions/."`
}

func (c *metaCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	if c.Output == "table" || c.Output == "wide" {
		return cl.MetaText(ctx, c.Prefix, s.Out)
	}
	m, err := cl.Meta(ctx, c.Prefix)
	if err != nil {
		return err
	}
	return c.print(s.Out, m, nil)
}
