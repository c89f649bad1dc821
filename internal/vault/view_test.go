package vault

import (
	"slices"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// viewOffsets gives the base offsets of what a view shows from an offset on, and checks every batch.
func viewOffsets(t testing.TB, v *Vault, from types.Offset, limit int) []types.Offset {
	t.Helper()
	data, err := v.ReadView("t", 0, from, limit, true)
	must(t, err)
	var out []types.Offset
	for it := batch.Iterate(data); it.Next(); {
		must(t, batch.VerifyCRC(it.Raw))
		out = append(out, it.Header.BaseOffset)
	}
	return out
}

// The view shows entries one behind the other; its offsets outlive a restart and a purge.
func TestView(t *testing.T) {
	fsys := vfs.NewMem()
	data := segments(t, fsys)
	v := openVault(t, options(fsys))
	told := 0
	defer v.OnChange(func() { told++ })()
	r := removal(t, fsys, data) // offsets 18 to 36
	first, err := v.Keep(r)
	must(t, err)
	r.Cause = log.CauseRestart // another removal of the same batches
	r.At++
	second, err := v.Keep(r)
	must(t, err)
	if first == second || told != 2 {
		t.Fatalf("entries %s and %s, told %d times", first, second, told)
	}
	f := func(v *Vault, start, end types.Offset) {
		t.Helper()
		if s, e := v.ViewRange("t", 0); s != start || e != end {
			t.Errorf("view from %d to %d, want %d to %d", s, e, start, end)
		}
	}
	f(v, 0, 36)
	want := []types.Offset{0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33}
	if got := viewOffsets(t, v, 0, 1<<20); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := viewOffsets(t, v, 16, 1<<20); !slices.Equal(got, want[5:]) {
		t.Errorf("from the middle of a batch: %v", got)
	}
	if got := viewOffsets(t, v, 4, 1); !slices.Equal(got, want[1:2]) {
		t.Errorf("one at least: %v", got)
	}
	if at, _, _, ok, err := v.ViewAt("t", 0, start+20); err != nil || !ok || at != 0 {
		t.Errorf("by time: %d, %v, %v", at, ok, err)
	}
	if at, _, _, ok, err := v.ViewAt("t", 0, start+21); err != nil || !ok || at != 3 {
		t.Errorf("by time: %d, %v, %v", at, ok, err)
	}
	must(t, v.Purge(first))
	f(v, 18, 36)
	v = openVault(t, options(fsys))
	f(v, 18, 36)
	if got := viewOffsets(t, v, 0, 1<<20); !slices.Equal(got, want[6:]) {
		t.Errorf("after a restart: %v", got)
	}
	must(t, v.Purge(second))
	v = openVault(t, options(fsys))
	f(v, 36, 36)
	r.At++
	_, err = v.Keep(r)
	must(t, err)
	f(v, 36, 54)
}
