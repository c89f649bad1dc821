package broker

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// epochFileMax bounds what is read of an epoch checkpoint: about a million elections.
const epochFileMax = 16 << 20

// newerLog finds a partition of this log dir whose history knows a later leader epoch than
// its record: then the metadata is older than the folder, whatever was noted beside it
// (R19). Elections write the history before the leader serves (R3) and records carry it to
// followers, so that it knows what came since the last note. A file that can't be read, or
// is another topic's, proves nothing.
func (d *logDir) newerLog(image *meta.Image) (why string, found bool) {
	for _, name := range slices.Sorted(maps.Keys(d.found)) {
		tp, ok := folderPartition(name)
		if !ok {
			continue
		}
		t, ok := image.TopicByName(tp.Topic)
		if !ok {
			continue
		}
		r, _ := image.Partition(t.ID, tp.Partition)
		if r == nil || r.Restored {
			continue // what comes from a backup is older by right, and says so
		}
		if last, ok := d.lastEpoch(name, t.ID); ok && last > r.LeaderEpoch {
			return fmt.Sprintf("the log of %s knows leader epoch %d, and the metadata has it at %d", tp, last, r.LeaderEpoch), true
		}
	}
	return "", false
}

// lastEpoch is the last one of a folder's epoch history, if the folder is of that topic.
func (d *logDir) lastEpoch(name string, id types.TopicID) (types.LeaderEpoch, bool) {
	path := filepath.Join(d.path, name)
	text, err := vfs.ReadFile(d.fs, filepath.Join(path, epoch.CheckpointFile), epochFileMax)
	if err != nil {
		return 0, false
	}
	entries, err := epoch.ParseCheckpoint(text)
	if err != nil || len(entries) == 0 {
		return 0, false
	}
	text, err = vfs.ReadFile(d.fs, filepath.Join(path, log.PartitionMetadataFile), 512)
	if err != nil {
		return 0, false
	}
	of, err := log.ParsePartitionMetadata(text)
	return entries[len(entries)-1].Epoch, err == nil && of == id
}
