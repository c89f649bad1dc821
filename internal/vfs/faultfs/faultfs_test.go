package faultfs_test

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name, 1<<20)
	must(t, err)
	return string(b)
}

func TestNthOperationFails(t *testing.T) {
	f := faultfs.New(vfs.NewMem())
	i := f.Inject(faultfs.Rule{Kinds: faultfs.Sync, Pattern: "*.log", Skip: 1, Times: 1, Err: syscall.EIO})
	log, err := f.Create("/0.log")
	must(t, err)
	index, err := f.Create("/0.index")
	must(t, err)
	must(t, log.Sync())
	must(t, index.Sync())
	if err := log.SyncData(); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "/0.log") {
		t.Fatal(err)
	}
	must(t, log.Sync())
	if i.Fired() != 1 || f.Count(faultfs.Sync) != 4 || f.Count(faultfs.Create|faultfs.Sync) != 6 {
		t.Fatal(i.Fired(), f.Count(faultfs.Sync))
	}
	i = f.Inject(faultfs.Rule{Kinds: faultfs.Any, Pattern: "/0.index"})
	if _, err := index.Size(); err != nil {
		t.Fatal("Size needs no disk:", err)
	}
	if _, err := f.Open("/0.index"); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	i.Remove()
	_, err = f.Open("/0.index")
	must(t, err)
}

func TestTornAndLateWrites(t *testing.T) {
	f := faultfs.New(vfs.NewMem())
	file, err := f.Create("/a")
	must(t, err)
	f.Inject(faultfs.Rule{Kinds: faultfs.Write, Times: 1, Short: 3})
	if n, err := file.WriteAt([]byte("abcdef"), 0); n != 3 || !errors.Is(err, syscall.EIO) {
		t.Fatal(n, err)
	}
	if got := content(t, f, "/a"); got != "abc" {
		t.Fatal(got)
	}
	f.Inject(faultfs.Rule{Kinds: faultfs.Write, Times: 1, Late: true, Err: io.ErrClosedPipe})
	if n, err := file.WriteAt([]byte("ABCDEF"), 0); n != 6 || !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(n, err)
	}
	if got := content(t, f, "/a"); got != "ABCDEF" {
		t.Fatal(got)
	}
	f.Inject(faultfs.Rule{Kinds: faultfs.Rename, Times: 1, Late: true})
	if err := f.Rename("/a", "/b"); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if got := content(t, f, "/b"); got != "ABCDEF" {
		t.Fatal(got)
	}
	f.Inject(faultfs.Rule{Kinds: faultfs.Rename, Times: 1})
	if err := f.Rename("/b", "/c"); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if got := content(t, f, "/b"); got != "ABCDEF" {
		t.Fatal(got)
	}
}

func TestSpace(t *testing.T) {
	f := faultfs.New(vfs.NewMem())
	file, err := f.Create("/a")
	must(t, err)
	f.SetSpace(4)
	if n, err := file.WriteAt([]byte("abcdef"), 0); n != 4 || !vfs.IsNoSpace(err) {
		t.Fatal(n, err)
	}
	_, err = file.WriteAt([]byte("WXYZ"), 0) // no growth, no room needed
	must(t, err)
	if free, err := f.FreeBytes("/"); free != 0 || err != nil {
		t.Fatal(free, err)
	}
	f.SetSpace(-1)
	_, err = file.WriteAt([]byte("ef"), 4)
	must(t, err)
	if got := content(t, f, "/a"); got != "WXYZef" {
		t.Fatal(got)
	}
}

func TestGateHoldsAnFsync(t *testing.T) {
	f := faultfs.New(vfs.NewMem())
	file, err := f.Create("/a")
	must(t, err)
	gate := faultfs.NewGate()
	f.Inject(faultfs.Rule{Kinds: faultfs.Sync, Gate: gate})
	done := make(chan error, 1)
	go func() { done <- file.Sync() }()
	<-gate.Arrived()
	select {
	case err := <-done:
		t.Fatal("the gate let an fsync through:", err)
	default:
	}
	_, err = file.WriteAt([]byte("x"), 0) // others go on
	must(t, err)
	gate.Release()
	must(t, <-done)
	must(t, file.Sync())
}

// TestSweepReachesEveryOperation: WriteAtomic has five changing steps; each one's
// failure is seen and leaves the old content or the new.
func TestSweepReachesEveryOperation(t *testing.T) {
	runs := faultfs.Sweep(faultfs.Rule{Kinds: faultfs.Mutating}, func(rule faultfs.Rule) bool {
		f := faultfs.New(vfs.NewMem())
		must(t, vfs.WriteAtomic(f, "/cp", []byte("old")))
		i := f.Inject(rule)
		err := vfs.WriteAtomic(f, "/cp", []byte("new"))
		fired := i.Fired() == 1
		if fired == (err == nil) {
			t.Fatal("fired", fired, "error", err)
		}
		if got := content(t, f, "/cp"); got != "new" && (got != "old" || err == nil) {
			t.Fatal(got, err)
		}
		return fired
	})
	if runs != 5 {
		t.Fatal("create, write, sync, rename, syncdir expected, got", runs)
	}
}
