package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
)

// each runs a test on every file system. root is an empty folder.
func each(t *testing.T, f func(t *testing.T, fsys vfs.FS, root string)) {
	t.Run("os", func(t *testing.T) { f(t, vfs.OS(), t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		m := vfs.NewMem()
		must(t, m.MkdirAll("/root"))
		f(t, m, "/root")
	})
	t.Run("fault", func(t *testing.T) { f(t, faultfs.New(vfs.OS()), t.TempDir()) })
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, fsys vfs.FS, name, content string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	if content != "" {
		_, err = f.WriteAt([]byte(content), 0)
		must(t, err)
	}
	return f
}

func write(t testing.TB, fsys vfs.FS, name, content string) {
	t.Helper()
	must(t, create(t, fsys, name, content).Close())
}

func read(t testing.TB, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name, 1<<20)
	must(t, err)
	return string(b)
}

func list(t testing.TB, fsys vfs.FS, dir string) []string {
	t.Helper()
	names, err := fsys.List(dir)
	must(t, err)
	return names
}

func TestFileAccess(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, root string) {
		name := root + "/a"
		f := create(t, fsys, name, "hello world")
		if f.Name() != name {
			t.Fatal(f.Name())
		}
		b := make([]byte, 5)
		if n, err := f.ReadAt(b, 6); n != 5 || err != nil || string(b) != "world" {
			t.Fatal(n, err, b)
		}
		if n, err := f.ReadAt(b, 8); n != 3 || err != io.EOF {
			t.Fatal(n, err)
		}
		if n, err := f.ReadAt(b, 11); n != 0 || err != io.EOF {
			t.Fatal(n, err)
		}
		if _, err := f.ReadAt(b, -1); err == nil {
			t.Fatal("negative offset read")
		}
		_, err := f.WriteAt([]byte("!"), 14)
		must(t, err)
		must(t, f.Truncate(16))
		must(t, f.Sync())
		must(t, f.SyncData())
		if size, err := f.Size(); size != 16 || err != nil {
			t.Fatal(size, err)
		}
		if got := read(t, fsys, name); got != "hello world\x00\x00\x00!\x00" {
			t.Fatalf("%q", got)
		}
		must(t, f.Truncate(5))
		must(t, f.Truncate(7))
		if got := read(t, fsys, name); got != "hello\x00\x00" {
			t.Fatalf("%q", got)
		}
		must(t, f.Preallocate(7, 1<<16))
		if size, _ := f.Size(); size != 7 {
			t.Fatal("preallocation changed the size to", size)
		}
		if err := f.Truncate(-1); err == nil {
			t.Fatal("negative size")
		}
		must(t, f.Close())
		if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(b, 0); !errors.Is(err, fs.ErrClosed) {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(b, 0); !errors.Is(err, fs.ErrClosed) {
			t.Fatal(err)
		}
	})
}

func TestOpenModes(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, root string) {
		name := root + "/a"
		if _, err := fsys.Open(name); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		f, err := fsys.OpenReadWrite(name)
		must(t, err)
		_, err = f.WriteAt([]byte("kept"), 0)
		must(t, err)
		must(t, f.Close())
		f, err = fsys.OpenReadWrite(name)
		must(t, err)
		must(t, f.Close())
		if got := read(t, fsys, name); got != "kept" {
			t.Fatalf("%q", got)
		}
		f, err = fsys.Open(name)
		must(t, err)
		if _, err := f.WriteAt([]byte("x"), 0); err == nil {
			t.Fatal("wrote through a reading handle")
		}
		must(t, f.Close())
		write(t, fsys, name, "")
		if got := read(t, fsys, name); got != "" {
			t.Fatalf("Create kept %q", got)
		}
		if _, err := fsys.Create(root + "/no/such"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if _, err := fsys.Create(root); err == nil {
			t.Fatal("created over a folder")
		}
	})
}

func TestTree(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, root string) {
		must(t, fsys.MkdirAll(root+"/x/y"))
		must(t, fsys.MkdirAll(root+"/x/y"))
		write(t, fsys, root+"/x/b", "b")
		write(t, fsys, root+"/x/a", "aa")
		if got := list(t, fsys, root+"/x"); !slices.Equal(got, []string{"a", "b", "y"}) {
			t.Fatal(got)
		}
		st, err := fsys.Stat(root + "/x/a")
		if err != nil || st.Size != 2 || st.IsDir {
			t.Fatal(st, err)
		}
		if st, err := fsys.Stat(root + "/x/y"); err != nil || !st.IsDir {
			t.Fatal(st, err)
		}
		if _, err := fsys.Stat(root + "/x/none"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		must(t, fsys.Rename(root+"/x/a", root+"/x/y/moved"))
		must(t, fsys.Rename(root+"/x/b", root+"/x/y/moved"))
		if got := read(t, fsys, root+"/x/y/moved"); got != "b" {
			t.Fatal(got)
		}
		if err := fsys.Rename(root+"/x/none", root+"/x/c"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		must(t, fsys.Rename(root+"/x/y", root+"/x/z"))
		if got := list(t, fsys, root+"/x/z"); !slices.Equal(got, []string{"moved"}) {
			t.Fatal(got)
		}
		if err := fsys.Remove(root + "/x"); err == nil {
			t.Fatal("removed a folder that isn't empty")
		}
		must(t, fsys.Remove(root+"/x/z/moved"))
		must(t, fsys.Remove(root+"/x/z"))
		if err := fsys.Remove(root + "/x/z"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		write(t, fsys, root+"/x/deep", "d")
		must(t, fsys.RemoveAll(root+"/x"))
		must(t, fsys.RemoveAll(root+"/x"))
		must(t, fsys.SyncDir(root))
		if got := list(t, fsys, root); len(got) != 0 {
			t.Fatal(got)
		}
		if _, err := fsys.List(root + "/x"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := fsys.SyncDir(root + "/x"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	})
}

func TestLinkAndOpenHandles(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, root string) {
		f := create(t, fsys, root+"/a", "one")
		must(t, fsys.Link(root+"/a", root+"/b"))
		if err := fsys.Link(root+"/a", root+"/b"); !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
		if err := fsys.Link(root+"/none", root+"/c"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		links := func(want int) {
			t.Helper()
			if st, err := fsys.Stat(root + "/b"); err != nil || st.Links != want {
				t.Fatal(st, err)
			}
		}
		links(2)
		must(t, fsys.Remove(root+"/a"))
		links(1)
		_, err := f.WriteAt([]byte("two"), 0)
		must(t, err)
		if got := read(t, fsys, root+"/b"); got != "two" {
			t.Fatal(got)
		}
		must(t, fsys.Remove(root+"/b"))
		b := make([]byte, 3)
		if _, err := f.ReadAt(b, 0); err != nil || string(b) != "two" {
			t.Fatal("a removed file's bytes left an open handle:", err)
		}
		must(t, f.Sync())
		must(t, f.Close())
	})
}

func TestLockExcludes(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, root string) {
		held, err := fsys.Lock(root + "/.lock")
		must(t, err)
		if _, err := fsys.Lock(root + "/.lock"); !errors.Is(err, vfs.ErrLocked) {
			t.Fatal(err)
		}
		must(t, held.Close())
		again, err := fsys.Lock(root + "/.lock")
		must(t, err)
		must(t, again.Close())
	})
}

func TestWriteAtomicReplaces(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, root string) {
		must(t, vfs.WriteAtomic(fsys, root+"/cp", []byte("old")))
		must(t, vfs.WriteAtomic(fsys, root+"/cp", []byte("new content")))
		if got := read(t, fsys, root+"/cp"); got != "new content" {
			t.Fatal(got)
		}
		if got := list(t, fsys, root); !slices.Equal(got, []string{"cp"}) {
			t.Fatal(got)
		}
		if _, err := vfs.ReadFile(fsys, root+"/cp", 3); err == nil {
			t.Fatal("read more than the limit")
		}
		if n, err := fsys.FreeBytes(root); err != nil || n <= 0 {
			t.Fatal(n, err)
		}
	})
}

// TestMemBehavesAsOS runs the same random operations on both and compares every
// result and, at the end, every byte.
func TestMemBehavesAsOS(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "run")
		must(t, err)
		mem := vfs.NewMem()
		must(t, mem.MkdirAll(dir))
		pair := [2]vfs.FS{vfs.OS(), mem}
		names := rapid.SampledFrom([]string{"a", "b", "d/a", "d/e/a", "d", "d/e"})
		both := func(what string, op func(vfs.FS) (string, error)) {
			gotOS, errOS := op(pair[0])
			gotMem, errMem := op(pair[1])
			if gotOS != gotMem || (errOS == nil) != (errMem == nil) || errors.Is(errOS, fs.ErrNotExist) != errors.Is(errMem, fs.ErrNotExist) || errors.Is(errOS, fs.ErrExist) != errors.Is(errMem, fs.ErrExist) {
				rt.Fatalf("%s: os %q %v, mem %q %v", what, gotOS, errOS, gotMem, errMem)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(rt *rapid.T) {
				name, off := names.Draw(rt, "name"), rapid.Int64Range(0, 9000).Draw(rt, "off")
				data := bytes.Repeat([]byte{rapid.Byte().Draw(rt, "byte")}, rapid.IntRange(0, 5000).Draw(rt, "n"))
				both("write "+name, func(f vfs.FS) (string, error) {
					return edit(f, dir+"/"+name, func(h vfs.File) error { _, err := h.WriteAt(data, off); return err })
				})
			},
			"truncate": func(rt *rapid.T) {
				name, size := names.Draw(rt, "name"), rapid.Int64Range(0, 9000).Draw(rt, "size")
				both("truncate "+name, func(f vfs.FS) (string, error) {
					return edit(f, dir+"/"+name, func(h vfs.File) error { return h.Truncate(size) })
				})
			},
			"create": func(rt *rapid.T) {
				name := names.Draw(rt, "name")
				both("create "+name, func(f vfs.FS) (string, error) {
					h, err := f.Create(dir + "/" + name)
					if err != nil {
						return "", err
					}
					return "", h.Close()
				})
			},
			"tree": func(rt *rapid.T) {
				from, to := dir+"/"+names.Draw(rt, "from"), dir+"/"+names.Draw(rt, "to")
				ops := map[string]func(vfs.FS) error{
					"mkdir":     func(f vfs.FS) error { return f.MkdirAll(from) },
					"remove":    func(f vfs.FS) error { return f.Remove(from) },
					"removeall": func(f vfs.FS) error { return f.RemoveAll(from) },
					"rename":    func(f vfs.FS) error { return f.Rename(from, to) },
					"link":      func(f vfs.FS) error { return f.Link(from, to) },
					"syncdir":   func(f vfs.FS) error { return f.SyncDir(filepath.Dir(from)) },
				}
				op := rapid.SampledFrom([]string{"mkdir", "remove", "removeall", "rename", "link", "syncdir"}).Draw(rt, "op")
				both(fmt.Sprint(op, " ", from, " ", to), func(f vfs.FS) (string, error) { return "", ops[op](f) })
			},
			"": func(rt *rapid.T) { both("tree", func(f vfs.FS) (string, error) { return snapshot(f, dir) }) },
		})
	})
}

func edit(fsys vfs.FS, name string, do func(vfs.File) error) (string, error) {
	f, err := fsys.OpenReadWrite(name)
	if err != nil {
		return "", err
	}
	if err := do(f); err != nil {
		return "", errors.Join(err, f.Close())
	}
	size, err := f.Size()
	return fmt.Sprint(size), errors.Join(err, f.Close())
}

// snapshot prints names and contents of a tree.
func snapshot(fsys vfs.FS, dir string) (string, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return "", err
	}
	out := ""
	for _, name := range names {
		st, err := fsys.Stat(dir + "/" + name)
		if err != nil {
			return "", err
		}
		if st.IsDir {
			below, err := snapshot(fsys, dir+"/"+name)
			if err != nil {
				return "", err
			}
			out += name + "/{" + below + "}"
			continue
		}
		b, err := vfs.ReadFile(fsys, dir+"/"+name, 1<<20)
		if err != nil {
			return "", err
		}
		out += fmt.Sprintf("%s=%x;", name, b)
	}
	return out, nil
}
