package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/clock"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/etcd"
	"tidemark/internal/vault"
)

// openStore starts or reaches the metadata store.
func (b *Broker) openStore(ctx context.Context) error {
	if b.opts.Store != nil {
		b.store, b.closeMeta = b.opts.Store, func() error { return nil }
		return nil
	}
	if strings.HasPrefix(b.cfg.Metadata, etcdScheme) {
		s, err := DialStore(ctx, b.cfg, b.logger)
		if err != nil {
			return err
		}
		b.store, b.closeMeta = s, s.Close
		return nil
	}
	return b.startEmbedded(ctx)
}

// etcdScheme begins the setting metadata where it names an etcd of the user's own.
const etcdScheme = "etcd://"

// DialStore connects to the etcd that the setting metadata names.
func DialStore(ctx context.Context, cfg *config.Broker, l *slog.Logger) (*etcd.Store, error) {
	o := etcd.DialOptions{Logger: l, Username: cfg.MetadataUsername, Password: cfg.MetadataPassword}
	scheme := "http://"
	if files := MetadataTLS(cfg); files != nil {
		var err error
		if o.TLS, err = files.Config(); err != nil {
			return nil, err
		}
		scheme = "https://"
	}
	for _, host := range strings.Split(strings.TrimPrefix(cfg.Metadata, etcdScheme), ",") {
		o.Endpoints = append(o.Endpoints, scheme+strings.TrimSpace(host))
	}
	return etcd.Dial(ctx, o)
}

// sharesStore reports whether other nodes may use the metadata store too.
func (b *Broker) sharesStore() bool {
	return b.opts.Store != nil || strings.HasPrefix(b.cfg.Metadata, etcdScheme) || b.cfg.MetadataJoin != ""
}

// adoptCluster gives a node without a cluster id the store's, or makes the
// first cluster of a store. A folder of another cluster is refused by name.
func (b *Broker) adoptCluster(ctx context.Context) error {
	kv, _, err := b.store.Get(ctx, meta.DefaultClusterKey)
	if err != nil {
		return err
	}
	if kv.ModRevision == 0 {
		id := b.clusterID
		if id == "" {
			id = b.fresh.Fresh()
		}
		plan := meta.Plan{Why: "name the store's cluster", If: []meta.Compare{meta.Absent(meta.DefaultClusterKey)}, Then: []meta.Op{meta.Put(meta.DefaultClusterKey, []byte(id))}}
		if _, err := metastore.Commit(ctx, b.store, plan); err != nil && !errors.Is(err, metastore.ErrRefused) {
			return err
		}
		if kv, _, err = b.store.Get(ctx, meta.DefaultClusterKey); err != nil {
			return err
		}
	}
	first := string(kv.Value)
	if b.clusterID == "" {
		b.clusterID = first
		return b.writeIdentity()
	}
	if b.clusterID == first || b.cfg.ClusterID != "" {
		return nil
	}
	own, _, err := b.store.Get(ctx, meta.KeysOf(b.clusterID).Cluster())
	if err == nil && own.ModRevision == 0 {
		err = &DirRefused{Dir: b.dirs[0].path, Reason: fmt.Sprintf(
			"it belongs to cluster %s and the metadata store holds cluster %s; give the folder of a node of that cluster, or an empty one", b.clusterID, first)}
	}
	return err
}

// readImage makes the cluster's record at the first start and begins the one watch (R9).
func (b *Broker) readImage(ctx context.Context) error {
	key := meta.KeysOf(b.clusterID).Cluster()
	record := meta.ClusterRecord{ID: b.clusterID, CreatedAt: b.opts.Now()}
	kv, _, err := b.store.Get(ctx, key)
	if err != nil {
		return err
	}
	if kv.ModRevision == 0 {
		if err := b.refuseHalfRestored(ctx); err != nil {
			return err
		}
		if err := b.refuseLostMetadata(); err != nil {
			return err
		}
		features := meta.KeysOf(b.clusterID).Features()
		plan := meta.Plan{Why: "make the cluster", If: []meta.Compare{meta.Absent(key), meta.Absent(features)},
			Then: []meta.Op{meta.Put(key, record.Encode()), meta.Put(features, meta.FreshFeatures(b.opts.Features).Encode())}}
		if _, err := metastore.Commit(ctx, b.store, plan); err != nil && !errors.Is(err, metastore.ErrRefused) {
			return err
		}
	}
	v, _, err := newViewer(ctx, b.store, b.clusterID, b.logger)
	if err != nil {
		return err
	}
	for f := range v.current().Faults() {
		b.logger.Error("metadata can't be read", "err", f)
	}
	if err := b.checkFeatures(v.current()); err != nil {
		return err
	}
	if err := b.noticeRestore(ctx, v.current()); err != nil {
		return err
	}
	v.broken = b.fail
	b.view = v
	b.showBrokerConfigs(v.current())
	b.lease = newRegistration(b.ctx)
	b.lease.endless = b.env.rules.NoLeaseFence
	b.controller = b.newController()
	return nil
}

// refuseLostMetadata stops a node whose folders hold partitions while the store
// knows nothing of the cluster: serving them as strays would throw them away.
func (b *Broker) refuseLostMetadata() error {
	for _, d := range b.dirs {
		for name := range d.found {
			if _, ok := folderPartition(name); ok {
				return &DirRefused{Dir: d.path, Reason: fmt.Sprintf(
					"it holds partitions (%s, ...) but the metadata store knows nothing of cluster %s; restore the metadata (tidemark cluster restore FILE; without a backup, where this was the only node, --from-folders), or start with an empty folder", name, b.clusterID)}
			}
		}
	}
	return nil
}

// openPartitions starts the shards and opens the logs of everything in the image, many at a time.
func (b *Broker) openPartitions(ctx context.Context) error {
	for range b.cfg.NumShards {
		b.shards = append(b.shards, b.newShard())
	}
	follow := b.startFollowing
	if b.opts.virtual != nil {
		follow = b.followVirtually
	}
	if err := follow(); err != nil {
		return err
	}
	b.chores = newChores(b)
	b.topics = &topics{b: b}
	b.ids = newProducerIDs(b)
	image := b.view.current()
	b.loading = true
	for p := range image.Partitions() {
		b.showPartition(image, p)
	}
	b.loading = false
	b.clearFolders(image)
	b.noteEntered(image)
	b.view.before, b.view.after = b.imageComing, b.imageChanged
	clock.Go(b.ctx, &b.work, func() { b.view.run(b.ctx) })
	return nil
}

// clearFolders deals with folders that no partition of the image owns: those
// renamed for deletion go; strays of topics that the store knows nothing about are set aside.
func (b *Broker) clearFolders(image *meta.Image) {
	for _, d := range b.dirs {
		for name := range d.found {
			switch {
			case strings.HasSuffix(name, deleteSuffix):
				b.chores.removeLater(d, filepath.Join(d.path, name), 0)
			case strings.HasSuffix(name, forkSuffix):
				b.clearFork(image, d, name)
			case strings.HasSuffix(name, straySuffix):
				b.logger.Warn("stray folder is kept; remove it when it isn't needed", "folder", filepath.Join(d.path, name))
			default:
				b.clearFolder(image, d, name)
			}
		}
		b.clearMarks(image, d)
		d.swept.Store(true)
	}
}

// clearMarks takes partitions out of the checkpoint files that have no folder here
// and are not this node's: it crashed between the folder's end and the next write of
// the files. Each clean start would take them for folders that were lost (distrustLosses).
func (b *Broker) clearMarks(image *meta.Image, d *logDir) {
	if !d.trusts.Load() {
		return
	}
	for _, tp := range d.checkpoints.WithRecords() {
		if !d.found[tp.String()] && !strings.HasPrefix(tp.Topic, core.DrillPrefix) && b.isNotOurs(image, tp) {
			d.checkpoints.Forget(tp)
		}
	}
}

// isNotOurs says that a partition was deleted, or is on other nodes. One whose
// topic's record can't be read may be ours: its data is left alone.
func (b *Broker) isNotOurs(image *meta.Image, tp types.TopicPartition) bool {
	if t, known := image.TopicByName(tp.Topic); known && tp.Partition < t.Record.Partitions {
		r, _ := image.Partition(t.ID, tp.Partition)
		return r != nil && !b.isReplica(r)
	}
	_, named := image.NameEntry(tp.Topic)
	return !named || image.IsDropped(tp.Topic)
}

func (b *Broker) clearFolder(image *meta.Image, d *logDir, name string) {
	tp, ok := folderPartition(name)
	if !ok || !b.isNotOurs(image, tp) {
		return
	}
	suffix := straySuffix
	if d.trusts.Load() {
		suffix = deleteSuffix // the metadata is newer than this folder: the topic was deleted, or the replica moved
	}
	to, err := d.setAside(name, suffix)
	if err != nil {
		b.logger.Error("stray folder can't be renamed", "folder", name, "err", err)
		return
	}
	b.logger.Warn("folder of a partition that isn't this node's any more was set aside", "folder", name, "to", to)
	if suffix == deleteSuffix {
		d.checkpoints.Forget(tp) // else the next clean start would miss its folder
		b.chores.removeLater(d, to, b.cfg.LogSegmentDeleteDelayMs)
	}
}

// startServices starts what clients see, and opens the gate.
func (b *Broker) startServices(ctx context.Context) error {
	for _, d := range b.dirs {
		d.recovering.Store(false)
	}
	s := &services{groups: b.newGroups(), txns: b.newTransactions()}
	var err error
	if s.mirrors, err = b.startMirrors(s.groups); err != nil {
		return err
	}
	b.services.Store(s)
	s.mirrors.LookAgain() // an image may have come before the mirrors were told of images
	b.showAllCoordinators(s)
	b.startChores()
	b.registerMetrics()
	b.gate.release(api.NewServer(b.apiDeps()))
	return ctx.Err()
}

// freshImage waits until the image knows all that was written before the call (R9).
func (b *Broker) freshImage(ctx context.Context) (*meta.Image, error) {
	_, now, err := b.store.Get(ctx, b.Image().Keys().Cluster())
	if err == nil {
		err = b.view.await(ctx, now)
	}
	if err != nil {
		return nil, err
	}
	return b.Image(), nil
}

// newGroups makes the group coordinator, which leads nothing yet.
func (b *Broker) newGroups() *coordinator.Coordinator {
	o := coordinator.Options{Node: b.coordinating(), Config: coordinator.ConfigOf(b.cfg), Fresh: b.freshImage, LogEnd: b.logEnd}
	if v := b.opts.virtual; v != nil {
		o.Random, o.Rules = v.Random, v.Rules.Groups
	}
	return coordinator.New(o)
}

// coordinating is what coordinators have of this node.
func (b *Broker) coordinating() statelog.Node {
	n := statelog.Node{NodeID: b.cfg.NodeID, Image: b.Image, Partitions: (*served)(b), Topics: b.topics, Logger: b.logger, Now: b.opts.Now}
	if v := b.opts.virtual; v != nil {
		n.Context = v.context(context.Background())
	}
	return n
}

// showAllCoordinators tells coordinators that have just been made which partitions of their topics this node leads.
func (b *Broker) showAllCoordinators(s *services) {
	b.showAll(s.groups, coordinator.OffsetsTopic)
	b.showAll(s.txns, transactions.StateTopic)
}

// markers writes the ends of transactions into partitions of this node.
func (b *Broker) markers() api.MarkerWriter {
	return api.MarkerWriter{Image: b.Image, Partitions: (*served)(b), Groups: b.Groups(), Now: b.opts.Now}
}

func (b *Broker) apiDeps() api.Deps {
	return api.Deps{
		SessionRules: b.env.rules.Sessions,
		Image:        b.Image, Settings: b.apiSettings, ClusterID: b.clusterID, NodeID: b.cfg.NodeID, Logger: b.logger, Now: b.opts.Now,
		Partitions: (*served)(b), Topics: b.topics, Groups: b.Groups(), ProducerIDs: b.ids, Transactions: b.services.Load().txns, Markers: b.markers(), Cluster: &elections{b}, Operator: operator{b}, Metrics: b.counts, Verbs: verbs{b},
		HasVault: b.vault.Viewed, Access: b.access(), Audit: b.audit, Security: security{b}, ClusterMirrors: b.cfg.Mirror.KIP1279,
	}
}

func (b *Broker) apiSettings() api.Settings {
	c := b.cfg
	idle := 2 * time.Minute
	if v := b.opts.virtual; v != nil {
		idle = v.SessionIdle
	}
	return api.Settings{
		AutoCreateTopics: c.AutoCreateTopicsEnable, DeleteTopics: c.DeleteTopicEnable, DefaultPartitions: c.NumPartitions,
		DefaultReplicationFactor: c.DefaultReplicationFactor, FetchMaxBytes: int(c.FetchMaxBytes),
		ReadFromRack: b.env.readFromRack, FetchSessionSlots: int(c.FetchSessionCacheSlots), FetchSessionIdle: idle, MaxPartitionsPerDescribe: 2000,
	}
}

// logEnd is the log end of a partition that this node leads, or holds as its leader
// does: a follower that hasn't had an answer of the leader in its epoch may still hold
// what the leader lacks, or what a first cut is going to take (R19), and says nothing.
func (b *Broker) logEnd(id types.TopicID, number int32) (types.Offset, bool) {
	p, ok := b.Partition(id, number)
	if !ok {
		return 0, false
	}
	return p.agreedEnd()
}

// openVault opens what takes the removed records, before any log is opened.
func (b *Broker) openVault(context.Context) error {
	dir := b.cfg.Vault.Dir
	if dir == "" {
		dir = filepath.Join(b.dirs[0].path, vaultFolder)
	}
	v, err := vault.Open(vault.Options{
		FS: b.fs, Dir: dir, MaxBytes: b.cfg.Vault.MaxBytes, MaxAge: b.cfg.Vault.MaxAgeMs, Now: b.opts.Now, Logger: b.logger,
		OnOffline: func(cause error) { b.vaultOffline(dir, cause) },
	})
	if err != nil {
		return err
	}
	b.vault, b.env.keeper = v, v
	if k := b.env.rules.Mirrors.Keeper; k != nil {
		b.env.keeper = k(v)
	}
	return nil
}
