// Package journal keeps lines of text in files that don't grow without end: the
// record of what happened on a node, for people.
//
// Lines are appended to <dir>/<number>.jsonl by one goroutine, which syncs what has
// gathered; Append never waits for the disk. A file that has reached its size
// is followed by another, and the oldest goes. A crash may take the lines of the
// last moment and leave a torn one, which Open drops. A disk that can't be
// written costs lines, never more: what decides about data is kept elsewhere.
//
// It doesn't know what the lines say. Tested on the file system with a crash
// model. docs/format/events.md describes the files.
package journal

import (
	"bytes"
	"fmt"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"sync"

	"tidemark/internal/vfs"
)

// Options say where the journal is and how much it keeps.
type Options struct {
	FS  vfs.FS
	Dir string // created if absent
	// FileBytes is the size at which a file is followed by the next, in bytes; Files is how many are kept.
	FileBytes int64
	Files     int
	Logger    *slog.Logger
}

// Sizes of a journal whose options say none.
const (
	defaultFileBytes = 4 << 20
	defaultFiles     = 4
	queueMax         = 100_000 // lines waiting for the disk; more are dropped
	suffix           = ".jsonl"
)

// Journal is an open journal. Any goroutine may append.
type Journal struct {
	o    Options
	done chan struct{}
	wake chan struct{}

	mu sync.Mutex
	// guards the following
	queue   [][]byte
	dropped int
	closed  bool

	// The rest belongs to the writer.

	file   vfs.File
	number int64
	size   int64
	failed bool
}

// Open opens or makes a journal and gives the lines that it holds, oldest first.
func Open(o Options) (*Journal, [][]byte, error) {
	if o.FileBytes <= 0 {
		o.FileBytes = defaultFileBytes
	}
	if o.Files <= 0 {
		o.Files = defaultFiles
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	j := &Journal{o: o, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	lines, err := j.load()
	if err != nil {
		return nil, nil, fmt.Errorf("journal %s: %w", o.Dir, err)
	}
	go j.loop()
	return j, lines, nil
}

// load reads all files. The next line goes to a new one: nothing that a crash may have torn is written to again.
func (j *Journal) load() ([][]byte, error) {
	if err := j.o.FS.MkdirAll(j.o.Dir); err != nil {
		return nil, err
	}
	if err := j.o.FS.SyncDir(path.Dir(j.o.Dir)); err != nil {
		return nil, err
	}
	numbers, err := j.numbers()
	if err != nil {
		return nil, err
	}
	var lines [][]byte
	for _, n := range numbers {
		data, err := vfs.ReadFile(j.o.FS, j.name(n), 2*j.o.FileBytes+(1<<20))
		if err != nil {
			j.o.Logger.Warn("a journal file can't be read", "file", j.name(n), "err", err)
			continue
		}
		whole := data[:bytes.LastIndexByte(data, '\n')+1]
		for line := range bytes.Lines(whole) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				lines = append(lines, line)
			}
		}
	}
	if len(numbers) > 0 {
		j.number = numbers[len(numbers)-1]
	}
	return lines, nil
}

// numbers lists the files there are, oldest first.
func (j *Journal) numbers() ([]int64, error) {
	names, err := j.o.FS.List(j.o.Dir)
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, name := range names { // sorted, and of equal length
		digits, ok := strings.CutSuffix(name, suffix)
		if n, err := strconv.ParseInt(digits, 10, 64); ok && err == nil {
			out = append(out, n)
		}
	}
	return out, nil
}

func (j *Journal) name(n int64) string { return path.Join(j.o.Dir, fmt.Sprintf("%010d%s", n, suffix)) }

// Append queues a line, which must hold no line break. It never waits; after Close it does nothing.
func (j *Journal) Append(line []byte) {
	j.mu.Lock()
	switch {
	case j.closed:
	case len(j.queue) >= queueMax:
		j.dropped++
	default:
		j.queue = append(j.queue, line)
	}
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Close writes what is queued and ends.
func (j *Journal) Close() {
	j.mu.Lock()
	was := j.closed
	j.closed = true
	j.mu.Unlock()
	if !was {
		select {
		case j.wake <- struct{}{}:
		default:
		}
	}
	<-j.done
}

func (j *Journal) loop() {
	defer close(j.done)
	for {
		<-j.wake
		j.mu.Lock()
		lines, dropped, closed := j.queue, j.dropped, j.closed
		j.queue, j.dropped = nil, 0
		j.mu.Unlock()
		if dropped > 0 {
			j.o.Logger.Warn("lines of the journal were dropped: the disk is too slow", "dir", j.o.Dir, "lines", dropped)
		}
		if err := j.write(lines); err != nil {
			if !j.failed {
				j.o.Logger.Warn("the journal can't be written", "dir", j.o.Dir, "lines", len(lines), "err", err)
			}
			j.failed = true
			j.endFile() // whatever is in it now, the next lines go to a new one
		} else if len(lines) > 0 {
			j.failed = false
		}
		if closed {
			j.endFile()
			return
		}
	}
}

// write appends lines, one file at a time, and syncs.
func (j *Journal) write(lines [][]byte) error {
	for len(lines) > 0 {
		if j.file == nil || j.size >= j.o.FileBytes {
			if err := j.nextFile(); err != nil {
				return err
			}
		}
		var buf []byte
		for len(lines) > 0 && j.size+int64(len(buf)) < j.o.FileBytes {
			buf = append(append(buf, lines[0]...), '\n')
			lines = lines[1:]
		}
		if _, err := j.file.WriteAt(buf, j.size); err != nil {
			return err
		}
		j.size += int64(len(buf))
		if err := j.file.SyncData(); err != nil {
			return err
		}
	}
	return nil
}

// nextFile begins a file and removes those that are too many.
func (j *Journal) nextFile() error {
	j.endFile()
	f, err := j.o.FS.Create(j.name(j.number + 1))
	if err != nil {
		return err
	}
	j.number++
	j.file, j.size = f, 0
	numbers, err := j.numbers()
	if err != nil {
		return err
	}
	for len(numbers) > j.o.Files {
		if err := j.o.FS.Remove(j.name(numbers[0])); err != nil {
			return err
		}
		numbers = numbers[1:]
	}
	return j.o.FS.SyncDir(j.o.Dir)
}

func (j *Journal) endFile() {
	if j.file == nil {
		return
	}
	if err := j.file.Close(); err != nil {
		j.o.Logger.Warn("a journal file can't be closed", "file", j.file.Name(), "err", err)
	}
	j.file = nil
}
