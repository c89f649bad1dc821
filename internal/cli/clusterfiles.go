package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/broker/ids"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/backup"
	"tidemark/internal/metastore/embed"
	"tidemark/internal/vfs"
)

type clusterBackupCmd struct {
	Target
	File  string `arg:"" help:"Where to put the backup." type:"path"`
	Force bool   `help:"Replace a file that is there."`
}

func (c *clusterBackupCmd) Run(ctx context.Context, s Streams) error {
	if _, err := os.Stat(c.File); err == nil && !c.Force {
		return fmt.Errorf("%s is there already; choose another name, or add --force", c.File)
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	var taken *backup.Backup
	err = writeWhole(c.File, func(w *bufio.Writer) (err error) {
		taken, err = cl.Backup(ctx, w)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "%s: metadata of cluster %s at revision %d, %d keys, checked\n", c.File, taken.ClusterID, taken.Revision, taken.Keys)
	fmt.Fprintln(s.Err, "It holds the mirrors' credentials: keep it where only you can read it. It holds no records: those are in the nodes' log dirs.")
	return nil
}

// writeWhole writes a file that is there whole, synced and readable by its owner alone, or not at all.
func writeWhole(path string, write func(*bufio.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("%s can't be written: %w", path, errors.Unwrap(err)) // the name in err is a temporary one
	}
	defer os.Remove(tmp.Name()) // it is gone if all went well
	out := bufio.NewWriterSize(tmp, 1<<16)
	err = write(out)
	if err == nil {
		err = out.Flush()
	}
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return vfs.OS().SyncDir(filepath.Dir(path))
}

// clusterRestoreCmd works on the metadata of nodes that are stopped.
type clusterRestoreCmd struct {
	nodeFlags
	File    string `arg:"" optional:"" help:"The backup." type:"existingfile"`
	InPlace bool   `help:"Instead of a backup: the metadata that is there went back in time by other means, such as a snapshot of etcd or of a disk."`
	salvageFlags
	Yes bool `short:"y" help:"Don't ask."`
}

func (c *clusterRestoreCmd) Run(ctx context.Context, s Streams) error {
	if given := c.given(c.File != "", c.InPlace); given != 1 {
		return fmt.Errorf("%w: name the backup, or say one of --in-place, --from-database and --from-folders", errUsage)
	}
	cfg, _, err := c.resolve()
	if err != nil {
		return err
	}
	var taken *backup.Backup
	if !c.InPlace {
		if taken, err = c.source(s, cfg, c.File); err != nil {
			return err
		}
		if err := sameCluster(cfg, taken.ClusterID); err != nil {
			return err
		}
	}
	where := "the metadata of " + cfg.Metadata
	if cfg.Metadata == "embedded" {
		where = "the metadata in " + broker.MetadataDir(cfg)
	}
	warning := "This makes what is restored " + where + ". All nodes of the cluster must be stopped: one that goes on would be a second cluster with the same id. " +
		"What happened since is gone from the metadata: topics made since are set aside in the log dirs, deleted ones come back empty, and partitions elect the best of their replicas' logs."
	if taken != nil {
		warning += fmt.Sprintf("\nThe backup is of cluster %s at revision %d, taken %s.", taken.ClusterID, taken.Revision, time.UnixMilli(int64(taken.TakenAt)).UTC().Format(time.RFC3339))
	}
	warning += c.warning()
	if err := confirm(s, c.Yes, warning, "restore"); err != nil {
		return err
	}
	sum, moved, err := c.restore(ctx, cfg, taken)
	if err != nil {
		return err
	}
	tellRestored(s, cfg, sum, moved)
	return nil
}

func readBackup(path string) (*backup.Backup, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	taken, err := backup.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return taken, nil
}

// sameCluster refuses log dirs of another cluster: their partitions would be strays.
func sameCluster(cfg *config.Broker, id string) error {
	if cfg.ClusterID != "" && cfg.ClusterID != id {
		return fmt.Errorf("the backup is of cluster %s and cluster.id says %s", id, cfg.ClusterID)
	}
	for _, dir := range cfg.LogDirs {
		m, ok, err := log.ReadMetaProperties(vfs.OS(), dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && !ok:
		case err != nil:
			return fmt.Errorf("log dir %s: %w", dir, err)
		case m.ClusterID != id:
			return fmt.Errorf("log dir %s belongs to cluster %s and the backup to %s; give the folders of a node of that cluster, or empty ones", dir, m.ClusterID, id)
		case m.NodeID != cfg.NodeID:
			return fmt.Errorf("log dir %s belongs to node %d and this is node %d; add --node-id %d", dir, m.NodeID, cfg.NodeID, m.NodeID)
		}
	}
	return nil
}

// restore puts a backup (nil: what is there) into the store that the settings
// name; moved is where a folder's earlier metadata lies now.
func (c *clusterRestoreCmd) restore(ctx context.Context, cfg *config.Broker, taken *backup.Backup) (sum backup.Summary, moved string, err error) {
	now := types.Millis(time.Now().UnixMilli())
	into := func(ctx context.Context, store metastore.Store) error {
		if taken != nil {
			sum, err = backup.Restore(ctx, store, taken, meta.SupportedFeatures(), ids.Fresh(), now)
			return err
		}
		sum, err = recoverStore(ctx, store, now)
		return err
	}
	if cfg.Metadata != "embedded" {
		store, err := broker.DialStore(ctx, cfg, nil)
		if err != nil {
			return sum, "", err
		}
		defer store.Close()
		return sum, "", into(ctx, store)
	}
	o := broker.EmbedOptions(cfg)
	if taken == nil {
		return sum, "", embed.Edit(ctx, o, into)
	}
	moved, err = embed.Replace(ctx, o, into)
	return sum, moved, err
}

// registrationsEnd is how long registrations may outlive the nodes that were stopped.
const registrationsEnd = time.Minute

// recoverStore marks the metadata of the store's cluster once no broker is registered any more.
func recoverStore(ctx context.Context, store metastore.Store, now types.Millis) (backup.Summary, error) {
	kv, _, err := store.Get(ctx, meta.DefaultClusterKey)
	if err != nil {
		return backup.Summary{}, err
	}
	if kv.ModRevision == 0 {
		return backup.Summary{}, errors.New("the metadata store holds no cluster")
	}
	until := time.Now().Add(registrationsEnd)
	for {
		sum, err := backup.Recover(ctx, store, string(kv.Value), ids.Fresh(), now)
		if !errors.Is(err, backup.ErrInUse) || time.Now().After(until) {
			return sum, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return sum, errors.Join(err, ctx.Err())
		}
	}
}

func tellRestored(s Streams, cfg *config.Broker, sum backup.Summary, moved string) {
	fmt.Fprintf(s.Out, "restored cluster %s: %d topics, %d partitions\n", sum.ClusterID, sum.Topics, sum.Partitions)
	if moved != "" {
		fmt.Fprintf(s.Out, "the metadata that was there before: %s\n", moved)
	}
	for _, key := range sum.Unreadable {
		fmt.Fprintf(s.Err, "can't be read, and was put back as it is: %s\n", key)
	}
	if len(sum.Mirrors) > 0 {
		fmt.Fprintf(s.Out, "paused mirrors: %s; look at each (tidemark mirror describe) before tidemark mirror resume\n", strings.Join(sum.Mirrors, ", "))
	}
	if cfg.Metadata == "embedded" {
		fmt.Fprintf(s.Out, "next: start node %d; then start the others, each with an empty metadata folder (move the old one away) and --join to node %d's HTTP address\n", cfg.NodeID, cfg.NodeID)
	} else {
		fmt.Fprintln(s.Out, "next: start the nodes")
	}
	fmt.Fprintf(s.Out, "partitions have leaders once all nodes with replicas (%s) are up; if one is lost for good: tidemark cluster recover\n", nodeList(sum.Nodes))
}

func nodeList(nodes []types.BrokerID) string {
	words := make([]string, len(nodes))
	for i, id := range nodes {
		words[i] = fmt.Sprint(id)
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}
