package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"tidemark/internal/broker/ids"
	"tidemark/internal/clock"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// Names of what lies in a log dir beside the partitions' folders.
const (
	lockFile       = ".lock"
	metadataFolder = "metadata"
	vaultFolder    = "vault"
	eventsFolder   = "events"
	reportsFolder  = "verify"
	deleteSuffix   = "-delete"
	straySuffix    = "-stray"
)

// logDir is one folder of log.dirs. The first failed write or sync anywhere in
// it takes all of it offline (DESIGN §3).
type logDir struct {
	fs          vfs.FS
	path        string
	fresh       ids.Source
	id          string // directory.id
	clusterID   string // as found; empty in a new folder
	lock        io.Closer
	clean       bool              // the last run ended cleanly,
	cleanEpoch  types.BrokerEpoch // in this registration; -1: the mark doesn't say, or there is none
	checkpoints *log.DirCheckpoints
	seen        seenMark      // of seenRevisionFile
	entered     seenMark      // of enteredFile
	swept       atomic.Bool   // folders that the metadata doesn't know have been set aside
	trusts      atomic.Bool   // the metadata is what the dir followed: what it doesn't know was deleted
	opening     chan struct{} // num.recovery.threads.per.data.dir tokens
	recovering  atomic.Bool   // the start after an unclean stop is under way
	found       map[string]bool
	forks       forkSet // made here, or found at the start, and without a topic yet
	partitions  int     // chosen for it so far; the viewer's goroutine counts
	room        room
	cause       atomic.Pointer[error]
	failed      func(*logDir, error)
}

// fail takes the dir offline; the first cause stays.
func (d *logDir) fail(cause error) {
	if d.cause.CompareAndSwap(nil, &cause) {
		d.failed(d, cause)
	}
}

// failure is why the dir is offline, nil if it isn't.
func (d *logDir) failure() error {
	if err := d.cause.Load(); err != nil {
		return *err
	}
	return nil
}

// openDirs locks and reads every log dir. A dir that can't be read is left out
// if another one can; a dir of another cluster or node is refused by name.
func (b *Broker) openDirs(context.Context) error {
	var faults []error
	for _, path := range b.cfg.LogDirs {
		d, err := openDir(b.fs, path, b.cfg, b.fresh, b.logger)
		if err != nil {
			faults = append(faults, err)
			if isRefusal(err) {
				return err
			}
			lost := &logDir{fs: b.fs, path: path, failed: func(*logDir, error) {}}
			lost.fail(err)
			b.lost = append(b.lost, lost)
			continue
		}
		d.failed = b.dirFailed
		b.dirs = append(b.dirs, d)
	}
	if len(b.dirs) == 0 {
		return errors.Join(faults...)
	}
	for _, d := range b.lost {
		b.logger.Error("log dir can't be used; its partitions are offline", "dir", d.path, "err", d.failure())
	}
	b.metrics.Log.OfflineDirs.Set(float64(len(faults)))
	return b.settleClusterID()
}

// DirRefused says that a log dir belongs to somebody else, or is in use.
type DirRefused struct {
	Dir    string
	Reason string
}

// Error names the dir, the reason, and what to do.
func (e *DirRefused) Error() string { return fmt.Sprintf("log dir %s: %s", e.Dir, e.Reason) }

func isRefusal(err error) bool {
	var r *DirRefused
	return errors.As(err, &r)
}

func openDir(fsys vfs.FS, path string, cfg *config.Broker, fresh ids.Source, l *slog.Logger) (d *logDir, err error) {
	if err := fsys.MkdirAll(path); err != nil {
		return nil, fmt.Errorf("log dir %s: can't be made, check the path and its permissions: %w", path, err)
	}
	if err := fsys.SyncDir(filepath.Dir(filepath.Clean(path))); err != nil {
		return nil, fmt.Errorf("log dir %s: its parent can't be synced: %w", path, err)
	}
	lock, err := fsys.Lock(filepath.Join(path, lockFile))
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return nil, &DirRefused{Dir: path, Reason: "another process is using it: stop that one, or choose another folder with --data-dir"}
	case err != nil:
		return nil, fmt.Errorf("log dir %s: can't be written, check its owner and permissions: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Close())
		}
	}()
	d = &logDir{fs: fsys, path: path, fresh: fresh, lock: lock, found: make(map[string]bool), opening: make(chan struct{}, cfg.NumRecoveryThreadsPerDir)}
	if err := d.readIdentity(cfg); err != nil {
		return nil, err
	}
	names, err := fsys.List(path)
	if err != nil {
		return nil, fmt.Errorf("log dir %s: can't be read: %w", path, err)
	}
	for _, name := range names {
		d.found[name] = true
		if id, ok := parseForkFolder(name); ok {
			d.forks.put(id, waitingFork{})
		}
	}
	if err := d.missesIdentity(cfg); err != nil {
		return nil, err
	}
	if err := d.readState(l); err != nil {
		return nil, fmt.Errorf("log dir %s: %w", path, err)
	}
	d.distrustLosses(l)
	return d, nil
}

// readState reads what the last run left beside the partitions' folders.
func (d *logDir) readState(l *slog.Logger) (err error) {
	if d.cleanEpoch, d.clean, err = log.TakeCleanShutdown(d.fs, d.path); err != nil {
		return err
	}
	d.recovering.Store(!d.clean)
	if err := d.readSeen(); err != nil {
		return err
	}
	var problems []error
	d.checkpoints, problems, err = log.OpenCheckpoints(d.fs, d.path)
	for _, p := range problems {
		l.Error("checkpoint file can't be read: its logs are checked whole, and records deleted on request may come back", "err", p)
	}
	return err
}

// readIdentity checks meta.properties against the configuration.
func (d *logDir) readIdentity(cfg *config.Broker) error {
	m, ok, err := log.ReadMetaProperties(d.fs, d.path)
	if err != nil {
		return fmt.Errorf("log dir %s: %w; whose folder it is can't be told: write the file anew, as it is in another log dir of this node but with a directory.id of its own (version, cluster.id, node.id, directory.id), or restore it from a copy",
			d.path, err)
	}
	if !ok {
		d.id, d.clusterID = d.fresh.Fresh(), cfg.ClusterID
		return nil
	}
	if m.NodeID != cfg.NodeID {
		return &DirRefused{Dir: d.path, Reason: fmt.Sprintf(
			"it belongs to node %d and this is node %d; give the right --data-dir, or start with --node-id %d", m.NodeID, cfg.NodeID, m.NodeID)}
	}
	if cfg.ClusterID != "" && m.ClusterID != cfg.ClusterID {
		return &DirRefused{Dir: d.path, Reason: fmt.Sprintf("it belongs to cluster %s and cluster.id says %s; give the right --data-dir, or leave cluster.id out", m.ClusterID, cfg.ClusterID)}
	}
	d.clusterID, d.id = m.ClusterID, m.DirectoryID
	if d.id == "" {
		d.id = d.fresh.Fresh()
	}
	return nil
}

// missesIdentity refuses a dir that a node has used and that doesn't say whose it
// is any more: a fresh identity in it would make it another cluster's and another
// node's folder for good.
func (d *logDir) missesIdentity(cfg *config.Broker) error {
	if d.found[log.MetaPropertiesFile] || !d.found[seenRevisionFile] {
		return nil
	}
	return fmt.Errorf("log dir %s: meta.properties is missing in a folder that isn't new: put it back from a copy, or write it anew in four lines (version=1, cluster.id=, node.id=%d, directory.id=); a start with a wrong cluster or directory id names the right one", d.path, cfg.NodeID)
}

// settleClusterID finds the one cluster id of all dirs. At the first start it
// makes one, unless the metadata store may be another cluster's already, and
// writes meta.properties.
func (b *Broker) settleClusterID() error {
	for _, d := range b.dirs {
		switch {
		case d.clusterID == "" || d.clusterID == b.clusterID:
		case b.clusterID == "":
			b.clusterID = d.clusterID
		default:
			return &DirRefused{Dir: d.path, Reason: fmt.Sprintf("it belongs to cluster %s, the other log dirs to %s", d.clusterID, b.clusterID)}
		}
	}
	if b.clusterID == "" && b.sharesStore() {
		return nil // the store knows (adoptCluster)
	}
	if b.clusterID == "" {
		b.clusterID = b.fresh.Fresh()
	}
	return b.writeIdentity()
}

// writeIdentity writes meta.properties where it is missing.
func (b *Broker) writeIdentity() error {
	for _, d := range b.dirs {
		if d.found[log.MetaPropertiesFile] {
			continue
		}
		m := log.MetaProperties{ClusterID: b.clusterID, NodeID: b.cfg.NodeID, DirectoryID: d.id}
		if err := log.WriteMetaProperties(d.fs, d.path, m); err != nil {
			return fmt.Errorf("log dir %s: %w", d.path, err)
		}
	}
	return nil
}

// dirFailed takes every partition of a failed dir offline.
func (b *Broker) dirFailed(d *logDir, cause error) {
	b.logger.Error("log dir goes offline", "dir", d.path, "err", cause)
	b.metrics.Log.OfflineDirs.Inc()
	if !slices.ContainsFunc(b.dirs, func(d *logDir) bool { return d.failure() == nil }) {
		b.fail(fmt.Errorf("every log dir is offline, the last one because of: %w", cause))
	}
	clock.Go(b.ctx, &b.work, func() {
		for p := range b.Partitions() {
			if p.dir == d {
				b.tell(p, func() { p.goOffline(cause) })
			}
		}
	})
}

// chooseDir gives the dir that holds a partition already, else the emptiest
// live one. While a log dir can't be used, a partition that was there before
// this start and isn't found is taken to be in that dir: it is offline, and
// doesn't begin anew elsewhere.
func (b *Broker) chooseDir(id meta.PartitionID, tp types.TopicPartition) *logDir {
	var best *logDir
	for _, d := range b.dirs {
		if d.found[tp.String()] || d.forks.has(id) {
			best = d
			break
		}
		if d.failure() == nil && (best == nil || d.partitions < best.partitions) {
			best = d
		}
	}
	if b.loading && len(b.lost) > 0 && (best == nil || !best.found[tp.String()] && !best.forks.has(id)) {
		return b.lost[0]
	}
	if best == nil {
		best = b.dirs[0]
	}
	best.partitions++
	return best
}

func (b *Broker) directoryID() string { return b.dirs[0].id }

// directoryIDs are those of all log dirs that can be read, if there are several.
func (b *Broker) directoryIDs() []string {
	if len(b.dirs) == 1 {
		return nil
	}
	ids := make([]string, len(b.dirs))
	for i, d := range b.dirs {
		ids[i] = d.id
	}
	return ids
}

// cleanShutdownEpoch is the registration that every dir says was closed cleanly.
func (b *Broker) cleanShutdownEpoch() types.BrokerEpoch {
	epoch := types.NoBrokerEpoch
	for i, d := range b.dirs {
		if !d.clean || i > 0 && d.cleanEpoch != epoch {
			return types.NoBrokerEpoch
		}
		epoch = d.cleanEpoch
	}
	return epoch
}

// folderPartition takes a partition folder's name apart: topic-number.
func folderPartition(name string) (types.TopicPartition, bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return types.TopicPartition{}, false
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != name[i+1:] {
		return types.TopicPartition{}, false
	}
	return types.TopicPartition{Topic: name[:i], Partition: int32(n)}, true
}
