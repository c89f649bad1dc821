package log

import (
	"testing"

	"tidemark/internal/core/types"
)

// The end of a log is its last batch; two logs of one history tell the same at one offset.
func TestTail(t *testing.T) {
	fs := memFS(t)
	l, _ := mustOpen(t, options(fs))
	f := func(at types.Offset, want types.Tail) {
		t.Helper()
		got, err := l.Tail(at)
		if err != nil {
			t.Fatal(err)
		}
		if want.Known {
			if got.Sum == 0 {
				t.Errorf("at %d: no checksum", at)
			}
			want.Sum = got.Sum
		}
		if got != want {
			t.Errorf("at %d: %+v, want %+v", at, got, want)
		}
	}
	f(0, types.Tail{})
	follow(t, l, spec{base: 0, epoch: 0, n: 3})
	follow(t, l, spec{base: 3, epoch: 2, n: 4})
	follow(t, l, spec{base: 7, epoch: 2, n: 1})
	f(8, types.Tail{Base: 7, Next: 8, Epoch: 2, EpochStart: 3, Known: true})
	f(7, types.Tail{Base: 3, Next: 7, Epoch: 2, EpochStart: 3, Known: true})
	f(5, types.Tail{Base: 3, Next: 7, Epoch: 2, EpochStart: 3, Known: true}) // it ends elsewhere
	f(3, types.Tail{Base: 0, Next: 3, Epoch: 0, EpochStart: types.NoOffset, Known: true})
	f(9, types.Tail{})
	one, _ := l.Tail(8)
	other, _ := l.Tail(7)
	if one.Sum == other.Sum {
		t.Error("two batches, one checksum")
	}
	if _, err := l.RaiseLogStart(7, true, CutReason{Cause: CauseLogStart}); err != nil {
		t.Fatal(err)
	}
	f(7, types.Tail{})
	f(8, types.Tail{Base: 7, Next: 8, Epoch: 2, EpochStart: types.NoOffset, Known: true}) // where the epoch began is gone
}

// What was compacted may differ where the histories don't.
func TestTailOfACompactedLog(t *testing.T) {
	l, _ := mustOpen(t, compactOptions(memFS(t)))
	fillForCompaction(t, l)
	end := l.View().LogEnd
	if got, err := l.Tail(end); err != nil || !got.Known {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := compactNow(l, 1_000_000); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Tail(end); err != nil || got.Known {
		t.Errorf("%+v, %v", got, err)
	}
}
