package cli

import (
	"context"
	"encoding/json"
	"fmt"
)

// metaCmd is `tidemark meta`.
type metaCmd struct{ Target }

func (c *metaCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	m, err := cl.Meta(ctx)
	if err != nil {
		return err
	}
	if c.Output == "table" || c.Output == "wide" {
		c.Output = "yaml" // a tree of records reads best as one
	}
	var tree any
	if err := json.Unmarshal(m, &tree); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return c.print(s.Out, tree, nil)
}
