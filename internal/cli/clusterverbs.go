package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"tidemark/internal/console"
	"tidemark/internal/core/meta"
)

// clusterAddCmd takes no part itself: the new node asks to be taken in (--join).
type clusterAddCmd struct {
	Target
	Node *int32        `help:"The new node's id (default: the lowest free one)." name:"node-id"`
	Wait time.Duration `help:"Wait until the node is in, and a voter if it is to be one; 0 doesn't wait." default:"0s"`
}

// addPoll is the time between two looks for a node that is coming.
const addPoll = time.Second

func (c *clusterAddCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	id := int32(-1)
	if c.Node != nil {
		id = *c.Node
	}
	a, err := cl.Addition(ctx, id)
	if err != nil {
		return err
	}
	if c.Output != "table" && c.Output != "wide" {
		return c.print(s.Out, a, nil)
	}
	role := "it will only ask the members of the metadata quorum"
	switch {
	case a.Metadata != "":
		role = "the metadata lives in an etcd of its own"
	case a.Voter:
		role = "it will be a voter of the metadata quorum"
	}
	fmt.Fprintf(s.Out, "cluster %s can take node %d in: %s\nOn the new machine:\n\n  %s\n", a.ClusterID, a.NodeID, role, startLine(int32(a.NodeID), a.Join, a.Metadata, a.TLS))
	for _, m := range a.Unhealthy {
		fmt.Fprintf(s.Err, "member %s (%s) doesn't answer\n", m.ID, orDash(m.Name))
	}
	if c.Wait > 0 {
		return awaitNode(ctx, s.Err, cl, int32(a.NodeID), a.Voter, c.Wait)
	}
	return nil
}

// startLine is the command that starts a new node.
func startLine(id int32, join, metadata string, tls bool) string {
	line := fmt.Sprintf("tidemark serve --node-id %d --data-dir DIR --listen HOST:9092 --http HOST:9644", id)
	if metadata != "" {
		line += " --set metadata=" + metadata
	} else {
		line += " --join " + join
	}
	if tls {
		line += " --set metadata.ssl.keystore.location=FILE --set metadata.ssl.truststore.location=FILE"
	}
	return line
}

// awaitNode waits until a node is registered, and a voter if it is to be one.
func awaitNode(ctx context.Context, progress io.Writer, cl *console.Client, id int32, voter bool, wait time.Duration) error {
	limit := time.Now().Add(wait)
	for last := ""; ; {
		st, err := cl.Cluster(ctx)
		if err != nil {
			return err
		}
		now := nodeState(st, id, voter)
		if now != last {
			last = now
			fmt.Fprintf(progress, "node %d: %s\n", id, now)
		}
		if now == nodeIn {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%w: node %d: %s", errUnmet, id, now)
		}
		select {
		case <-time.After(addPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const nodeIn = "it is in"

func nodeState(st console.Cluster, id int32, voter bool) string {
	registered := slices.ContainsFunc(st.Brokers, func(b *meta.BrokerRecord) bool { return int32(b.ID) == id })
	for _, m := range st.Members {
		if m.Name != fmt.Sprintf("node-%d", id) && !strings.HasPrefix(m.Name, fmt.Sprintf("node-%d-", id)) {
			continue
		}
		switch {
		case m.Learner:
			return "it copies the metadata, and is a voter after that"
		case registered:
			return nodeIn
		}
	}
	switch {
	case registered && !voter:
		return nodeIn
	case registered:
		return "it is registered, and no voter yet"
	}
	return "it has not come yet"
}

type clusterReplaceCmd struct {
	Target
	Node int32 `arg:"" help:"The id of the node that is lost for good."`
	Yes  bool  `short:"y" help:"Don't ask."`
}

func (c *clusterReplaceCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	r, err := cl.ReplaceNode(ctx, c.Node, true)
	if err != nil {
		return err
	}
	warning := fmt.Sprintf("This gives the id of node %d to the next machine that comes with it. Its folders must never be started again. "+
		"%d partitions have a replica on it: the new node copies them from the others.", c.Node, r.Replicas)
	if r.Only > 0 {
		warning += fmt.Sprintf(" %d of them have no other replica: THEIR RECORDS ARE LOST, and they begin anew, empty.", r.Only)
	}
	if r.Member != "" {
		warning += " Its member " + r.Member + " of the metadata quorum is taken out."
	}
	if err := confirm(s, c.Yes, warning, fmt.Sprint(c.Node)); err != nil {
		return err
	}
	if r, err = cl.ReplaceNode(ctx, c.Node, false); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "node %d may be replaced; %d partitions will be copied to the new one\n", c.Node, r.Replicas)
	st, err := cl.Cluster(ctx)
	if err != nil {
		return err
	}
	join, metadata := "HOST:9644", ""
	if len(st.Members) == 0 {
		join, metadata = "", "etcd://HOST:2379"
	}
	for _, b := range st.Brokers {
		if b.ID == st.NodeID && b.HTTP != "" {
			join = b.HTTP
		}
	}
	fmt.Fprintf(s.Out, "On the new machine, with empty folders:\n\n  %s\n", startLine(c.Node, join, metadata, tlsUsed(st)))
	return nil
}

func tlsUsed(st console.Cluster) bool {
	return len(st.Members) > 0 && strings.HasPrefix(st.Members[0].Peer, "https://")
}

type clusterForgetCmd struct {
	Target
	Node int32 `arg:"" help:"The id of a node that is gone and holds nothing."`
}

func (c *clusterForgetCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	if err := cl.Forget(ctx, c.Node); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "forgot node %d: any folder may take the id\n", c.Node)
	return nil
}

type clusterRecoverCmd struct {
	Target
	Yes bool `short:"y" help:"Don't ask."`
}

func (c *clusterRecoverCmd) Run(ctx context.Context, s Streams) error {
	cl, st, err := c.cluster(ctx)
	if err != nil {
		return err
	}
	if st.Recovery.Waiting == 0 {
		fmt.Fprintln(s.Out, "no partition waits for a replica after a restore")
		return nil
	}
	warning := fmt.Sprintf("%d partitions came from a backup and wait for what nodes %s hold. This lets them go on without: records that only those nodes have are lost.",
		st.Recovery.Waiting, nodeList(st.Recovery.For))
	if err := confirm(s, c.Yes, warning, "recover"); err != nil {
		return err
	}
	done, err := cl.Recover(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "%d partitions elect the best of the replicas that are there\n", done.Partitions)
	return nil
}

type clusterUpgradeCmd struct {
	Target
	Level  int16  `help:"The level to finalize (default: the highest that this node's program supports)."`
	Name   string `help:"The feature (default: all of them; tidemark.version where a level is given)." name:"feature"`
	Down   bool   `help:"Allow a level below the present one."`
	Unsafe bool   `help:"Allow it although records may have been written in a newer form."`
	DryRun bool   `help:"Only say whether it could be done."`
}

func (c *clusterUpgradeCmd) Run(ctx context.Context, s Streams) error {
	cl, st, err := c.cluster(ctx)
	if err != nil {
		return err
	}
	levels, err := c.levels(st)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(levels))
	for _, name := range names {
		if st.Levels[name] == levels[name] {
			fmt.Fprintf(s.Out, "%s is at level %d\n", name, levels[name])
			delete(levels, name)
		}
	}
	if len(levels) == 0 {
		return nil
	}
	r := console.FeaturesRequest{Levels: levels, Down: c.Down, Unsafe: c.Unsafe, DryRun: c.DryRun}
	if err := cl.UpdateFeatures(ctx, r); err != nil {
		return err
	}
	verb := "is now"
	if c.DryRun {
		verb = "could be"
	}
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		fmt.Fprintf(s.Out, "%s %s at level %d, before at %d\n", name, verb, levels[name], st.Levels[name])
	}
	return nil
}

// levels are those to finalize, by feature.
func (c *clusterUpgradeCmd) levels(st console.Cluster) (map[string]int16, error) {
	name := c.Name
	if name == "" && (c.Level != 0 || c.Down) {
		name = meta.FeatureMetadata
	}
	levels := make(map[string]int16)
	for feature, supported := range st.Supported {
		switch {
		case name == "":
			levels[feature] = supported.Max
		case name == feature && c.Level == 0 && !c.Down:
			levels[feature] = supported.Max
		case name == feature:
			levels[feature] = c.Level
		}
	}
	if len(levels) == 0 {
		return nil, fmt.Errorf("%w: feature %q: this cluster has %s", errUsage, c.Name, strings.Join(slices.Sorted(maps.Keys(st.Supported)), ", "))
	}
	return levels, nil
}
