package probe

import (
	"slices"
	"testing"
)

func TestCounts(t *testing.T) {
	p := New("test: a branch")
	if n, known := Counts()["test: a branch"]; n != 0 || !known {
		t.Fatalf("a fresh probe: %d, known %v", n, known)
	}
	p.Reached()
	p.Reached()
	if n := Counts()["test: a branch"]; n != 2 {
		t.Fatalf("reached twice, counted %d", n)
	}
	if !slices.Contains(Names(), "test: a branch") {
		t.Fatal("it isn't listed")
	}
}

func TestANameIsTakenOnce(t *testing.T) {
	New("test: another branch")
	defer func() {
		if recover() == nil {
			t.Fatal("two probes have one name")
		}
	}()
	New("test: another branch")
}
