//go:build linux

package switchboard

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidemark/internal/vfs"
)

func board(t *testing.T) (*Board, vfs.FS) {
	t.Helper()
	b, err := Create(filepath.Join(t.TempDir(), "board"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	node, err := Open(b.dir) // as another process does
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	fsys, err := node.FS(vfs.OS())
	if err != nil {
		t.Fatal(err)
	}
	return b, fsys
}

func write(t *testing.T, f vfs.File, off int64, text string) {
	t.Helper()
	if n, err := f.WriteAt([]byte(text), off); err != nil || n != len(text) {
		t.Fatalf("write: %d, %v", n, err)
	}
}

func TestSwitches(t *testing.T) {
	b, fsys := board(t)
	dir := t.TempDir()
	name := filepath.Join(dir, "a")
	f, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write(t, f, 0, "hello")

	b.Set(DiskFull, 1)
	if n, err := f.WriteAt([]byte("world"), 3); n != 2 || !vfs.IsNoSpace(err) {
		t.Errorf("a write beyond the end of a file on a full disk: %d, %v", n, err)
	}
	write(t, f, 0, "HELLO")
	if _, err := fsys.Create(filepath.Join(dir, "b")); !vfs.IsNoSpace(err) {
		t.Errorf("create on a full disk: %v", err)
	}
	if err := fsys.MkdirAll(filepath.Join(dir, "c")); !vfs.IsNoSpace(err) {
		t.Errorf("mkdir on a full disk: %v", err)
	}
	if err := fsys.MkdirAll(dir); err != nil {
		t.Errorf("mkdir of what is there: %v", err)
	}
	if free, err := fsys.FreeBytes(dir); free != 0 || err != nil {
		t.Errorf("room on a full disk: %d, %v", free, err)
	}
	b.Reset()
	b.Set(SyncFails, 1)
	for what, err := range map[string]error{"sync": f.Sync(), "data": f.SyncData(), "dir": fsys.SyncDir(dir)} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", what, err)
		}
	}
	b.Reset()
	b.Set(WriteFails, 1)
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("a write that fails: %v", err)
	}
	b.Reset()
	write(t, f, 5, "!")
	if err := errors.Join(f.Sync(), fsys.SyncDir(dir)); err != nil {
		t.Error(err)
	}
	if r, s, w := b.Get(RefusedHits), b.Get(SyncHits), b.Get(WriteHits); r != 3 || s != 3 || w != 1 {
		t.Errorf("hits: %d refused, %d syncs, %d writes", r, s, w)
	}
	b.Set(ClockShiftMs, -3_600_000)
	if d := b.Now().Sub(vfsTime(t, name)); d > -3_500_000_000_000 {
		t.Errorf("the clock goes wrong by %v", d)
	}
}

func vfsTime(t *testing.T, name string) time.Time {
	t.Helper()
	st, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return st.ModTime()
}

// TestPowerLoss: of every file at least what was synced is left, and only some of the rest.
func TestPowerLoss(t *testing.T) {
	lost := 0
	for seed := range uint64(40) {
		b, fsys := board(t)
		dir := t.TempDir()
		f, err := fsys.Create(filepath.Join(dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, f, 0, "durable")
		if err := f.SyncData(); err != nil {
			t.Fatal(err)
		}
		write(t, f, 7, " and not")
		if err := vfs.WriteAtomic(fsys, filepath.Join(dir, "checkpoint"), []byte("whole")); err != nil {
			t.Fatal(err)
		}
		if err := fsys.MkdirAll(filepath.Join(dir, "topic")); err != nil {
			t.Fatal(err)
		}
		moved, err := fsys.OpenReadWrite(filepath.Join(dir, "topic", "x"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, moved, 0, "never synced")
		cut, err := fsys.Create(filepath.Join(dir, "cut"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, cut, 0, "0123456789")
		if err := errors.Join(cut.Sync(), cut.Truncate(4)); err != nil {
			t.Fatal(err)
		}
		write(t, cut, 4, "abc")
		if err := errors.Join(fsys.Rename(filepath.Join(dir, "topic"), filepath.Join(dir, "gone")), f.Close(), moved.Close(), cut.Close()); err != nil {
			t.Fatal(err)
		}
		losses, err := b.PowerLoss(rand.New(rand.NewPCG(seed, 1)))
		if err != nil {
			t.Fatal(err)
		}
		lost += len(losses)
		begins(t, filepath.Join(dir, "log"), "durable", " and not")
		begins(t, filepath.Join(dir, "checkpoint"), "whole", "")
		begins(t, filepath.Join(dir, "cut"), "0123", "abc")
		begins(t, filepath.Join(dir, "gone", "x"), "", "never synced")
		if again, err := b.PowerLoss(rand.New(rand.NewPCG(seed, 2))); err != nil || len(again) != 0 {
			t.Fatalf("what survived one power loss is lost in the next: %v, %v", again, err)
		}
	}
	if lost < 60 {
		t.Errorf("only %d files lost something in 40 runs", lost)
	}
}

// begins demands that a file begins with what is durable, and goes on with a part of the rest or zeros.
func begins(t *testing.T, name, durable, rest string) {
	t.Helper()
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(got), durable) {
		t.Fatalf("%s holds %q, want %q at least", name, got, durable)
	}
	tail := bytes.TrimRight(got[len(durable):], "\x00")
	if !strings.HasPrefix(rest, string(tail)) || len(got) > len(durable)+len(rest) {
		t.Fatalf("%s holds %q, want %q and a part of %q", name, got, durable, rest)
	}
	if rest != "" && string(got) == durable+rest {
		t.Fatalf("%s lost nothing", name)
	}
}

// TestALongLedgerIsShortened: a process that opens a long ledger keeps what it says, not its length.
func TestALongLedgerIsShortened(t *testing.T) {
	dir := t.TempDir()
	read := func() (map[string]int64, int64) {
		t.Helper()
		f, err := os.Open(filepath.Join(dir, ledgerFile))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		sizes, err := syncedSizes(f)
		if err != nil {
			t.Fatal(err)
		}
		return sizes, st.Size()
	}
	l, err := openLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(25_000) {
		l.writeSize("synced", i, "/folder/of/a/partition/file "+strconv.FormatInt(i%7, 10))
	}
	l.writeSize("truncated", 5, "/folder/of/a/partition/file 3")
	l.write("renamed", "/folder/of/a/partition/file 4", "/elsewhere")
	want, long := read()
	again, err := openLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, short := read()
	if long <= ledgerBytesMax || short > 1000 || !maps.Equal(got, want) {
		t.Errorf("%d bytes became %d, %v became %v", long, short, want, got)
	}
	if err := errors.Join(l.f.Close(), again.f.Close()); err != nil {
		t.Error(err)
	}
}

// TestNotInProduction: without the build tag nothing of this package is in the binary.
func TestNotInProduction(t *testing.T) {
	for tags, want := range map[string]bool{"": false, "faults": true} {
		out, err := exec.Command("go", "list", "-deps", "-tags="+tags, "tidemark/cmd/tidemark").Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(out), "tidemark/internal/vfs/switchboard\n"); got != want {
			t.Errorf("tags %q: the binary holds the switchboard: %v, want %v", tags, got, want)
		}
	}
}
