package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// groupCmd is `tidemark group …`.
type groupCmd struct {
	List         groupListCmd     `cmd:"" help:"List consumer groups."`
	Describe     groupDescribeCmd `cmd:"" help:"Show a group's members, offsets and lag."`
	ResetOffsets groupResetCmd    `cmd:"" help:"Move a group's committed offsets; the group must have no members."`
	Delete       groupDeleteCmd   `cmd:"" help:"Delete a group with its offsets; it must have no members."`
}

// groupRow is one group as `group list` prints it.
type groupRow struct {
	Group       string `json:"group"`
	State       string `json:"state"`
	Protocol    string `json:"protocolType"`
	Coordinator int32  `json:"coordinator"`
}

type groupListCmd struct {
	Target
}

func (c *groupListCmd) Run(ctx context.Context, s Streams) error {
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	groups, err := adm.ListGroups(ctx)
	if err != nil {
		return c.reach(err)
	}
	rows := []groupRow{}
	for _, g := range groups.Sorted() {
		rows = append(rows, groupRow{Group: g.Group, State: g.State, Protocol: g.ProtocolType, Coordinator: g.Coordinator})
	}
	return c.print(s.Out, rows, func() table {
		out := table{columns: []string{"GROUP", "STATE", "PROTOCOL", "COORDINATOR"}, wideFrom: 2}
		for _, r := range rows {
			out.rows = append(out.rows, []string{r.Group, r.State, r.Protocol, fmt.Sprint(r.Coordinator)})
		}
		return out
	})
}

// groupDescription is `group describe`'s answer.
type groupDescription struct {
	Group   string           `json:"group"`
	State   string           `json:"state"`
	Offsets []groupOffsetRow `json:"offsets"`
}

type groupOffsetRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"`
	End       int64  `json:"end"`
	Lag       int64  `json:"lag"`
	Member    string `json:"member"`
	Client    string `json:"client"`
}

type groupDescribeCmd struct {
	Target
	Group string `arg:"" help:"The group's id."`
}

func (c *groupDescribeCmd) Run(ctx context.Context, s Streams) error {
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	lags, err := adm.Lag(ctx, c.Group)
	if err != nil {
		return c.reach(err)
	}
	lag := lags[c.Group]
	if err := lag.Error(); err != nil {
		return c.reach(fmt.Errorf("group %s: %w", c.Group, err))
	}
	d := groupDescription{Group: c.Group, State: lag.State, Offsets: []groupOffsetRow{}}
	for _, l := range lag.Lag.Sorted() {
		row := groupOffsetRow{Topic: l.Topic, Partition: l.Partition, Committed: l.Commit.At, End: l.End.Offset, Lag: l.Lag}
		if l.Member != nil {
			row.Member, row.Client = l.Member.MemberID, l.Member.ClientID
		}
		d.Offsets = append(d.Offsets, row)
	}
	return c.print(s.Out, d, func() table {
		out := table{columns: []string{"TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT", "MEMBER"}, wideFrom: 6}
		for _, r := range d.Offsets {
			out.rows = append(out.rows, []string{r.Topic, fmt.Sprint(r.Partition), fmt.Sprint(r.Committed), fmt.Sprint(r.End), fmt.Sprint(r.Lag), r.Client, r.Member})
		}
		return out
	})
}

type groupResetCmd struct {
	Target
	Group  string `arg:"" help:"The group's id."`
	Topic  string `help:"Only this topic; default: all that the group has offsets in." placeholder:"TOPIC"`
	To     string `required:"" help:"earliest, latest, an offset, a time (2006-01-02T15:04:05Z), or a move such as +10 or -10." placeholder:"WHERE"`
	DryRun bool   `help:"Show what would change, change nothing."`
	Yes    bool   `short:"y" help:"Don't ask."`
}

// resetRow is one partition's move.
type resetRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
}

var relativeMove = regexp.MustCompile(`^[+-][0-9]+$`)

func (c *groupResetCmd) Run(ctx context.Context, s Streams) error {
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	rows, err := c.plan(ctx, adm)
	if err != nil {
		return c.reach(err)
	}
	if !c.DryRun {
		if err := confirm(s, c.Yes, fmt.Sprintf("This moves %d committed offsets of the group %s.", len(rows), c.Group), c.Group); err != nil {
			return err
		}
		var offsets kadm.Offsets
		for _, r := range rows {
			offsets.AddOffset(r.Topic, r.Partition, r.To, -1)
		}
		if err := adm.CommitAllOffsets(ctx, c.Group, offsets); err != nil {
			return c.reach(err)
		}
	}
	return c.print(s.Out, rows, func() table {
		out := table{columns: []string{"TOPIC", "PARTITION", "FROM", "TO"}}
		for _, r := range rows {
			out.rows = append(out.rows, []string{r.Topic, fmt.Sprint(r.Partition), fmt.Sprint(r.From), fmt.Sprint(r.To)})
		}
		return out
	})
}

// plan works out where each committed offset goes, kept within the partition's records.
func (c *groupResetCmd) plan(ctx context.Context, adm *kadm.Client) ([]resetRow, error) {
	committed, err := adm.FetchOffsets(ctx, c.Group)
	if err != nil {
		return nil, err
	}
	var topics []string
	if c.Topic != "" {
		topics = []string{c.Topic}
	} else {
		committed.Each(func(o kadm.OffsetResponse) {
			if !slices.Contains(topics, o.Topic) {
				topics = append(topics, o.Topic)
			}
		})
	}
	if len(topics) == 0 {
		return nil, fmt.Errorf("group %s has no committed offsets: name a topic with --topic", c.Group)
	}
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	target, err := c.target(ctx, adm, topics)
	if err != nil {
		return nil, err
	}
	rows := []resetRow{}
	var errs []error
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(end.Topic, end.Partition)
		if err := errors.Join(end.Err, start.Err); err != nil {
			errs = append(errs, fmt.Errorf("%s-%d: %w", end.Topic, end.Partition, err))
			return
		}
		from := int64(-1)
		if o, ok := committed.Lookup(end.Topic, end.Partition); ok {
			from = o.At
		}
		to := min(max(target(end.Topic, end.Partition, from, start.Offset, end.Offset), start.Offset), end.Offset)
		rows = append(rows, resetRow{Topic: end.Topic, Partition: end.Partition, From: from, To: to})
	})
	slices.SortFunc(rows, func(a, b resetRow) int {
		if a.Topic != b.Topic {
			if a.Topic < b.Topic {
				return -1
			}
			return 1
		}
		return int(a.Partition - b.Partition)
	})
	return rows, errors.Join(errs...)
}

// targetOffset gives the new offset of a partition from its committed offset (-1: none), start and end.
type targetOffset func(topic string, partition int32, from, start, end int64) int64

func (c *groupResetCmd) target(ctx context.Context, adm *kadm.Client, topics []string) (targetOffset, error) {
	switch {
	case c.To == "earliest":
		return func(_ string, _ int32, _, start, _ int64) int64 { return start }, nil
	case c.To == "latest":
		return func(_ string, _ int32, _, _, end int64) int64 { return end }, nil
	case relativeMove.MatchString(c.To):
		by, err := strconv.ParseInt(c.To, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: --to %s: %w", errUsage, c.To, err)
		}
		return func(_ string, _ int32, from, start, _ int64) int64 { return max(from, start) + by }, nil
	}
	if at, err := strconv.ParseInt(c.To, 10, 64); err == nil {
		return func(string, int32, int64, int64, int64) int64 { return at }, nil
	}
	when, err := time.Parse(time.RFC3339, c.To)
	if err != nil {
		return nil, fmt.Errorf("%w: --to %s is none of earliest, latest, an offset, a time such as 2006-01-02T15:04:05Z, or a move such as -10", errUsage, c.To)
	}
	at, err := adm.ListOffsetsAfterMilli(ctx, when.UnixMilli(), topics...)
	if err != nil {
		return nil, err
	}
	return func(topic string, partition int32, _, _, end int64) int64 {
		if o, ok := at.Lookup(topic, partition); ok && o.Offset >= 0 {
			return o.Offset
		}
		return end
	}, nil
}

type groupDeleteCmd struct {
	Target
	Group string `arg:"" help:"The group's id."`
	Yes   bool   `short:"y" help:"Don't ask."`
}

func (c *groupDeleteCmd) Run(ctx context.Context, s Streams) error {
	if err := askable(s, c.Yes); err != nil {
		return err
	}
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	if err := c.find(ctx, adm); err != nil {
		return c.reach(err)
	}
	if err := confirm(s, c.Yes, "This deletes the group "+c.Group+" and its committed offsets.", c.Group); err != nil {
		return err
	}
	if _, err := adm.DeleteGroup(ctx, c.Group); err != nil {
		return c.reach(fmt.Errorf("group %s: %w", c.Group, err))
	}
	fmt.Fprintf(s.Out, "deleted %s\n", c.Group)
	return nil
}

// find refuses a group that isn't there, or that members use.
func (c *groupDeleteCmd) find(ctx context.Context, adm *kadm.Client) error {
	groups, err := adm.DescribeGroups(ctx, c.Group)
	if err != nil {
		return err
	}
	g := groups[c.Group]
	switch {
	case g.State == "Dead", errors.Is(g.Err, kerr.GroupIDNotFound):
		return fmt.Errorf("there is no group %s: tidemark group list shows them", c.Group)
	case g.Err != nil:
		return fmt.Errorf("group %s: %w", c.Group, g.Err)
	case len(g.Members) > 0:
		return fmt.Errorf("group %s has %d members: stop them first (tidemark group describe %s shows who they are)", c.Group, len(g.Members), c.Group)
	}
	return nil
}
