package log

import (
	"tidemark/internal/core/types"
)

// RetentionResult tells what retention removed.
type RetentionResult struct {
	Segments  int
	Bytes     int64
	LogStart  types.Offset
	Producers int // producers expired
}

// EnforceRetention (W) removes whole segments, oldest first, as Kafka does:
// those that end at or below the log start in any case, and with
// cleanup.policy=delete those that are too old or beyond retention.bytes. It
// stops at the first segment that stays and at the high watermark. The active
// segment goes too, replaced by an empty one. Expired producers are forgotten.
func (l *Log) EnforceRetention(now types.Millis) (RetentionResult, error) {
	if err := l.usable(); err != nil {
		return RetentionResult{}, err
	}
	var res RetentionResult
	n, start := l.expired(now)
	if n > 0 {
		bytes := l.size
		if err := l.removeHead(n, start); err != nil {
			return res, err
		}
		res.Segments, res.Bytes = n, bytes-l.size
		l.log.Debug("segments removed by retention", "partition", l.o.TopicPartition.String(), "segments", n, "bytes", res.Bytes, "log_start", int64(l.marks.start))
	}
	res.LogStart = l.marks.start
	if l.cfg.ProducerIDExpirationMs > 0 {
		l.mu.Lock()
		res.Producers = l.producers.Expire(now, l.cfg.ProducerIDExpirationMs)
		l.mu.Unlock()
	}
	return res, nil
}

// expired counts the segments that go from the front, and gives the log start afterwards.
func (l *Log) expired(now types.Millis) (n int, start types.Offset) {
	excess := int64(-1)
	if l.cfg.Delete && l.cfg.RetentionBytes >= 0 {
		excess = l.size - l.cfg.RetentionBytes
	}
	start = l.marks.start
	for i, s := range l.segs {
		last := i == len(l.segs)-1
		end := s.next
		if !last {
			end = l.segs[i+1].base
		}
		if s.size == 0 && last {
			break
		}
		byStart := !last && end <= l.marks.start
		bySize := excess >= s.size && l.cfg.RetentionBytes >= 0
		byAge := l.cfg.Delete && l.cfg.RetentionMs >= 0 && l.tooOld(s, now)
		if !(byStart || bySize && l.cfg.Delete || byAge) || end > l.marks.high && !l.o.Rules.RetainAboveMark {
			break
		}
		excess -= s.size
		n++
		start = max(start, end)
	}
	return n, start
}

// tooOld judges a segment by its newest record, unless that claims to be from
// the future: then by the file's last change (KAFKA-20609).
func (l *Log) tooOld(s *segment, now types.Millis) bool {
	newest := s.maxTs
	if newest < 0 || newest > now {
		newest = l.lastModified(s)
	}
	return now-newest > l.cfg.RetentionMs
}

// removeHead takes the first n segments out of the log. Their files are
// renamed to .deleted at once and removed; readers keep what they have opened.
func (l *Log) removeHead(n int, start types.Offset) error {
	if n == len(l.segs) {
		if err := l.roll(l.marks.end); err != nil {
			return err
		}
	}
	if start > l.marks.start {
		if err := l.raise(start); err != nil {
			return err
		}
	}
	l.mu.Lock()
	gone := l.segs[:n:n]
	l.segs = append([]*segment(nil), l.segs[n:]...)
	for _, s := range gone {
		s.retired.Store(true)
		l.size -= s.size
	}
	first := l.segs[0].base
	l.mu.Unlock()
	l.untouched = false
	// The lowest first, each on the disk before the next: removals that are not
	// synced may survive a loss of power in any order, and leave a hole.
	for _, s := range gone {
		if l.headUnsynced {
			if err := l.fs.SyncDir(l.dir); err != nil {
				return l.fail("sync folder", err)
			}
		}
		l.headUnsynced = true
		if err := removeFiles(l.fs, l.dir, s.base); err != nil {
			return l.fail("remove segment", err)
		}
		s.release()
	}
	l.folderChanged = true
	return l.removeSnapshotsBelow(first)
}

// removeSnapshotsBelow removes the snapshots of segments that are gone.
func (l *Log) removeSnapshotsBelow(o types.Offset) error {
	snaps, err := l.snapshots()
	if err != nil {
		return l.fail("list snapshots", err)
	}
	for _, at := range snaps {
		if at < o {
			if err := removeIfThere(l.fs, join(l.dir, FileName(at, snapshotSuffix))); err != nil {
				return l.fail("remove snapshot", err)
			}
		}
	}
	return nil
}
