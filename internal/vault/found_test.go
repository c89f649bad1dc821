package vault

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"tidemark/internal/log"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
)

// An entry that a killed process left may be in the page cache alone. The cut that
// finds it goes on as if it were durable, so it must be by then.

// kill runs do on a disk whose n-th changing operation and all later ones fail:
// what a process killed there leaves behind. It reports whether do came that far.
func kill(m *vfs.Mem, n int, do func(vfs.FS)) bool {
	f := faultfs.New(m)
	i := f.Inject(faultfs.Rule{Kinds: faultfs.Mutating, Skip: n})
	do(f)
	return i.Fired() > 0
}

// carryOut does to the log's segments what the cut does once its removal is kept,
// with another history written into the segment that is truncated, and syncs it.
func carryOut(t *testing.T, m *vfs.Mem, r *log.Removal) {
	t.Helper()
	for i := range r.Ranges {
		g := &r.Ranges[i]
		if g.Whole {
			must(t, m.Remove(g.Path))
			continue
		}
		f, err := m.OpenReadWrite(g.Path)
		must(t, err)
		must(t, f.Truncate(g.Pos))
		_, err = f.WriteAt(bytes.Repeat([]byte("other"), 400), g.Pos)
		must(t, err)
		must(t, f.Sync())
		must(t, f.Close())
	}
	must(t, m.SyncDir(logDir))
}

// repeatedCuts are what a process that comes back may cut: all of it, what an
// earlier crash left, or the last segment in place, which its first process linked.
var repeatedCuts = map[string]func(*log.Removal){
	"whole":           func(*log.Removal) {},
	"segments gone":   func(r *log.Removal) { r.To, r.Ranges = 24, r.Ranges[:1] },
	"tail gone":       func(r *log.Removal) { r.From, r.Ranges = 24, r.Ranges[1:] },
	"segment emptied": func(r *log.Removal) { r.Ranges[1].Whole = false },
}

// cutAgain repeats the cut in a new process, carries it out and loses power: the
// vault still has every byte that went.
func cutAgain(t *testing.T, m *vfs.Mem, data [][]byte, at int, change func(*log.Removal)) {
	t.Helper()
	v := openVault(t, options(m))
	r := removal(t, m, data)
	change(&r)
	id, err := v.Keep(r)
	must(t, err)
	carryOut(t, m, &r)
	after := openVault(t, options(m.CrashClone(vfs.CrashConfig{})))
	all := removed(data)
	half := len(data[1]) - len(data[1])/2
	want := map[int64][]byte{18: all, 24: all[half:]}[int64(r.From)]
	if r.To == 24 {
		want = all[:half]
	}
	if _, err := after.Show(id); err != nil {
		t.Fatalf("killed before operation %d: the entry that the cut relied on went with the power: %v", at, err)
	}
	if got := exportBytes(t, after, id); !bytes.Contains(got, want) {
		t.Fatalf("killed before operation %d: entry %s has other bytes than what was cut", at, id)
	}
}

// TestFoundAfterAKillInKeep kills the process before each operation of a Keep.
func TestFoundAfterAKillInKeep(t *testing.T) {
	for name, change := range repeatedCuts {
		t.Run(name, func(t *testing.T) {
			for at := 0; ; at++ {
				m := vfs.NewMem()
				data := segmentsSynced(t, m, 1)
				must(t, m.MkdirAll(dir))
				must(t, m.SyncDir("/logs"))
				killed := kill(m, at, func(fsys vfs.FS) {
					v, err := Open(options(fsys))
					if err == nil {
						_, _ = v.Keep(removal(t, fsys, data))
					}
				})
				cutAgain(t, m, data, at, change)
				if !killed {
					break
				}
			}
		})
	}
}

// TestFoundAfterAKillInOpen kills the process that gives an entry, whose cut was not
// carried out, files of its own instead of the log's.
func TestFoundAfterAKillInOpen(t *testing.T) {
	for name, change := range repeatedCuts {
		t.Run(name, func(t *testing.T) {
			for at := 0; ; at++ {
				m := vfs.NewMem()
				data := segmentsSynced(t, m, 1)
				_, err := openVault(t, options(m)).Keep(removal(t, m, data))
				must(t, err)
				killed := kill(m, at, func(fsys vfs.FS) { _, _ = Open(options(fsys)) })
				cutAgain(t, m, data, at, change)
				if !killed {
					break
				}
			}
		})
	}
}

// TestFoundIsSyncedOnce: an entry costs its syncs at the first cut that finds it; one
// whose syncs fail is not relied on, and the next try of this process is no proof.
func TestFoundIsSyncedOnce(t *testing.T) {
	m := vfs.NewMem()
	data := segments(t, m)
	id, err := openVault(t, options(m)).Keep(removal(t, m, data))
	must(t, err)
	f := faultfs.New(m)
	v := openVault(t, options(f))
	i := f.Inject(faultfs.Rule{Kinds: faultfs.Sync | faultfs.SyncDir, Times: 1})
	if got, err := v.Keep(removal(t, f, data)); err == nil || got != "" {
		t.Fatalf("%q, %v for an entry that can't be synced", got, err)
	}
	i.Remove()
	if _, err := v.Keep(removal(t, f, data)); !errors.Is(err, ErrOffline) {
		t.Fatalf("the next try: %v", err)
	}
	v = openVault(t, options(f))
	for range 2 {
		got, err := v.Keep(removal(t, f, data))
		if err != nil || got != id {
			t.Fatal(got, err)
		}
		f.Inject(faultfs.Rule{Kinds: faultfs.Mutating, Err: errors.New("synced again")})
	}
	all, err := v.List()
	if must(t, err); len(all) != 1 || !slices.Equal(exportBytes(t, v, id), removed(data)) {
		t.Fatalf("%+v", all)
	}
}
