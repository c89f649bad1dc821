package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidemark/internal/vfs"
)

var loseAll = vfs.CrashConfig{}

// TestNameNeedsSyncDir: strict POSIX. The bytes are safe after Sync, the name isn't.
func TestNameNeedsSyncDir(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("/d"))
	f := create(t, m, "/d/a", "data")
	must(t, f.Sync())
	if got := m.CrashClone(loseAll).Dump(); got != "" {
		t.Fatalf("an unsynced folder survived: %q", got)
	}
	must(t, m.SyncDir("/"))
	if got := m.CrashClone(loseAll).Dump(); got != "d/\n" {
		t.Fatalf("%q", got)
	}
	must(t, m.SyncDir("/d"))
	if got := read(t, m.CrashClone(loseAll), "/d/a"); got != "data" {
		t.Fatalf("%q", got)
	}
}

// TestBytesNeedSync: an unsynced write is gone, what was synced before is there.
func TestBytesNeedSync(t *testing.T) {
	m := vfs.NewMem()
	f := create(t, m, "/a", "synced")
	must(t, m.SyncDir("/"))
	must(t, f.SyncData())
	_, err := f.WriteAt([]byte("SYNCED and more"), 0)
	must(t, err)
	if got := read(t, m.CrashClone(loseAll), "/a"); got != "synced" {
		t.Fatalf("%q", got)
	}
	if got := read(t, m, "/a"); got != "SYNCED and more" {
		t.Fatalf("the crash clone disturbed the original: %q", got)
	}
	must(t, f.Truncate(2))
	if got := read(t, m.CrashClone(loseAll), "/a"); got != "synced" {
		t.Fatalf("an unsynced truncation was durable: %q", got)
	}
	must(t, f.Sync())
	if got := read(t, m.CrashClone(loseAll), "/a"); got != "SY" {
		t.Fatalf("%q", got)
	}
	if got := read(t, m.CrashClone(vfs.CrashConfig{KeepBlock: 1, KeepEntry: 1}), "/a"); got != "SY" {
		t.Fatalf("%q", got)
	}
}

// TestRenameIsWhole: after a crash the name holds old or new content, never
// neither, and a lost rename leaves the old name.
func TestRenameIsWhole(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(64) {
		m := vfs.NewMem()
		write(t, m, "/cp", "old")
		syncFile(t, m, "/cp")
		write(t, m, "/cp.tmp", "new")
		syncFile(t, m, "/cp.tmp")
		must(t, m.SyncDir("/"))
		must(t, m.Rename("/cp.tmp", "/cp"))
		c := m.CrashClone(vfs.CrashConfig{Seed: seed, KeepEntry: 0.5})
		state := fmt.Sprint(read(t, c, "/cp"), list(t, c, "/"))
		if state != "old[cp cp.tmp]" && state != "new[cp]" {
			t.Fatal(state)
		}
		seen[state] = true
	}
	if len(seen) != 2 {
		t.Fatal("64 seeds showed only", seen)
	}
}

func syncFile(t *testing.T, fsys vfs.FS, name string) {
	t.Helper()
	f, err := fsys.OpenReadWrite(name)
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
}

// TestRenameAcrossFolders: syncing the new folder makes the new name durable; the
// old name may come back, so the file has both, never none.
func TestRenameAcrossFolders(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("/from"))
	must(t, m.MkdirAll("/to"))
	must(t, m.SyncDir("/"))
	write(t, m, "/from/a", "x")
	syncFile(t, m, "/from/a")
	must(t, m.SyncDir("/from"))
	must(t, m.Rename("/from/a", "/to/a"))
	f := func(want string) {
		t.Helper()
		if got := m.CrashClone(loseAll).Dump(); got != want {
			t.Fatalf("%q, expected %q", got, want)
		}
	}
	f("from/\nfrom/a 1\nto/\n")
	must(t, m.SyncDir("/to"))
	f("from/\nfrom/a 1\nto/\nto/a 1\n")
	must(t, m.SyncDir("/from"))
	f("from/\nto/\nto/a 1\n")
}

// TestFolderMovesWhole: a folder never has two names, whichever parent is synced.
func TestFolderMovesWhole(t *testing.T) {
	for _, synced := range []string{"/from", "/to"} {
		m := vfs.NewMem()
		must(t, m.MkdirAll("/from/d"))
		must(t, m.MkdirAll("/to"))
		must(t, m.SyncDir("/"))
		must(t, m.SyncDir("/from"))
		must(t, m.Rename("/from/d", "/to/d"))
		must(t, m.SyncDir(synced))
		if got := m.CrashClone(loseAll).Dump(); got != "from/\nto/\nto/d/\n" {
			t.Fatalf("%q", got)
		}
	}
}

func TestRemoveNeedsSyncDir(t *testing.T) {
	m := vfs.NewMem()
	write(t, m, "/a", "x")
	syncFile(t, m, "/a")
	must(t, m.SyncDir("/"))
	must(t, m.Remove("/a"))
	if got := m.CrashClone(loseAll).Dump(); got != "a 1\n" {
		t.Fatalf("%q", got)
	}
	if got := m.CrashClone(vfs.CrashConfig{KeepEntry: 1}).Dump(); got != "" {
		t.Fatalf("%q", got)
	}
	must(t, m.SyncDir("/"))
	if got := m.CrashClone(loseAll).Dump(); got != "" {
		t.Fatalf("%q", got)
	}
}

// TestBlocksAreLostOneByOne: with a rate between 0 and 1 blocks survive on their
// own, lost ones read as what was synced before or as zeros, and a seed repeats.
func TestBlocksAreLostOneByOne(t *testing.T) {
	const blocks = 64
	m := vfs.NewMem()
	f := create(t, m, "/a", strings.Repeat("o", 8*vfs.BlockSize))
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	_, err := f.WriteAt(bytes.Repeat([]byte("n"), blocks*vfs.BlockSize), 0)
	must(t, err)
	sizes := map[int]bool{}
	kept, lost := 0, 0
	for seed := range uint64(40) {
		cfg := vfs.CrashConfig{Seed: seed, KeepBlock: 0.5}
		got := read(t, m.CrashClone(cfg), "/a")
		if got != read(t, m.CrashClone(cfg), "/a") {
			t.Fatal("one seed, two disks")
		}
		if len(got)%vfs.BlockSize != 0 || len(got) < 8*vfs.BlockSize || len(got) > blocks*vfs.BlockSize {
			t.Fatal("size", len(got))
		}
		sizes[len(got)] = true
		for b := 0; b*vfs.BlockSize < len(got); b++ {
			switch block := got[b*vfs.BlockSize : (b+1)*vfs.BlockSize]; {
			case block == strings.Repeat("n", vfs.BlockSize):
				kept++
			case b < 8 && block == strings.Repeat("o", vfs.BlockSize), b >= 8 && block == strings.Repeat("\x00", vfs.BlockSize):
				lost++
			default:
				t.Fatalf("block %d is torn", b)
			}
		}
	}
	if len(sizes) < 3 || kept < 100 || lost < 100 {
		t.Fatal("sizes", sizes, "kept", kept, "lost", lost)
	}
}

// TestTruncateThenExtend: bytes from before an unsynced cut can't come back
// inside what was written and synced after it.
func TestTruncateThenExtend(t *testing.T) {
	m := vfs.NewMem()
	f := create(t, m, "/a", strings.Repeat("o", 3*vfs.BlockSize))
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	must(t, f.Truncate(10))
	must(t, f.Truncate(3*vfs.BlockSize))
	must(t, f.Sync())
	want := strings.Repeat("o", 10) + strings.Repeat("\x00", 3*vfs.BlockSize-10)
	for _, c := range []vfs.CrashConfig{{}, {KeepBlock: 1}} {
		if got := read(t, m.CrashClone(c), "/a"); got != want {
			t.Fatalf("%q... of %d", got[:20], len(got))
		}
	}
}

// TestWriteAtomicSurvivesAnyCrash: at every moment the file is old or new, whole.
func TestWriteAtomicSurvivesAnyCrash(t *testing.T) {
	oldContent, newContent := strings.Repeat("o", 5000), strings.Repeat("n", 9000)
	for seed := range uint64(100) {
		m := vfs.NewMem()
		must(t, vfs.WriteAtomic(m, "/cp", []byte(oldContent)))
		c := &crashing{Mem: m, at: int(seed % 6), cfg: vfs.CrashConfig{Seed: seed, KeepBlock: 0.5, KeepEntry: 0.5}}
		err := vfs.WriteAtomic(c, "/cp", []byte(newContent))
		disk := c.disk
		if disk == nil {
			must(t, err)
			disk = m.CrashClone(c.cfg)
		}
		got := read(t, disk, "/cp")
		if got != oldContent && got != newContent || (c.disk == nil && got != newContent) {
			t.Fatalf("seed %d: %d bytes of neither", seed, len(got))
		}
	}
}

// crashing takes the disk's state before its at-th operation.
type crashing struct {
	*vfs.Mem
	at   int
	cfg  vfs.CrashConfig
	disk *vfs.Mem
}

func (c *crashing) tick() {
	if c.at == 0 {
		c.disk = c.CrashClone(c.cfg)
	}
	c.at--
}

func (c *crashing) Create(name string) (vfs.File, error) {
	c.tick()
	f, err := c.Mem.Create(name)
	return &crashingFile{f, c}, err
}
func (c *crashing) Rename(from, to string) error { c.tick(); return c.Mem.Rename(from, to) }
func (c *crashing) SyncDir(dir string) error     { c.tick(); return c.Mem.SyncDir(dir) }

type crashingFile struct {
	vfs.File
	c *crashing
}

func (f *crashingFile) WriteAt(b []byte, off int64) (int, error) {
	f.c.tick()
	return f.File.WriteAt(b, off)
}
func (f *crashingFile) Sync() error { f.c.tick(); return f.File.Sync() }

func TestCapacity(t *testing.T) {
	m := vfs.NewMem()
	m.SetCapacity(10)
	f := create(t, m, "/a", "12345678")
	if _, err := f.WriteAt([]byte("abc"), 8); !vfs.IsNoSpace(err) {
		t.Fatal(err)
	}
	if free, _ := m.FreeBytes("/"); free != 2 {
		t.Fatal(free)
	}
	must(t, m.Link("/a", "/b"))
	must(t, m.Remove("/a"))
	if free, _ := m.FreeBytes("/"); free != 2 {
		t.Fatal("a linked file's bytes were freed:", free)
	}
	must(t, m.Remove("/b"))
	if free, _ := m.CrashClone(vfs.CrashConfig{KeepEntry: 1}).FreeBytes("/"); free != 10 {
		t.Fatal(free)
	}
	if vfs.IsNoSpace(errors.New("x")) || !vfs.IsNoSpace(fmt.Errorf("w: %w", syscall.EDQUOT)) {
		t.Fatal("IsNoSpace")
	}
}

func TestClockAndLocksOfAClone(t *testing.T) {
	m := vfs.NewMem()
	m.SetClock(func() time.Time { return time.Unix(77, 0) })
	write(t, m, "/a", "x")
	if st, err := m.Stat("/a"); err != nil || st.ModTime.Unix() != 77 {
		t.Fatal(st, err)
	}
	_, err := m.Lock("/lock")
	must(t, err)
	after := m.CrashClone(vfs.CrashConfig{KeepEntry: 1})
	l, err := after.Lock("/lock")
	must(t, err)
	must(t, l.Close())
	if !slices.Equal(list(t, after, "/"), []string{"a", "lock"}) {
		t.Fatal(after.Dump())
	}
}
