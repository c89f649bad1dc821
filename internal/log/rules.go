package log

import (
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
)

// What happens where a rule is switched off (Rules): the simulator's mutations, and nothing else.

// payEpoch is Rules.EpochAtFirstRecord: the entry comes with the first record.
func (l *Log) payEpoch(e types.LeaderEpoch) {
	l.epochOwed = false
	h := l.history.Clone()
	if _, err := h.Assign(e, l.marks.end); err != nil {
		return
	}
	if l.writeHistory(&h) == nil {
		l.setHistory(h)
	}
}

// writeHistoryUnsynced is Rules.EpochUnsynced.
func (l *Log) writeHistoryUnsynced(h *epoch.History) error {
	name := join(l.dir, epoch.CheckpointFile)
	f, err := l.fs.Create(name + ".unsynced")
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(epoch.FormatCheckpoint(h.Entries()), 0); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return l.fs.Rename(name+".unsynced", name)
}
