//go:build linux

package switchboard

import (
	"maps"
	"strings"
	"testing"
)

// TestTwoNamesOfOneFile: a sync by one name of a file makes the other durable, a file made anew has a state of its own.
func TestTwoNamesOfOneFile(t *testing.T) {
	f := func(lines string, want map[string]int64) {
		t.Helper()
		got, err := syncedSizes(strings.NewReader(strings.ReplaceAll(lines, " ", "\t")))
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", lines, got, err, want)
		}
	}
	f("synced 0 log\nlinked log kept\nsynced 90 log\n", map[string]int64{"log": 90, "kept": 90})
	f("synced 0 log\nlinked log kept\nsynced 90 log\nremoved  log\nsynced 0 log\nsynced 5 log\n", map[string]int64{"log": 5, "kept": 90})
	f("synced 0 log\nlinked log t/kept\nrenamed t v\nsynced 90 log\n", map[string]int64{"log": 90, "v/kept": 90})
	f("linked log kept\nsynced 0 new\n", map[string]int64{"new": 0}) // durable as a whole
}
