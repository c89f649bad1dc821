package broker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// wayOfWentBack is what an operator does whose metadata went back.
const wayOfWentBack = "What it says of in-sync replicas may have ceased to be true. If it is the right store, " +
	"stop all nodes and run tidemark cluster restore --in-place with this node's settings: partitions then elect the best of all replicas' logs"

// noticeRestore compares the metadata with what this node's log dirs have
// followed. Metadata that came from a backup says so by its restore id: folders
// that it doesn't know are kept, and no mark of a clean shutdown counts. Metadata
// that is older than the folders, or has gone on from an older state (a registration
// tells that the folders should know), and doesn't say so stops the node: what it tells
// of in-sync replicas was true once, and nobody can see what is missing (R19).
// The mark of a restore never goes away but by a later one, so that metadata
// without any is older than a folder that has followed some.
func (b *Broker) noticeRestore(image *meta.Image) error {
	now := markOf(image)
	for _, d := range b.dirs {
		d.trusts.Store(d.seen.follows(now))
		switch {
		case d.seen.follows(now) || d.isNew() || b.env.rules.TrustOldMetadata:
		case d.seen.unreadable:
			b.logger.Warn("how far this log dir has followed the metadata can't be read: folders that the metadata doesn't know are set aside, not deleted", "dir", d.path)
		case d.seen.restore != "" && neverRestored(image):
			return &DirRefused{Dir: d.path, Reason: fmt.Sprintf("METADATA_WENT_BACK: the metadata at revision %d came from no backup, and this folder has followed metadata that did (restore %s): "+
				"the store was put back to before that restore, or it is another store. "+wayOfWentBack, now.revision, d.seen.restore)}
		case d.seen.restore != now.restore:
			b.tellRestore(image, d)
		case d.seen.revision <= now.revision:
			o, _ := d.seen.stranger(now.offices)
			return &DirRefused{Dir: d.path, Reason: fmt.Sprintf("METADATA_WENT_BACK: in the metadata store a node registered at revision %d of which this folder knows nothing, though it has followed the store up to %d: "+
				"the store was put back to an earlier state and has gone on from there, or it is another store. "+wayOfWentBack, o.taken, d.seen.revision)}
		default:
			return &DirRefused{Dir: d.path, Reason: fmt.Sprintf("METADATA_WENT_BACK: the metadata store is at revision %d and this folder has followed it up to %d: "+
				"it was put back to an earlier state, or it is another store. "+wayOfWentBack,
				now.revision, d.seen.revision)}
		}
	}
	return nil
}

// refuseHalfRestored stops a node on metadata that has no record of its cluster,
// which a restore writes last.
func (b *Broker) refuseHalfRestored(ctx context.Context) error {
	keys := meta.KeysOf(b.clusterID)
	kvs, _, err := b.store.Range(ctx, keys.Root())
	if err != nil || len(kvs) == 0 || slices.ContainsFunc(kvs, func(kv meta.KV) bool { return kv.Key == keys.Cluster() }) {
		return err
	}
	return fmt.Errorf("the metadata store holds %d keys of cluster %s and no record of the cluster itself: a restore stopped half-way; run tidemark cluster restore again", len(kvs), b.clusterID)
}

// isNew reports a log dir that has followed no metadata yet.
func (d *logDir) isNew() bool {
	return d.seen.restore == "" && d.seen.revision == 0 && !d.seen.unreadable && !d.holdsPartitions()
}

func (d *logDir) holdsPartitions() bool {
	for name := range d.found {
		if _, ok := folderPartition(name); ok {
			return true
		}
	}
	return false
}

// neverRestored reports metadata whose cluster record can be read and names no restore.
func neverRestored(image *meta.Image) bool {
	c, ok := image.Cluster()
	return ok && c.Record.Restore == nil
}

func (b *Broker) tellRestore(image *meta.Image, d *logDir) {
	c, ok := image.Cluster()
	if !ok || c.Record.Restore == nil {
		b.logger.Error("the record of the cluster can't be read, which says what backup the metadata came from; folders that it doesn't know are set aside, not deleted", "dir", d.path)
		return
	}
	r := c.Record.Restore
	b.logger.Warn("the metadata came from a backup: topics made since are set aside as stray folders, and a partition has no leader before all of its replicas have told what they hold",
		"dir", d.path, "followedTo", d.seen.revision, "backupRevision", r.Revision,
		"backupTaken", time.UnixMilli(int64(r.TakenAt)).UTC().Format(time.RFC3339), "restored", time.UnixMilli(int64(r.At)).UTC().Format(time.RFC3339))
}

// cleanSince is the registration that the last process of all log dirs closed
// cleanly. One of metadata from before a restore counts for nothing: its number may come again.
func (b *Broker) cleanSince() types.BrokerEpoch {
	for _, d := range b.dirs {
		if !d.trusts.Load() {
			return types.NoBrokerEpoch
		}
	}
	return b.cleanShutdownEpoch()
}
