package clock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func TestRealWait(t *testing.T) {
	ch := make(chan struct{})
	close(ch)
	if got, err := Wait(t.Context(), Forever, ch); !got || err != nil {
		t.Fatalf("closed channel: %v, %v", got, err)
	}
	if got, err := Wait(t.Context(), time.Millisecond, nil); got || err != nil {
		t.Fatalf("time passed: %v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Wait(ctx, Forever, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("context ended: %v", err)
	}
}

func TestRealWaitAny(t *testing.T) {
	ready := make(chan struct{}, 1)
	ready <- struct{}{}
	if n, err := WaitAny(t.Context(), Forever, nil, make(chan struct{}), ready); n != 2 || err != nil {
		t.Fatalf("a channel with a token: %d, %v", n, err)
	}
	if n, err := WaitAny(t.Context(), time.Millisecond, ready); n != -1 || err != nil {
		t.Fatalf("time passed: %d, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := WaitAny(ctx, Forever, ready); n != -1 || !errors.Is(err, context.Canceled) {
		t.Fatalf("context ended: %d, %v", n, err)
	}
}

// fake is a clock whose time only moves by waiting.
type fake struct{ now time.Time }

func (f *fake) Now() time.Time { return f.now }
func (f *fake) Wait(_ context.Context, d time.Duration, _ <-chan struct{}) (bool, error) {
	f.now = f.now.Add(d)
	return false, nil
}
func (f *fake) WaitAny(_ context.Context, d time.Duration, _ ...<-chan struct{}) (int, error) {
	f.now = f.now.Add(d)
	return -1, nil
}
func (f *fake) Go(_ *sync.WaitGroup, g func()) { g() }
func (f *fake) Join(*sync.WaitGroup)           {}
func (f *fake) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func TestACarriedClockIsUsed(t *testing.T) {
	f := &fake{}
	ctx := With(t.Context(), f)
	ran := false
	var work sync.WaitGroup
	Go(ctx, &work, func() { ran = true })
	Join(ctx, &work)
	if err := Sleep(ctx, time.Hour); err != nil || Since(ctx, time.Time{}) != time.Hour || !ran {
		t.Fatalf("%v, %v, ran %v", err, Since(ctx, time.Time{}), ran)
	}
	if Of(t.Context()) != nil {
		t.Fatal("a plain context carries a clock")
	}
}
