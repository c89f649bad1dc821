package log

import (
	"errors"
	"syscall"
	"testing"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
)

// TestEveryOperationOfAnOpenFails: whichever change of the disk fails while a log
// opens, the error says that it is final for the log dir; a disk without room,
// and what can't be read, are this log's trouble. The next open finds a whole log.
func TestEveryOperationOfAnOpenFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		kinds faultfs.Kind
		cause error
		final bool
	}{
		{"write", faultfs.Mutating, syscall.EIO, true},
		{"read-only file system", faultfs.Mutating, syscall.EROFS, true},
		{"no room", faultfs.Mutating, syscall.ENOSPC, false},
		{"no permission", faultfs.Mutating, syscall.EACCES, false},
		{"read", faultfs.Read | faultfs.Open | faultfs.List, syscall.EIO, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			hits := 0
			for n := 0; ; n++ {
				fired, err := openFailing(t, n, faultfs.Rule{Kinds: c.kinds, Skip: n, Times: 1, Err: c.cause})
				if !fired {
					break
				}
				if err == nil {
					continue // nothing that was needed
				}
				hits++
				if errors.Is(err, ErrOffline) != c.final {
					t.Fatalf("op %d: %v, want final %v", n, err, c.final)
				}
			}
			if hits == 0 {
				t.Fatal("no operation failed an open")
			}
		})
	}
}

// openFailing opens what a killed process left, with one operation failing.
func openFailing(t *testing.T, n int, rule faultfs.Rule) (fired bool, err error) {
	t.Helper()
	mem := memFS(t)
	o := options(mem)
	o.TopicID = types.TopicID{7}
	l, _ := mustOpen(t, o)
	story(t, l)
	end := l.View().LogEnd
	l.CloseUnclean()
	ffs := faultfs.New(mem)
	injected := ffs.Inject(rule)
	o.FS = ffs
	l, _, err = Open(o)
	if err == nil {
		l.CloseUnclean()
	}
	injected.Remove()
	again, _ := mustOpen(t, o)
	if got := again.View().LogEnd; got != end {
		t.Fatalf("op %d: the next open ends at %d, want %d", n, got, end)
	}
	again.CloseUnclean()
	return injected.Fired() > 0, err
}

// TestADamagedFileIsTheLogsOwn: a file whose content can't be used says nothing about the disk.
func TestADamagedFileIsTheLogsOwn(t *testing.T) {
	mem := memFS(t)
	o := options(mem)
	o.TopicID = types.TopicID{7}
	l, _ := mustOpen(t, o)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteAtomic(mem, join(testDir, PartitionMetadataFile), []byte("version: none\n")); err != nil {
		t.Fatal(err)
	}
	_, _, err := Open(o)
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || errors.Is(err, ErrOffline) {
		t.Fatalf("%v, want a file named as damaged", err)
	}
}
