package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/backup"
	"tidemark/internal/metastore/embed"
	"tidemark/internal/vfs"
)

// salvageFlags name what takes the place of a backup that nobody made.
type salvageFlags struct {
	FromDatabase bool `help:"Instead of a backup: the database in this node's own metadata folder, whose log is cut, damaged or lost."`
	FromFolders  bool `help:"Instead of a backup, where the only node's database is lost too: the partitions in its log dirs. Settings, ACLs, users and mirrors are lost."`
}

// given counts the ways that were asked for.
func (f salvageFlags) given(others ...bool) (n int) {
	for _, on := range append(others, f.FromDatabase, f.FromFolders) {
		if on {
			n++
		}
	}
	return n
}

// source gives what is restored: a file's backup, or what is left of the node.
func (f salvageFlags) source(s Streams, cfg *config.Broker, file string) (*backup.Backup, error) {
	if !f.FromDatabase && !f.FromFolders {
		return readBackup(file)
	}
	if cfg.Metadata != "embedded" {
		return nil, fmt.Errorf("%w: the metadata is in %s, not in a folder of this node: restore that etcd by its own means, then say --in-place", errUsage, cfg.Metadata)
	}
	if f.FromDatabase {
		return fromDatabase(s, cfg)
	}
	return fromFolders(s, cfg)
}

func fromDatabase(s Streams, cfg *config.Broker) (*backup.Backup, error) {
	found, err := embed.Salvage(broker.MetadataDir(cfg))
	if errors.Is(err, embed.ErrNoDatabase) {
		return nil, fmt.Errorf("%w; if this was the only node: tidemark cluster restore --from-folders", err)
	}
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(found.KVs, func(kv metastore.KV) bool { return kv.Key == meta.DefaultClusterKey })
	if at < 0 {
		return nil, fmt.Errorf("the database in %s holds no cluster; if this was the only node: tidemark cluster restore --from-folders", broker.MetadataDir(cfg))
	}
	id := string(found.KVs[at].Value)
	root := meta.KeysOf(id).Root()
	below := slices.DeleteFunc(found.KVs, func(kv metastore.KV) bool { return !strings.HasPrefix(kv.Key, root) })
	taken, err := backup.Of(id, below, found.Revision)
	if err != nil {
		return nil, fmt.Errorf("the database in %s: %w; if this was the only node: tidemark cluster restore --from-folders", broker.MetadataDir(cfg), err)
	}
	taken.TakenAt = types.Millis(found.At.UnixMilli())
	fmt.Fprintf(s.Err, "the database holds %d keys at revision %d, up to entry %d of the metadata's log\n", taken.Keys, found.Revision, found.Applied)
	return taken, nil
}

func fromFolders(s Streams, cfg *config.Broker) (*backup.Backup, error) {
	alone, err := embed.WasLone(broker.MetadataDir(cfg))
	if err == nil && (!alone || cfg.MetadataJoin != "") {
		err = fmt.Errorf("the metadata in %s was one copy of several, and other nodes may hold replicas that no folder here tells of: "+
			"make a member that is whole the only one (tidemark cluster reset), or restore from a database (--from-database)", broker.MetadataDir(cfg))
	}
	if err != nil {
		return nil, err
	}
	taken, empty, err := broker.BackupOfFolders(vfs.OS(), cfg, types.Millis(time.Now().UnixMilli()))
	if err != nil {
		return nil, err
	}
	for _, name := range empty {
		fmt.Fprintf(s.Err, "%s has no folder and begins empty\n", name)
	}
	return taken, nil
}

// warning says what a source that is no backup lacks.
func (f salvageFlags) warning() string {
	switch {
	case f.FromDatabase:
		return "\nThe database follows its log by a moment: changes of that moment, such as a topic just made, may be missing."
	case f.FromFolders:
		return "\nThe log dirs know names, ids and records, and nothing else: topics' settings, ACLs, users, quotas and mirrors are gone. " +
			"Topics come back with endless retention, and what a mirror wrote comes back writable: set retention, cleanup.policy and security again before clients return."
	}
	return ""
}
