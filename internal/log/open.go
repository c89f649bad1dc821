package log

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
	"tidemark/internal/vfs"
)

var probeBehindStart = probe.New("log: what an open finds ends below the log start")

// Open opens or creates the log in Options.Dir and recovers it (R2): it removes
// what a crash left half done, finds the log end, checks the batches that were
// not known to be synced, makes indexes, history and producer state agree with
// the batches, and clamps the checkpointed marks into the log found.
//
// Recovery tells what was wrong. An error means that the folder can't be used:
// an I/O error, another topic's folder (ErrTopicID), or a *CorruptError by name.
// It is ErrOffline if a write or a sync failed: that is final for the log dir
// (DESIGN §3), not for this log alone. A full disk, a folder that may not be
// written, and whatever can't be read are this log's trouble.
func Open(o Options) (*Log, Recovery, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	noting := newOpenFS(o.FS)
	l := &Log{fs: noting, dir: o.Dir, o: o, cfg: o.Config.withDefaults(), log: o.Logger, history: &epoch.History{}}
	p := opening{l: l, r: Recovery{Clean: o.CleanShutdown}}
	if err := p.run(); err != nil {
		for _, s := range l.segs {
			s.closeFiles()
		}
		return nil, p.r, fmt.Errorf("open log %s: %w", o.Dir, noting.final(err))
	}
	noting.done(l)
	return l, p.r, nil
}

// withDefaults fills what must not be zero.
func (c Config) withDefaults() Config {
	d := DefaultConfig()
	if c.SegmentBytes <= 0 {
		c.SegmentBytes = d.SegmentBytes
	}
	if c.SegmentMs <= 0 {
		c.SegmentMs = d.SegmentMs
	}
	if c.SegmentIndexBytes <= 0 {
		c.SegmentIndexBytes = d.SegmentIndexBytes
	}
	if c.MaxMessageBytes <= 0 {
		c.MaxMessageBytes = d.MaxMessageBytes
	}
	if c.MaxDecompressedBatchLen <= 0 {
		c.MaxDecompressedBatchLen = d.MaxDecompressedBatchLen
	}
	return c
}

// opening is one run of Open.
type opening struct {
	l *Log
	r Recovery
	// checkFrom is the base of the first segment whose batches are checked.
	checkFrom types.Offset
	// implied are the batches of the checked segments as the history sees them.
	implied []epochStep
	// suspects are bases of segments behind which there was one whose data is gone:
	// an index of it is left.
	suspects   []types.Offset
	headMissed bool
}

func (p *opening) run() error {
	l := p.l
	names, err := p.folder()
	if err != nil {
		return err
	}
	if names, err = p.finishSwaps(names); err != nil {
		return err
	}
	if err := p.checkTopicID(names); err != nil {
		return err
	}
	if err := p.loadSegments(names); err != nil {
		return err
	}
	if err := p.recoverSegments(); err != nil {
		return err
	}
	if err := p.ownActive(); err != nil {
		return err
	}
	if err := p.readTimelines(names); err != nil {
		return err
	}
	l.cleaned, l.evidence, l.startSynced = l.o.Cleaned, l.o.Evidence, l.o.LogStart
	l.marks = marks{start: max(l.o.LogStart, l.segs[0].base), end: l.active().next, recovery: l.o.RecoveryPoint, high: l.o.HighWatermark}
	if reached := max(l.cleaned, l.evidence); reached > l.marks.end && l.marks.end > l.marks.start {
		l.beyond = reached
	}
	p.r.BelowMark = l.marks.end < l.o.HighWatermark
	if l.marks.start > l.marks.end {
		if err := p.restartBehindEnd(); err != nil {
			return err
		}
	}
	if err := p.recoverHistory(); err != nil {
		return err
	}
	from := p.checkFrom
	if p.r.Clean {
		from = l.marks.end
	}
	if l.producers, err = l.rebuildProducers(from, &p.r); err != nil {
		return err
	}
	if err := p.removeStraySnapshots(); err != nil {
		return err
	}
	if !p.r.Clean && l.folderChanged { // what recovery removed must not come back
		if err := l.fs.SyncDir(l.dir); err != nil {
			return err
		}
		l.folderChanged = false
	}
	if !p.r.Clean {
		// A process that was killed may have made files whose names were not
		// synced; the recovery point must not pass them before the folder is (KAFKA-3968).
		l.folderChanged = true
	}
	for _, s := range l.segs {
		l.size += s.size
	}
	if l.o.CleanShutdown && p.r.TruncatedBytes == 0 {
		l.marks.recovery = l.marks.end
	}
	l.settle()
	l.untouched = p.r.Clean && len(names) > 0 && !p.r.HistoryRebuilt && p.r.IndexesRebuilt == 0 && p.r.SnapshotsDropped == 0
	return p.lowerCheckpoints()
}

// lowerCheckpoints takes back, on disk too, a recovery point above the log end
// (R1 step 4): after a cut that a crash interrupted, or a loss of what was
// called synced. Left there, it would vouch for records that are not written
// yet, and after another crash hide that they are missing.
func (p *opening) lowerCheckpoints() error {
	if p.l.marks.end >= p.l.o.RecoveryPoint {
		return nil
	}
	return p.l.writeCheckpoints()
}

// folder makes the folder if needed and removes temporary files. It gives the
// names in it.
func (p *opening) folder() ([]string, error) {
	l := p.l
	names, err := l.fs.List(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := l.fs.MkdirAll(l.dir); err != nil {
			return nil, err
		}
		return nil, l.fs.SyncDir(path.Dir(l.dir))
	}
	if err == nil && !l.o.CleanShutdown && l.o.RecoveryPoint == 0 {
		// A process that was killed may have made the folder a moment ago.
		err = l.fs.SyncDir(path.Dir(l.dir))
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		if !strings.HasSuffix(name, vfs.TempSuffix) && !strings.HasSuffix(name, deletedSuffix) {
			return false
		}
		if e := l.fs.Remove(join(l.dir, name)); e != nil && err == nil {
			err = e
		}
		return true
	}), err
}

// checkTopicID compares partition.metadata with the id asked for, or writes it.
func (p *opening) checkTopicID(names []string) error {
	l := p.l
	if l.o.TopicID.IsZero() {
		return nil
	}
	name := join(l.dir, PartitionMetadataFile)
	if !slices.Contains(names, PartitionMetadataFile) {
		return vfs.WriteAtomic(l.fs, name, FormatPartitionMetadata(l.o.TopicID))
	}
	b, err := vfs.ReadFile(l.fs, name, 1<<16)
	if err != nil {
		return err
	}
	id, err := ParsePartitionMetadata(b)
	if err != nil {
		return &CorruptError{File: name, Pos: -1, Reason: "unreadable", Err: err}
	}
	if id != l.o.TopicID {
		return fmt.Errorf("%w: %s says %s, asked for %s", ErrTopicID, name, id, l.o.TopicID)
	}
	return nil
}

// readTimelines reads timeline-checkpoint as it is; R19 judges it.
func (p *opening) readTimelines(names []string) error {
	if !slices.Contains(names, TimelineFile) {
		return nil
	}
	b, err := vfs.ReadFile(p.l.fs, join(p.l.dir, TimelineFile), 16<<20)
	if err != nil {
		return err
	}
	p.l.timelines = append([]byte{}, b...)
	return nil
}

// loadSegments makes a segment of every .log file, in order, and removes index
// files without one. An empty folder gets its first segment at the log start.
func (p *opening) loadSegments(names []string) error {
	l := p.l
	bases := map[types.Offset]bool{}
	for _, name := range names {
		if base, suffix, ok := parseFileName(name); ok && suffix == logSuffix {
			bases[base] = true
			l.segs = append(l.segs, newSegment(l.fs, l.dir, base))
		}
	}
	slices.SortFunc(l.segs, func(a, b *segment) int { return cmpInt(int64(a.base), int64(b.base)) })
	for _, name := range names {
		base, suffix, ok := parseFileName(name)
		if ok && (suffix == indexSuffix || suffix == timeSuffix || suffix == txnSuffix) && !bases[base] {
			p.suspect(base)
			if err := l.fs.Remove(join(l.dir, name)); err != nil {
				return err
			}
			l.folderChanged = true
		}
	}
	if len(l.segs) == 0 {
		s, err := l.createSegment(max(l.o.LogStart, 0))
		if err != nil {
			return err
		}
		l.segs = append(l.segs, s)
	}
	return nil
}

// suspect takes note of an index without data. Only a crash in the middle of a
// deletion leaves one; after a clean stop the data was removed by somebody else.
func (p *opening) suspect(base types.Offset) {
	l := p.l
	if !l.o.CleanShutdown || len(l.segs) == 0 {
		return
	}
	if first := l.segs[0].base; base < first {
		if !p.headMissed {
			p.headMissed = true
			p.miss(base, first)
		}
		return
	}
	i := slices.IndexFunc(l.segs, func(s *segment) bool { return s.base > base })
	if i > 0 {
		p.suspects = append(p.suspects, l.segs[i-1].base)
	}
}

// createSegment makes an empty .log file; its name is durable after the next flush.
func (l *Log) createSegment(base types.Offset) (*segment, error) {
	s := newSegment(l.fs, l.dir, base)
	f, err := l.fs.Create(s.path(logSuffix))
	if err != nil {
		return nil, err
	}
	if l.cfg.Preallocate {
		if err := f.Preallocate(0, int64(l.cfg.SegmentBytes)); err != nil {
			_ = f.Close()
			_ = l.fs.Remove(s.path(logSuffix))
			return nil, err
		}
	}
	s.data.set(f)
	s.created = l.now()
	l.folderChanged = true
	return s, nil
}

func (l *Log) now() types.Millis {
	if l.o.Now == nil {
		return 0
	}
	return l.o.Now()
}

// restartBehindEnd empties a log whose checkpointed start lies above its end:
// the records below the start are deleted ones, and the unsynced tail is gone
// (KAFKA-10101). History and producers go with them.
func (p *opening) restartBehindEnd() error {
	l := p.l
	probeBehindStart.Reached()
	at := l.marks.start
	p.r.SegmentsRemoved += len(l.segs)
	if err := l.removeSegmentFiles(l.segs); err != nil {
		return err
	}
	if err := l.removeSnapshotsAbove(types.NoOffset); err != nil {
		return err
	}
	s, err := l.createSegment(at)
	if err != nil {
		return err
	}
	l.segs = []*segment{s}
	p.implied, p.checkFrom = nil, at
	l.marks.end, l.marks.recovery = at, at
	return l.fs.SyncDir(l.dir)
}

// removeStraySnapshots removes snapshots beyond the log end, which describe
// records that are gone, those that a crash left torn, and those that no segment
// begins at; the newest is kept in any case.
func (p *opening) removeStraySnapshots() error {
	l := p.l
	snaps, err := l.snapshots()
	if err != nil {
		return err
	}
	for i, o := range snaps {
		starts := slices.ContainsFunc(l.segs, func(s *segment) bool { return s.base == o })
		newest := i == len(snaps)-1 || snaps[i+1] > l.marks.end
		torn, err := p.torn(o)
		if err != nil {
			return err
		}
		if o <= l.marks.end && (starts || newest) && !torn {
			if !p.r.Clean && o >= l.o.RecoveryPoint { // a killed process wrote it and may not have synced it
				l.unsyncedSnapshots = append(l.unsyncedSnapshots, FileName(o, snapshotSuffix))
			}
			continue
		}
		if err := l.fs.Remove(join(l.dir, FileName(o, snapshotSuffix))); err != nil {
			return err
		}
		l.folderChanged = true
	}
	return nil
}

// torn reports whether the snapshot at o, which may not have been synced, can't be read.
func (p *opening) torn(o types.Offset) (bool, error) {
	if slices.Contains(p.l.badSnapshots, o) {
		p.r.SnapshotsDropped++
		return true, nil
	}
	if p.r.Clean || o < p.l.o.RecoveryPoint {
		return false, nil
	}
	_, err := DumpSnapshot(p.l.fs, join(p.l.dir, FileName(o, snapshotSuffix)))
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		p.r.SnapshotsDropped++
		return true, nil
	}
	return false, err
}
