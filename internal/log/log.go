package log

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"tidemark/internal/assert"
	"tidemark/internal/batch"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// Log is one partition's log. See the package comment for who may call what.
type Log struct {
	fs  vfs.FS
	dir string
	o   Options
	cfg Config
	log *slog.Logger

	// leads is set by AssignEpoch and cleared by what only followers do: a
	// leader's own last history entry survives a log start at the log end.
	leads bool
	// folderChanged says that files were created or renamed since the folder
	// was last synced (KAFKA-3968): a flush syncs it first.
	folderChanged bool
	// headUnsynced says that retention removed a segment and nothing since says
	// that the removal is on the disk.
	headUnsynced bool
	// unsyncedSnapshots are snapshot files written since the last flush.
	unsyncedSnapshots []string
	badSnapshots      []types.Offset // found unreadable since the open began
	headers           []batch.Header // scratch of an append
	scratch           batch.Scratch
	flush             *FlushJob // under way, nil if none
	// untouched says that the folder is as a clean shutdown left it: a close
	// has nothing to write.
	untouched  bool
	compacting bool // a Compaction is under way
	// historyOwed says that the checkpoint ends with entries without records that
	// the history lacks: it is written before the next record, which they would
	// claim, and until then an open drops them again.
	historyOwed bool
	// owed are the last steps of a change that found no room (owe); nil: there are none.
	owed      func() error
	epochOwed bool // Rules.EpochAtFirstRecord: the epoch led in has no entry yet
	// startSynced is the log start that is known to be in its checkpoint, on the disk.
	startSynced types.Offset

	mu sync.Mutex // guards the following; the owner alone changes them, and reads them without it

	// Invariant I-25: there is at least one segment, bases rise strictly, and
	// each segment ends at or below the next one's base. The last is active.
	segs      []*segment
	producers *txn.State
	history   *epoch.History // never changed in place
	timelines []byte         // content of timeline-checkpoint, nil if none
	marks     marks
	cleaned   types.Offset // where the last compaction stopped
	evidence  types.Offset // below it lies what compactions went by: markers of transactions that reach across cleaned
	beyond    types.Offset // where it had stopped before a cut that a crash interrupted; 0: none
	cuts      int          // counts what removed records from the end
	size      int64
	offline   error
	closed    bool
}

// marks are the offsets of a View.
type marks struct {
	start, end, high, stable, recovery types.Offset
}

// View (R) is one consistent picture of the log. The lock is held for a copy
// of a few words; nothing is allocated.
func (l *Log) View() View {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.viewLocked()
}

func (l *Log) viewLocked() View {
	v := View{
		LogStart: l.marks.start, LogEnd: l.marks.end, HighWatermark: l.marks.high, LastStable: l.marks.stable,
		RecoveryPoint: l.marks.recovery, History: l.history, Size: l.size, Segments: len(l.segs), Offline: l.offline,
		LastEpoch: types.NoLeaderEpoch,
	}
	if v.LogEnd > v.LogStart {
		v.LastEpoch, v.HasLastEpoch = l.history.EpochForOffset(v.LogEnd - 1)
	}
	return v
}

// active is the segment that is written.
func (l *Log) active() *segment { return l.segs[len(l.segs)-1] }

// settle clamps the marks after a change and recomputes the last stable offset.
// The caller holds mu.
func (l *Log) settle() {
	m := &l.marks
	m.high = min(max(m.high, m.start), m.end)
	m.recovery = min(m.recovery, m.end)
	l.cleaned, l.evidence = min(l.cleaned, m.end), min(l.evidence, m.end) // KAFKA-3330: a cut pulls the cleaner back
	m.stable = l.producers.Stable(m.start, m.high)
	if inOrder := m.start <= m.stable && m.stable <= m.high && m.high <= m.end; !inOrder {
		assert.That(inOrder, "I-20: marks %+v", *m) // apart, so that an append allocates nothing for it
	}
}

// SetHighWatermark (W) moves the mark, clamped into [log start, log end], and
// gives the view after. The caller decides whether it may fall (R14).
func (l *Log) SetHighWatermark(o types.Offset) View {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks.high = o
	l.settle()
	return l.viewLocked()
}

// usable gives the error of a log that takes no more writes.
func (l *Log) usable() error {
	if l.offline != nil {
		return l.offline
	}
	if l.closed {
		return ErrClosed
	}
	if step := l.owed; step != nil {
		l.owed = nil
		return l.owe(step)
	}
	return nil
}

// owe does the last steps of a change that has begun on disk. Where there is no
// room for them they are owed: whatever writes next does them first, or is refused
// as they are, so that nothing is appended, led or closed cleanly before (R1 step 7).
// A crash meanwhile is what R2 repairs.
func (l *Log) owe(step func() error) error {
	err := step()
	if errors.Is(err, ErrNoSpace) {
		// Invariant I-234: at most one change is owed: no other begins before it is done.
		assert.That(l.owed == nil, "I-234: %s owes two changes", l.dir)
		l.owed = step
	}
	return err
}

// fail takes the log offline after an I/O error that leaves the disk's state
// unknown, and gives the error to return.
func (l *Log) fail(doing string, err error) error {
	if l.offline != nil {
		return l.offline
	}
	off := fmt.Errorf("%s: %s: %w: %w", l.dir, doing, ErrOffline, err)
	l.mu.Lock()
	l.offline = off
	l.mu.Unlock()
	l.log.Error("log goes offline", "partition", l.o.TopicPartition.String(), "doing", doing, "err", err)
	if l.o.OnOffline != nil {
		l.o.OnOffline(off)
	}
	return off
}

// noSpace says that the disk is full and nothing has changed.
func noSpace(doing string, err error) error { return fmt.Errorf("%s: %w: %w", doing, ErrNoSpace, err) }

// refuse sorts an I/O error of a step that has been undone, or can be repeated
// as a whole: a full disk is told and can be waited out, all else is final.
func (l *Log) refuse(doing string, err error) error {
	if vfs.IsNoSpace(err) {
		return noSpace(doing, err)
	}
	return l.fail(doing, err)
}

// Config gives the present topic config (W).
func (l *Log) Config() Config { return l.cfg }

// UpdateConfig (W) takes a changed topic config; it holds from the next append on.
func (l *Log) UpdateConfig(c Config) { l.cfg = c.withDefaults() }

// RecoveryPoint (R) is the offset below which everything is synced.
func (l *Log) RecoveryPoint() types.Offset {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.marks.recovery
}

// Dir is the folder of the partition.
func (l *Log) Dir() string { return l.dir }

// TopicPartition names the partition.
func (l *Log) TopicPartition() types.TopicPartition { return l.o.TopicPartition }

// TopicID is the id given at Open.
func (l *Log) TopicID() types.TopicID { return l.o.TopicID }

// Producers (R) lists the known producers, as DescribeProducers shows them.
func (l *Log) Producers() []txn.Producer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.Producers()
}

// InTransaction (R) reports whether the producer has a transaction open in this
// epoch of its.
func (l *Log) InTransaction(id types.ProducerID, epoch int16) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.InTransaction(id, epoch)
}

// HasOpenTransaction (R) reports whether the producer has a transaction open, in
// whatever epoch of its.
func (l *Log) HasOpenTransaction(id types.ProducerID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.HasOpen(id)
}

// OpenTransactions (R) lists the open transactions by first offset.
func (l *Log) OpenTransactions() []txn.Txn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.Open()
}

// TimelineCheckpoint (R) gives the content of timeline-checkpoint; false if
// there is none. The bytes must not be changed.
func (l *Log) TimelineCheckpoint() ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.timelines, l.timelines != nil
}

// SetTimelineCheckpoint (W) writes and syncs timeline-checkpoint (R19). A full
// disk leaves the old one in force.
func (l *Log) SetTimelineCheckpoint(data []byte) error {
	if err := l.usable(); err != nil {
		return err
	}
	data = append(make([]byte, 0, len(data)), data...)
	if err := vfs.WriteAtomic(l.fs, join(l.dir, TimelineFile), data); err != nil {
		return l.refuse("write "+TimelineFile, err)
	}
	l.mu.Lock()
	l.timelines = data
	l.mu.Unlock()
	return nil
}

// setHistory makes h the history in memory.
func (l *Log) setHistory(h epoch.History) {
	l.mu.Lock()
	l.history = &h
	l.mu.Unlock()
}

// writeHistory writes and syncs the epoch checkpoint.
func (l *Log) writeHistory(h *epoch.History) error {
	if l.o.Rules.EpochUnsynced {
		return l.writeHistoryUnsynced(h)
	}
	err := vfs.WriteAtomic(l.fs, join(l.dir, epoch.CheckpointFile), epoch.FormatCheckpoint(h.Entries()))
	if err == nil {
		l.historyOwed = false
	}
	return err
}

// AssignEpoch (W) records that this broker leads from the log end on, and
// syncs it before it returns (R3). Epochs below the latest are refused by
// removing what contradicts them, as the history's Assign does.
func (l *Log) AssignEpoch(e types.LeaderEpoch) error {
	if err := l.usable(); err != nil {
		return err
	}
	h := l.history.Clone()
	changed, err := h.Assign(e, l.marks.end)
	if err != nil {
		return err
	}
	if l.o.Rules.EpochAtFirstRecord {
		l.leads, l.epochOwed = true, true
		return nil
	}
	if changed || l.historyOwed {
		if err := l.writeHistory(&h); err != nil {
			return l.refuse("write epoch history", err)
		}
		l.setHistory(h)
	}
	l.leads = true
	return nil
}

// BecomeFollower (W) drops a trailing history entry without records (R3).
func (l *Log) BecomeFollower() error {
	if err := l.usable(); err != nil {
		return err
	}
	l.leads = false
	h := l.history.Clone()
	if l.o.Rules.KeepTrailingEntry || !h.BecomeFollower(l.marks.end) {
		return nil
	}
	if err := l.writeHistory(&h); err != nil {
		return l.refuse("write epoch history", err)
	}
	l.setHistory(h)
	return nil
}
