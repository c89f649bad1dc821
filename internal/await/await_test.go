package await

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
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

func TestNoError(t *testing.T) {
	looks, wrong := 0, errors.New("not yet")
	NoError(t, patience, "three looks", func() error {
		if looks++; looks < 3 {
			return wrong
		}
		return nil
	})
	r := &recorder{TB: t}
	defer func() {
		if recover() != r || looks != 3 || !strings.Contains(r.failed, "not within") {
			t.Errorf("%d looks, failed with %q", looks, r.failed)
		}
	}()
	NoError(r, 5*time.Millisecond, "never", func() error { return wrong })
	t.Error("came back")
}

func TestLeaks(t *testing.T) {
	end, looks := make(chan struct{}), 0
	go func() { <-end }()
	err := leaks(patience, func() error {
		if looks++; looks == 3 {
			close(end) // what was closed ends a moment later
		}
		return goleak.Find(goleak.IgnoreAnyFunction("testing.(*M).startAlarm.func1"), goleak.IgnoreTopFunction("testing.(*T).Run"))
	})
	if err != nil || looks < 3 {
		t.Errorf("%d looks: %v", looks, err)
	}
	stays := make(chan struct{})
	defer close(stays)
	go func() { <-stays }()
	if err := leaks(5*time.Millisecond, func() error { return goleak.Find() }); err == nil || !strings.Contains(err.Error(), "TestLeaks") {
		t.Errorf("a goroutine that stays: %v", err)
	}
}
