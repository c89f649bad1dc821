package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/backup"
	"tidemark/internal/metastore/member"
)

// Backup takes the metadata of the cluster, all of it at one revision. Any node does it.
func (b *Broker) Backup(ctx context.Context) (*backup.Backup, error) {
	taken, err := backup.Take(ctx, b.store, b.clusterID)
	if err != nil {
		return nil, err
	}
	taken.TakenAt, taken.Software = b.Now(), "tidemark "+b.opts.Version
	return taken, nil
}

// ReplaceNode lets a new machine take the id of a node that is lost for good:
// the next folder that registers with it is the node's, and its member of the
// metadata quorum is taken out. Asked again it gives the same answer.
func (b *Broker) ReplaceNode(ctx context.Context, id types.BrokerID, dryRun bool) (member.Replaced, error) {
	var out member.Replaced
	err := b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) {
		r, err := control.ReplaceNode(i, id, b.me())
		out.Replicas, out.Only = r.Replicas, r.Only
		if err != nil || r.Done || dryRun {
			return nil, err
		}
		return []meta.Plan{r.Plan}, nil
	})
	if err != nil || b.quorum == nil {
		return out, err
	}
	all, err := b.quorum.Members(ctx)
	if err != nil {
		return out, err
	}
	for _, m := range all {
		if node, ok := NodeOfMember(m.Name); !ok || node != id {
			continue
		}
		if m.Healthy {
			return out, fmt.Errorf("node %d isn't registered, but its member %s of the metadata quorum answers at %s: stop that process first", id, m.ID, m.Client)
		}
		out.Member = m.ID
		if dryRun {
			break
		}
		if err := b.quorum.RemoveMember(ctx, m.ID); err != nil {
			return out, fmt.Errorf("the id of node %d is free, but its member %s of the metadata quorum can't be taken out: %w; ask again once a majority of the members is up", id, m.ID, err)
		}
		b.logger.Info("a lost node's member was taken out of the metadata quorum", "node", id, "member", m.ID)
	}
	return out, nil
}

// Forget ends what the cluster remembers of a node that is gone and holds nothing.
func (b *Broker) Forget(ctx context.Context, id types.BrokerID) error {
	return b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) {
		plan, err := control.ForgetNode(i, id, b.me())
		return []meta.Plan{plan}, err
	})
}

// NodeOfMember tells whose a member of the metadata quorum is by its name.
func NodeOfMember(name string) (types.BrokerID, bool) {
	rest, ok := strings.CutPrefix(name, "node-")
	if !ok {
		return types.NoBroker, false
	}
	number, _, _ := strings.Cut(rest, "-")
	n, err := strconv.ParseInt(number, 10, 32)
	return types.BrokerID(n), err == nil && n >= 0
}

// MayAdd says whether a node can be taken in now, and as what.
func (b *Broker) MayAdd(ctx context.Context, id types.BrokerID) (member.Addition, error) {
	image := b.Image()
	out := member.Addition{NodeID: id, ClusterID: b.clusterID, Join: b.httpAddr()}
	if id == types.NoBroker {
		out.NodeID = freeNodeID(image)
	}
	if known, ok := image.Node(out.NodeID); ok && len(known.Record.Directories) > 0 {
		return out, fmt.Errorf("node id %d: %w: it belongs to data folder %s; choose another id, or tidemark cluster replace %d if that node is lost for good",
			out.NodeID, control.ErrNodeIDInUse, strings.Join(known.Record.Directories, ", "), out.NodeID)
	}
	if b.quorum == nil {
		out.Metadata = b.cfg.Metadata
		return out, nil
	}
	if out.Join == "" {
		return out, errors.New("this node has no HTTP API that another one could ask (http.listener): ask another node")
	}
	all, err := b.quorum.Members(ctx)
	if err != nil {
		return out, err
	}
	healthy := 0
	for _, m := range all {
		switch {
		case m.Learner:
			return out, fmt.Errorf("another node is joining: member %s at %s is a learner still, and is taken first; wait until tidemark cluster status shows it as a voter, or, if it never comes up: tidemark cluster remove %s", m.ID, m.Peer, m.ID)
		case m.Healthy:
			healthy++
		default:
			out.Unhealthy = append(out.Unhealthy, m)
		}
	}
	// A new voter counts at once: those that answer must be a majority with it, should it fail to come up.
	out.Voter = len(all) < b.quorum.VotersMax()
	if out.Voter && healthy < (len(all)+1)/2+1 && len(all) > 1 {
		return out, fmt.Errorf("only %d of %d members of the metadata quorum answer: one more voter would leave no margin; bring the others up, or take those that are lost out (tidemark cluster remove)", healthy, len(all))
	}
	out.TLS = b.cfg.MetadataSSLTruststoreLocation != ""
	return out, nil
}

// freeNodeID is the lowest id that no node has and no partition names.
func freeNodeID(image *meta.Image) types.BrokerID {
	var used []types.BrokerID
	for n := range image.Nodes() {
		used = append(used, n.ID)
	}
	for n := range image.Brokers() {
		used = append(used, n.ID)
	}
	for p := range image.Partitions() {
		if p.Record != nil {
			used = append(used, p.Record.Replicas...)
		}
	}
	for id := types.BrokerID(1); ; id++ {
		if !slices.Contains(used, id) {
			return id
		}
	}
}

// Recovery says how the elections after a restore stand.
func (b *Broker) Recovery() member.Recovery {
	image := b.Image()
	var out member.Recovery
	if c, ok := image.Cluster(); ok && c.Record.Restore != nil {
		out.RestoredAt, out.BackupTakenAt, out.BackupRevision = c.Record.Restore.At, c.Record.Restore.TakenAt, c.Record.Restore.Revision
	}
	for p := range image.Partitions() {
		missing := control.Awaiting(image, p)
		if p.Record == nil || !p.Record.Restored {
			continue
		}
		out.Waiting++
		for _, id := range missing {
			if !slices.Contains(out.For, id) {
				out.For = append(out.For, id)
			}
		}
	}
	slices.Sort(out.For)
	return out
}

// AcceptLoss allows the elections after a restore to do without the replicas
// that have not come back, and gives how many partitions that concerns.
func (b *Broker) AcceptLoss(ctx context.Context) (int, error) {
	var ids []meta.PartitionID
	for p := range b.Image().Partitions() {
		if p.Record != nil && p.Record.Restored && len(control.Awaiting(b.Image(), p)) > 0 {
			ids = append(ids, p.ID)
		}
	}
	errs := (&elections{b}).each(ctx, len(ids), func(i int, image *meta.Image, _ bool) (meta.Plan, error) {
		p, ok := image.PartitionEntry(ids[i].Topic, ids[i].Number)
		if !ok || p.Record == nil || !p.Record.Restored || p.Record.UncleanOnce {
			return meta.Plan{}, errDone
		}
		return control.AllowUnclean(image, p, b.me())
	})
	return len(ids), errors.Join(errs...)
}
