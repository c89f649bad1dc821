package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/console"
	"tidemark/internal/core/meta"
)

// mirrorCmd is `tidemark mirror …`.
type mirrorCmd struct {
	Create     mirrorCreateCmd     `cmd:"" help:"Create a mirror of a source cluster, and start it."`
	Start      mirrorStartCmd      `cmd:"" help:"Start a mirror."`
	Pause      mirrorPauseCmd      `cmd:"" help:"Stop fetching; keep everything."`
	Resume     mirrorResumeCmd     `cmd:"" help:"Go on after a pause, or after a failure that needed a decision."`
	Preview    mirrorPreviewCmd    `cmd:"" help:"Show what a failback would cut here, and its plan; change nothing."`
	Failback   mirrorFailbackCmd   `cmd:"" help:"Make topics that were written here mirrors of the source again, by a preview's plan."`
	Switchover mirrorSwitchoverCmd `cmd:"" help:"Change sides without losing a record: fence the source, drain it, take over."`
	Abandon    mirrorAbandonCmd    `cmd:"" help:"Take a failback back that has accepted nothing of its source yet."`
	AcceptGap  mirrorAcceptGapCmd  `cmd:"" name:"accept-gap" help:"Go on behind records that the source no longer has."`
	Drill      mirrorDrillCmd      `cmd:"" help:"Rehearse a failover on a writable, throw-away fork."`
	Reopen     mirrorReopenCmd     `cmd:"" help:"Let clients write again to what a switchover closed here and did not open."`
	Failover   mirrorFailoverCmd   `cmd:"" aliases:"stop" help:"Take over: make the mirrored topics writable here. Needs no source."`
	Status     mirrorStatusCmd     `cmd:"" help:"Show each partition's state and lag."`
	Describe   mirrorDescribeCmd   `cmd:"" help:"Show a mirror's settings, the health of each sync, and group offsets."`
	Verify     mirrorVerifyCmd     `cmd:"" help:"Fetch both sides and compare them batch by batch."`
	Groups     mirrorGroupsCmd     `cmd:"" help:"Show each group's offsets at the source and here, what was clamped, and why they differ."`
	Wait       mirrorWaitCmd       `cmd:"" help:"Wait until a condition holds."`
	Alter      mirrorAlterCmd      `cmd:"" help:"Change what a mirror copies, its source's addresses or properties, or its settings."`
	ImportMM2  mirrorImportMM2Cmd  `cmd:"" name:"import-mm2" help:"Make a mirror of a MirrorMaker 2 configuration, and name what can't carry over."`
	Delete     mirrorDeleteCmd     `cmd:"" help:"Forget a mirror that has been failed over, or never mirrored."`
	List       mirrorListCmd       `cmd:"" help:"List mirrors."`
}

func (t Target) client() (*console.Client, error) {
	c, err := console.NewClient(t.API, console.Credentials{TokenFile: t.TokenFile, CAFile: t.CAFile})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	return c, nil
}

// cluster gives the client, and what the node that it asks knows of the cluster now.
func (t Target) cluster(ctx context.Context) (*console.Client, console.Cluster, error) {
	cl, err := t.client()
	if err != nil {
		return nil, console.Cluster{}, err
	}
	st, err := cl.Cluster(ctx)
	return cl, st, err
}

// clientOf asks another node of the cluster, at HOST:PORT, in the way in which --api is asked.
func (t Target) clientOf(hostPort string) (*console.Client, error) {
	scheme, _, _ := strings.Cut(t.API, "://")
	t.API = scheme + "://" + hostPort
	return t.client()
}

// Source says what to mirror, for `mirror create` and `standby`.
type Source struct {
	Source       []string `help:"The source cluster's addresses." placeholder:"HOST:PORT" required:""`
	SourceConfig string   `help:"A Kafka client properties file for the source (security.protocol, sasl.jaas.config, …)." type:"existingfile" placeholder:"FILE"`
	Topics       string   `help:"RE2 expression of the topics to mirror (whole names; default: all, but for a Tidemark source's drill.* unless the expression says drill. itself)." placeholder:"RE"`
	Exclude      string   `help:"RE2 expression of topics to leave out." placeholder:"RE"`
	Groups       string   `help:"RE2 expression of the groups whose offsets are mirrored (default: all)." placeholder:"RE"`
}

type mirrorCreateCmd struct {
	Target
	Source
	Name    string            `arg:"" help:"The mirror's name."`
	Config  map[string]string `short:"c" help:"A mirror setting; repeatable." placeholder:"KEY=VALUE" mapsep:"none"`
	NoStart bool              `help:"Only create it."`
	DryRun  bool              `help:"Only check what is asked for, as far as that is possible without the source."`
}

func (c *mirrorCreateCmd) Run(ctx context.Context, s Streams) error {
	spec, err := c.spec(c.Name, c.Config)
	if err != nil {
		return err
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	if c.DryRun {
		if err := nameIsFree(ctx, cl, c.Name); err != nil {
			return err
		}
		fmt.Fprintf(s.Err, "mirror %s would be made; nothing was changed\n", c.Name)
		return nil
	}
	st, err := cl.Create(ctx, spec)
	if err == nil && !c.NoStart {
		st, err = cl.Verb(ctx, c.Name, "start")
	}
	if err != nil {
		return err
	}
	return c.printStatus(s, st)
}

// nameIsFree refuses the name of a mirror that there is.
func nameIsFree(ctx context.Context, cl *console.Client, name string) error {
	all, err := cl.Mirrors(ctx)
	if err == nil && slices.ContainsFunc(all, func(m mirror.Status) bool { return m.Mirror == name }) {
		err = fmt.Errorf("mirror %s exists: choose another name, or delete it first", name)
	}
	return err
}

// printStatus prints a mirror with its partitions.
func (t Target) printStatus(s Streams, st mirror.Status) error {
	if err := t.print(s.Out, st, func() table { return statusTable(st) }); err != nil {
		return err
	}
	if st.Reason != "" || len(st.Partitions) == 0 {
		fmt.Fprintln(s.Err, headline(st))
	}
	if t.Output == "json" || t.Output == "yaml" {
		return nil
	}
	for _, line := range waysOut(st) {
		fmt.Fprintln(s.Err, line)
	}
	if st.Switchover != nil && st.Switchover.Message != "" {
		fmt.Fprintln(s.Err, st.Switchover.Message)
	}
	if st.Loss != nil {
		fmt.Fprintln(s.Err, st.Loss.Statement)
	}
	return nil
}

func statusTable(st mirror.Status) table {
	out := table{columns: []string{"TOPIC", "PARTITION", "STATE", "SRC-END", "END", "LAG", "LAG-MS", "REASON", "SRC-EPOCH", "EPOCH", "SRC-START", "START", "LAG-BYTES", "VERIFIED-TO", "LOSS-RECORDS", "LOSS-MS", "SOURCE-SEEN-AT"}, wideFrom: 8}
	for _, p := range st.Partitions {
		row := []string{p.Topic, fmt.Sprint(p.Partition), p.State, fmt.Sprint(p.SrcEnd), fmt.Sprint(p.End), fmt.Sprint(p.LagRecords), fmt.Sprint(p.LagMs),
			p.Reason, fmt.Sprint(p.SrcEpoch), fmt.Sprint(p.Epoch), fmt.Sprint(p.SrcStart), fmt.Sprint(p.Start), fmt.Sprint(p.LagBytes), fmt.Sprint(p.VerifiedTo)}
		out.rows = append(out.rows, append(row, lossColumns(p)...))
	}
	return out
}

// headline is a mirror's state in one line.
func headline(st mirror.Status) string {
	line := fmt.Sprintf("mirror %s of cluster %s: %s", st.Mirror, orDash(st.SourceClusterID), st.State)
	if st.Reason != "" {
		line += ": " + st.Reason
	}
	if st.FailingMs > 0 {
		line += fmt.Sprintf(" (for %s)", (time.Duration(st.FailingMs) * time.Millisecond).Round(time.Second))
	}
	return line
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

type named struct {
	Target
	Name string `arg:"" help:"The mirror's name."`
}

func (n named) verb(ctx context.Context, s Streams, verb string) error {
	cl, err := n.client()
	if err != nil {
		return err
	}
	st, err := cl.Verb(ctx, n.Name, verb)
	if err != nil {
		return err
	}
	return n.print(s.Out, st, func() table { return table{columns: []string{headline(st)}} })
}

// changing is a verb that can be tried without changing anything.
type changing struct {
	named
	DryRun bool `help:"Only show the mirror that would be changed."`
}

func (n changing) verb(ctx context.Context, s Streams, verb string) error {
	if !n.DryRun {
		return n.named.verb(ctx, s, verb)
	}
	cl, err := n.client()
	if err != nil {
		return err
	}
	st, err := cl.TryVerb(ctx, n.Name, verb)
	if err != nil {
		return err
	}
	for _, line := range st.Message {
		fmt.Fprintf(s.Err, "%s; nothing was changed\n", line)
	}
	return nil
}

type mirrorStartCmd struct{ changing }

func (c *mirrorStartCmd) Run(ctx context.Context, s Streams) error { return c.verb(ctx, s, "start") }

type mirrorPauseCmd struct{ changing }

func (c *mirrorPauseCmd) Run(ctx context.Context, s Streams) error { return c.verb(ctx, s, "pause") }

type mirrorResumeCmd struct{ changing }

func (c *mirrorResumeCmd) Run(ctx context.Context, s Streams) error { return c.verb(ctx, s, "resume") }

type mirrorFailoverCmd struct {
	named
	Topic  []string `help:"Only this topic; repeatable. Default: all of the mirror's."`
	Yes    bool     `short:"y" help:"Don't ask."`
	DryRun bool     `help:"Only say what a failover now would lack."`

	Consistent bool   `help:"Promote at a cut at which no transaction is half mirrored; what lies above goes to the vaults."`
	Plan       string `help:"With --consistent: the plan of a preview. Default: what is found now."`
}

func (c *mirrorFailoverCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	warning := fmt.Sprintf("This makes the topics of mirror %s writable here and stops mirroring them. Make sure that nobody writes to the source any more.", c.Name)
	if c.Plan != "" && !c.Consistent {
		return fmt.Errorf("%w: --plan belongs to a consistent failover: add --consistent", errUsage)
	}
	if err := askable(s, c.Yes || c.DryRun); err != nil {
		return err
	}
	// The order names the start that is looked at here: what is asked for later is no other's.
	st, err := cl.Status(ctx, c.Name)
	if err != nil {
		return err
	}
	if c.DryRun || !c.Yes {
		// What it would cost is said before it is asked for.
		tellLoss(s, st, c.Topic)
		if c.Consistent {
			if err := c.preview(ctx, s, cl); err != nil || c.DryRun {
				return err
			}
		}
		if c.DryRun {
			return c.print(s.Out, st, func() table { return lossTable(st, c.Topic) })
		}
	}
	if err := confirm(s, c.Yes, warning, c.Name); err != nil {
		return err
	}
	begin := time.Now()
	st, err = c.order(ctx, cl, st.StartsOf(c.Topic))
	if err != nil {
		return err
	}
	for _, line := range st.Message {
		fmt.Fprintln(s.Err, line)
	}
	if err := c.print(s.Out, st, func() table { return promotionTable(st) }); err != nil {
		return err
	}
	if n := unpromoted(st, c.Topic); n > 0 {
		return fmt.Errorf("%d partitions are not failed over: see STATE and REASON; run the command again", n)
	}
	fmt.Fprintf(s.Err, "failed over in %s\n", time.Since(begin).Round(time.Millisecond))
	return nil
}

// order sends a failover, one order for each start that its topics are in.
func (c *mirrorFailoverCmd) order(ctx context.Context, cl *console.Client, orders []mirror.FailoverOrder) (all mirror.Status, err error) {
	if c.Consistent && len(orders) > 1 {
		return all, fmt.Errorf("%w: the topics were started at different times (mirror status -o json, startId): a consistent failover takes those of one start, or the whole mirror", errUsage)
	}
	for i, o := range orders {
		st, err := cl.FailoverOf(ctx, c.Name, console.FailoverRequest{Topics: o.Topics, Consistent: c.Consistent, Plan: c.Plan, StartID: o.StartID})
		if err != nil {
			return all, err
		}
		if i > 0 {
			st.Message, st.Partitions = append(all.Message, st.Message...), append(all.Partitions, st.Partitions...)
		}
		all = st
	}
	return all, nil
}

// preview says what a consistent failover would leave behind.
func (c *mirrorFailoverCmd) preview(ctx context.Context, s Streams, cl *console.Client) error {
	p, err := cl.Preview(ctx, c.Name, mirror.PreviewRequest{Topics: c.Topic, Failover: true})
	if err != nil {
		return err
	}
	return c.printPreview(s, p)
}

// unpromoted counts the partitions of the topics (all if none are named) that aren't writable.
func unpromoted(st mirror.Status, topics []string) int {
	n := 0
	for _, p := range st.Partitions {
		if p.Promotion == nil && (len(topics) == 0 || slices.Contains(topics, p.Topic)) {
			n++
		}
	}
	return n
}

func promotionTable(st mirror.Status) table {
	out := table{columns: []string{"TOPIC", "PARTITION", "STATE", "TAKEN-TO", "SRC-END-SEEN", "SEEN-AT", "AT-MOST-RECORDS", "AT-MOST-MS", "PROMOTED-EPOCH", "LAST-MIRRORED-EPOCH", "REASON"}, wideFrom: 8}
	for _, p := range st.Partitions {
		row := []string{p.Topic, fmt.Sprint(p.Partition), p.State, "-", "-", "-", "-", "-", "-", "-", p.Reason}
		if pr := p.Promotion; pr != nil {
			row = []string{p.Topic, fmt.Sprint(p.Partition), p.State, fmt.Sprint(pr.LastMirroredOffset), fmt.Sprint(pr.SrcEndLastSeen), millisText(int64(pr.SrcEndSeenAt)),
				lossColumns(p)[0], lossColumns(p)[1], fmt.Sprint(pr.PromotedEpoch), fmt.Sprint(pr.LastMirroredEpoch), p.Reason}
		}
		out.rows = append(out.rows, row)
	}
	return out
}

type mirrorStatusCmd struct {
	named
	Watch    bool          `short:"w" help:"Draw again until interrupted."`
	Interval time.Duration `help:"How often --watch draws." default:"1s"`
}

func (c *mirrorStatusCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	if !c.Watch {
		st, err := cl.Status(ctx, c.Name)
		if err != nil {
			return err
		}
		return c.printStatus(s, st)
	}
	return watch(ctx, c.Interval, func() (bool, error) {
		st, err := cl.Status(ctx, c.Name)
		if err != nil {
			return false, err
		}
		if s.OutTerminal && c.Output != "json" && c.Output != "yaml" {
			fmt.Fprint(s.Out, "\x1b[H\x1b[2J", headline(st), "  ", time.Now().Format(time.TimeOnly), "\n")
		}
		return false, c.printStatus(s, st)
	})
}

// watch calls f at once and then every interval until it is done, fails, or ctx ends.
func watch(ctx context.Context, interval time.Duration, f func() (done bool, err error)) error {
	tick := time.NewTicker(max(interval, 50*time.Millisecond))
	defer tick.Stop()
	for {
		done, err := f()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

type mirrorDescribeCmd struct{ named }

func (c *mirrorDescribeCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	d, err := cl.Describe(ctx, c.Name)
	if err != nil {
		return err
	}
	if c.Output == "table" || c.Output == "wide" {
		fmt.Fprintln(s.Out, headline(d.Status))
		fmt.Fprintf(s.Out, "source %s  topics %s  exclude %s  groups %s\n", strings.Join(d.Spec.Bootstrap, ","), orDash(d.Spec.Topics), orDash(d.Spec.Exclude), orDash(d.Spec.Groups))
		if w := d.Switchover; w != nil && w.Message != "" {
			fmt.Fprintln(s.Out, w.Message)
		}
		fmt.Fprintf(s.Out, "%s\n\n", replicationText(d.Replication))
		for _, show := range []table{syncTable(d), groupTable(d.Groups)} {
			if err := show.write(s.Out, c.Output == "wide"); err != nil {
				return err
			}
			fmt.Fprintln(s.Out)
		}
	}
	return c.print(s.Out, d, func() table { return statusTable(d.Status) })
}

func syncTable(d mirror.Description) table {
	out := table{columns: []string{"SYNC", "LAST-SUCCESS", "AGE-MS", "DETAIL", "ERROR"}}
	for _, h := range d.Syncs {
		out.rows = append(out.rows, []string{h.Name, millisText(int64(h.LastSuccess)), fmt.Sprint(h.AgeMs), h.Detail, h.Error})
	}
	return out
}

type mirrorWaitCmd struct {
	named
	For     string        `help:"caught-up, mirroring, or stopped." enum:"caught-up,mirroring,stopped" default:"caught-up"`
	MaxLag  int64         `help:"With caught-up: how many records may be missing in a partition." default:"0"`
	Timeout time.Duration `help:"How long to wait." default:"5m"`
}

func (c *mirrorWaitCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	p := newProgress(s, "mirror "+c.Name)
	defer p.end()
	var missing string
	var first int64 = -1
	err = watch(ctx, 200*time.Millisecond, func() (bool, error) {
		st, err := cl.Status(ctx, c.Name)
		if err != nil {
			if ctx.Err() != nil {
				return false, nil
			}
			return false, err
		}
		missing = c.missing(st)
		lag := lagBytes(st)
		first = max(first, lag)
		p.at(first-lag, first)
		return missing == "", nil
	})
	if err == nil && missing != "" {
		return fmt.Errorf("%w after %s: %s", errUnmet, c.Timeout, missing)
	}
	return err
}

func lagBytes(st mirror.Status) (sum int64) {
	for _, p := range st.Partitions {
		sum += max(p.LagBytes, 0)
	}
	return sum
}

// missing says what is still in the way of the condition, or "".
func (c *mirrorWaitCmd) missing(st mirror.Status) string {
	if len(st.Partitions) == 0 {
		return headline(st) + ", no partition yet"
	}
	if c.For != "stopped" && st.Reason != "" {
		return headline(st) // topics that can't be mirrored have no partitions to wait for
	}
	for _, p := range st.Partitions {
		name := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
		switch {
		case c.For == "stopped" && p.Promotion == nil:
			return fmt.Sprintf("%s is %s", name, p.State)
		case c.For != "stopped" && p.State != meta.MirrorMirroring:
			return strings.TrimSpace(fmt.Sprintf("%s is %s %s", name, p.State, p.Reason))
		case c.For == "caught-up" && p.LagRecords < 0:
			return name + ": what it lacks is unknown: its source's end wasn't seen yet"
		case c.For == "caught-up" && p.LagRecords > c.MaxLag:
			return fmt.Sprintf("%s lacks %d records", name, p.LagRecords)
		}
	}
	return ""
}

type mirrorDeleteCmd struct {
	changing
	Yes bool `short:"y" help:"Don't ask."`
}

func (c *mirrorDeleteCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	if c.DryRun {
		words, err := cl.TryDelete(ctx, c.Name)
		for _, line := range words {
			fmt.Fprintf(s.Err, "%s; nothing was changed\n", line)
		}
		return err
	}
	if err := askable(s, c.Yes); err != nil {
		return err
	}
	if _, err := cl.TryDelete(ctx, c.Name); err != nil {
		return err
	}
	if err := confirm(s, c.Yes, "This forgets the mirror "+c.Name+". Its topics stay.", c.Name); err != nil {
		return err
	}
	if err := cl.Delete(ctx, c.Name); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "deleted %s\n", c.Name)
	return nil
}

type mirrorListCmd struct{ Target }

func (c *mirrorListCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	mirrors, err := cl.Mirrors(ctx)
	if err != nil {
		return err
	}
	return c.print(s.Out, mirrors, func() table {
		out := table{columns: []string{"MIRROR", "STATE", "PARTITIONS", "LAG", "SOURCE-CLUSTER", "REASON"}}
		for _, m := range mirrors {
			var lag int64
			for _, p := range m.Partitions {
				lag += max(p.LagRecords, 0)
			}
			out.rows = append(out.rows, []string{m.Mirror, m.State, fmt.Sprint(len(m.Partitions)), fmt.Sprint(lag), orDash(m.SourceClusterID), m.Reason})
		}
		return out
	})
}
