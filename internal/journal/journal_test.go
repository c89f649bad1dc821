package journal

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"tidemark/internal/await"
	"tidemark/internal/vfs"
)

func TestMain(m *testing.M) { await.NoLeaks(m) }

func open(t *testing.T, o Options) (*Journal, []string) {
	t.Helper()
	j, lines, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	var texts []string
	for _, l := range lines {
		texts = append(texts, string(l))
	}
	return j, texts
}

func TestLinesOutliveARestart(t *testing.T) {
	o := Options{FS: vfs.NewMem(), Dir: "/d/events"}
	j, lines := open(t, o)
	if len(lines) != 0 {
		t.Fatalf("a new journal has %q", lines)
	}
	j.Append([]byte("one"))
	j.Append([]byte("two"))
	j.Close()
	j.Append([]byte("after the end"))
	j, lines = open(t, o)
	if !slices.Equal(lines, []string{"one", "two"}) {
		t.Fatalf("%q", lines)
	}
	j.Append([]byte("three"))
	j.Close()
	if _, lines = open(t, o); !slices.Equal(lines, []string{"one", "two", "three"}) {
		t.Fatalf("%q", lines)
	}
}

func TestOldFilesGo(t *testing.T) {
	o := Options{FS: vfs.NewMem(), Dir: "/d/events", FileBytes: 100, Files: 3}
	j, _ := open(t, o)
	for i := range 100 {
		j.Append(fmt.Appendf(nil, "line %03d", i))
	}
	j.Close()
	_, lines := open(t, o)
	if n := len(lines); n < 24 || n > 36 || lines[n-1] != "line 099" {
		t.Errorf("%d lines kept, the last is %q", len(lines), lines[len(lines)-1])
	}
	names, err := o.FS.List(o.Dir)
	if err != nil || len(names) != 3 {
		t.Errorf("files %q, %v", names, err)
	}
}

func TestTornLineIsDropped(t *testing.T) {
	o := Options{FS: vfs.NewMem(), Dir: "/d/events"}
	j, _ := open(t, o)
	j.Append([]byte("whole"))
	j.Close()
	f, err := o.FS.OpenReadWrite("/d/events/0000000001.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(`{"torn":`), 6); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	j, lines := open(t, o)
	if !slices.Equal(lines, []string{"whole"}) {
		t.Fatalf("%q", lines)
	}
	j.Append([]byte("next"))
	j.Close()
	if _, lines = open(t, o); !slices.Equal(lines, []string{"whole", "next"}) {
		t.Fatalf("%q", lines)
	}
}

// full is a file system on which nothing can be created while broken is set.
type full struct {
	vfs.FS
	broken bool
}

func (f *full) Create(name string) (vfs.File, error) {
	if f.broken {
		return nil, errors.New("no room")
	}
	return f.FS.Create(name)
}

// What can't be written costs its lines; those that come later are kept.
func TestDiskThatFails(t *testing.T) {
	fsys := &full{FS: vfs.NewMem(), broken: true}
	o := Options{FS: fsys, Dir: "/d/events"}
	j, _ := open(t, o)
	j.Append([]byte("lost"))
	j.Close()
	fsys.broken = false
	j, _ = open(t, o)
	j.Append([]byte("kept"))
	j.Close()
	if _, lines := open(t, o); !slices.Equal(lines, []string{"kept"}) {
		t.Fatalf("%q", lines)
	}
}
