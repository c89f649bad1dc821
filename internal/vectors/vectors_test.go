package vectors

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// schemas and how many vectors each has at least: a file that shrank tests less.
var schemas = map[string]int{
	"checkpoint_file":     38,
	"epoch_history":       68,
	"isr_hw":              62,
	"mirror_lmle":         26,
	"producer_state":      21,
	"record_batch":        34,
	"truncation_on_fetch": 50,
}

func TestLoadEverySchema(t *testing.T) {
	for schema, least := range schemas {
		type vector struct {
			ID, Title string
		}
		got := Load[vector](t, schema)
		if len(got) < least {
			t.Errorf("%s: %d vectors, expected at least %d", schema, len(got), least)
		}
		seen := map[string]bool{}
		for _, v := range got {
			if v.ID == "" || v.Title == "" || seen[v.ID] {
				t.Errorf("%s: vector %q without id or title, or twice", schema, v.ID)
			}
			seen[v.ID] = true
		}
	}
}

// TestCopyIsCurrent keeps the repository's copy equal to the shared files.
func TestCopyIsCurrent(t *testing.T) {
	if !isDir(sharedDir()) {
		t.Skip("no shared vectors beside the repository")
	}
	for schema := range schemas {
		shared, err := os.ReadFile(filepath.Join(sharedDir(), schema+".json"))
		if err != nil {
			t.Fatal(err)
		}
		ours, err := os.ReadFile(filepath.Join(copyDir(), schema+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(shared, ours) {
			t.Errorf("testdata/vectors/%s.json differs from the shared file", schema)
		}
	}
}

func TestDirFollowsTheEnvironment(t *testing.T) {
	t.Setenv(Env, "/elsewhere")
	if got := Dir(t); got != "/elsewhere" {
		t.Fatal(got)
	}
}
