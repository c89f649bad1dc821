package cli

import (
	"context"
	"encoding/json"
	"io"

	"tidemark/internal/demo"
)

// demoCmd is `tidemark demo`.
type demoCmd struct {
	Once bool   `help:"End after the story instead of staying up."`
	JSON bool   `help:"Print the findings as JSON; the story goes to standard error."`
	Dir  string `help:"Where both nodes keep their data (default: a temporary folder that is removed)." placeholder:"DIR"`
}

func (c *demoCmd) Run(ctx context.Context, s Streams) error {
	var story io.Writer = s.Out
	if c.JSON {
		story = s.Err
	}
	report, err := demo.Run(ctx, demo.Options{Out: story, Dir: c.Dir, Stay: !c.Once})
	if c.JSON {
		enc := json.NewEncoder(s.Out)
		enc.SetIndent("", "  ")
		if jsonErr := enc.Encode(report); jsonErr != nil {
			return jsonErr
		}
	}
	return err
}
