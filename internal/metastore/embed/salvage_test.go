package embed_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/embed"
)

// damaged is a lone member's folder as a node left it, and what its store held.
type damaged struct {
	t   *testing.T
	o   embed.Options
	kvs []metastore.KV
}

// filledMember writes enough for the log to take more than one file.
func filledMember(t *testing.T) *damaged {
	d := &damaged{t: t, o: embed.Options{Dir: filepath.Join(t.TempDir(), "m"), Name: "node-1", UnsafeNoSync: true}}
	s := start(t, d.o)
	for i := range 14 {
		write(t, s.Store(), fmt.Sprintf("/k/%d", i%7), strings.Repeat(string(rune('a'+i)), 700<<10))
	}
	if _, err := metastore.Commit(within(t), s.Store(), meta.Plan{Why: "delete", Then: []meta.Op{meta.Delete("/k/3")}}); err != nil {
		t.Fatal(err)
	}
	var err error
	if d.kvs, _, err = s.Store().Range(context.Background(), "/"); err != nil || len(d.kvs) != 6 {
		t.Fatalf("%d keys, %v", len(d.kvs), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *damaged) member(name ...string) string {
	return filepath.Join(append([]string{d.o.Dir, "etcd", "member"}, name...)...)
}

func (d *damaged) walFiles() []string {
	files, err := filepath.Glob(d.member("wal", "*.wal"))
	if err != nil || len(files) < 2 {
		d.t.Fatalf("files of the log: %v, %v", files, err)
	}
	slices.Sort(files)
	return files
}

func (d *damaged) cut(path string, size int64) {
	d.t.Helper()
	if err := os.Truncate(path, size); err != nil {
		d.t.Fatal(err)
	}
}

func (d *damaged) remove(paths ...string) {
	d.t.Helper()
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			d.t.Fatal(err)
		}
	}
}

// TestDamagedLogs: whatever happens to a lone member's log, the member is refused
// with the ways out, and the database gives all that it had applied.
func TestDamagedLogs(t *testing.T) {
	f := func(name, words string, harm func(d *damaged)) {
		t.Run(name, func(t *testing.T) {
			d := filledMember(t)
			harm(d)
			s, err := embed.Start(within(t), d.o)
			if err == nil {
				s.Close()
				t.Fatal("it started")
			}
			for _, want := range []string{d.o.Dir, words, "--from-database", "--from-folders"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q doesn't say %q", err, want)
				}
			}
			// An etcd that ended while it started keeps its database locked as long as this process lives.
			copied := filepath.Join(t.TempDir(), "copied")
			if err := os.CopyFS(copied, os.DirFS(d.o.Dir)); err != nil {
				t.Fatal(err)
			}
			got, err := embed.Salvage(copied)
			if err != nil || !slices.EqualFunc(got.KVs, d.kvs, sameKV) || got.Revision < d.kvs[0].ModRevision || got.Applied == 0 {
				t.Fatalf("%d keys of %d at revision %d, entry %d, %v", len(got.KVs), len(d.kvs), got.Revision, got.Applied, err)
			}
			// What it gave starts in the damaged one's place, which is kept.
			moved, err := embed.Replace(within(t), d.o, put("/new", "1"))
			if err != nil || moved == "" {
				t.Fatalf("%q, %v", moved, err)
			}
			start(t, d.o)
		})
	}
	f("torn in an earlier file", "", func(d *damaged) { d.cut(d.walFiles()[0], 3<<20) })
	f("torn tail", "lost its end", func(d *damaged) {
		files := d.walFiles()
		d.cut(files[len(files)-1], 200)
	})
	f("the last file lost", "lost its end", func(d *damaged) { d.remove(d.walFiles()[1:]...) })
	f("the first file lost", "lacks a file", func(d *damaged) { d.remove(d.walFiles()[0]) })
	f("all files lost", "holds none", func(d *damaged) { d.remove(d.walFiles()...) })
	f("the log's folder lost", "holds none", func(d *damaged) { d.remove(d.member("wal")) })
	f("damaged in the midst", "", func(d *damaged) {
		damage(d.t, d.member("wal"), ".wal", 2<<20)
	})
}

func sameKV(a, b metastore.KV) bool {
	return a.Key == b.Key && string(a.Value) == string(b.Value) && a.ModRevision == b.ModRevision && a.CreateRevision == b.CreateRevision
}

// TestSalvageRefuses: a database that is gone, cut or damaged is an error, never a
// part of the truth, and a damaged page never ends the process.
func TestSalvageRefuses(t *testing.T) {
	d := filledMember(t)
	database := d.member("snap", "db")
	whole, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string) {
		t.Helper()
		if _, err := embed.Salvage(d.o.Dir); !errors.Is(err, embed.ErrNoDatabase) || !strings.Contains(err.Error(), d.o.Dir) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for page := 0; page < len(whole)/os.Getpagesize(); page += 1 + page/8 {
		harmed := slices.Clone(whole)
		for i := range os.Getpagesize() {
			harmed[page*os.Getpagesize()+i] = 0xa5
		}
		rewrite(t, database, harmed)
		// The first two pages are heads in turn: without the later one the commit before shows.
		if got, err := embed.Salvage(d.o.Dir); err == nil && len(got.KVs) != len(d.kvs) && page > 1 {
			t.Errorf("page %d: %d keys of %d", page, len(got.KVs), len(d.kvs))
		}
	}
	rewrite(t, database, whole[:len(whole)/8])
	refused("cut")
	rewrite(t, database, nil)
	refused("empty")
	d.remove(database)
	refused("gone")
	if _, err := os.Stat(database); err == nil {
		t.Error("looking made a database")
	}
	lone, err := embed.WasLone(d.o.Dir)
	if err != nil || !lone {
		t.Errorf("a lone member: %t, %v", lone, err)
	}
}

func rewrite(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
