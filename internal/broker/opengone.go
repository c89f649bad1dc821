package broker

import (
	"log/slog"
	"path/filepath"
	"strings"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// tellGone says that a partition begins empty whose records were here: the
// checkpoint file has a high watermark of it, and its folder is gone. A folder that is lost while a node is stopped was passed over in silence.
func (p *Partition) tellGone(rec *meta.PartitionRecord) {
	high := p.dir.checkpoints.Get(p.tp).HighWatermark
	if high <= 0 || !p.dir.clean && rec.LeaderEpoch <= 0 {
		return // after a crash the file may speak of a deleted topic of this name
	}
	p.env.logger.Error("the partition's folder is gone, and with it this replica's records: it begins empty; if the folder was moved, stop the node and put it back",
		"partition", p.tp.String(), "dir", p.dir.path, "highWatermark", int64(high))
}

// distrustLostFolders takes the clean-shutdown mark back from a dir that lacks a
// partition's folder: the node is no longer what closed cleanly. Elected for that
// mark, it would lead with an empty log, and the others would cut theirs (R11).
func (d *logDir) distrustLostFolders(l *slog.Logger) {
	if !d.clean || d.cleanEpoch == types.NoBrokerEpoch {
		return
	}
	var lost []string
	for _, tp := range d.checkpoints.WithRecords() {
		if !d.found[tp.String()] && !strings.HasPrefix(tp.Topic, forkPrefix) {
			lost = append(lost, tp.String())
		}
	}
	if len(lost) == 0 {
		return
	}
	d.cleanEpoch = types.NoBrokerEpoch
	l.Error("folders of partitions are gone since the clean stop: it counts as an unclean one, so that replicas elsewhere go before this node's", "dir", d.path, "partitions", len(lost), "first", lost[0])
}

// forkPrefix begins the names of a drill's topics: their folders may not have their names yet.
const forkPrefix = "drill."

// wrongID is the error for a folder whose partition.metadata names another topic
// although its timelines begin as the record's do: the file is damaged, and the
// folder is no older topic's, to be deleted. Else it is nil.
func (p *Partition) wrongID(rec *meta.PartitionRecord) error {
	folder := filepath.Join(p.dir.path, p.tp.String())
	text, err := vfs.ReadFile(p.dir.fs, filepath.Join(folder, log.TimelineFile), 1<<20)
	if err != nil || len(rec.Timelines) == 0 {
		return nil
	}
	c, err := timeline.ParseCheckpoint(text)
	if err != nil || len(c.List) == 0 || c.List[0] != rec.Timelines[0] {
		return nil
	}
	return &log.CorruptError{File: filepath.Join(folder, log.PartitionMetadataFile), Pos: -1,
		Reason: "it names another topic, and the timelines in the folder are this one's: write topic_id: " + p.id.String() + " into it again"}
}
