package broker

import (
	"slices"
	"strings"
	"testing"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// TestBackupOfFolders: names, ids, histories and epochs come from the folders; what
// contradicts itself is refused by its folder's name.
func TestBackupOfFolders(t *testing.T) {
	id, other := types.TopicID{1}, types.TopicID{2}
	list := timeline.List{{ID: "root"}, {ID: "promoted", FirstEpoch: 9, FirstOffset: 4}}
	applied := timeline.Checkpoint{List: list, LeaderEpoch: 12}.Format()
	world := func() (*vfs.Mem, *config.Broker) {
		fsys := vfs.NewMem()
		putFile(t, fsys, "/d/"+log.MetaPropertiesFile, log.FormatMetaProperties(log.MetaProperties{ClusterID: "c", NodeID: 7, DirectoryID: types.TopicID{9}.String()}))
		putFile(t, fsys, "/d/a-0/partition.metadata", log.FormatPartitionMetadata(id))
		putFile(t, fsys, "/d/a-0/"+log.TimelineFile, applied)
		putFile(t, fsys, "/d/a-2/partition.metadata", log.FormatPartitionMetadata(id)) // nothing was ever written
		putFile(t, fsys, "/d/a-1.x-stray/partition.metadata", log.FormatPartitionMetadata(other))
		return fsys, &config.Broker{NodeID: 7, LogDirs: []string{"/d"}}
	}
	fsys, cfg := world()
	b, empty, err := BackupOfFolders(fsys, cfg, 5)
	if err != nil || b.ClusterID != "c" || !slices.Equal(empty, []string{"a-1"}) {
		t.Fatalf("%+v, %v, %v", b, empty, err)
	}
	image, _ := meta.Load("c", b.KVs, 1)
	topic, ok := image.TopicByName("a")
	if !ok || topic.ID != id || topic.Record.Partitions != 3 || topic.Record.Configs["retention.ms"] != "-1" {
		t.Fatalf("topic %+v", topic)
	}
	if r, _ := image.Partition(id, 0); r == nil || !r.Timelines.Equal(list) || r.LeaderEpoch != 12 || !r.Writable || r.Leader != types.NoBroker || !slices.Equal(r.Replicas, []types.BrokerID{7}) {
		t.Errorf("partition 0: %+v", r)
	}
	if r, _ := image.Partition(id, 2); r == nil || len(r.Timelines) != 1 || r.LeaderEpoch != 0 {
		t.Errorf("partition 2: %+v", r)
	}
	f := func(words string, harm func(fsys *vfs.Mem, cfg *config.Broker)) {
		t.Helper()
		fsys, cfg := world()
		harm(fsys, cfg)
		if b, _, err := BackupOfFolders(fsys, cfg, 5); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%+v, %v, want %q", b, err, words)
		}
	}
	f("/d/a-3 can't be taken over: its topic id is", func(fsys *vfs.Mem, _ *config.Broker) {
		putFile(t, fsys, "/d/a-3/partition.metadata", log.FormatPartitionMetadata(other))
	})
	f("/d/a-0 can't be taken over", func(fsys *vfs.Mem, _ *config.Broker) { putFile(t, fsys, "/d/a-0/"+log.TimelineFile, []byte("x")) })
	f("/d/b-0 can't be taken over", func(fsys *vfs.Mem, _ *config.Broker) { putFile(t, fsys, "/d/b-0/x", nil) })
	f("is above", func(fsys *vfs.Mem, _ *config.Broker) {
		putFile(t, fsys, "/d/a-2147483647/partition.metadata", log.FormatPartitionMetadata(id))
	})
	f("hold the same partition", func(fsys *vfs.Mem, cfg *config.Broker) {
		putFile(t, fsys, "/e/a-0/partition.metadata", log.FormatPartitionMetadata(id))
		cfg.LogDirs = append(cfg.LogDirs, "/e")
	})
	f("hold no partition", func(fsys *vfs.Mem, cfg *config.Broker) {
		putFile(t, fsys, "/e/x", nil)
		cfg.LogDirs, cfg.ClusterID = []string{"/e"}, "c"
	})
}

func putFile(t *testing.T, fsys vfs.FS, path string, data []byte) {
	t.Helper()
	dir := path[:strings.LastIndexByte(path, '/')]
	if err := fsys.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteAtomic(fsys, path, data); err != nil {
		t.Fatal(err)
	}
}
