package embed_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/embed"
)

func put(key, value string) func(context.Context, metastore.Store) error {
	return func(ctx context.Context, s metastore.Store) error {
		_, err := metastore.Commit(ctx, s, meta.Plan{Why: "put", If: []meta.Compare{meta.Absent(key)}, Then: []meta.Op{meta.Put(key, []byte(value))}})
		return err
	}
}

// TestReplace: new metadata takes the place of what is there, of nothing, and of
// a member of several; what was there is kept, and a member from before never mixes with what comes after.
func TestReplace(t *testing.T) {
	g := newGrown(t)
	empty := embed.Options{Dir: filepath.Join(t.TempDir(), "m"), Name: "new", UnsafeNoSync: true}
	if moved, err := embed.Replace(within(t), empty, put("/r", "1")); err != nil || moved != "" {
		t.Fatalf("an empty folder: %q, %v", moved, err)
	}
	g.dirs["new"] = empty.Dir
	g.start("new", "")
	g.want("new", "/r", "1")
	if _, err := embed.Replace(within(t), empty, put("/r", "2")); !errors.Is(err, embed.ErrInUse) {
		t.Errorf("a node that runs: %v", err)
	}

	g.start("a", "")
	g.start("b", "a")
	g.voters("a", 2)
	g.put("b", "/old", "1")
	g.stop("a")
	o := embed.Options{Dir: g.dirs["a"], Name: "a", UnsafeNoSync: true}
	if _, err := embed.Replace(within(t), o, put("/r", "1")); err == nil || !strings.Contains(err.Error(), "stop all nodes first") {
		t.Errorf("while another member answers: %v", err)
	}
	g.stop("b")
	if _, err := embed.Replace(within(t), o, func(context.Context, metastore.Store) error { return errors.New("no") }); err == nil {
		t.Error("a fill that failed")
	}
	moved, err := embed.Replace(within(t), o, put("/r", "1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "member.json"} {
		if _, err := os.Stat(filepath.Join(moved, name)); err != nil {
			t.Errorf("what was there before isn't kept: %v", err)
		}
	}
	g.start("a", "")
	g.want("a", "/r", "1")
	g.want("a", "/old", "")
	g.dirs["b"] = filepath.Join(t.TempDir(), "again")
	g.start("b", "a")
	g.voters("a", 2)
	g.want("b", "/r", "1")
}

// TestHalfRestored: a folder between two states starts nothing.
func TestHalfRestored(t *testing.T) {
	o := embed.Options{Dir: filepath.Join(t.TempDir(), "m"), Name: "a", UnsafeNoSync: true}
	if err := os.MkdirAll(filepath.Join(o.Dir, "restoring"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := embed.Start(within(t), o); err == nil || !strings.Contains(err.Error(), "run tidemark cluster restore again") {
		t.Fatalf("%v", err)
	}
	if _, err := embed.Replace(within(t), o, put("/r", "1")); err != nil {
		t.Fatal(err)
	}
	s := start(t, o)
	if kv, _, err := s.Store().Get(within(t), "/r"); err != nil || string(kv.Value) != "1" {
		t.Fatalf("%q, %v", kv.Value, err)
	}
}

// TestEdit changes a lone member's metadata, and no other's.
func TestEdit(t *testing.T) {
	o := embed.Options{Dir: filepath.Join(t.TempDir(), "m"), Name: "a", UnsafeNoSync: true}
	if err := embed.Edit(within(t), o, put("/e", "1")); err == nil || !strings.Contains(err.Error(), "no metadata member") {
		t.Errorf("an empty folder: %v", err)
	}
	if err := start(t, o).Close(); err != nil {
		t.Fatal(err)
	}
	if err := embed.Edit(within(t), o, put("/e", "1")); err != nil {
		t.Fatal(err)
	}
	g := newGrown(t)
	g.dirs["a"] = o.Dir
	g.start("a", "")
	g.want("a", "/e", "1")
	g.start("b", "a")
	g.voters("a", 2)
	g.stop("b")
	g.stop("a")
	if err := embed.Edit(within(t), o, put("/e2", "1")); err == nil || !strings.Contains(err.Error(), "tidemark cluster reset") {
		t.Errorf("one of several: %v", err)
	}
}
