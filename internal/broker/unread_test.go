package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"tidemark/internal/log"
	"tidemark/internal/vfs/faultfs"
)

// whatReads are what a partition's owner does to its log and what reads its old records.
var whatReads = map[string]func(*log.Log) error{
	"cut": func(l *log.Log) error { _, err := l.Cut(1, log.CutReason{Cause: log.CauseTimeline}); return err },
	"log start": func(l *log.Log) error {
		_, err := l.RaiseLogStart(2, false, log.CutReason{Cause: log.CauseLogStart})
		return err
	},
}

// TestAnOpenLogsBadSector is one partition's trouble: the disk takes writes, and the other
// partitions go on. With the file readable again, the next start serves all of it.
func TestAnOpenLogsBadSector(t *testing.T) {
	for name, do := range whatReads {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h := w.hear()
			faults := faultfs.New(w.fs)
			w.fs = faults
			b := w.open()
			createTopic(t, b, "a", 1)
			createTopic(t, b, "b", 1)
			p, other := mustPartition(t, b, "a", 0), mustPartition(t, b, "b", 0)
			mustAppend(t, p, "x", "y")
			mustAppend(t, p, "z")
			bad := faults.Inject(faultfs.Rule{Kinds: faultfs.Read, Pattern: "/data/a-0/*"})
			err := p.Do(testContext(t), func(o *Owned) error { return do(o.Log()) })
			if err == nil || bad.Fired() == 0 {
				t.Fatalf("it read nothing: %v", err)
			}
			eventually(t, "the partition is offline", p.down.Load)
			mustAppend(t, other, "goes on")
			if cause := p.dir.failure(); cause != nil {
				t.Errorf("the whole log dir is offline: %v", cause)
			}
			if !h.says("a file of an open log can't be read") || !h.says("file=/data/a-0/") {
				t.Error("nobody is told which file, and what to do")
			}
			closeFailed(t, b)
			bad.Remove()
			b = w.open()
			if b.cleanShutdownEpoch() >= 0 {
				t.Error("a node with a log that broke counts as closed cleanly (R11)")
			}
			if end := logEnd(t, mustPartition(t, b, "a", 0)); end != 3 {
				t.Errorf("the log ends at %d after the next start", end)
			}
			closeNode(t, b)
		})
	}
}

// TestADiskThatNeitherReadsNorWrites is offline as a whole.
func TestADiskThatNeitherReadsNorWrites(t *testing.T) {
	b, p, faults := aNodeThatMayFail(t)
	faults.Inject(faultfs.Rule{Kinds: faultfs.Read | faultfs.Write | faultfs.Create | faultfs.Sync})
	if err := p.Do(testContext(t), func(o *Owned) error { return whatReads["cut"](o.Log()) }); err == nil {
		t.Fatal("it read nothing")
	}
	eventually(t, "the log dir is offline", func() bool { return p.dir.failure() != nil })
	closeFailed(t, b)
}

func TestUnreadFile(t *testing.T) {
	read, write := &fs.PathError{Op: "read", Path: "f", Err: syscall.EIO}, &fs.PathError{Op: "write", Path: "f", Err: syscall.EIO}
	f := func(err error, want bool) {
		t.Helper()
		if _, got := unreadFile(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
	f(fmt.Errorf("cut: %w: %w", log.ErrOffline, read), true)
	f(write, false)
	f(errors.Join(read, write), false) // a change has begun: what it left is unknown
	f(fmt.Errorf("%w; and then: %w", write, read), false)
	f(log.ErrOffline, false)
}
