package embed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/embed"
)

// capture is a log that remembers its lines by level.
type capture struct {
	slog.Handler
	mu    sync.Mutex // guards the following
	lines []string
}

func newCapture() *capture { return &capture{Handler: slog.DiscardHandler} }

func (c *capture) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (c *capture) Handle(_ context.Context, r slog.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	c.lines = append(c.lines, line)
	return nil
}

func (c *capture) WithAttrs([]slog.Attr) slog.Handler { return c }

func (c *capture) all() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.lines, "\n")
}

func write(t *testing.T, s metastore.Store, key, value string) {
	t.Helper()
	_, err := metastore.Commit(context.Background(), s, meta.Plan{Why: "write", Then: []meta.Op{meta.Put(key, []byte(value))}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRestartKeepsEverything starts the server three times on one folder.
func TestRestartKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	var last metastore.Revision
	for i := range 3 {
		log := newCapture()
		s := start(t, embed.Options{Dir: dir, Name: "node-1", Logger: slog.New(log)})
		kvs, revision, err := s.Store().Range(context.Background(), "/")
		if err != nil || len(kvs) != i || revision < last {
			t.Fatalf("start %d: %d keys at revision %d after %d, %v", i, len(kvs), revision, last, err)
		}
		write(t, s.Store(), "/k/"+string(rune('a'+i)), "x")
		_, last, _ = s.Store().Get(context.Background(), "/")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if lines := log.all(); lines != "" {
			t.Fatalf("start %d: the log isn't quiet:\n%s", i, lines)
		}
	}
}

// TestSmallFolder: a new folder must not take what etcd preallocates by default.
func TestSmallFolder(t *testing.T) {
	dir := t.TempDir()
	start(t, embed.Options{Dir: dir, Name: "node-1"})
	var total int64
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			info, infoErr := d.Info()
			total, err = total+info.Size(), infoErr
		}
		return err
	})
	if err != nil || total > 40<<20 {
		t.Fatalf("%d bytes, %v", total, err)
	}
	t.Logf("%d bytes in a new folder", total)
}

// TestNoPort: the server listens nowhere.
func TestNoPort(t *testing.T) {
	before := listeners(t)
	start(t, embed.Options{Dir: t.TempDir(), Name: "node-1"})
	if after := listeners(t); after != before {
		t.Fatalf("%d listening sockets, %d before", after, before)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if listeners(t) != before+1 {
		t.Fatal("the count of listening sockets counts nothing")
	}
}

// listeners counts the listening TCP and unix sockets among this process's descriptors.
func listeners(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	own := make(map[string]bool)
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(target, "socket:[") {
			own[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
		}
	}
	count := 0
	for _, table := range []struct {
		file         string
		state, inode int
		listening    string
	}{{"/proc/self/net/tcp", 3, 9, "0A"}, {"/proc/self/net/tcp6", 3, 9, "0A"}, {"/proc/self/net/unix", 3, 6, "00010000"}} {
		data, err := os.ReadFile(table.file)
		if err != nil {
			continue // a kernel without IPv6
		}
		for _, line := range strings.Split(string(data), "\n")[1:] {
			f := strings.Fields(line)
			if len(f) > table.inode && f[table.state] == table.listening && own[f[table.inode]] {
				count++
			}
		}
	}
	return count
}

// TestRefusedFolders: each folder that can't be used is refused by its name, with the way out.
func TestRefusedFolders(t *testing.T) {
	f := func(name string, want error, words string, prepare func(t *testing.T, dir string) (use string)) {
		t.Run(name, func(t *testing.T) {
			dir := prepare(t, t.TempDir())
			s, err := embed.Start(context.Background(), embed.Options{Dir: dir, Name: "node-1"})
			if err == nil {
				s.Close()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), words) || want != nil && !errors.Is(err, want) {
				t.Fatalf("error %q, want one that names %s, says %q and matches %v", err, dir, words, want)
			}
		})
	}
	f("in use", embed.ErrInUse, "process id", func(t *testing.T, dir string) string {
		start(t, embed.Options{Dir: dir, Name: "node-1"})
		return dir
	})
	f("other node's", embed.ErrOtherNode, `made by "node-2"`, func(t *testing.T, dir string) string {
		if err := start(t, embed.Options{Dir: dir, Name: "node-2"}).Close(); err != nil {
			t.Fatal(err)
		}
		return dir
	})
	f("a file", nil, "not a folder", func(t *testing.T, dir string) string {
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	})
	f("below a file", nil, "not a folder", func(t *testing.T, dir string) string {
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(path, "meta")
	})
	f("damaged log", nil, "restore it from a backup", func(t *testing.T, dir string) string {
		s := start(t, embed.Options{Dir: dir, Name: "node-1"})
		write(t, s.Store(), "/a", strings.Repeat("x", 1000))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		damage(t, filepath.Join(dir, "etcd", "member", "wal"), ".wal", 700)
		return dir
	})
	f("cut log", nil, "tidemark cluster restore", func(t *testing.T, dir string) string {
		s := start(t, embed.Options{Dir: dir, Name: "node-1"})
		for i := range 50 {
			write(t, s.Store(), fmt.Sprintf("/k/%d", i), strings.Repeat("x", 1000))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "etcd", "member", "wal", "*.wal"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%v, %v", files, err)
		}
		if err := os.Truncate(files[len(files)-1], 20000); err != nil {
			t.Fatal(err)
		}
		return dir
	})
	emptied := func(t *testing.T, dir string, size int64) string {
		s := start(t, embed.Options{Dir: dir, Name: "node-1"})
		write(t, s.Store(), "/a", "x")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "etcd", "member", "wal", "*.wal"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%v, %v", files, err)
		}
		for _, file := range files {
			if err := os.Truncate(file, size); err != nil {
				t.Fatal(err)
			}
			if size > 0 {
				if err := os.WriteFile(file, make([]byte, size), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		return dir
	}
	f("emptied log", nil, "holds nothing", func(t *testing.T, dir string) string { return emptied(t, dir, 0) })
	f("log of zeros", nil, "holds nothing", func(t *testing.T, dir string) string { return emptied(t, dir, 8<<20) })
	f("emptied log beside no database", nil, "holds nothing", func(t *testing.T, dir string) string {
		emptied(t, dir, 0)
		if err := os.RemoveAll(filepath.Join(dir, "etcd", "member", "snap")); err != nil {
			t.Fatal(err)
		}
		return dir
	})
	f("damaged database", nil, "restore it from a backup", func(t *testing.T, dir string) string {
		s := start(t, embed.Options{Dir: dir, Name: "node-1"})
		write(t, s.Store(), "/a", "x")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		damage(t, filepath.Join(dir, "etcd", "member", "snap"), "db", 0)
		return dir
	})
}

// damage overwrites bytes of the first file whose name ends so.
func damage(t *testing.T, dir, suffix string, at int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, e.Name()), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte(strings.Repeat("\xa5", 8192)), at); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no %s in %s", suffix, dir)
}

// TestUnreadableFolder runs as nobody where the tests run as root, for whom nothing is unreadable.
func TestUnreadableFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "meta")
	if err := os.Mkdir(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("TIDEMARK_TEST_FOLDER") != "" {
		dir = os.Getenv("TIDEMARK_TEST_FOLDER")
	} else if os.Getuid() == 0 {
		runAsNobody(t, dir)
		return
	}
	_, err := embed.Start(context.Background(), embed.Options{Dir: dir, Name: "node-1"})
	if err == nil || !strings.Contains(err.Error(), "start as its owner") || !errors.Is(err, os.ErrPermission) {
		t.Fatalf("error %v, want one about permissions", err)
	}
}

func runAsNobody(t *testing.T, dir string) {
	t.Helper()
	for parent := dir; parent != "/" && parent != "."; parent = filepath.Dir(parent) {
		if info, err := os.Stat(parent); err == nil && info.Mode().Perm()&0o005 == 0 && parent != dir {
			if err := os.Chmod(parent, info.Mode().Perm()|0o005); err != nil {
				t.Fatal(err)
			}
		}
	}
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(filepath.Dir(dir), "embed.test")
	if err := os.WriteFile(exe, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestUnreadableFolder$", "-test.v")
	cmd.Dir = filepath.Dir(dir)
	cmd.Env = append(os.Environ(), "TIDEMARK_TEST_FOLDER="+dir, "TMPDIR=/tmp")
	cmd.SysProcAttr = nobody()
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestUnreadableFolder") {
		t.Fatalf("as nobody: %v\n%s", err, out)
	}
}

// BenchmarkStart measures from nothing, and from an existing folder, to the first answer.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		s, err := embed.Start(context.Background(), embed.Options{Dir: dir, Name: "node-1"})
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := s.Store().Get(context.Background(), "/"); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
