// Package vectors loads the replication test vectors: facts about which numbers
// follow from which, as JSON, one file per schema.
//
// It serves tests only and knows the envelope, not the contents: each package
// declares the fields it reads and ignores the others. The files come from the
// folder that TIDEMARK_VECTORS names, from ../shared/vectors beside the
// repository, or from the copy in testdata/vectors; a test keeps the copy equal.
package vectors

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Env names the folder of the vectors, if set.
const Env = "TIDEMARK_VECTORS"

// Dir is the folder that holds the vectors.
func Dir(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(Env); dir != "" {
		return dir
	}
	if dir := sharedDir(); isDir(dir) {
		return dir
	}
	return copyDir()
}

// root is the repository: the nearest folder above the test's own with a go.mod.
func root() string {
	dir, err := os.Getwd()
	if err != nil {
		panic("vectors: no working directory: " + err.Error())
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			panic("vectors: no go.mod above " + dir)
		}
	}
}

func sharedDir() string { return filepath.Join(root(), "..", "shared", "vectors") }
func copyDir() string   { return filepath.Join(root(), "testdata", "vectors") }

func isDir(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir()
}

// envelope is what all files share.
type envelope[T any] struct {
	Schema  string `json:"schema"`
	Version int    `json:"version"`
	Vectors []T    `json:"vectors"`
}

// Load reads all vectors of one schema, for example "epoch_history". An empty
// file, another schema or another version fails the test.
func Load[T any](t testing.TB, schema string) []T {
	t.Helper()
	name := filepath.Join(Dir(t), schema+".json")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var e envelope[T]
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if e.Schema != schema || e.Version != 1 || len(e.Vectors) == 0 {
		t.Fatalf("%s: schema %q version %d with %d vectors", name, e.Schema, e.Version, len(e.Vectors))
	}
	return e.Vectors
}
