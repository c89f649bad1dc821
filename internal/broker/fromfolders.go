package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"tidemark/internal/broker/api"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/metastore/backup"
	"tidemark/internal/vfs"
)

// keptTopic is what the log dirs tell of one topic.
type keptTopic struct {
	name  string
	id    types.TopicID
	first string // the folder that named the id
	parts map[int32]timeline.Checkpoint
}

// BackupOfFolders makes metadata from the partitions in a lone node's log dirs,
// for when neither a backup nor the store's own database can be read: names and
// ids of topics, their partitions, and the histories each log has applied (R19).
// Settings, ACLs, users, quotas and mirrors are in no folder. So that no default
// throws away what a topic's own settings kept, its topics keep everything until an operator
// says otherwise. empty are partitions without a folder, which begin anew. Nothing is changed.
func BackupOfFolders(fsys vfs.FS, cfg *config.Broker, now types.Millis) (b *backup.Backup, empty []string, err error) {
	cluster, err := clusterOfFolders(fsys, cfg)
	if err != nil {
		return nil, nil, err
	}
	topics := make(map[string]*keptTopic)
	seen := make(map[string]string)
	for _, dir := range cfg.LogDirs {
		names, err := fsys.List(dir)
		if err != nil {
			return nil, nil, fmt.Errorf("log dir %s: %w", dir, err)
		}
		for _, name := range names {
			tp, ok := folderPartition(name)
			if !ok {
				continue
			}
			folder := filepath.Join(dir, name)
			if other := seen[name]; other != "" {
				return nil, nil, fmt.Errorf("%s and %s hold the same partition: move one of them out of the log dirs", other, folder)
			}
			seen[name] = folder
			if err := keep(fsys, folder, tp, topics); err != nil {
				return nil, nil, fmt.Errorf("%s can't be taken over: %w; move it out of the log dir to go on without it, its records stay readable (tidemark log dump)", folder, err)
			}
		}
	}
	if len(topics) == 0 {
		return nil, nil, fmt.Errorf("the log dirs %s hold no partition: there is nothing to restore", strings.Join(cfg.LogDirs, ", "))
	}
	kvs, empty := recordsOf(cluster, topics, cfg.NodeID, now)
	image, _ := meta.Load(cluster, kvs, 1)
	for fault := range image.Faults() {
		return nil, nil, fmt.Errorf("what the folders say makes no metadata: %w", fault)
	}
	b, err = backup.Of(cluster, kvs, 1)
	if err != nil {
		return nil, nil, err
	}
	b.TakenAt = now
	return b, empty, nil
}

// clusterOfFolders is the cluster that the log dirs belong to.
func clusterOfFolders(fsys vfs.FS, cfg *config.Broker) (string, error) {
	for _, dir := range cfg.LogDirs {
		m, ok, err := log.ReadMetaProperties(fsys, dir)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("log dir %s: %w", dir, err)
		case ok && m.ClusterID != "":
			return m.ClusterID, nil
		}
	}
	if cfg.ClusterID != "" {
		return cfg.ClusterID, nil
	}
	return "", fmt.Errorf("no meta.properties in the log dirs %s names the cluster: set cluster.id", strings.Join(cfg.LogDirs, ", "))
}

// keptPartitionMax bounds what a folder's name may claim: lower numbers that have no folder are made anew.
const keptPartitionMax = 1 << 20

// keep notes what one partition's folder says of itself.
func keep(fsys vfs.FS, folder string, tp types.TopicPartition, topics map[string]*keptTopic) error {
	if tp.Partition > keptPartitionMax {
		return fmt.Errorf("partition %d is above %d", tp.Partition, keptPartitionMax)
	}
	id, err := log.ReadTopicID(fsys, folder)
	if err != nil {
		return err
	}
	applied, err := appliedIn(fsys, folder)
	if err != nil {
		return err
	}
	t := topics[tp.Topic]
	if t == nil {
		t = &keptTopic{name: tp.Topic, id: id, first: folder, parts: make(map[int32]timeline.Checkpoint)}
		topics[tp.Topic] = t
	}
	if t.id != id {
		return fmt.Errorf("its topic id is %s, and %s says %s", id, t.first, t.id)
	}
	t.parts[tp.Partition] = applied
	return nil
}

// appliedIn is what a folder's log has applied (R19), an empty list for a log without records.
func appliedIn(fsys vfs.FS, folder string) (c timeline.Checkpoint, err error) {
	text, err := vfs.ReadFile(fsys, filepath.Join(folder, log.TimelineFile), 1<<20)
	if err == nil {
		return timeline.ParseCheckpoint(text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	r, err := log.VerifyDir(fsys, folder)
	if err == nil && r.LogEnd > 0 {
		err = fmt.Errorf("it holds records and no %s, so that nothing says whose history they are", log.TimelineFile)
	}
	return c, err
}

// recordsOf makes the keys. Replicas are this node alone; the election after the restore looks at its logs.
func recordsOf(cluster string, topics map[string]*keptTopic, node types.BrokerID, now types.Millis) (kvs []meta.KV, empty []string) {
	keys := meta.KeysOf(cluster)
	put := func(key string, value []byte) {
		kvs = append(kvs, meta.KV{Key: key, Value: value, ModRevision: 1, CreateRevision: 1})
	}
	record, features := meta.ClusterRecord{ID: cluster, CreatedAt: now}, meta.FreshFeatures(meta.SupportedFeatures())
	put(keys.Cluster(), record.Encode())
	put(keys.Features(), features.Encode())
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		t := topics[name]
		count := slices.Max(slices.Collect(maps.Keys(t.parts))) + 1
		topic := meta.TopicRecord{ID: t.id, Name: name, Partitions: count, Internal: api.IsInternalTopic(name), Configs: keptConfigs(name)}
		put(keys.Topic(t.id), topic.Encode())
		put(keys.Name(name), meta.NameRecord{ID: t.id}.Encode())
		for n := range count {
			applied, there := t.parts[n]
			if !there {
				empty = append(empty, types.TopicPartition{Topic: name, Partition: n}.String())
			}
			list, epoch := applied.List, max(applied.LeaderEpoch, 0)
			if last, ok := list.Last(); ok {
				epoch = max(epoch, last.FirstEpoch)
			} else {
				list = timeline.FreshRoot(fmt.Sprintf("from-folders-%s-%d-%d", t.id, n, now))
			}
			p := meta.PartitionRecord{Replicas: []types.BrokerID{node}, Leader: types.NoBroker, LeaderBrokerEpoch: types.NoBrokerEpoch,
				ISR: []meta.ISRMember{}, LeaderEpoch: epoch, MinISR: 1, Timelines: list, Writable: true}
			put(keys.Partition(t.id, n), p.Encode())
		}
	}
	slices.SortFunc(kvs, func(a, b meta.KV) int { return strings.Compare(a.Key, b.Key) })
	return kvs, empty
}

// keptConfigs are settings under which nothing goes by itself: the broker's own topics are compacted, as always.
func keptConfigs(topic string) map[string]string {
	if api.IsInternalTopic(topic) {
		return map[string]string{"cleanup.policy": "compact", "compression.type": "producer"}
	}
	return map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
}
