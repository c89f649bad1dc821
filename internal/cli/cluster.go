package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/console"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/embed"
	"tidemark/internal/metastore/member"
)

// clusterCmd is `tidemark cluster …`.
type clusterCmd struct {
	Status       clusterStatusCmd       `cmd:"" help:"Show the brokers, the controller, the metadata quorum and feature levels."`
	Add          clusterAddCmd          `cmd:"" help:"Check whether a node can be taken in, and print how it is started."`
	Replace      clusterReplaceCmd      `cmd:"" help:"Give the id of a node that is lost for good to a new machine."`
	Remove       clusterRemoveCmd       `cmd:"" help:"Take a member out of the metadata quorum for good."`
	Decommission clusterDecommissionCmd `cmd:"" help:"Move every replica off a broker, and wait until it is empty."`
	Forget       clusterForgetCmd       `cmd:"" help:"Forget a node that is gone and holds nothing: its id is free."`
	Upgrade      clusterUpgradeCmd      `cmd:"" help:"Finalize a feature level, once all nodes run a program that supports it."`
	Backup       clusterBackupCmd       `cmd:"" help:"Save the metadata into a file, from a running node."`
	Restore      clusterRestoreCmd      `cmd:"" help:"Put saved metadata back, with all nodes stopped."`
	Recover      clusterRecoverCmd      `cmd:"" help:"After a restore: do without replicas that are lost for good."`
	Reset        clusterResetCmd        `cmd:"" help:"Make a stopped node's member the only one, when a quorum is lost for good."`
}

type clusterStatusCmd struct{ Target }

func (c *clusterStatusCmd) Run(ctx context.Context, s Streams) error {
	_, st, err := c.cluster(ctx)
	if err != nil {
		return err
	}
	if c.Output != "table" && c.Output != "wide" {
		return c.print(s.Out, st, nil)
	}
	fmt.Fprintf(s.Out, "cluster %s, controller %d, %s\n\n", st.ClusterID, st.Controller, levelsText(st))
	if err := brokerTable(st).write(s.Out, c.Output == "wide"); err != nil {
		return err
	}
	fmt.Fprintln(s.Out)
	if r := st.Recovery; r.Waiting > 0 {
		fmt.Fprintf(s.Out, "%d partitions came from a backup and have no leader yet: they wait for nodes %s. Start those; if they are lost for good: tidemark cluster recover\n\n", r.Waiting, nodeList(r.For))
	}
	for _, closed := range st.Closed {
		fmt.Fprintf(s.Out, "%s\n\n", closed.Message)
	}
	if len(st.Members) == 0 {
		fmt.Fprintln(s.Out, "The metadata lives in an etcd of its own: etcdctl member list shows its members.")
		return nil
	}
	return memberTable(st).write(s.Out, c.Output == "wide")
}

// levelsText tells the finalized feature levels, and where a higher one is supported.
func levelsText(st console.Cluster) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(st.Levels)) {
		word := fmt.Sprintf("%s %d", name, st.Levels[name])
		if most := st.Supported[name].Max; most > st.Levels[name] {
			word += fmt.Sprintf(" (this node supports %d: tidemark cluster upgrade)", most)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func brokerTable(st console.Cluster) table {
	out := table{columns: []string{"BROKER", "ADDRESS", "RACK", "STATE", "HTTP", "SOFTWARE", "FOLDER"}, wideFrom: 5}
	for _, b := range st.Brokers {
		var addrs []string
		for _, e := range b.Endpoints {
			addrs = append(addrs, fmt.Sprintf("%s:%d", e.Host, e.Port))
		}
		state := "up"
		if b.Draining {
			state = "leaving"
		}
		out.rows = append(out.rows, []string{fmt.Sprint(b.ID), strings.Join(addrs, ","), orDash(b.Rack), state, orDash(b.HTTP), b.Software, b.DirectoryID})
	}
	for _, n := range st.Nodes {
		if slices.ContainsFunc(st.Brokers, func(b *meta.BrokerRecord) bool { return b.ID == n.ID }) {
			continue
		}
		state := "down"
		if len(n.Directories) == 0 {
			state = "awaits a new machine"
		}
		out.rows = append(out.rows, []string{fmt.Sprint(n.ID), "-", "-", state, "-", "-", orDash(strings.Join(n.Directories, ","))})
	}
	return out
}

func memberTable(st console.Cluster) table {
	out := table{columns: []string{"MEMBER", "NAME", "ROLE", "HEALTH", "PEER", "CLIENT"}, wideFrom: 4}
	for _, m := range st.Members {
		role, health := "voter", "no answer"
		if m.Learner {
			role = "learner"
		}
		switch {
		case !m.Started:
			health = "never started"
		case m.Healthy:
			health = "ok"
		}
		out.rows = append(out.rows, []string{m.ID, orDash(m.Name), role, health, orDash(m.Peer), orDash(m.Client)})
	}
	return out
}

type clusterRemoveCmd struct {
	Target
	Member string `arg:"" help:"The member's id, as cluster status shows it."`
	Yes    bool   `short:"y" help:"Don't ask."`
}

func (c *clusterRemoveCmd) Run(ctx context.Context, s Streams) error {
	if err := askable(s, c.Yes); err != nil {
		return err
	}
	cl, st, err := c.cluster(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(st.Members, func(m member.Info) bool { return m.ID == c.Member }) {
		return fmt.Errorf("the metadata quorum has no member %s: tidemark cluster status lists them", c.Member)
	}
	warning := "This takes member " + c.Member + " out of the metadata quorum. Its node can come back only with an empty metadata folder and --join."
	if err := confirm(s, c.Yes, warning, c.Member); err != nil {
		return err
	}
	if err := cl.RemoveMember(ctx, c.Member); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "removed member %s\n", c.Member)
	return nil
}

type clusterDecommissionCmd struct {
	Target
	Node int32         `arg:"" help:"The broker's id."`
	Yes  bool          `short:"y" help:"Don't ask."`
	Wait time.Duration `help:"How long to wait until it is empty; 0 doesn't wait." default:"10m"`
}

// decommissionPoll is the time between two looks at a broker that is being emptied.
const decommissionPoll = time.Second

func (c *clusterDecommissionCmd) Run(ctx context.Context, s Streams) error {
	if err := askable(s, c.Yes); err != nil {
		return err
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	held, err := cl.Decommission(ctx, c.Node, true)
	if err != nil {
		return err
	}
	warning := fmt.Sprintf("This moves every replica off broker %d, those of %d partitions.", c.Node, held.Left)
	if err := confirm(s, c.Yes, warning, fmt.Sprint(c.Node)); err != nil {
		return err
	}
	limit := time.Now().Add(c.Wait)
	for last := -1; ; {
		d, err := cl.Decommission(ctx, c.Node, false)
		if err != nil {
			return err
		}
		if d.Left == 0 {
			fmt.Fprintf(s.Out, "broker %d holds no partition any more: stop it, take its member out of the metadata quorum if it has one (tidemark cluster remove), and tidemark cluster forget %d\n", c.Node, c.Node)
			return nil
		}
		if d.Left != last {
			last = d.Left
			fmt.Fprintf(s.Err, "broker %d still holds %d partitions\n", c.Node, d.Left)
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%w: broker %d still holds %d partitions; the moves go on", errUnmet, c.Node, d.Left)
		}
		select {
		case <-time.After(decommissionPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// clusterResetCmd works on the folder of a node that is stopped.
type clusterResetCmd struct {
	nodeFlags
	Yes bool `short:"y" help:"Don't ask."`
}

func (c *clusterResetCmd) Run(ctx context.Context, s Streams) error {
	cfg, _, err := c.resolve()
	if err != nil {
		return err
	}
	dir := broker.MetadataDir(cfg)
	if err := embed.CanReset(ctx, broker.EmbedOptions(cfg)); err != nil {
		return err
	}
	warning := "This makes the metadata in " + dir + " the cluster's only copy. What the other members had and this one hadn't received is lost, " +
		"and they must never be started on their folders again."
	if err := confirm(s, c.Yes, warning, fmt.Sprint(cfg.NodeID)); err != nil {
		return err
	}
	now := types.Millis(time.Now().UnixMilli())
	err = embed.Reset(ctx, broker.EmbedOptions(cfg), func(ctx context.Context, store metastore.Store) error {
		// What the others had committed may be missing: who was in sync is not known any more.
		_, err := recoverStore(ctx, store, now)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "%s is the only metadata member now: start the node, and join the others with empty metadata folders and --join\n", dir)
	fmt.Fprintln(s.Out, "partitions have leaders once all nodes with replicas are up; if one is lost for good: tidemark cluster recover")
	return nil
}
