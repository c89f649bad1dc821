package await

import (
	"strings"
	"testing"
	"time"
)

// recorder is a test that may fail without failing this one.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = format
	panic(r)
}

func TestWaits(t *testing.T) {
	looks := 0
	True(t, "three looks", func() bool { looks++; return looks == 3 })
	if looks != 3 {
		t.Errorf("%d looks", looks)
	}
}

func TestGivesUp(t *testing.T) {
	r := &recorder{TB: t}
	defer func() {
		if recover() != r || !strings.Contains(r.failed, "not within") {
			t.Errorf("failed with %q", r.failed)
		}
	}()
	Within(r, 5*time.Millisecond, "never", func() bool { return false })
	t.Error("came back")
}
