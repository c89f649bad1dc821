package log

import (
	"errors"
	"io/fs"
	"testing"

	"tidemark/internal/vfs/faultfs"
)

// TestACompactionThatCantRead says that it was a read, and of which file: the disk isn't to
// blame for that alone.
func TestACompactionThatCantRead(t *testing.T) {
	faults := faultfs.New(memFS(t))
	l, _ := mustOpen(t, compactOptions(faults))
	fillForCompaction(t, l)
	faults.Inject(faultfs.Rule{Kinds: faultfs.Read})
	_, err := compactNow(l, 10_000)
	var file *fs.PathError
	if !errors.Is(err, ErrOffline) || !errors.As(err, &file) || file.Op != "read" {
		t.Errorf("it fails with %v", err)
	}
}
