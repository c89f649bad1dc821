// Package internal_test holds the tests of the project's shape: which package may import which, and how long files and functions may be.
package internal_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// edges is the allowed dependency direction: each package (or tree, ending in
// /...) may import the listed packages of this module and no others. A package
// that isn't listed fails the test: give it a place first.
var edges = map[string][]string{
	"cmd/tidemark/...": {"internal/..."},

	"internal/broker/api/...":         {"internal/wire", "internal/log", "internal/batch", "internal/config", "internal/telemetry", "internal/core/...", "internal/net", "internal/vfs", "internal/assert", "internal/clock", "internal/probe"},
	"internal/broker/coordinator/...": {"internal/broker/coordinator/...", "internal/broker/api", "internal/broker/ids", "internal/wire", "internal/log", "internal/batch", "internal/telemetry", "internal/core/...", "internal/config", "internal/vfs", "internal/assert", "internal/clock", "internal/probe"},
	"internal/broker/controller/...":  {"internal/metastore", "internal/core/...", "internal/assert", "internal/clock", "internal/probe"},
	"internal/broker/follow/...":      {"internal/clock", "internal/source", "internal/batch", "internal/core/...", "internal/assert", "internal/probe"},
	"internal/broker/ids":             {"internal/core/types"},
	"internal/broker/mirror/...":      {"internal/clock", "internal/broker/ids", "internal/source", "internal/broker/coordinator/...", "internal/log", "internal/batch", "internal/vault", "internal/metastore", "internal/core/...", "internal/config", "internal/telemetry", "internal/broker/api", "internal/wire", "internal/vfs", "internal/assert"},
	"internal/broker":                 {"internal/..."},
	"internal/sim/...":                {"internal/sim/...", "internal/core/...", "internal/log", "internal/batch", "internal/vfs", "internal/vfs/...", "internal/vault", "internal/metastore", "internal/metastore/mem", "internal/metastore/backup", "internal/broker", "internal/broker/...", "internal/config", "internal/telemetry", "internal/wire", "internal/assert", "internal/clock", "internal/source", "internal/probe"},
	"internal/console/...":            {"internal/..."},
	"internal/demo/...":               {"internal/..."},
	"internal/cli/...":                {"internal/..."},
	"internal/compare/...":            {"internal/batch", "internal/core/types"},
	"internal/history/...":            {"internal/log", "internal/batch", "internal/vfs", "internal/core/types"},

	"internal/auth/...":      {"internal/wire"},
	"internal/net/...":       {"internal/wire", "internal/vfs", "internal/telemetry", "internal/core/types", "internal/assert"},
	"internal/wire/...":      {"internal/vfs", "internal/core/errcode", "internal/core/types", "internal/assert"},
	"internal/source/...":    {"internal/wire", "internal/batch", "internal/config", "internal/core/errcode", "internal/core/types", "internal/assert", "internal/probe"},
	"internal/config/...":    {"internal/log", "internal/core/types"},
	"internal/telemetry/...": {"internal/core/types"},
	"internal/metastore/...": {"internal/clock", "internal/metastore", "internal/metastore/...", "internal/core/...", "internal/assert"},
	"internal/vault/...":     {"internal/vfs", "internal/vfs/...", "internal/batch", "internal/log", "internal/core/...", "internal/assert"},
	"internal/log/...":       {"internal/vfs", "internal/vfs/...", "internal/batch", "internal/core/epoch", "internal/core/txn", "internal/core/types", "internal/assert", "internal/probe"},
	"internal/batch/...":     {"internal/core/types", "internal/assert"},
	"internal/vfs/...":       {"internal/vfs", "internal/assert"},
	"internal/vectors/...":   {},
	"internal/journal/...":   {"internal/vfs"},
	"internal/replay/...":    {"internal/vault", "internal/batch", "internal/core/..."},
	"internal/await":         {},
	"internal/assert":        {},
	"internal/assert/...":    {"internal/assert"},
	"internal/clock":         {},
	"internal/probe":         {},
	"internal/core/...":      {"internal/core/...", "internal/assert", "internal/probe"},

	"test/...": {"internal/...", "test/..."},
}

// pureStd is all that internal/core may import of the standard library: no
// clock, network, file, goroutine or randomness can be reached from it.
var pureStd = []string{
	"bytes", "cmp", "crypto/sha256", "encoding/base64", "encoding/binary", "encoding/hex", "encoding/json", "errors",
	"fmt", "hash/crc32", "hash/fnv", "iter", "maps", "math", "math/bits", "regexp", "slices", "sort", "strconv", "strings", "unicode", "unicode/utf8",
}

// reserved names the few packages that may import a heavy or telling dependency (test files aside).
var reserved = map[string][]string{
	"go.etcd.io/etcd/server/": {"internal/metastore/embed"},
	"go.etcd.io/etcd/client/": {"internal/metastore/etcd", "internal/metastore/embed"},
	"github.com/twmb/franz-go/pkg/kmsg": {
		"internal/wire", "internal/source", "internal/broker/api", "internal/broker/coordinator", "internal/broker/coordinator/transactions", "internal/compare", "internal/sim",
	},
	"github.com/twmb/franz-go/pkg/kgo":  {"internal/cli", "internal/replay", "internal/compare", "internal/demo"},
	"github.com/twmb/franz-go/pkg/kadm": {"internal/cli", "internal/replay", "internal/demo"},
	"github.com/IBM/sarama":             {},
	// A simulated node draws from its seed alone (I-161): the system's randomness is given to a node by package ids.
	"crypto/rand": {"internal/broker/ids", "internal/log", "internal/auth", "internal/metastore/embed", "internal/metastore/storetest"},
}

type goPackage struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Standard", "tidemark/...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatal(err)
	}
	var pkgs []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func matches(pattern, path string) bool {
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == tree || strings.HasPrefix(path, tree+"/")
	}
	return path == pattern
}

// allowedFor finds the longest entry of edges that covers path.
func allowedFor(path string) ([]string, bool) {
	best, found := "", false
	for pattern := range edges {
		if matches(pattern, path) && (!found || len(pattern) > len(best)) {
			best, found = pattern, true
		}
	}
	return edges[best], found
}

// edgeFault says what is wrong with from importing to, or "".
func edgeFault(from, to string) string {
	if dep, ours := strings.CutPrefix(to, "tidemark/"); ours {
		allowed, known := allowedFor(from)
		if !known {
			return "has no place in the table of allowed edges"
		}
		if !slices.ContainsFunc(allowed, func(p string) bool { return matches(p, dep) }) {
			return "must not import " + dep
		}
		return ""
	}
	for prefix, owners := range reserved {
		if strings.HasPrefix(to, prefix) && !slices.Contains(owners, from) && !strings.HasPrefix(from, "test/") {
			return "must not import " + to
		}
	}
	first, _, _ := strings.Cut(to, "/")
	isStd := !strings.Contains(first, ".")
	if matches("internal/core/...", from) && (!isStd || !slices.Contains(pureStd, to)) {
		return "is pure and must not import " + to
	}
	return ""
}

// TestAllowedImports enforces the dependency direction that docs/ARCHITECTURE.md draws.
func TestAllowedImports(t *testing.T) {
	pkgs := listPackages(t)
	if len(pkgs) < 10 {
		t.Fatalf("only %d packages found: the listing is broken", len(pkgs))
	}
	for _, p := range pkgs {
		from := strings.TrimPrefix(p.ImportPath, "tidemark/")
		for _, to := range p.Imports {
			if fault := edgeFault(from, to); fault != "" {
				t.Errorf("%s %s", from, fault)
			}
		}
	}
}

// TestEdgeFaultFindsFaults shows that the check can fail.
func TestEdgeFaultFindsFaults(t *testing.T) {
	f := func(from, to string, wantFault bool) {
		t.Helper()
		if got := edgeFault(from, to); (got != "") != wantFault {
			t.Errorf("%s → %s: fault %q, want one: %v", from, to, got, wantFault)
		}
	}
	f("internal/core/epoch", "time", true)
	f("internal/core/epoch", "sync", true)
	f("internal/core/epoch", "tidemark/internal/core/types", false)
	f("internal/core/epoch", "tidemark/internal/log", true)
	f("internal/log", "tidemark/internal/batch", false)
	f("internal/log", "tidemark/internal/wire", true)
	f("internal/wire", "tidemark/internal/broker", true)
	f("internal/broker", "go.etcd.io/etcd/server/v3/embed", true)
	f("internal/metastore/embed", "go.etcd.io/etcd/server/v3/embed", false)
	f("internal/nowhere", "tidemark/internal/log", true)
	f("internal/broker/mirror", "crypto/rand", true)
	f("internal/broker/ids", "crypto/rand", false)
}

// systemsIDs are where the system's randomness may be asked for by name.
var systemsIDs = []string{
	"broker/broker.go", // a node that isn't simulated is given it
	"broker/inline.go",
	"broker/coordinator/coordinator.go",
}

// TestNodesDrawFromWhatTheyWereGiven: what a simulated node runs takes ids from the source that
// the node was given and never from the system, or a seed would not be one run (I-161).
func TestNodesDrawFromWhatTheyWereGiven(t *testing.T) {
	asked := 0
	err := filepath.WalkDir("broker", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if !drawsFromTheSystem(string(text)) {
			return err
		}
		asked++
		if !slices.Contains(systemsIDs, filepath.ToSlash(path)) {
			t.Errorf("%s asks the system for ids: a simulated node's come from its seed; use the node's own source (ids.Source)", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if asked != len(systemsIDs) {
		t.Errorf("%d files ask the system, %d are listed: take the others off the list", asked, len(systemsIDs))
	}
}

// drawsFromTheSystem reports whether a file names the system's source of ids.
func drawsFromTheSystem(text string) bool {
	return slices.ContainsFunc([]string{"ids.System", "ids.Fresh("}, func(name string) bool { return strings.Contains(text, name) })
}

func TestDrawsFromTheSystem(t *testing.T) {
	if !drawsFromTheSystem("id := ids.Fresh()") || !drawsFromTheSystem("f(ids.System)") || drawsFromTheSystem("b.fresh.Fresh()") {
		t.Error("the check sees the wrong files")
	}
}
