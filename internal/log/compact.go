package log

import (
	"context"
	"errors"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// Cleanable tells how much of a compacted log a compaction would read.
type Cleanable struct {
	FirstDirty types.Offset // where the last compaction stopped
	End        types.Offset // compaction never touches offsets from here on
	CleanBytes int64        // below FirstDirty
	DirtyBytes int64        // in [FirstDirty, End)
	// Due says that min.cleanable.dirty.ratio or max.compaction.lag.ms asks for
	// a compaction now.
	Due bool
}

// Ratio is the dirty part, 0 to 1.
func (c Cleanable) Ratio() float64 {
	if c.DirtyBytes == 0 {
		return 0
	}
	return float64(c.DirtyBytes) / float64(c.DirtyBytes+c.CleanBytes)
}

// Cleanable (W) judges whether the log is due for compaction. Whole sealed
// segments below the last stable offset, all of whose records are older than
// min.compaction.lag.ms, can be compacted: replicas that compact differently
// still agree on every surviving offset (KAFKA-3330).
func (l *Log) Cleanable(now types.Millis) Cleanable {
	c := Cleanable{FirstDirty: l.cleaned}
	if c.FirstDirty < l.marks.start || c.FirstDirty > l.marks.end {
		c.FirstDirty = l.marks.start
	}
	c.End = c.FirstDirty
	oldest := types.NoTimestamp
	for _, s := range l.segs[:len(l.segs)-1] {
		tooNew := l.cfg.MinCompactionLagMs > 0 && s.maxTs > now-l.cfg.MinCompactionLagMs
		if s.next > l.marks.stable || (s.next > c.FirstDirty && tooNew) {
			break
		}
		if s.next <= c.FirstDirty {
			c.CleanBytes += s.size
			continue
		}
		c.DirtyBytes += s.size
		c.End = s.next
		if oldest < 0 {
			oldest = s.firstTs
			if oldest < 0 {
				oldest = s.maxTs
			}
		}
	}
	tooLong := oldest >= 0 && now-oldest > l.cfg.MaxCompactionLagMs
	c.Due = l.cfg.Compact && c.DirtyBytes > 0 && (tooLong || c.Ratio() > l.cfg.MinCleanableDirtyRatio)
	return c
}

// CompactionLimits bound one compaction.
type CompactionLimits struct {
	// MaxKeys is how many different keys one run remembers, at about 50 bytes
	// each; a run with more stops at what fits. 0: 4 million.
	MaxKeys int
}

// Compaction is one compaction under way. The owner starts it, Run works on
// sealed segments from any goroutine while the log is written and read, the
// owner finishes it.
type Compaction struct {
	l        *Log
	now      types.Millis
	cfg      Config
	limits   CompactionLimits
	from     types.Offset // first dirty offset
	end      types.Offset // offsets from here on are not touched
	stable   types.Offset // the last stable offset at the start: all that is relied on lies below
	segs     []pin        // sealed segments below end, oldest first
	aborted  []txn.Aborted
	last     map[types.ProducerID]txn.LastBatch
	cuts     int
	groups   []group // what Run made
	upTo     types.Offset
	evidence types.Offset // what it goes by lies below
	counters CompactionResult
}

// group is a run of old segments and the one that takes their place.
type group struct {
	old     []pin
	cleaned *segment
}

// CompactionResult tells what a compaction did.
type CompactionResult struct {
	From, To       types.Offset // dirty range whose keys were taken into account
	BytesBefore    int64
	BytesAfter     int64
	RecordsBefore  int64
	RecordsKept    int64
	SegmentsBefore int
	SegmentsAfter  int
}

// ErrCompactionOvertaken says that the segments were cut or deleted while the
// compaction ran; it has changed nothing and may be started again.
var ErrCompactionOvertaken = errors.New("compaction overtaken by a cut or a deletion")

// StartCompaction (W) begins a compaction of what Cleanable names; nil if there
// is nothing to do. It syncs the log first: only what the recovery point covers
// is compacted.
func (l *Log) StartCompaction(now types.Millis, limits CompactionLimits) (*Compaction, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	what := l.Cleanable(now)
	if what.DirtyBytes == 0 || l.compacting {
		return nil, nil
	}
	if err := l.syncAll(); err != nil {
		return nil, err
	}
	if limits.MaxKeys <= 0 {
		limits.MaxKeys = 4 << 20
	}
	c := &Compaction{l: l, now: now, cfg: l.cfg, limits: limits, from: what.FirstDirty, end: what.End, stable: l.marks.stable}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compacting = true
	c.cuts, c.last = l.cuts, l.producers.LastBatches()
	for _, s := range l.segs {
		// Markers lie at or behind their records: those of later segments count, too.
		for _, a := range s.aborted {
			if a.FirstOffset < what.End {
				c.aborted = append(c.aborted, a)
			}
		}
		if s.next <= what.End && s != l.active() {
			s.acquire()
			c.segs = append(c.segs, s.look())
		}
	}
	return c, nil
}

// Run does the work of a compaction but the swap: it reads the dirty segments'
// keys and writes what survives into .cleaned files, synced. ctx ends it early.
func (c *Compaction) Run(ctx context.Context) error {
	err := c.run(ctx)
	if err != nil {
		c.discard()
		if c.overtaken() {
			return ErrCompactionOvertaken
		}
	}
	return err
}

// overtaken reports whether the segments were cut or deleted since the start.
func (c *Compaction) overtaken() bool {
	for _, p := range c.segs {
		if p.seg.retired.Load() {
			return true
		}
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return c.cuts != c.l.cuts || c.l.closed
}

func (c *Compaction) run(ctx context.Context) error {
	keys, err := c.buildMap(ctx)
	if err != nil {
		return err
	}
	c.upTo = keys.latest + 1
	c.evidence = c.upTo
	if keys.goesByLater || slices.ContainsFunc(c.aborted, c.endsLater) {
		c.evidence = c.stable
	}
	c.counters.From, c.counters.To = c.from, c.upTo
	var todo []pin
	for _, p := range c.segs {
		if p.seg.base < c.upTo {
			todo = append(todo, p)
		}
	}
	cl := newCleaner(c, keys)
	for _, old := range groupSegments(todo, c.cfg) {
		s, err := cl.rewrite(ctx, old)
		if s != nil {
			c.groups = append(c.groups, group{old, s})
		}
		if err != nil {
			return err
		}
	}
	return c.l.fs.SyncDir(c.l.dir)
}

// endsLater reports whether an aborted transaction reaches across the offset up to which
// keys count: its marker lies above.
func (c *Compaction) endsLater(a txn.Aborted) bool {
	return a.FirstOffset < c.upTo && a.LastOffset >= c.upTo
}

// groupSegments puts neighbours together that fit into one segment, by size,
// index size and offset span. Kafka parity.
func groupSegments(segs []pin, cfg Config) [][]pin {
	var out [][]pin
	var bytes, index, times int64
	for _, p := range segs {
		n := len(out) - 1
		fits := n >= 0 && bytes+p.size <= int64(cfg.SegmentBytes) &&
			(index+p.indexCount)*indexEntrySize <= int64(cfg.SegmentIndexBytes) && (times+p.timeCount)*timeEntrySize <= int64(cfg.SegmentIndexBytes)
		if fits {
			_, fits = relative(p.next, out[n][0].seg.base)
		}
		if !fits {
			out = append(out, nil)
			n++
			bytes, index, times = 0, 0, 0
		}
		out[n] = append(out[n], p)
		bytes, index, times = bytes+p.size, index+p.indexCount, times+p.timeCount
	}
	return out
}

// discard closes and removes what Run has written.
func (c *Compaction) discard() {
	for _, g := range c.groups {
		g.cleaned.closeFiles()
		for _, suffix := range segmentSuffixes {
			_ = c.l.fs.Remove(join(c.l.dir, FileName(g.cleaned.base, suffix)+cleanedSuffix)) // an open removes it otherwise
		}
	}
	c.groups = nil
}

// FinishCompaction (W) takes the outcome of Run. If the segments are still the
// log's, the cleaned ones take their place; ErrCompactionOvertaken if not.
// runErr comes back if it isn't nil; a write error other than a full disk takes
// the log offline.
func (l *Log) FinishCompaction(c *Compaction, runErr error) (CompactionResult, error) {
	l.compacting = false
	defer func() {
		for _, p := range c.segs {
			p.seg.release()
		}
	}()
	if runErr != nil {
		return c.counters, l.compactionFailed(runErr)
	}
	if err := l.usable(); err != nil {
		c.discard()
		return c.counters, err
	}
	first := slices.IndexFunc(l.segs, func(s *segment) bool { return len(c.segs) > 0 && s == c.segs[0].seg })
	if c.cuts != l.cuts || first < 0 {
		c.discard()
		return c.counters, ErrCompactionOvertaken
	}
	// What is compacted must be covered by a recovery point on disk: recovery
	// takes gaps above it for lost data. And the disk must say how far compaction has
	// come before anything goes: a cut below asks for it (ADR 27). A crash in between
	// leaves a few records that a later compaction could have dropped.
	cleaned, evidence := l.reachesCleaned(c.upTo, max(l.evidence, c.evidence))
	if err := l.writeCheckpoints(); err != nil {
		l.reachesCleaned(cleaned, evidence)
		c.discard()
		return c.counters, err
	}
	if err := l.swap(c, first); err != nil {
		return c.counters, l.fail("swap compacted segments", err)
	}
	l.log.Debug("log compacted", "partition", l.o.TopicPartition.String(), "from", int64(c.from), "to", int64(c.upTo),
		"bytes_before", c.counters.BytesBefore, "bytes_after", c.counters.BytesAfter)
	return c.counters, nil
}

// compactionFailed sorts Run's error: damage found and a full disk leave the
// log in use, as does an end on request.
func (l *Log) compactionFailed(err error) error {
	var corrupt *CorruptError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.As(err, &corrupt), errors.Is(err, ErrCompactionOvertaken):
		return err
	case vfs.IsNoSpace(err):
		return noSpace("compact", err)
	}
	return l.fail("compact", err)
}

// Cleaned (R) is how far compactions depend on the log: up to where the last one stopped
// (cleaner-offset-checkpoint), and up to the ends of transactions that reach across that, by
// which it knew what counts (cleaner-evidence-checkpoint). It lies above the log end of a
// log that was opened in the middle of a cut below it: then records may be gone below the
// log end in favour of others that are gone as well (docs/adr/0027). The log says so until
// it begins anew.
func (l *Log) Cleaned() types.Offset {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.cleaned, l.evidence, l.beyond)
}

// reachesCleaned moves the marks of compaction and gives those before.
func (l *Log) reachesCleaned(to, by types.Offset) (cleaned, evidence types.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	cleaned, evidence = l.cleaned, l.evidence
	l.cleaned, l.evidence = to, by
	return cleaned, evidence
}

// swap puts the cleaned segments in the place of the old ones; first is the
// index of the first old one. On disk, crash-safe as Kafka does it: all cleaned
// files become .swap, the last group first; then the old files go; then .swap
// goes from the names. See finishSwaps for what an open makes of each state.
func (l *Log) swap(c *Compaction, first int) error {
	for _, g := range slices.Backward(c.groups) {
		if err := l.renameFiles(g.cleaned.base, cleanedSuffix, swapSuffix); err != nil {
			return err
		}
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	l.replaceSegments(c, first)
	for _, g := range slices.Backward(c.groups) {
		for _, p := range slices.Backward(g.old) {
			if err := removeFiles(l.fs, l.dir, p.seg.base); err != nil {
				return err
			}
			if err := l.removeSnapshotOf(p.seg.base, g.cleaned.base); err != nil {
				return err
			}
			p.seg.release()
		}
	}
	if err := l.fs.SyncDir(l.dir); err != nil { // an old segment must not come back beside a new one
		return err
	}
	for _, g := range slices.Backward(c.groups) {
		if err := l.renameFiles(g.cleaned.base, swapSuffix, ""); err != nil {
			return err
		}
	}
	return l.fs.SyncDir(l.dir)
}

// removeSnapshotOf removes the snapshot of a segment that was merged into another.
func (l *Log) removeSnapshotOf(base, into types.Offset) error {
	if base == into {
		return nil
	}
	return removeIfThere(l.fs, join(l.dir, FileName(base, snapshotSuffix)))
}

// replaceSegments makes the swap in memory. The old segments are retired before
// any of their names can mean another file.
func (l *Log) replaceSegments(c *Compaction, first int) {
	l.untouched = false
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	fresh := make([]*segment, 0, len(c.groups))
	for _, g := range c.groups {
		for _, p := range g.old {
			assert.That(l.segs[first+n] == p.seg, "I-28: segment %d is not where compaction found it", p.seg.base)
			p.seg.retired.Store(true)
			l.size -= p.seg.size
			n++
		}
		l.size += g.cleaned.size
		fresh = append(fresh, g.cleaned)
	}
	l.segs = slices.Concat(l.segs[:first], fresh, l.segs[first+n:])
}

// renameFiles renames a segment's files from one extra suffix to another. The
// data goes last: while it has the old name, the rest may be made anew.
func (l *Log) renameFiles(base types.Offset, from, to string) error {
	for _, suffix := range segmentSuffixes {
		name := join(l.dir, FileName(base, suffix))
		if err := l.fs.Rename(name+from, name+to); ignoreAbsent(err) != nil {
			return err
		}
	}
	return nil
}
