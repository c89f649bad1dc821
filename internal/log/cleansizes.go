package log

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// CleanSizesFile says beside the mark of a clean shutdown how many bytes each log
// had. Kafka has no such file, and an older program, which doesn't read it, writes
// a mark with another broker epoch.
const CleanSizesFile = "clean-shutdown-sizes"

// cleanSizes is the content of CleanSizesFile.
type cleanSizes struct {
	Version     int              `json:"version"`
	BrokerEpoch int64            `json:"brokerEpoch"` // as the mark's
	Bytes       map[string]int64 `json:"bytes"`       // of all segments, by the partition folder's name
}

// Short is a log that has fewer bytes than a clean shutdown left.
type Short struct {
	Folder     string // its name in the log directory
	Was, Found int64  // bytes of its segments; found is 0 too where the folder is gone
}

// NoteSizes writes how many bytes each attached log has, before the mark of a clean
// shutdown of registration e, when all logs are closed. Of logs that weren't opened it
// repeats what the last note said.
func (c *DirCheckpoints) NoteSizes(e types.BrokerEpoch) error {
	note := cleanSizes{BrokerEpoch: int64(e), Bytes: map[string]int64{}}
	c.mu.Lock()
	for tp := range c.found {
		if n, ok := c.sizes[tp.String()]; ok {
			note.Bytes[tp.String()] = n
		}
	}
	logs := make([]*Log, 0, len(c.logs))
	for _, l := range c.logs {
		logs = append(logs, l)
	}
	c.mu.Unlock()
	for _, l := range logs {
		note.Bytes[l.o.TopicPartition.String()] = l.View().Size
	}
	b, err := json.Marshal(note)
	if err != nil {
		return err
	}
	return vfs.WriteAtomic(c.fs, join(c.dir, CleanSizesFile), b)
}

// Shortened compares the partitions' folders with what the clean shutdown of
// registration e noted, and lists the logs that have lost bytes since, by folder. It looks at
// names and lengths alone: what was written over in place it doesn't see. Without a
// note of that registration nothing can be told. An error says that a folder or the
// note can't be read.
func (c *DirCheckpoints) Shortened(e types.BrokerEpoch) ([]Short, error) {
	name := join(c.dir, CleanSizesFile)
	b, err := vfs.ReadFile(c.fs, name, 1<<30)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var note cleanSizes
	if err := json.Unmarshal(b, &note); err != nil {
		return nil, &CorruptError{File: name, Pos: -1, Reason: "unreadable", Err: err}
	}
	if note.Version != 0 || types.BrokerEpoch(note.BrokerEpoch) != e {
		return nil, nil
	}
	c.mu.Lock()
	c.sizes = note.Bytes
	c.mu.Unlock()
	var short []Short
	for _, folder := range slices.Sorted(maps.Keys(note.Bytes)) {
		was := note.Bytes[folder]
		if was <= 0 {
			continue
		}
		found, err := segmentBytes(c.fs, join(c.dir, folder))
		if err != nil {
			return nil, fmt.Errorf("look at the segments in %s: %w", folder, err)
		}
		if found < was {
			short = append(short, Short{folder, was, found})
		}
	}
	return short, nil
}

// segmentBytes sums the lengths of a folder's segments; 0 where there is no folder.
func segmentBytes(fsys vfs.FS, dir string) (sum int64, err error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, logSuffix) {
			continue
		}
		info, err := fsys.Stat(join(dir, name))
		if err != nil {
			return 0, err
		}
		sum += info.Size
	}
	return sum, nil
}
