package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/console"
	"tidemark/internal/core/types"
)

// The verbs that change sides: preview, failback, switchover, and what takes them back.

type mirrorPreviewCmd struct {
	named
	Topic    []string `help:"Only this topic; repeatable. Default: all that the mirror fits."`
	Rollback bool     `help:"Give up what this cluster was promoted to."`
	Failover bool     `help:"Preview failover --consistent instead of failback."`
}

func (c *mirrorPreviewCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	p, err := cl.Preview(ctx, c.Name, mirror.PreviewRequest{Topics: c.Topic, Rollback: c.Rollback, Failover: c.Failover})
	if err != nil {
		return err
	}
	return c.printPreview(s, p)
}

func (n named) printPreview(s Streams, p mirror.Preview) error {
	for _, line := range p.Message {
		fmt.Fprintln(s.Err, line)
	}
	if p.Plan != "" {
		fmt.Fprintf(s.Err, "plan %s\n", p.Plan)
	}
	return n.print(s.Out, p, func() table { return previewTable(p) })
}

func previewTable(p mirror.Preview) table {
	out := table{columns: []string{"TOPIC", "PARTITION", "RELATION", "END", "CUT-AT", "RECORDS", "BYTES", "FROM", "TO", "GROUPS-PAST", "VAULT-OF", "REFUSED", "CUTS", "PRODUCERS", "MARKERS"}, wideFrom: 12}
	for _, pp := range p.Partitions {
		groups := make([]string, len(pp.Groups))
		for i, g := range pp.Groups {
			groups[i] = fmt.Sprintf("%s@%d", g.Group, g.Offset)
		}
		cuts := make([]string, len(pp.Cuts))
		for i, cut := range pp.Cuts {
			cuts[i] = fmt.Sprintf("%s %d-%d epochs %d-%d", cut.Cause, cut.From, cut.To-1, cut.First, cut.Last)
		}
		out.rows = append(out.rows, []string{pp.Topic, fmt.Sprint(pp.Partition), orDash(pp.Relation), fmt.Sprint(pp.LogEnd), fmt.Sprint(pp.CutAt), fmt.Sprint(pp.Records - pp.Markers),
			bytesText(pp.Bytes), millisText(int64(pp.MinTimestamp)), millisText(int64(pp.MaxTimestamp)), orDash(strings.Join(groups, " ")), brokerText(pp.Node),
			orDash(pp.Refused), orDash(strings.Join(cuts, "; ")), fmt.Sprint(pp.Producers), fmt.Sprint(pp.Markers)})
	}
	return out
}

func brokerText(id types.BrokerID) string {
	if id < 0 {
		return "-"
	}
	return fmt.Sprintf("broker %d", id)
}

type mirrorFailbackCmd struct {
	named
	Topic    []string `help:"Only this topic; repeatable. Default: all that the mirror fits."`
	Plan     string   `help:"The plan of a preview. Default: the preview is shown and its plan taken once you confirm."`
	Rollback bool     `help:"Give up what this cluster was promoted to."`
	DryRun   bool     `help:"Show what would be cut and where it would be kept; change nothing."`
	Yes      bool     `short:"y" help:"Don't ask."`
}

func (c *mirrorFailbackCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	if err := askable(s, c.Yes || c.DryRun); err != nil {
		return err
	}
	req := mirror.PreviewRequest{Topics: c.Topic, Rollback: c.Rollback}
	plan := c.Plan
	if plan == "" || c.DryRun || !c.Yes { // whoever is asked sees what it is about
		p, err := cl.Preview(ctx, c.Name, req)
		if err != nil {
			return err
		}
		if err := c.printPreview(s, p); err != nil || c.DryRun {
			return err
		}
		if plan != "" && plan != p.Plan {
			return fmt.Errorf("plan %s doesn't hold any more: what it showed has changed, and is plan %s now", plan, orDash(p.Plan))
		}
		plan = p.Plan
	}
	warning := fmt.Sprintf("This closes the topics of mirror %s to writes here, cuts what the plan %s shows (it is kept in the vaults), and copies them from the source from now on.", c.Name, plan)
	if err := confirm(s, c.Yes, warning, c.Name); err != nil {
		return err
	}
	p, err := cl.Failback(ctx, c.Name, mirror.FailbackRequest{PreviewRequest: req, Plan: plan})
	if err != nil {
		return err
	}
	for _, line := range p.Message {
		fmt.Fprintln(s.Err, line)
	}
	return nil
}

type mirrorSwitchoverCmd struct {
	named
	Timeout time.Duration `help:"How long the drain may take before everything goes back." default:"1m"`
	Settle  time.Duration `help:"How long a source that is no Tidemark must stand still." default:"3s"`
	Reverse bool          `help:"Have the old side mirror this cluster afterwards."`
	DryRun  bool          `help:"Say what would be waited for; change nothing."`
	Yes     bool          `short:"y" help:"Don't ask."`
}

func (c *mirrorSwitchoverCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	req := mirror.SwitchoverRequest{TimeoutMs: types.Millis(c.Timeout.Milliseconds()), SettleMs: types.Millis(c.Settle.Milliseconds()), Reverse: c.Reverse, DryRun: c.DryRun}
	if err := askable(s, c.Yes || c.DryRun); err != nil {
		return err
	}
	start, err := startOf(ctx, cl, c.Name)
	if err != nil {
		return err
	}
	req.StartID = start
	if !c.DryRun {
		warning := fmt.Sprintf("This closes the source of mirror %s to writes, and makes its topics writable here once all of it is copied. Ctrl-C before that takes it back.", c.Name)
		if err := confirm(s, c.Yes, warning, c.Name); err != nil {
			return err
		}
	}
	st, err := cl.Switchover(ctx, c.Name, req)
	if err != nil {
		return err
	}
	for _, line := range st.Message {
		fmt.Fprintln(s.Err, line)
	}
	if c.DryRun {
		return nil
	}
	return c.print(s.Out, st, func() table { return promotionTable(st) })
}

// startOf is the mirror's present start, which an order names: it is for no later one.
func startOf(ctx context.Context, cl *console.Client, name string) (string, error) {
	st, err := cl.Status(ctx, name)
	return st.StartID, err
}

// onTopics is a verb that says in words what it did.
type onTopics struct {
	named
	Topic  []string `help:"Only this topic; repeatable. Default: all that the verb fits."`
	DryRun bool     `help:"Only say what would become of which partitions."`
	Yes    bool     `short:"y" help:"Don't ask."`
}

func (c onTopics) run(ctx context.Context, s Streams, verb, warning string) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	if err := askable(s, c.Yes || c.DryRun); err != nil {
		return err
	}
	orders := []mirror.FailoverOrder{{Topics: c.Topic}}
	if verb == "abandon" {
		st, err := cl.Status(ctx, c.Name)
		if err != nil {
			return err
		}
		orders = st.StartsOf(c.Topic)
	}
	if c.DryRun || !c.Yes {
		words, err := c.order(ctx, cl, verb, orders, true)
		if err != nil || c.DryRun {
			return printWords(s, c.DryRun, words, err)
		}
		if err := confirm(s, c.Yes, strings.Join(append(words, warning), "\n"), c.Name); err != nil {
			return err
		}
	}
	words, err := c.order(ctx, cl, verb, orders, false)
	return printWords(s, false, words, err)
}

// order sends the verb's orders one after another, until one fails, and gives what was, or would be, done.
func (c onTopics) order(ctx context.Context, cl *console.Client, verb string, orders []mirror.FailoverOrder, dryRun bool) (words []string, err error) {
	for _, o := range orders {
		did, err := cl.OnTopics(ctx, c.Name, verb, console.TopicsRequest{Topics: o.Topics, DryRun: dryRun, StartID: o.StartID})
		if words = append(words, did...); err != nil {
			return words, err
		}
	}
	return words, nil
}

// printWords prints what a verb did, or would do, line by line.
func printWords(s Streams, dryRun bool, words []string, err error) error {
	for _, line := range words {
		fmt.Fprintln(s.Out, line)
	}
	if dryRun && err == nil {
		fmt.Fprintln(s.Err, "nothing was changed")
	}
	return err
}

type mirrorAbandonCmd struct{ onTopics }

func (c *mirrorAbandonCmd) Run(ctx context.Context, s Streams) error {
	warning := fmt.Sprintf("This takes the failback of mirror %s back: its topics are writable here again, as they were, and copy nothing.", c.Name)
	return c.run(ctx, s, "abandon", warning)
}

type mirrorAcceptGapCmd struct{ onTopics }

func (c *mirrorAcceptGapCmd) Run(ctx context.Context, s Streams) error {
	warning := fmt.Sprintf("The source of mirror %s no longer has records that are not here. This goes on behind them: what is held here goes to the vault, and the logs begin anew where the source's begin.", c.Name)
	return c.run(ctx, s, "accept-gap", warning)
}

type mirrorReopenCmd struct {
	Target
	Topic  []string `help:"Only this topic; repeatable. Default: all that a switchover closed."`
	DryRun bool     `help:"Only say what would be opened."`
	Yes    bool     `short:"y" help:"Don't ask."`
}

func (c *mirrorReopenCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	if err := askable(s, c.Yes || c.DryRun); err != nil {
		return err
	}
	if c.DryRun || !c.Yes {
		words, err := cl.Reopen(ctx, console.TopicsRequest{Topics: c.Topic, DryRun: true})
		if err != nil || c.DryRun {
			return printWords(s, c.DryRun, words, err)
		}
		warning := "This lets clients write here again to what a switchover closed. If the other side was promoted, there are two primaries then."
		if err := confirm(s, c.Yes, strings.Join(append(words, warning), "\n"), "reopen"); err != nil {
			return err
		}
	}
	words, err := cl.Reopen(ctx, console.TopicsRequest{Topics: c.Topic})
	return printWords(s, false, words, err)
}
