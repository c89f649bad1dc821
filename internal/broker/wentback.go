package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
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
// What the store still holds of its past says more than what is there now: at the
// revision that a folder has followed it must be what the folder followed then.
// The mark of a restore never goes away but by a later one, so that metadata
// without any is older than a folder that has followed some.
func (b *Broker) noticeRestore(ctx context.Context, image *meta.Image) error {
	now := markOf(image)
	for _, d := range b.dirs {
		seen := d.followed(now)
		parts, err := b.partsBefore(ctx, seen, now)
		if err != nil {
			return err
		}
		follows := seen.follows(now) && !parts
		newer, isNewer := d.newerLog(image)
		left := d.hasLeft(now)
		trusts := d.seen.follows(now) && !parts && !left
		d.trusts.Store(trusts && !isNewer)
		switch {
		case isNewer && (trusts || d.seen.unreadable) && !b.env.rules.TrustOldMetadata:
			return &DirRefused{Dir: d.path, Reason: "METADATA_WENT_BACK: " + newer + ": the metadata store was put back to an earlier state, or it is another store. " + wayOfWentBack}
		case left && now.restore != "" && !b.env.rules.TrustOldMetadata:
			return &DirRefused{Dir: d.path, Reason: fmt.Sprintf("METADATA_WENT_BACK: the metadata at revision %d came from restore %s, and this folder has followed a later one (%s): "+
				"the store was put back to before that restore, or it is another store. "+wayOfWentBack, now.revision, now.restore, d.entered.restore)}
		case follows && !trusts && !left: // it has entered metadata from this backup before
			b.tellRestore(image, d)
		case follows && !left || d.isNew() && d.entered.restore == "" || b.env.rules.TrustOldMetadata:
		case seen.unreadable:
			b.logger.Warn("how far this log dir has followed the metadata can't be read: folders that the metadata doesn't know are set aside, not deleted", "dir", d.path)
		case d.seen.restore+d.entered.restore != "" && neverRestored(image):
			return &DirRefused{Dir: d.path, Reason: fmt.Sprintf("METADATA_WENT_BACK: the metadata at revision %d came from no backup, and this folder has followed metadata that did (restore %s): "+
				"the store was put back to before that restore, or it is another store. "+wayOfWentBack, now.revision, cmp.Or(d.entered.restore, d.seen.restore))}
		case seen.restore != now.restore || left: // or nobody can read which it came from
			b.tellRestore(image, d)
		case seen.revision <= now.revision:
			what := fmt.Sprintf("what it holds of revision %d isn't what this folder followed then", seen.revision)
			if o, ok := seen.stranger(now.offices); ok {
				what = fmt.Sprintf("a node registered in it at revision %d of which this folder knows nothing, though it has followed the store up to %d", o.taken, seen.revision)
			}
			return &DirRefused{Dir: d.path, Reason: "METADATA_WENT_BACK: the metadata store has another past than this folder: " + what +
				"; the store was put back to an earlier state and has gone on from there, or it is another store. " + wayOfWentBack}
		default:
			return &DirRefused{Dir: d.path, Reason: fmt.Sprintf("METADATA_WENT_BACK: the metadata store is at revision %d and this folder has followed it up to %d: "+
				"it was put back to an earlier state, or it is another store. "+wayOfWentBack,
				now.revision, seen.revision)}
		}
	}
	return nil
}

// partsBefore reports whether the store's history parts from the one that a dir has
// followed at or below the revision up to which it did. The store is asked for what
// it was then; if it doesn't hold that any more (the embedded one does for minutes),
// it can't tell, and only who is registered now does.
func (b *Broker) partsBefore(ctx context.Context, seen, now seenMark) (bool, error) {
	if !seen.digest.known || seen.restore != now.restore || seen.revision > now.revision || b.env.rules.TrustOldMetadata {
		return false, nil
	}
	then := now
	if seen.revision < now.revision {
		kvs, err := b.store.RangeAt(ctx, meta.KeysOf(b.clusterID).Root(), seen.revision)
		switch {
		case errors.Is(err, metastore.ErrCompacted):
			return false, nil
		case err != nil:
			return false, err
		}
		for i := range kvs {
			if strings.HasPrefix(kvs[i].Key, meta.KeysOf(b.clusterID).Root()+"partitions/") {
				kvs[i].Value = nil // its revisions are enough, and reading it takes most of the time
			}
		}
		image, _ := meta.Load(b.clusterID, kvs, seen.revision)
		then = markOf(image)
	}
	return then.digest != seen.digest || !then.offices.same(seen.offices), nil
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

// noteEntered notes metadata from a backup before this node takes part in what comes of it.
func (b *Broker) noteEntered(image *meta.Image) {
	for _, d := range b.dirs {
		if d.failure() != nil {
			continue
		}
		b.wroteIn(d, d.writeEntered(markOf(image)), "that the metadata came from a backup can't be noted: the disk is full")
	}
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
