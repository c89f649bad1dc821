package broker

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// tellGone says that a partition begins empty whose records were here: the checkpoint
// file has a high watermark of it, and its folder was lost while the node was stopped.
func (p *Partition) tellGone(rec *meta.PartitionRecord) {
	high := p.dir.checkpoints.Get(p.tp).HighWatermark
	me := p.env.nodeID
	had := rec.InISR(me) || slices.Contains(rec.ELRIDs(), me)
	if high <= 0 || !p.dir.clean && (rec.LeaderEpoch <= 0 || !had) {
		return // after a crash the file may speak of a deleted topic of this name
	}
	p.env.logger.Error("the partition's folder is gone, and with it this replica's records: it begins empty; if the folder was moved, stop the node and put it back",
		"partition", p.tp.String(), "dir", p.dir.path, "highWatermark", int64(high))
}

// distrustLosses takes the clean-shutdown mark back from a dir that lacks a
// partition's folder or bytes of its segments: the node is no longer what closed
// cleanly. Elected for that mark, it would lead with a log that ends early, and the
// others would cut theirs to it (R11). It runs before the registration that names the
// mark, and opens no log.
func (d *logDir) distrustLosses(l *slog.Logger) {
	if !d.clean || d.cleanEpoch == types.NoBrokerEpoch {
		return
	}
	const counts = "since the clean stop: it counts as an unclean one, so that replicas elsewhere go before this node's"
	epoch := d.cleanEpoch
	distrust := func(what string, args ...any) {
		d.cleanEpoch = types.NoBrokerEpoch
		l.Error(what+" "+counts, append([]any{"dir", d.path}, args...)...)
	}
	short, err := d.checkpoints.Shortened(epoch)
	switch {
	case err != nil:
		distrust("whether logs have lost records can't be told", "err", err)
	case len(short) > 0:
		first := short[0]
		distrust("partitions' files are gone or shorter", "partitions", len(short), "first", first.Folder, "bytes", first.Was, "found", first.Found)
	}
	var lost []string
	for _, tp := range d.checkpoints.WithRecords() {
		if !d.found[tp.String()] && !strings.HasPrefix(tp.Topic, core.DrillPrefix) {
			lost = append(lost, tp.String())
		}
	}
	if len(lost) > 0 {
		distrust("folders of partitions are gone", "partitions", len(lost), "first", lost[0])
	}
}

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
