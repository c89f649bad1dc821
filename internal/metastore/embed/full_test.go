package embed_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/embed"
)

// fillerEnv makes the test binary a process that fills the disk of the folder it names.
const fillerEnv = "TIDEMARK_TEST_FILLER"

// fillUp writes until the store ends, and says why it did.
func fillUp(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, err := embed.Start(ctx, embed.Options{Dir: dir, Name: "node-1"})
	if err != nil {
		return err
	}
	value := []byte(strings.Repeat("x", 1<<20))
	for n := 0; err == nil; n++ {
		one, end := context.WithTimeout(ctx, 5*time.Second)
		_, err = metastore.Commit(one, s.Store(), meta.Plan{Why: "fill", Then: []meta.Op{meta.Put(fmt.Sprint("/f/", n), value)}})
		end()
	}
	select {
	case ended := <-s.Failed():
		return fmt.Errorf("ended: %w; closed: %w", ended, s.Close())
	case <-ctx.Done():
		return fmt.Errorf("writes fail with %w, and the store doesn't end", err)
	}
}

// TestADiskThatIsReallyFull ends the metadata store with a sentence that names the folder
// and the way out, where etcd ends its process with a trace; with room it goes on.
func TestADiskThatIsReallyFull(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=32m"); err != nil {
		t.Skipf("a small disk can't be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(disk, "meta")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fillerEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	said := string(out)
	if err == nil || !strings.Contains(said, "ended: metadata folder "+dir+": its disk is full") || !strings.Contains(said, "make room") ||
		!strings.Contains(said, "no space left on device") || strings.Contains(said, "goroutine ") {
		t.Fatalf("%v\n%s", err, said)
	}
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT, "size=256m"); err != nil {
		t.Fatal(err)
	}
	s := start(t, embed.Options{Dir: dir, Name: "node-1"})
	if kv, _, err := s.Store().Get(t.Context(), "/f/0"); err != nil || len(kv.Value) != 1<<20 {
		t.Errorf("with room again: %d bytes, %v", len(kv.Value), err)
	}
}
