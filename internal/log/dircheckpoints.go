package log

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// Names of the checkpoint files of a log directory; all but the last are Kafka's.
const (
	RecoveryPointFile = "recovery-point-offset-checkpoint"
	HighWatermarkFile = "replication-offset-checkpoint"
	LogStartFile      = "log-start-offset-checkpoint"
	CleanerFile       = "cleaner-offset-checkpoint"
	EvidenceFile      = "cleaner-evidence-checkpoint"
)

// Marked is what a log directory's checkpoint files say of one partition.
type Marked struct{ RecoveryPoint, HighWatermark, LogStart, Cleaned, Evidence types.Offset }

// DirCheckpoints are the checkpoint files of one log directory. The attached
// logs are asked for their marks at the moment of writing, and one write
// follows the other: an older picture never replaces a newer one. All methods
// may be called from any goroutine.
type DirCheckpoints struct {
	fs  vfs.FS
	dir string

	mu    sync.Mutex // guards the following
	logs  map[types.TopicPartition]*Log
	found map[types.TopicPartition]Marked // lines read at open, of logs not attached yet
	// gone are partitions that the files may still name and that are no more. A log
	// of the same name must not be taken for one of them (Begin).
	gone  map[types.TopicPartition]bool
	sizes map[string]int64 // as the clean shutdown before the open noted them (Shortened)
	asked int64            // counts requests to write

	writing sync.Mutex // held for one write of the files; guards the following
	written int64      // requests up to this one are on disk
	content [5][]byte  // of each file, as last written
}

// checkpointFiles are the files with the mark that each holds.
var checkpointFiles = [5]struct {
	name string
	mark func(*Marked) *types.Offset
}{
	{RecoveryPointFile, func(m *Marked) *types.Offset { return &m.RecoveryPoint }},
	{HighWatermarkFile, func(m *Marked) *types.Offset { return &m.HighWatermark }},
	{LogStartFile, func(m *Marked) *types.Offset { return &m.LogStart }},
	{CleanerFile, func(m *Marked) *types.Offset { return &m.Cleaned }},
	{EvidenceFile, func(m *Marked) *types.Offset { return &m.Evidence }},
}

// OpenCheckpoints reads a log directory's checkpoint files. A file that is
// absent counts as empty. One that can't be read does, too, and is named in
// problems: without recovery points every log is checked whole, without high
// watermarks they begin at the log start, but without log starts deleted
// records may come back, so that the caller should tell the operator.
func OpenCheckpoints(fsys vfs.FS, dir string) (c *DirCheckpoints, problems []error, err error) {
	c = &DirCheckpoints{fs: fsys, dir: dir, logs: map[types.TopicPartition]*Log{}, found: map[types.TopicPartition]Marked{}, gone: map[types.TopicPartition]bool{}}
	for i, file := range checkpointFiles {
		name := join(dir, file.name)
		b, err := vfs.ReadFile(fsys, name, 1<<30)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		lines, err := ParseOffsets(b)
		if err != nil {
			problems = append(problems, &CorruptError{File: name, Pos: -1, Reason: "unreadable", Err: err})
			continue
		}
		c.content[i] = b
		for _, l := range lines {
			m := c.found[l.TopicPartition]
			*file.mark(&m) = l.Offset
			c.found[l.TopicPartition] = m
		}
	}
	return c, problems, nil
}

// Get is what the files said of a partition when they were opened; zeros if
// nothing. It is what Options of Open take.
func (c *DirCheckpoints) Get(tp types.TopicPartition) Marked {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found[tp]
}

// WithRecords lists the partitions of which the files said, when they were opened,
// that readers had seen records, and whose log is not attached.
func (c *DirCheckpoints) WithRecords() []types.TopicPartition {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []types.TopicPartition
	for tp, m := range c.found {
		if m.HighWatermark > max(m.LogStart, 0) {
			out = append(out, tp)
		}
	}
	slices.SortFunc(out, func(a, b types.TopicPartition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

// Attach makes a log's marks part of the files from the next write on.
func (c *DirCheckpoints) Attach(l *Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs[l.o.TopicPartition] = l
	delete(c.found, l.o.TopicPartition)
}

// Put makes marks part of the files from the next write on, for a partition whose
// log is still to be opened: a fork. Forget takes them back while it isn't.
func (c *DirCheckpoints) Put(tp types.TopicPartition, m Marked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found[tp] = m
}

// Forget forgets marks that no open log stands behind.
func (c *DirCheckpoints) Forget(tp types.TopicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.found, tp)
	c.gone[tp] = true
}

// Detach forgets a partition, whose log was deleted.
func (c *DirCheckpoints) Detach(tp types.TopicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.logs, tp)
	delete(c.found, tp)
	c.gone[tp] = true
}

// Begin is called before a log is made in a folder that isn't there yet. What the
// files say of that name is about a deleted one: a log start of it would take the
// new records with it at the next open. It is off the disk when Begin returns.
func (c *DirCheckpoints) Begin(tp types.TopicPartition) error {
	c.mu.Lock()
	_, stale := c.found[tp]
	stale = stale || c.gone[tp]
	delete(c.found, tp)
	if stale {
		c.gone[tp] = true
	}
	c.mu.Unlock()
	if !stale {
		return nil
	}
	return c.Write()
}

// Write writes the files whose content has changed and syncs them. Requests
// that wait while one write is under way are served by one common write.
func (c *DirCheckpoints) Write() error {
	c.mu.Lock()
	c.asked++
	mine := c.asked
	c.mu.Unlock()

	c.writing.Lock()
	defer c.writing.Unlock()
	if c.written >= mine {
		return nil
	}
	upTo, contents, gone := c.collect()
	for i, file := range checkpointFiles {
		if bytes.Equal(contents[i], c.content[i]) {
			continue
		}
		if err := vfs.WriteAtomic(c.fs, join(c.dir, file.name), contents[i]); err != nil {
			return err
		}
		c.content[i] = contents[i]
	}
	c.written = upTo
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tp := range gone {
		delete(c.gone, tp)
	}
	return nil
}

// Lower writes the files after a log's marks fell (R1 step 4); the log is
// attached if it isn't yet.
func (c *DirCheckpoints) Lower(l *Log) error {
	c.Attach(l)
	return c.Write()
}

// collect gives the present contents, the number of the newest request they
// serve, and the partitions that they no longer name.
func (c *DirCheckpoints) collect() (upTo int64, contents [5][]byte, gone []types.TopicPartition) {
	c.mu.Lock()
	upTo = c.asked
	for tp := range c.gone {
		if c.logs[tp] == nil {
			gone = append(gone, tp)
		}
	}
	all := make(map[types.TopicPartition]Marked, len(c.logs)+len(c.found))
	for tp, m := range c.found {
		all[tp] = m
	}
	logs := make([]*Log, 0, len(c.logs))
	for _, l := range c.logs {
		logs = append(logs, l)
	}
	c.mu.Unlock()
	for _, l := range logs {
		all[l.o.TopicPartition] = l.marked()
	}
	for i, file := range checkpointFiles {
		lines := make([]CheckpointLine, 0, len(all))
		for tp, m := range all {
			o := *file.mark(&m)
			if onlyMoved := file.name == LogStartFile || file.name == CleanerFile || file.name == EvidenceFile; onlyMoved && o == 0 {
				continue // Kafka parity
			}
			lines = append(lines, CheckpointLine{tp, o})
		}
		if len(lines) == 0 && file.name == EvidenceFile && c.content[i] == nil {
			continue // a directory that nothing of it concerns has Kafka's files alone
		}
		contents[i] = FormatOffsets(lines)
	}
	return upTo, contents, gone
}

// marked are the log's marks as the files hold them.
func (l *Log) marked() Marked {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Marked{l.marks.recovery, l.marks.high, l.marks.start, max(l.cleaned, l.beyond), l.evidence}
}
