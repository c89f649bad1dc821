package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/console"
	"tidemark/internal/core/types"
)

type mirrorGroupsCmd struct {
	named
	Group    string `help:"Only this group." placeholder:"NAME"`
	Problems bool   `help:"Only offsets that differ, and those that were clamped."`
}

func (c *mirrorGroupsCmd) Run(ctx context.Context, s Streams) error {
	list := []mirror.GroupSync{}
	err := c.eachNode(ctx, s, func(_ types.BrokerID, cl *console.Client) error {
		groups, err := cl.Groups(ctx, c.Name)
		list = append(list, groups...)
		return err
	})
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(g mirror.GroupSync) bool {
		return (c.Group != "" && g.Group != c.Group) || (c.Problems && g.Reason == "" && g.Clamped < 0)
	})
	slices.SortFunc(list, func(a, b mirror.GroupSync) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return c.print(s.Out, list, func() table { return groupTable(list) })
}

func groupTable(list []mirror.GroupSync) table {
	out := table{columns: []string{"GROUP", "TOPIC", "PARTITION", "SOURCE", "STANDBY", "CLAMPED", "AGE-MS", "REASON", "TYPE", "CLAMPED-AT"}, wideFrom: 8}
	dash := func(n int64) string {
		if n < 0 {
			return "-"
		}
		return fmt.Sprint(n)
	}
	for _, g := range list {
		out.rows = append(out.rows, []string{g.Group, g.Topic, fmt.Sprint(g.Partition), dash(int64(g.Source)), dash(int64(g.Standby)), dash(int64(g.Clamped)), dash(g.AgeMs),
			orDash(g.Reason), orDash(g.Type), millisText(int64(g.ClampedAt))})
	}
	return out
}
